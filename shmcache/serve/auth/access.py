"""Authentication and authorization: tokens from a file, or reviews by the API server.

ACCESS1  Without tokens or reviews the users of this host who may read the cache's file may read;
    strangers (neighbours.py) get 403 for everything but health. A browser of such a user
    remains a danger: a request must name a host that is ours (a page whose name was made to point
    here does not), and must not come from another page (Origin). Only --open-to-all admits all.
ACCESS2  With tokens or reviews nothing but health is answered to a client without a valid token.
ACCESS3  A review that fails, whatever the reason, allows nothing. A result is kept for a few
    seconds, whether it allows or denies; tokens are kept as digests alone.
ACCESS4  A request that impersonates another user (Impersonate-*) is never answered from the cache:
    only the API server can decide whether it is allowed.
"""

from __future__ import annotations

import csv
import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shmcache.errors import SourceError
from shmcache.protocol import failures
from shmcache.reasons import reason_of
from shmcache.serve.http import websocket
from shmcache.serve.http.heads import IMPERSONATE
from shmcache.serve.http.requests import ANONYMOUS, HttpRequest, User

if TYPE_CHECKING:
    from shmcache.serve.auth.review import Review
    from shmcache.serve.http.connection import Connection

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
LOOK_SECONDS = 5.0
AUTHENTICATED = "system:authenticated"


class Tokens:
    """A file of lines `token,user,uid,"group1,group2"`, as kube-apiserver's; reread if it changed.

    A file that cannot be read any more, or makes no sense, leaves the tokens as they were.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = (0, 0, 0)
        self._looked = 0.0
        self._users: dict[bytes, User] = {}
        self._read()

    def find(self, token: str) -> User | None:
        """The user of a token. The time that this takes reveals nothing about existing tokens."""
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._looked = now
            try:
                self._read()
            except SourceError:
                pass
        return self._users.get(digest(token))

    def _read(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return
            with open(self._path, encoding="utf-8", newline="") as file:
                users = dict(
                    _user_of(row, self._path) for row in csv.reader(file, strict=True) if row
                )
        except (OSError, ValueError, csv.Error) as error:
            raise SourceError(f"--tokens {self._path}: {reason_of(error)}") from error
        self._users, self._stamp = users, stamp


def _user_of(row: list[str], path: str) -> tuple[bytes, User]:
    if len(row) < 2 or not row[0].strip() or not row[1].strip():
        raise SourceError(f'--tokens {path}: each line must be token,user[,uid[,"group1,group2"]]')
    uid = row[2].strip() if len(row) > 2 else ""
    groups = tuple(one.strip() for one in row[3].split(",") if one.strip()) if len(row) > 3 else ()
    return digest(row[0].strip()), User(row[1].strip(), (*groups, AUTHENTICATED), uid)


def digest(token: str) -> bytes:
    """The digest under which a token is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Access:
    """Checks each request."""

    def __init__(
        self,
        *,
        tokens: Tokens | None = None,
        review: Review | None = None,
        hosts: Iterable[str] | None = LOCAL,
    ) -> None:
        """`hosts`: the names that a request without a token may use for us; None: any."""
        self._tokens = tokens
        self._review = review
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.open = tokens is None and review is None
        """Whether requests need no token."""

    async def user(self, request: HttpRequest, connection: Connection) -> User:
        """The user that sends it; a Failure (401, 403) if no request at all is allowed."""
        closed = not self.open or connection.stranger
        if closed and request.path in HEALTH and not impersonates(request.headers):
            return ANONYMOUS
        if connection.stranger:
            raise _strange(
                "this cache is not readable for your user: see --tokens and --open-to-all"
            )
        found = self.known(request.headers, impersonating=True)
        if found is None and self._review is not None:
            found = await self._review.user(_token(request.headers), connection.peer)
        if found is None:
            raise failures.unauthorized()
        return found

    def known(self, headers: Mapping[str, str], *, impersonating: bool = False) -> User | None:
        """The user that sends these headers, if no review is needed; may raise Failure.

        `impersonating`: accept requests that impersonate another user, too (ACCESS4).
        """
        if IMPERSONATE in headers and not impersonating:
            return None
        if self.open:
            if websocket.offers_token(headers) and not websocket.token(headers):
                raise failures.unauthorized()
            self._check_page(headers)
            return ANONYMOUS
        token = _token(headers)
        return self._tokens.find(token) if self._tokens is not None else None

    def proof(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The part of an accepted request's headers that later looks at its user need."""
        return {} if self.open else {"authorization": f"Bearer {_token(headers)}"}

    @property
    def reviewed(self) -> bool:
        """Whether each request needs a review."""
        return self._review is not None

    async def check(self, request: HttpRequest) -> None:
        """A Failure (403) if the request's user may not do this with the request's target."""
        if self._review is not None:
            await self._review.check(request)

    def close(self) -> None:
        """Ends the threads of reviews. Idempotent."""
        if self._review is not None:
            self._review.close()

    def _check_page(self, headers: Mapping[str, str]) -> None:
        """Enforces ACCESS1."""
        if self._hosts is None:
            return
        host = _host(headers.get("host", ""))
        if host and host not in self._hosts:
            raise _strange(f"this server is not called {host!r} (see --allow-host)")
        origin = headers.get("origin")
        if origin is not None and _host(origin.partition("://")[2]) not in self._hosts:
            raise _strange(f"a page of {origin!r} may not send requests to this server")


def impersonates(headers: Mapping[str, str]) -> bool:
    """Whether the request impersonates another user."""
    return IMPERSONATE in headers


def impersonation() -> failures.Failure:
    """403: rule ACCESS4."""
    return _strange(
        "this server answers from a cache and takes nobody for somebody else: leave the "
        "Impersonate- headers (--as) out, or ask the API server itself"
    )


def _token(headers: Mapping[str, str]) -> str:
    """The bearer token; a Failure (401) if it is missing."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    if not scheme and websocket.wanted(headers):
        scheme, token = "bearer", websocket.token(headers)
    if scheme.lower() != "bearer" or not token:
        raise failures.unauthorized()
    return token


def _strange(text: str) -> failures.Failure:
    return failures.Failure(403, "Forbidden", text, details={})


def _host(text: str) -> str:
    """The host without its port."""
    if text.startswith("["):
        return text[1:].partition("]")[0].lower()
    return text.partition(":")[0].lower()


def described(user: User) -> dict[str, Any]:
    """A user as reviews have it."""
    return {
        "user": user.name,
        "groups": list(user.groups),
        "uid": user.uid,
        "extra": {name: list(values) for name, values in user.extra},
    }
