"""Status: the API server's account of a failure, in the terms that decide what to do next.

STATUS1  a field of another type than Kubernetes gives it is read as missing: not every server that
    answers is an API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shmcache.protocol.jsontext import decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """A Status object, or a substitute where the server sent none (`reason` is empty)."""

    code: int
    reason: str = ""
    message: str = ""
    causes: tuple[tuple[str, str], ...] = field(default=())
    """(reason, message) of each cause."""
    retry_after: int | None = None

    @classmethod
    def parse(cls, code: int, body: bytes) -> ServerStatus:
        """Of an HTTP error with this code, or of an ERROR event (code 0: the body knows)."""
        try:
            found: Any = decoded(body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("kind") != "Status":
            return cls(code=code, message=body[:1000].decode(errors="replace").strip())
        details = found.get("details")
        details = details if isinstance(details, dict) else {}
        causes = details.get("causes")
        return cls(
            code=_number(found.get("code")) or code,
            reason=_text(found.get("reason")),
            message=_text(found.get("message")),
            causes=tuple(
                (_text(cause.get("reason")), _text(cause.get("message")))
                for cause in (causes if isinstance(causes, list) else ())
                if isinstance(cause, dict)
            ),
            retry_after=_number(details.get("retryAfterSeconds")),
        )

    @property
    def is_internal(self) -> bool:
        """The server failed inside; the same request may succeed in a moment."""
        return self.reason == "InternalError"

    @property
    def is_expired(self) -> bool:
        """The version (or the continue token) is older than what the server remembers."""
        return self.code == 410 or self.reason in {"Expired", "Gone"}

    @property
    def is_too_large(self) -> bool:
        """The version is ahead of the server, in one of its three spellings (R-RF-04)."""
        if any(reason == "ResourceVersionTooLarge" for reason, _ in self.causes):
            return True
        if self.reason != "Timeout":
            return False
        texts = [self.message, *(message for _, message in self.causes)]
        return any("Too large resource version" in text for text in texts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    """An int32, as far as it is not negative."""
    return value if type(value) is int and 0 <= value < 1 << 31 else None
