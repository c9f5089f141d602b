"""The work queue of a controller, shared by its processes: each key is with one worker at a time.

    queue = cache.queue("deployments.apps")

    key = queue.get()                    # any process, any thread
    try:
        reconcile(key)
        queue.forget(key)
    except Exception:
        queue.add_rate_limited(key)
    finally:
        queue.done(key)

The promises of client-go's work queue hold over all processes: a key that is added twice is handed
out once; one that is being worked on is never handed to a second worker, and comes back after
done() if it was added meanwhile. Beyond that: a process that dies, wherever it was, gives its keys
back within a second. The queue is a file of its own next to the cache's; it does not notice when
the reflector is restarted.
"""

from __future__ import annotations

import os
import time
from _thread import RLock

from shmcache import _native
from shmcache._native import check, ffi, lib, struct_values
from shmcache.errors import ClosedError, ForkedError, QueueShutDown
from shmcache.queue.queuefile import QueueFile
from shmcache.queue.queuepast import LOOK_SECONDS, RemovedFiles
from shmcache.reader import waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Self, TypedDict

    from shmcache import _hot
    from shmcache.memory.segments import Place

    Fed = tuple[int, int, int, bool]
    """DATA instance, position in its ring, rebuilds of the queue, whether all was added since."""

    class QueueOptions(TypedDict, total=False):
        """The keyword arguments of WorkQueue."""

        slots: int
        workers: int
        deadline: float | None
        base_delay: float
        max_delay: float
        rate: float | None
        burst: int
        keep: bool


__all__ = ["INITIAL_PRIORITY", "QueueShutDown", "WorkQueue"]

INITIAL_PRIORITY = -100
"""Of the keys of a first list, as in controller-runtime: what changes now goes before them."""
_NS = 1_000_000_000
_FOREVER_NS = 1 << 62
_HUB_SECONDS = 0.02  # where a thread that sleeps would stop all greenlets
_TIMES = ("queue_ns", "work_ns", "unfinished_ns", "longest_ns", "oldest_ns")


class WorkQueue:
    """One process's part in a queue. Thread-safe. A child of fork() gets a part of its own.

    Where gevent or eventlet has patched threads, get() does not stop the hub.
    """

    def __init__(
        self,
        place: Place,
        name: str,
        *,
        slots: int = 4_194_304,
        workers: int = 128,
        deadline: float | None = None,
        base_delay: float = 0.005,
        max_delay: float = 1000.0,
        rate: float | None = 10.0,
        burst: int = 100,
        keep: bool = False,
    ) -> None:
        """`slots` and `workers` bound the keys and processes of a queue that does not exist yet.

        Memory grows with the keys in the queue, and is given back. The other settings are those of
        this process. `deadline`: seconds after which a key that get() gave out here goes to other
        hands though its worker lives; None: never. base_delay to burst: of add_rate_limited(); rate
        None: no bucket for all keys together. `keep`: an empty queue stays as long as its cache,
        and with it how far its feeders came.
        """
        self.name = name
        self._place = place
        self._settings = (slots, 0, workers)
        token = 0.0 if rate is None else 1 / rate
        self._limits = (_ns(base_delay), _ns(max_delay), _ns(token), burst)
        self._deadline = _ns(deadline or 0)
        self._keep = keep
        self._locks: dict[int, RLock] = {}
        self._stopped = False
        self._past = RemovedFiles()
        self._file, self._hot = self._open()

    def _open(self) -> tuple[QueueFile, _hot.Queue]:
        file = QueueFile(self._place, self.name, self._settings)
        file.keep = self._keep
        hot = file.hot()
        handle = file.use()
        lib.shmc_queue_limits(handle, *self._limits)
        lib.shmc_queue_keep(handle, self._deadline)
        file.leave()
        return file, hot

    def _reopen(self) -> _hot.Queue:
        """In a child of fork(): a seat of its own. Nothing that the parent held is held here."""
        with self._locks.setdefault(os.getpid(), RLock()):
            if self._hot.forked:
                self._past = RemovedFiles()
                self._file, self._hot = self._open()
                self._stopped = False
            return self._hot

    def _look(self) -> None:
        """Goes over to the file that has the name, if ours has lost it."""
        if not self._hot.forked and not self._hot.closed:
            self._file, self._hot = self._past.look((self._file, self._hot), self._open_again)

    def _open_again(self) -> tuple[QueueFile, _hot.Queue]:
        file, hot = self._open()
        if self._stopped:
            lib.shmc_queue_stop(file.use())
            file.leave()
        return file, hot

    def _use(self) -> AbstractContextManager[object]:
        if self._hot.forked:
            self._reopen()
        if self._hot.closed:
            raise ClosedError(f"queue {self.name!r} is closed")
        return _Use(self._file)

    # ---- adding ---------------------------------------------------------------------------------

    def add(self, key: str, priority: int | None = 0, *, timeout: float | None = None) -> None:
        """The key is to be worked on: handed out once, however often it is added before that.

        A higher priority goes first; the higher of two is kept. None: that of the key now. Eight
        priorities may be in use; of further ones the nearest counts. Waits while the queue is full
        (a worker that adds other keys sets a time limit: it may have to make room itself);
        BusyError after `timeout` seconds. Nothing happens after shut_down().
        """
        if time.monotonic() >= self._past.next_look:  # due(), without a call: somebody may sleep
            self._look()
        try:
            self._hot.add(key, priority, timeout)
        except ForkedError:
            self._reopen().add(key, priority, timeout)

    def add_many(self, keys: Iterable[str], priority: int = 0) -> None:
        """add() for each."""
        if self._hot.forked:
            self._reopen()
        self._look()
        self._hot.add_many(keys, priority)

    def add_after(
        self,
        key: str,
        seconds: float,
        priority: int | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """add() in so many seconds; of several times the earliest counts.

        A key that is handed out before loses its delay, and one that waits gets none. Without
        `priority`: that with which it was handed out.
        """
        try:
            self._hot.add_after(key, seconds, priority, timeout)
        except ForkedError:
            self._reopen().add_after(key, seconds, priority, timeout)

    def add_rate_limited(
        self, key: str, priority: int | None = None, *, timeout: float | None = None
    ) -> None:
        """add_after() with a wait that doubles each time until forget(), as client-go's does."""
        try:
            self._hot.add_rate_limited(key, priority, timeout)
        except ForkedError:
            self._reopen().add_rate_limited(key, priority, timeout)

    # ---- working --------------------------------------------------------------------------------

    def get(self, timeout: float | None = None, *, deadline: float = 0) -> str | None:
        """The next key, which is ours until done(). None after `timeout` seconds; QueueShutDown.

        `deadline`: seconds until it goes to other hands though we live; 0: as the queue says.
        """
        if waiting.cooperative() is not None:
            return self._get_on_hub(timeout, deadline)
        long = timeout is None or timeout > LOOK_SECONDS
        try:
            key = self._hot.get(LOOK_SECONDS if long else timeout, deadline)
        except ForkedError:
            return self._reopen().get(timeout, deadline)
        if key is not None:
            return key
        if long or self._past.due():
            self._look()
        return self._get_on(timeout, deadline) if long else None

    def _get_on(self, timeout: float | None, deadline: float) -> str | None:
        """get() after its first second: looks whether the file still has its name."""
        end = None if timeout is None else time.monotonic() + timeout - LOOK_SECONDS
        while True:
            left = LOOK_SECONDS if end is None else min(LOOK_SECONDS, end - time.monotonic())
            key = self._hot.get(max(left, 0.0), deadline)
            if key is not None or left < LOOK_SECONDS:
                return key
            self._look()

    def _get_on_hub(self, timeout: float | None, deadline: float) -> str | None:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._hot.forked:
                self._reopen()
            if self._past.due():
                self._look()
            key = self._hot.get(0, deadline)
            left = _HUB_SECONDS if end is None else end - time.monotonic()
            if key is not None or left <= 0:
                return key
            time.sleep(min(left, _HUB_SECONDS))

    def done(self, key: str) -> None:
        """The work on a key that get() gave to this process is done, well or not."""
        try:
            self._hot.done(key)
        except ForkedError:
            return  # it is the parent's
        self._past.done(key)

    def forget(self, key: str) -> None:
        """The next add_rate_limited() of the key begins with the shortest wait again."""
        try:
            self._hot.forget(key)
        except ForkedError:
            self._reopen().forget(key)

    def num_requeues(self, key: str) -> int:
        """How often add_rate_limited() was called for the key, in any process, since forget()."""
        try:
            return self._hot.num_requeues(key)
        except ForkedError:
            return self._reopen().num_requeues(key)

    def __len__(self) -> int:
        """Keys that wait to be handed out; neither those in progress nor those for later."""
        if self._hot.forked:
            self._reopen()
        return len(self._hot)

    def __bool__(self) -> bool:
        return True  # a queue without keys is a queue

    def __iter__(self) -> Iterator[str]:
        """get() until QueueShutDown; the worker calls done()."""
        while True:
            try:
                key = self.get()
            except QueueShutDown:
                return
            if key is not None:
                yield key

    # ---- the end --------------------------------------------------------------------------------

    def shut_down(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """For all processes: nothing is added any more; queued keys are still handed out.

        With `drain`, returns when no key is in progress any more (False: not within `timeout`); a
        second shut_down() without it ends that wait. When the last process has left, the next one
        finds the queue open again, with the keys that were left and those for later; its feeder
        adds everything once more, since adds were ignored meanwhile.
        """
        with self._use() as handle:
            lib.shmc_queue_shut_down(handle, drain)
            if not drain:
                return True
            end = _FOREVER_NS if timeout is None else time.monotonic_ns() + _ns(timeout)
            while True:
                status = lib.shmc_queue_drained(handle, end)
                if status == _native.OK:
                    return True
                if status == _native.TIMEOUT:
                    return False
                if status not in (_native.EMPTY, _native.INTERRUPTED):
                    check(status, f"draining queue {self.name!r}")

    @property
    def shutting_down(self) -> bool:
        """Whether shut_down() was called, in whatever process."""
        with self._use() as handle:
            return bool(lib.shmc_queue_shutting_down(handle))

    def stop(self) -> None:
        """This process takes no more keys: its get() raises QueueShutDown. The others go on."""
        with self._use() as handle:
            self._stopped = True
            lib.shmc_queue_stop(handle)

    @property
    def stopped(self) -> bool:
        """Whether stop() was called in this process."""
        return self._stopped

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._hot.closed

    def close(self) -> None:
        """Leaves; keys in progress here are given back. Idempotent.

        The last one to leave an empty queue removes it.
        """
        self._past.close()
        self._hot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for its feeder --------------------------------------------------------------------------

    def feed_begin(self) -> bool:
        """Whether this process feeds from now on, until feed_end(): at most one does."""
        with self._use() as handle:
            status = lib.shmc_queue_feed_begin(handle)
        if status not in (_native.OK, _native.BUSY):
            check(status, f"feeding queue {self.name!r}")
        return bool(status == _native.OK)

    def feed_end(self) -> None:
        """Another process may feed."""
        with self._use() as handle:
            lib.shmc_queue_feed_end(handle)

    def fed(self, resource: str) -> Fed:
        """How far the feeders came in a resource."""
        name, found = resource.encode(), ffi.new("struct shmc_queue_fed *")
        with self._use() as handle:
            lib.shmc_queue_cursor(handle, name, len(name), found)
        return int(found.instance), int(found.position), int(found.rebuilds), bool(found.whole)

    def store_fed(self, resource: str, fed: Fed) -> None:
        """The keys of all deltas before this position were added. FencedError: others feed now."""
        name = resource.encode()
        stored = ffi.new("struct shmc_queue_fed *", fed)
        with self._use() as handle:
            status = lib.shmc_queue_store_cursor(handle, name, len(name), stored)
        check(status, f"feeding queue {self.name!r}")

    def add_known(self, priority: int = 0) -> None:
        """add() for every key that the queue remembers, idle ones too."""
        with self._use() as handle:
            status = lib.shmc_queue_add_known(handle, priority)
        if status != _native.CLOSED:
            check(status, f"adding to queue {self.name!r}")

    # ---- for others -----------------------------------------------------------------------------

    def tend(self) -> None:
        """Looks after dead workers' keys, if it is time to. get() does so, too."""
        if self._past.due():
            self._look()
        with self._use() as handle:
            lib.shmc_queue_sweep(handle, time.monotonic_ns())

    def stats(self) -> dict[str, int | float]:
        """Of all processes, since the queue was made: depth, delayed, in_progress, adds, ...

        queue_seconds and work_seconds are sums over `gets` and `dones`; unfinished_seconds and
        longest_seconds are of the keys in progress now.
        """
        with self._use() as handle:
            found = ffi.new("struct shmc_queue_stats *")
            lib.shmc_queue_stats(handle, found)
        stats: dict[str, int | float] = struct_values(found)
        for name in _TIMES:
            stats[name[:-2] + "seconds"] = stats.pop(name) / _NS
        return stats

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} keys"
        return f"<shmcache.WorkQueue {self.name!r}: {state}>"


class _Use:
    """The handle, for the length of a with block."""

    __slots__ = ("_file",)

    def __init__(self, file: QueueFile) -> None:
        self._file = file

    def __enter__(self) -> object:
        return self._file.use()

    def __exit__(self, *_: object) -> None:
        self._file.leave()


def _ns(seconds: float) -> int:
    return min(max(round(seconds * _NS), 0), _FOREVER_NS // 2)
