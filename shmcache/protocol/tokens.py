"""Continue tokens: where the next page begins, and of which version the list is."""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

from shmcache.protocol import failures

FORMAT = "meta.k8s.io/v1"
SIGNED = 1 << 63
LATEST = -1
"""The version of a token that replaces an expired one: go on with the objects of now."""


class Token(NamedTuple):
    """`start` is the first key that may follow, relative to the list's scope."""

    version: int
    start: str
    state: str = ""
    """Names the state of the list where a version is not exact enough."""


def encode(version: int, last_key: str, state: str = "", *, cached: bool = True) -> str:
    """The token of a list whose page ended with this key.

    Keys of a watch cache begin with a slash, keys of etcd (not `cached`) do not.
    """
    slash = "/" if cached and version != LATEST else ""
    body = {"v": FORMAT, "rv": version, "start": f"{slash}{last_key}\0"}
    if state:
        body["state"] = state
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


DIGITS = 200
"""Of a number in a token."""
_DEEPEST = (
    10_000  # of the API server's decoder; Python's is less before 3.14, and more from then on
)


def decode(token: str) -> Token:
    """The content of a token; a Failure (400) for any other text."""
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        text = base64.urlsafe_b64decode(padded)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _invalid("illegal base64 data") from error
    if text.count(b"[") + text.count(b"{") > _DEEPEST:
        raise _invalid("exceeded max depth")
    try:
        body = json.loads(text, parse_int=_number)
    except ValueError as error:
        raise _invalid(_complaint(text)) from error
    except RecursionError as error:
        raise _invalid("exceeded max depth") from error
    if not isinstance(body, dict) or body.get("v") != FORMAT:
        raise _invalid("server does not recognize this encoded version")
    version, start = _version(body.get("rv")), body.get("start")
    if not isinstance(start, str) or version == 0:
        raise _invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    shown = start.encode("utf-8", "replace").decode()  # a lone surrogate is not text
    if shown != start or any(part in {".", ".."} for part in start.split("/")):
        raise _invalid(f"invalid start key: {shown}")
    state = body.get("state")
    return Token(version, start.removeprefix("/"), state if isinstance(state, str) else "")


def _number(text: str) -> int:
    """The time for a long number grows with the square of its digits."""
    if len(text) > DIGITS:
        raise ValueError(text)
    return int(text)


def _version(found: object) -> int:
    """A version of a token: a number of 64 bits with its sign."""
    if isinstance(found, bool) or not isinstance(found, int):
        return 0
    if not -SIGNED <= found < SIGNED:
        field = "Go struct field continueToken.rv of type int64"
        raise _invalid(f"json: cannot unmarshal number {found} into {field}")
    return found


def _complaint(text: bytes) -> str:
    """Go's error for JSON that does not begin like any."""
    if not text:
        return "unexpected end of JSON input"
    return f"invalid character {chr(text[0])!r} looking for beginning of value"


def _invalid(why: str) -> failures.Failure:
    return failures.bad_request(f"invalid continue token: continue key is not valid: {why}")
