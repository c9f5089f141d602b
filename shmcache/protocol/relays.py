"""Headers between relays and their clients: a relay is `shmcache serve` in front of other caches.

    RELAYED1  each answer of lists and watches names the version that the relay had when it began,
        and its lag: the seconds since its own server was last heard. A server that
        states any lag is a relay; a lag that makes no sense counts as the worst.
    RELAYED2  a client may name the version that it has reached: a relay that has not waits for it
        a moment, and then refuses as the API server refuses a version from the future (504).

API servers neither send these headers nor heed them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shmcache.protocol.versions import is_version

VERSION_HEADER = "X-Shmcache-Version"
LAG_HEADER = "X-Shmcache-Lag"
REACHED_HEADER = "X-Shmcache-Reached"
"""Of a request."""


WORST_LAG = 86_400.0
"""Seconds. No lag counts as a longer one."""


class RelayStatement(NamedTuple):
    """Version and lag of a relay."""

    version: str
    lag: float


def stated(headers: Mapping[str, str]) -> RelayStatement | None:
    """The statement in an answer's headers; None of an API server."""
    lag, version = headers.get(LAG_HEADER), headers.get(VERSION_HEADER, "")
    if lag is None:
        return None
    try:
        seconds = float(lag)
    except ValueError:
        seconds = WORST_LAG
    seconds = max(seconds, 0.0) if seconds < WORST_LAG else WORST_LAG  # also for NaN
    return RelayStatement(version, seconds)


def lines(*, lag: float | None, version: str = "") -> bytes:
    """The headers of an answer, each with its CRLF.

    A server may send any text as its version; other texts than versions are left out.
    """
    found = b"" if lag is None else f"{LAG_HEADER}: {lag:.3f}\r\n".encode()
    return found + (f"{VERSION_HEADER}: {version}\r\n".encode() if is_version(version) else b"")


def reached(headers: Mapping[str, str]) -> int:
    """The version that a client has reached, by its request; 0 if it names none."""
    text = headers.get(REACHED_HEADER.lower(), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 200 else 0
