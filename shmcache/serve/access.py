"""Who asks, and whether he may: tokens of a file, or reviews by the API server.

A1  Without tokens or reviews everybody may read, and the server listens where only this host's
    processes reach it. Then a browser on this host is the danger: a request must name a host
    that is ours (a page whose name was made to point here does not), and must not come from
    another page (Origin).
A2  With tokens or reviews nothing but health is answered to who has no valid token.
A3  A review that fails, whatever the reason, allows nothing. What it said is kept for a few
    seconds, in both directions; tokens are kept as digests alone.
A4  Who asks to be taken for somebody else (Impersonate-*) is answered nothing from the cache,
    whoever he is: whether he may is for the API server to say.
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
from shmcache.serve import websocket
from shmcache.serve.heads import IMPERSONATE
from shmcache.serve.requests import ANONYMOUS, Request, User

if TYPE_CHECKING:
    from shmcache.serve.review import Review

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
LOOK_SECONDS = 5.0
AUTHENTICATED = "system:authenticated"


class Tokens:
    """A file of lines `token,user,uid,"group1,group2"`, as kube-apiserver's; read anew if changed.

    A file that cannot be read any more, or makes no sense, leaves the tokens as they were.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = (0, 0, 0)
        self._looked = 0.0
        self._users: dict[bytes, User] = {}
        self._read()

    def find(self, token: str) -> User | None:
        """Whose token it is. How long it takes says nothing about the tokens there are."""
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
                users = dict(_user_of(row, self._path) for row in csv.reader(file) if row)
        except (OSError, ValueError) as error:
            raise SourceError(f"tokens {self._path}: {error}") from error
        self._users, self._stamp = users, stamp


def _user_of(row: list[str], path: str) -> tuple[bytes, User]:
    if len(row) < 2 or not row[0].strip() or not row[1].strip():
        raise SourceError(f'tokens {path}: a line is token,user[,uid[,"group1,group2"]]')
    uid = row[2].strip() if len(row) > 2 else ""
    groups = tuple(one.strip() for one in row[3].split(",") if one.strip()) if len(row) > 3 else ()
    return digest(row[0].strip()), User(row[1].strip(), (*groups, AUTHENTICATED), uid)


def digest(token: str) -> bytes:
    """Under which a token is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Access:
    """Asked for each request."""

    def __init__(
        self,
        *,
        tokens: Tokens | None = None,
        review: Review | None = None,
        hosts: Iterable[str] | None = LOCAL,
    ) -> None:
        """`hosts`: what a request may call us if it needs no token; None is anything."""
        self._tokens = tokens
        self._review = review
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.open = tokens is None and review is None
        """Whether nobody needs a token."""

    async def user(self, request: Request) -> User:
        """Who sends it; a Failure (401, 403) for who may ask nothing at all."""
        if not self.open and request.path in HEALTH and not impersonates(request.headers):
            return ANONYMOUS
        found = self.known(request.headers, impersonating=True)
        if found is None and self._review is not None:
            found = await self._review.user(_token(request.headers))
        if found is None:
            raise failures.unauthorized()
        return found

    def known(self, headers: Mapping[str, str], *, impersonating: bool = False) -> User | None:
        """Who sends a request with these headers, if nobody has to be asked; may raise Failure.

        `impersonating`: also who is shown nothing from the cache (A4).
        """
        if IMPERSONATE in headers and not impersonating:
            return None
        if self.open:
            self._check_page(headers)
            return ANONYMOUS
        token = _token(headers)
        return self._tokens.find(token) if self._tokens is not None else None

    @property
    def reviewed(self) -> bool:
        """Whether each request is asked about."""
        return self._review is not None

    async def check(self, request: Request) -> None:
        """A Failure (403) where the request's user may not do this with the request's target."""
        if self._review is not None:
            await self._review.check(request)

    def close(self) -> None:
        """Nobody asks any more. Idempotent."""
        if self._review is not None:
            self._review.close()

    def _check_page(self, headers: Mapping[str, str]) -> None:
        """Rule A1."""
        if self._hosts is None:
            return
        host = _host(headers.get("host", ""))
        if host and host not in self._hosts:
            raise _strange(f"this server is not called {host!r} (see --allow-host)")
        origin = headers.get("origin")
        if origin is not None and _host(origin.partition("://")[2]) not in self._hosts:
            raise _strange(f"a page of {origin!r} may not ask this server")


def impersonates(headers: Mapping[str, str]) -> bool:
    """Whether who sends them asks to be taken for somebody else."""
    return IMPERSONATE in headers


def impersonation() -> failures.Failure:
    """403: rule A4."""
    return _strange(
        "this server answers from a cache and takes nobody for somebody else: leave the "
        "Impersonate- headers (--as) out, or ask the API server itself"
    )


def _token(headers: Mapping[str, str]) -> str:
    """A Failure (401) where there is none."""
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
    """Without its port."""
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
