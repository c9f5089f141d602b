"""Failures of requests, made from exceptions and from HTTP answers.

Only the kind decides what is done next, so it is found in one place: here.
"""

from __future__ import annotations

import http.client
import ssl
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Protocol

import urllib3.connection
import urllib3.exceptions

from shmcache.errors import SourceError
from shmcache.protocol.status import ServerStatus
from shmcache.reasons import reason_of
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure


class Cuttable(Protocol):
    """Knows whether we ended the connection ourselves."""

    @property
    def is_cut(self) -> bool:
        """Whether cut() was called."""


_KINDS: tuple[tuple[FailureKind, tuple[type[BaseException], ...]], ...] = (
    (FailureKind.REFUSED, (ConnectionRefusedError,)),
    (FailureKind.NETWORK, (urllib3.exceptions.ConnectTimeoutError,)),  # nothing was asked yet
    (FailureKind.SILENT, (urllib3.exceptions.ReadTimeoutError, TimeoutError)),
    (FailureKind.ENDED, (http.client.RemoteDisconnected, ssl.SSLEOFError)),
    (FailureKind.NETWORK, (OSError, SourceError)),
    (FailureKind.GARBAGE, (http.client.HTTPException, zlib.error)),
    (FailureKind.NETWORK, (urllib3.exceptions.HTTPError,)),
)
"""The first row that fits anything in the chain of causes decides."""


@contextmanager
def as_failures(line: Cuttable, what: str) -> Iterator[None]:
    """Turns exceptions of the network, TLS and decoders into SourceFailed."""
    try:
        yield
    except SourceFailed as failed:
        if line.is_cut:  # that it ended is what we did
            raise cancelled(what) from failed
        raise
    except (
        urllib3.exceptions.HTTPError,
        http.client.HTTPException,
        zlib.error,
        OSError,
        ValueError,
        SourceError,
    ) as error:
        raise SourceFailed(failure_of(error, what, cut=line.is_cut)) from error


def failure_of(error: Exception, what: str, *, cut: bool = False) -> SourceFailure:
    """The Failure that an exception stands for; `what` was being done."""
    if cut:
        return SourceFailure(FailureKind.CANCELLED, f"{what}: cancelled")
    chain = _chain(error)
    return SourceFailure(_kind(chain), f"{what}: {_message(chain)}")


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what it came from, outermost first."""
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:
        chain.append(found)
        inner = [part for part in found.args if isinstance(part, BaseException)]
        found = inner[0] if inner else found.__cause__ or found.__context__
    return chain


def _kind(chain: list[BaseException]) -> FailureKind:
    root = chain[-1]
    if isinstance(root, http.client.BadStatusLine) and not str(root.args[0]).endswith("\n"):
        return FailureKind.ENDED  # in its first line
    for kind, classes in _KINDS:
        if any(isinstance(error, classes) for error in chain):
            return kind
    return FailureKind.GARBAGE


def _message(chain: list[BaseException]) -> str:
    """The text for people: our own text, or the innermost cause without a library's names."""
    for error in chain:
        if isinstance(error, SourceError):
            return str(error)
    root = chain[-1]
    if isinstance(root, TimeoutError | urllib3.exceptions.TimeoutError):
        return f"timed out{_unreached(chain)}"
    return f"{reason_of(root)}{_unreached(chain)}"


def _unreached(chain: list[BaseException]) -> str:
    """The address, if no connection to it was made: a kubeconfig may name another server."""
    for error in chain:
        if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
            found = getattr(error, "conn", error.args[0] if error.args else None)
            if isinstance(found, urllib3.connection.HTTPConnection):
                host = f"[{found.host}]" if ":" in found.host else found.host
                return f" ({host}:{found.port})"
    return ""


def http_failure(
    code: int, headers: Mapping[str, str], body: bytes, *, what: str, now: float
) -> SourceFailure:
    """Of an HTTP answer other than success.

    A date in Retry-After is compared with the server's own clock, if the answer has its time, and
    else with `now`, the wall clock here.
    """
    status = ServerStatus.parse(code, body)
    theirs = _moment(headers.get("Date", ""))
    retry_after = parse_retry_after(
        headers.get("Retry-After"), now=now if theirs is None else theirs
    )
    if retry_after is None and status.retry_after is not None:
        retry_after = float(status.retry_after)
    message = status.message or status.reason or http.client.responses.get(code, "")
    return SourceFailure(FailureKind.HTTP, f"{what}: HTTP {code}: {message}", status, retry_after)


def parse_retry_after(text: str | None, *, now: float) -> float | None:
    """Seconds to wait, of both forms of the header; None if it is missing or invalid."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    moment = _moment(text)
    return None if moment is None else max(0.0, moment - now)


def _moment(text: str) -> float | None:
    """Seconds since the epoch of an HTTP date; None if it is invalid."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def ended_early(what: str) -> SourceFailed:
    """The connection ended in the middle of an answer."""
    return SourceFailed(
        SourceFailure(
            FailureKind.ENDED, f"{what}: the connection ended in the middle of the answer"
        )
    )


def overdue(what: str, seconds: float) -> SourceFailed:
    """The answer came byte by byte, and for too long."""
    text = f"{what}: the answer is not whole after {seconds:.0f} s"
    return SourceFailed(SourceFailure(FailureKind.SILENT, text))


def too_slow(what: str, size: int, seconds: float, *, is_watch: bool) -> SourceFailed:
    """Bytes come, but too few of them, or they make no event."""
    came = "no event" if is_watch else "the answer comes too slowly:"
    text = f"{what}: {came} {'in ' if is_watch else ''}{size} bytes in {seconds:.0f} s"
    return SourceFailed(SourceFailure(FailureKind.SILENT, text))


def garbage(what: str, why: str) -> SourceFailed:
    """The answer is not what the protocol allows."""
    return SourceFailed(SourceFailure(FailureKind.GARBAGE, f"{what}: {why}"))


def cancelled(what: str) -> SourceFailed:
    """We ended it."""
    return SourceFailed(SourceFailure(FailureKind.CANCELLED, f"{what}: cancelled"))
