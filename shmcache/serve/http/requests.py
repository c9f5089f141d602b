"""One request as the rest of the server sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from shmcache.protocol import paths, validation
from shmcache.serve.http.heads import BadRequest

_KEPT = 1024
_KEPT_BYTES = 512
PARAMETERS = 64
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


class Address(NamedTuple):
    """The meaning of a method and a request target. Shared by requests: do not change it."""

    path: str
    query: Mapping[str, str]
    text: str
    """The query as it came."""
    sent: str
    """Path and query as they came."""
    target: paths.Target | None
    verb: str
    watch: bool


class User(NamedTuple):
    """The user that sends a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class HttpRequest:
    """A request without its body; `headers` have names in lower case."""

    __slots__ = ("address", "headers", "method", "path", "query", "target", "uri", "user",
                 "verb", "watch", "weight")  # fmt: skip

    def __init__(self, method: str, uri: str, headers: Mapping[str, str]) -> None:
        self.method = method
        self.uri = uri
        self.headers = headers
        self.user = ANONYMOUS
        self.weight = 0
        """Bytes that it keeps besides its head: what was read from its selectors."""
        self.address = address = address_of(method, uri)
        self.path, self.query, _, _, self.target, self.verb, self.watch = address


_kept: dict[tuple[str, str], Address] = {}


def address_of(method: str, uri: str) -> Address:
    """The meaning of a request's target. BadRequest where it has none."""
    found = _kept.get((method, uri))
    if found is None:
        found = _read(method, uri)
        if len(uri) <= _KEPT_BYTES:
            if len(_kept) >= _KEPT:
                _kept.clear()
            _kept[method, uri] = found
    return found


def _read(method: str, uri: str) -> Address:
    if not uri.startswith("/"):
        if uri == "*" and method == "OPTIONS":
            return Address("*", {}, "", "*", None, "options", False)
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise BadRequest(400, f"the request target is not a valid URL: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise BadRequest(400, "the request target is neither a path nor a URL")
        uri = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    path, _, text = uri.partition("?")
    if _NO_ESCAPE.search(path):
        raise BadRequest(400, "an invalid escape in the path")
    query = _parameters(text)
    sent = f"{path}?{text}" if text else path
    if method in {"GET", "HEAD"} and "/watch/" in path:
        path, query = paths.without_watch(path, query)
    target = paths.parse(path) if _plain(path) else None
    watch = validation.is_set(query.get("watch", "false"))
    verb = method.lower() if target is None else paths.verb(method, target, watch=watch)
    return Address(path, query, text, sent, target, verb, watch and verb == "watch")


def _parameters(text: str) -> dict[str, str]:
    """The first value of each parameter.

    A pair with a semicolon or an invalid escape is ignored, as the API server does it.
    """
    pairs = text.split("&")
    if len(pairs) > PARAMETERS:
        raise BadRequest(400, f"more than {PARAMETERS} parameters")
    found: dict[str, str] = {}
    for pair in pairs:
        if pair and ";" not in pair and not _NO_ESCAPE.search(pair):
            name, _, value = pair.replace("+", " ").partition("=")
            found.setdefault(unquote(name), unquote(value))
    return found


def _plain(path: str) -> bool:
    """Whether each part of a path is one name: no encoded slash, no dots, nothing unprintable."""
    if "//" in path:
        return False
    parts = [unquote(part) for part in path.split("/")]
    return all("/" not in part and part not in {".", ".."} and part.isprintable() for part in parts)
