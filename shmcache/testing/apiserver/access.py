"""Users and their rights: bearer tokens, and denials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shmcache.protocol import failures
from shmcache.testing.apiserver.requests import ApiRequest

ANONYMOUS = "system:anonymous"
ANY = "*"


class Authorizer:
    """Without tokens everybody may do everything; with tokens, the users that have one."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        """Token -> user."""
        self.identities: dict[str, dict[str, Any]] = {}
        """User -> uid, groups and extra, as reviews tell them."""
        self.reviews: list[dict[str, Any]] = []
        """Kind and spec of each review so far."""
        self._denied: set[tuple[str, str, str]] = set()

    def deny(self, user: str = ANY, verb: str = ANY, resource: str = ANY) -> None:
        """Refuses (403) these from now on; watches that are open go on, as on the real server."""
        self._denied.add((user, verb, resource))

    def allow(self, user: str = ANY, verb: str = ANY, resource: str = ANY) -> None:
        """Takes a denial of the same rule back."""
        self._denied.discard((user, verb, resource))

    def user(self, headers: Mapping[str, str]) -> str:
        """The user that sends these headers; a Failure (401) for an unknown token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.tokens:
            return ANONYMOUS
        if token.strip() not in self.tokens:
            raise failures.unauthorized()
        return self.tokens[token.strip()]

    def check(self, user: str, request: ApiRequest) -> None:
        """A Failure (403) where the user may not do this."""
        target = request.target
        assert target is not None
        nobody = user == ANONYMOUS and self.tokens
        if nobody or self._is_denied(user, request.verb, request.resource):
            raise failures.forbidden(
                user, request.verb, target.resource, target.group, target.namespace,
                name=target.name,
            )  # fmt: skip

    def denies(self, subjects: Iterable[str], verb: str, resource: str) -> bool:
        """Whether a user or any of its groups ("group:..." of deny()) is refused this."""
        return any(self._is_denied(one, verb, resource) for one in subjects)

    def _is_denied(self, user: str, verb: str, resource: str) -> bool:
        return any(
            (a, b, c) in self._denied
            for a in (user, ANY)
            for b in (verb, ANY)
            for c in (resource, ANY)
        )
