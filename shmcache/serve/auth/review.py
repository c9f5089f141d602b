"""Decisions delegated to the API server: TokenReview for identity, SubjectAccessReview for access.

Reviews are sent with the identity that this server was given for them (system:auth-delegator), by a
few threads of their own, so that a slow API server delays only requests that need a review.

    REVIEW1  requests that wait for the same answer cause one review, and an answer is kept for
             KEEP_SECONDS in both directions.
    REVIEW2  a peer can cause only a limited number of reviews of tokens that were never valid;
             further ones get 429. Tokens that were valid before, and what their users may do, are
             reviewed whatever others do: requests with other tokens wait in a line of their
             own, half as long, for threads of their own. Peers have their turns there, and users in
             the first line.
    REVIEW3  no answer of a review leads to another server: redirects are answers like any other.
    REVIEW4  a review takes SECONDS and ANSWER_BYTES at most, in whatever pieces its answer comes.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.errors import InvalidSelector
from shmcache.protocol import failures
from shmcache.protocol.jsontext import decoded
from shmcache.reader.selectors import FieldSelector
from shmcache.serve.auth.access import described, digest
from shmcache.serve.auth.allowance import Allowance
from shmcache.serve.auth.kept_answers import KeptAnswers, key_of
from shmcache.serve.auth.threads import Workers
from shmcache.serve.http.loop import Pending
from shmcache.serve.http.requests import HttpRequest, User
from shmcache.serve.http.shares import Shares
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.body import PATIENCE
from shmcache.source.client import Client
from shmcache.source.failures import garbage

if TYPE_CHECKING:
    from shmcache.protocol.paths import Target
    from shmcache.serve.http.loop import Loop
    from shmcache.source.client import ApiConnection

logger = logging.getLogger(__name__)

KEEP_SECONDS = 10.0
"""As kube-apiserver's own delegates."""
MOST, MOST_BYTES = 4096, 4 << 20
"""Answers that are kept."""
REFUSED = 1024
"""Refused tokens that are remembered."""
STRANGE_PER_SECOND, STRANGE_AT_ONCE = 5.0, 20.0
"""Reviews of unknown tokens that one peer may cause."""
CHECKS_PER_SECOND, CHECKS_AT_ONCE = 50.0, 500.0
"""Reviews of what one user may read."""
THREADS, STRANGE_THREADS = 4, 2
SECONDS = 10.0
ANSWER_BYTES = 4 << 20
NAME = "metadata.name"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_CUT = frozenset({FailureKind.ENDED, FailureKind.NETWORK})

Post = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Sends a document to a path of the API server, and returns its answer; may raise anything."""


class Review:
    """Sends reviews and remembers their results; requests waiting for the same one share it."""

    def __init__(
        self,
        loop: Loop,
        post: Post,
        *,
        keep_seconds: float = KEEP_SECONDS,
        most: int = 512,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post = post
        self._keep = keep_seconds
        self._users = _Line(Workers(loop, THREADS), Shares(most))
        self._strangers = _Line(Workers(loop, STRANGE_THREADS), Shares(max(most // 2, 1)))
        self._known = KeptAnswers(MOST, MOST_BYTES, clock)
        self._refused = KeptAnswers(REFUSED, MOST_BYTES, clock)
        """Results of unknown tokens: kept apart, so that they evict nothing else."""
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        """Tokens that were valid once: their reviews cost no allowance (REVIEW2)."""
        self._strange = Allowance(STRANGE_PER_SECOND, STRANGE_AT_ONCE, clock)
        self._checks = Allowance(CHECKS_PER_SECOND, CHECKS_AT_ONCE, clock)
        self._asked: dict[bytes, list[Pending[Any]]] = {}

    async def user(self, token: str, peer: str) -> User | None:
        """The user of a token; None if it is invalid. A Failure (503) if no review succeeds.

        `peer`: where the client is. A Failure (429) where it has tried too many unknown tokens.
        """
        hashed = digest(token)
        key = key_of("user", hashed)
        if hashed not in self._proven and not self._is_kept(key) and not self._strange.take(peer):
            raise failures.too_many_requests()
        body = {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"token": token},
        }
        line, holder = (self._users, hashed) if hashed in self._proven else (self._strangers, peer)
        found: User | None = await self._decided(
            key, lambda: _user(self._post(TOKENS, body)), line, holder
        )
        if found is not None:
            self._proven.pop(hashed, None)
            self._proven[hashed] = None
            while len(self._proven) > MOST:
                self._proven.popitem(last=False)
        return found

    def _is_kept(self, key: bytes) -> bool:
        """Whether an answer is here, or on its way."""
        return key in self._asked or self._kept(key) is not None

    def _kept(self, key: bytes) -> tuple[Any] | None:
        return self._known.get(key) or self._refused.get(key)

    async def check(self, request: HttpRequest) -> None:
        """A Failure (403) if the user may not do this; (503) if no review succeeds."""
        if request.target is None:
            return
        target, user = _meant(request, request.target), request.user
        attributes = {
            "verb": request.verb,
            "group": target.group,
            "version": target.version,
            "resource": target.resource,
            "subresource": target.subresource,
            "namespace": target.namespace,
            "name": target.name,
        }
        key = key_of("may", user, request.verb, target)
        if not self._is_kept(key) and not self._checks.take(user.name):
            raise failures.too_many_requests()
        body = {
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {**described(user), "resourceAttributes": attributes},
        }
        if not await self._decided(
            key, lambda: _allowed(self._post(ACCESS, body)), self._users, user.name
        ):
            raise failures.forbidden(
                user.name, request.verb, target.resource, target.group, target.namespace,
                name=target.name,
            )  # fmt: skip

    async def _decided(
        self, key: bytes, ask: Callable[[], Any], line: _Line, holder: Hashable
    ) -> Any:
        """The answer; a Failure (429) where too many requests wait for theirs already."""
        known = self._kept(key)
        if known is not None:
            return known[0]
        line.waiting.take(holder)
        try:
            return await self._answer_to(key, ask, line, holder)
        finally:
            line.waiting.give_back(holder)

    async def _answer_to(
        self, key: bytes, ask: Callable[[], Any], line: _Line, holder: Hashable
    ) -> Any:
        waiting = Pending[Any]()
        if key not in self._asked:
            self._asked[key] = []
            line.workers.run(
                ask, lambda value, error: self._answered(key, value, error), holder=holder
            )
        others = self._asked[key]
        others.append(waiting)
        try:
            return await waiting
        finally:
            if not waiting.done:
                others.remove(waiting)  # its client has gone

    def _answered(self, key: bytes, value: Any, error: BaseException | None) -> None:
        waiting = self._asked.pop(key)
        if error is not None:
            logger.error("serve: a review failed: %s", error)
            for one in waiting:
                text = "the API server cannot be reached to check whether this is allowed"
                one.fail(failures.stale(text))
            return
        self._known.drop(key)
        self._refused.drop(key)
        (self._refused if value is None else self._known).keep(key, value, self._keep)
        for one in waiting:
            one.give(value)

    def close(self) -> None:
        """Ends its threads."""
        self._users.workers.close()
        self._strangers.workers.close()


class _Line(NamedTuple):
    """Where requests wait for their reviews, and who sends these."""

    workers: Workers
    waiting: Shares


def _meant(request: HttpRequest, target: Target) -> Target:
    """The target of a request as the API server sees it when it authorizes the request.

    A namespace is in itself, and a list or watch of one name is about that object.
    """
    if target.resource == "namespaces" and not target.group and target.name:
        return target._replace(namespace=target.name)
    text = request.query.get("fieldSelector", "")
    if request.verb not in {"list", "watch"} or NAME not in text:
        return target
    try:
        name = FieldSelector.parse(text).exact(NAME) or ""
    except InvalidSelector:
        return target
    return target._replace(name=name) if _is_segment(name) else target


def _is_segment(name: str) -> bool:
    """Whether a name could be part of a path."""
    return name not in {".", ".."} and "/" not in name and "%" not in name


def _user(answer: dict[str, Any]) -> User | None:
    status = answer["status"]
    if status.get("authenticated") is not True:
        return None
    found = status["user"]
    extra = tuple((name, tuple(values)) for name, values in (found.get("extra") or {}).items())
    groups = tuple(found.get("groups") or ())
    return User(str(found["username"]), groups, str(found.get("uid") or ""), extra)


def _allowed(answer: dict[str, Any]) -> bool:
    status = answer["status"]
    return status.get("allowed") is True and not status.get("denied")


class Poster:
    """Posts documents to an API server, with our own credentials; from several threads."""

    def __init__(self, server: ApiConnection) -> None:
        self._server = server
        self._idle: deque[Client] = deque()

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The API server's answer to a document (REVIEW4). SourceFailed if none comes."""
        text, what = json.dumps(body).encode(), f"POST {path}"
        try:
            client, kept = self._idle.pop(), True
        except IndexError:
            client, kept = Client(self._server), False
        try:
            with client.within(SECONDS / PATIENCE, what):
                try:
                    answer = self._send(client, path, text)
                except SourceFailed as failed:
                    if not kept or failed.failure.kind not in _CUT:
                        raise
                    answer = self._send(client, path, text)  # its connection had ended meanwhile
        finally:
            self._idle.append(client)
        try:
            found = decoded(answer)
        except ValueError as error:
            raise garbage(what, f"not JSON: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("status"), dict):
            raise garbage(what, "not a review")
        return found

    @staticmethod
    def _send(client: Client, path: str, text: bytes) -> bytes:
        return client.send("POST", path, text, silence=SECONDS, most=ANSWER_BYTES)

    def close(self) -> None:
        """Closes the connections that are kept."""
        for client in self._idle:
            client.close()
