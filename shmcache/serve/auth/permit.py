"""The permission of a watch: an admission among the long requests, and a user that may still read.

PERMIT1  a watch is admitted before it begins, and gives its admission back when it ends.
PERMIT2  where clients need tokens, a watch's user is looked up again every RECHECK_SECONDS. A
         watch whose token or permission is gone ends with the 401 or 403 that a new request
         would get, within REVOKED_SECONDS.
PERMIT3  where the API server cannot be asked, the watch goes on for MISSES looks, then it ends:
         a failure of the review is not a permission.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Protocol

from shmcache.protocol import failures
from shmcache.serve.http.loop import Task

if TYPE_CHECKING:
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.loop import Timer
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.server import Server

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 30.0
REVOKED_SECONDS = 60.0
"""A revoked token ends its watches within: a look, an answer that is kept, a slow answer."""
MISSES = 4
JITTER = 0.1


class Lasting(Protocol):
    """A request that lasts: a watch, or a page that is open."""

    def finish(self) -> None:
        """Ends in order."""

    def fail(self, error: failures.Failure, /) -> None:
        """Ends with an error."""


class Permit:
    """The permission of one watch. A Failure (429) if none is free."""

    def __init__(self, server: Server, request: HttpRequest, connection: Connection) -> None:
        self._server = server
        self._request = request
        self._connection = connection
        self._watcher: Lasting | None = None
        self._timer: Timer | None = None
        self._task: Task | None = None
        self._misses = 0
        self._admission = server.lasting.enter(connection.holder, self._give_way)

    def _give_way(self) -> None:
        if self._watcher is not None:
            self._watcher.finish()

    def begin(self, watcher: Lasting) -> None:
        """The watch has begun."""
        self._watcher = watcher
        self._look_later()

    def leave(self) -> None:
        """The watch has ended, or never began. Idempotent."""
        self._admission.leave()
        self._watcher = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _look_later(self) -> None:
        if not self._server.access.open and self._watcher is not None:
            seconds = RECHECK_SECONDS * (1 - JITTER * random.random())
            self._timer = self._server.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._task = Task(self._ask(), self._answered)
        self._task.step()

    async def _ask(self) -> None:
        request, access = self._request, self._server.access
        user = await access.user(request, self._connection)
        if user.name != request.user.name:
            raise failures.unauthorized()
        request.user = user
        await access.check(request)

    def _answered(self, _value: Any, error: BaseException | None) -> None:
        watcher, self._task = self._watcher, None
        if watcher is None:
            return
        if error is None:
            self._misses = 0
        elif isinstance(error, failures.Failure) and error.code in {401, 403}:
            watcher.fail(error)
        else:
            self._misses += 1
            logger.warning("serve: cannot look up the user of a watch: %s", error)
            if self._misses >= MISSES:
                watcher.fail(
                    failures.stale(
                        "the API server cannot be reached to check whether this is allowed"
                    )
                )
        self._look_later()
