"""One process's part in a controller: its cache, queue, row on the board."""

from __future__ import annotations

import os

from shmcache.controllers.board import Board
from shmcache.controllers.tenure import Tenure
from shmcache.errors import ForkedError
from shmcache.queue.workqueue import WorkQueue
from shmcache.reader.cache import Cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.controllers.declaring import Controller


class Part:
    """The cache, queue, board and row that everything in a worker process shares."""

    def __init__(self, controller: Controller, cache: Cache) -> None:
        self.controller = controller
        self.cache = cache
        self.sources = controller.sources
        self.board = Board(cache.place, controller.name)
        self.mine = self.board.take_row(controller.concurrency)
        self.queue: WorkQueue = controller.queue(cache)
        self.stopping = False
        self.tenure = Tenure(self.board) if controller.shared else None
        """The permission of this machine, if a Lease decides about it."""
        self.pid = os.getpid()
        self.seen: dict[tuple[int, int], int] = {}
        """By row and bucket: up to when all deletions were seen."""
        self._written: list[str] = []

    def written_resources(self) -> list[tuple[str, int]]:
        """All resources that were written by anybody, and their numbers."""
        self._written = self.board.resources(self._written)
        return [(name, number) for number, name in enumerate(self._written)]

    def resource_of(self, number: int) -> str | None:
        """The cached resource of this number; None if it is not cached any more."""
        for name, found in self.written_resources():
            if found == number and name in self.cache:
                return name
        return None

    def check_fork(self) -> None:
        """ForkedError in a child of fork(): nothing here is its own, and the parent goes on."""
        if self.pid != os.getpid():
            raise ForkedError(
                f"a reconcile of {self.controller.name} forked: the parent goes on, not its child"
            )

    def close(self) -> None:
        """Leaves, in order."""
        self.queue.close()
        self.mine.leave()
        self.board.close()
