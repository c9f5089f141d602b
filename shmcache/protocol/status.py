"""Status: the API server's account of a failure, in the words that decide what to do next."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


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
            found: Any = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("kind") != "Status":
            return cls(code=code, message=body[:1000].decode(errors="replace").strip())
        details = found.get("details") or {}
        return cls(
            code=int(found.get("code") or code),
            reason=str(found.get("reason") or ""),
            message=str(found.get("message") or ""),
            causes=tuple(
                (str(cause.get("reason", "")), str(cause.get("message", "")))
                for cause in details.get("causes") or ()
            ),
            retry_after=details.get("retryAfterSeconds"),
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
