"""Turning what happens in a cache into keys of a queue: one process at a time does it.

    feeder = Feeder(cache, queue, [("deployments.apps", by_key), ("pods", by_owner)])
    feeder.run(stop)        # in a thread of each worker: one of them feeds, the others sleep

Who holds the feeder's lock (the kernel drops it at death) follows the ring, adds the keys of each
delta, and then stores how far it came, in the queue: its successor goes on from there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from shmcache.queue import WorkQueue
    from shmcache.reader import Cache

    KeysOf = Callable[["Event"], Iterable[str]]


class Event:
    """What happened to an object. `kind`: ADDED, MODIFIED or DELETED.

    old and new are as handlers are given them: None where there is none, a Tombstone for what
    cannot be had any more.
    """

    __slots__ = ("initial", "key", "kind", "new", "old", "resource")

    def __init__(
        self, resource: str, kind: str, key: str, old: Any, new: Any, *, initial: bool = False
    ) -> None:
        self.resource = resource
        self.kind = kind
        self.key = key
        self.old = old
        self.new = new
        self.initial = initial


class Feeder:
    """Feeds one queue. run() in every worker process; exactly one of them feeds at a time."""

    def __init__(
        self, cache: Cache, queue: WorkQueue, sources: Sequence[tuple[str, KeysOf]]
    ) -> None:
        raise NotImplementedError  # being built: what stands here is what it will be

    @property
    def feeding(self) -> bool:
        """Whether this process is the one that feeds."""
        raise NotImplementedError

    def run(self, stop: threading.Event) -> None:
        """Until stop() or `stop` is set: waits for the lock, feeds, takes over from the dead."""
        raise NotImplementedError

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Until the first content of all sources is in the queue, whoever put it there."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends run(), from any thread."""
        raise NotImplementedError
