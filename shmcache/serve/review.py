"""Delegated decisions: TokenReview says who, SubjectAccessReview whether; the API server decides.

Reviews are asked with the identity that this server was given for it (system:auth-delegator), by a
few threads of their own, so that a slow API server delays only who needs a review.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from shmcache.errors import InvalidSelector
from shmcache.protocol import failures
from shmcache.selectors import FieldSelector
from shmcache.serve.access import described, digest
from shmcache.serve.loop import Pending
from shmcache.serve.requests import Request, User
from shmcache.serve.workers import Workers

if TYPE_CHECKING:
    from shmcache.protocol.paths import Target
    from shmcache.serve.loop import Loop

logger = logging.getLogger(__name__)

KEEP_SECONDS = 10.0
"""As kube-apiserver's own delegates."""
MOST = 4096
THREADS = 4
NAME = "metadata.name"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

Post = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Sends a document to a path of the API server, and returns its answer; may raise anything."""


class Review:
    """Asks, remembers for a while, and asks once for all who wait for the same."""

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
        self._clock = clock
        self._keep = keep_seconds
        self._most = most
        self._workers = Workers(loop, THREADS)
        self._known: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._asked: dict[Hashable, list[Pending[Any]]] = {}

    async def user(self, token: str) -> User | None:
        """Whose token it is; None for nobody's. A Failure (503) if nobody can say."""
        key = ("user", digest(token))
        body = {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"token": token},
        }
        found: User | None = await self._decided(key, lambda: _user(self._post(TOKENS, body)))
        return found

    async def check(self, request: Request) -> None:
        """A Failure (403) where the user may not do this; (503) if nobody can say."""
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
        key = ("may", user, request.verb, target)
        body = {
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {**described(user), "resourceAttributes": attributes},
        }
        if not await self._decided(key, lambda: _allowed(self._post(ACCESS, body))):
            raise failures.forbidden(
                user.name, request.verb, target.resource, target.group, target.namespace,
                name=target.name,
            )  # fmt: skip

    async def _decided(self, key: Hashable, ask: Callable[[], Any]) -> Any:
        known = self._known.get(key)
        if known is not None and known[0] > self._clock():
            return known[1]
        if sum(map(len, self._asked.values())) >= self._most:
            raise failures.too_many_requests()
        waiting = Pending[Any]()
        others = self._asked.setdefault(key, [])
        others.append(waiting)
        if len(others) == 1:
            self._workers.run(ask, lambda value, error: self._answered(key, value, error))
        return await waiting

    def _answered(self, key: Hashable, value: Any, error: BaseException | None) -> None:
        waiting = self._asked.pop(key)
        if error is not None:
            logger.error("serve: a review cannot be had: %s", error)
            for one in waiting:
                text = "the API server cannot be asked whether this is allowed"
                one.fail(failures.stale(text))
            return
        self._known.pop(key, None)
        self._known[key] = (self._clock() + self._keep, value)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        for one in waiting:
            one.give(value)

    def close(self) -> None:
        """Ends its threads."""
        self._workers.close()


def _meant(request: Request, target: Target) -> Target:
    """What the API server takes a request to be about, when it asks whether it is allowed.

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
    """Whether a name could stand in a path."""
    return name not in {".", ".."} and "/" not in name and "%" not in name


def _user(answer: dict[str, Any]) -> User | None:
    status = answer["status"]
    if not status.get("authenticated"):
        return None
    found = status["user"]
    extra = tuple((name, tuple(values)) for name, values in (found.get("extra") or {}).items())
    groups = tuple(found.get("groups") or ())
    return User(str(found["username"]), groups, str(found.get("uid") or ""), extra)


def _allowed(answer: dict[str, Any]) -> bool:
    status = answer["status"]
    return status.get("allowed") is True and not status.get("denied")


class Poster:
    """Posts to a source.client.Server, with its credentials; from several threads."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._pools: list[tuple[Any, Any]] = []
        """The credentials in force, and the connections that were made with them."""

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a document; raises where there is none."""
        text = json.dumps(body).encode()
        access = self._server.access()
        answer = self._send(access, path, text)
        if answer.status == 401:
            answer = self._send(self._server.renewed(access), path, text)
        if answer.status not in {200, 201}:
            raise OSError(f"POST {path}: HTTP {answer.status}: {answer.data[:200]!r}")
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def _send(self, access: Any, path: str, text: bytes) -> Any:
        from urllib3 import HTTPHeaderDict
        from urllib3.exceptions import ProtocolError

        headers = HTTPHeaderDict({"Content-Type": "application/json"})
        headers.extend(access.headers())
        pool, url = self._pool_of(access), access.url + path
        try:
            return pool.request("POST", url, body=text, headers=headers)
        except ProtocolError:  # of a kept connection that has ended meanwhile
            return pool.request("POST", url, body=text, headers=headers)

    def _pool_of(self, access: Any) -> Any:
        for known, pool in self._pools:
            if known is access:
                return pool
        made = _pool(access)
        self._pools = [(access, made)]
        return made

    def close(self) -> None:
        """Closes the connections that are kept."""
        for _, pool in self._pools:
            pool.clear()


def _pool(access: Any) -> Any:
    import urllib3

    options: dict[str, Any] = {"maxsize": THREADS, "retries": False, "timeout": 10.0}
    if access.tls is not None:
        options["ssl_context"] = access.tls
        if access.server_name:
            options |= {"server_hostname": access.server_name,
                        "assert_hostname": access.server_name}  # fmt: skip
    if access.proxy:
        return urllib3.ProxyManager(access.proxy, **options)
    return urllib3.PoolManager(**options)
