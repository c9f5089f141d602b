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

What client-go's work queue promises holds over all processes: a key that is added twice is handed
out once; one that is being worked on is never handed to a second worker, and comes back after
done() if it was added meanwhile. Beyond that: a process that dies, wherever it was, gives its keys
back within a second. The queue is a file of its own beside the cache's; it does not notice when
the reflector is restarted.
"""

from __future__ import annotations

from shmcache.errors import ShmCacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shmcache.reader import Cache

INITIAL_PRIORITY = -100
"""Of the keys of a first list: what changes now goes before them."""


class QueueShutDown(ShmCacheError):
    """The queue was shut down and has no more keys, or stop() ended this process's part in it."""


class WorkQueue:
    """One process's part in a queue. Thread-safe. A child of fork() gets a part of its own."""

    def __init__(
        self,
        cache: Cache,
        name: str,
        *,
        slots: int = 65_536,
        workers: int = 128,
        deadline: float | None = None,
        base_delay: float = 0.005,
        max_delay: float = 1000.0,
        rate: float | None = 10.0,
        burst: int = 100,
    ) -> None:
        """`slots` and `workers` (keys and processes) count for who makes the queue, the rest here.

        `deadline`: seconds after which a key that get() gave out here goes to other hands though
        its worker lives; None: never. base_delay to burst: of add_rate_limited(); rate None: no
        bucket for all keys together.
        """
        raise NotImplementedError  # being built: what stands here is what it will be

    # ---- adding ----------------------------------------------------------------------------------

    def add(self, key: str, priority: int = 0, *, timeout: float | None = None) -> None:
        """The key is to be worked on: handed out once, however often it is added before that.

        A higher priority goes first; the higher of two is kept. Waits while the queue is full;
        BusyError after `timeout` seconds. Nothing happens after shut_down().
        """
        raise NotImplementedError

    def add_many(self, keys: Iterable[str], priority: int = 0) -> None:
        """add() for each."""
        raise NotImplementedError

    def add_after(self, key: str, seconds: float, priority: int = 0) -> None:
        """add() in so many seconds; of several times the earliest counts."""
        raise NotImplementedError

    def add_rate_limited(self, key: str, priority: int = 0) -> None:
        """add() after a wait that doubles with each time until forget(), as client-go's does."""
        raise NotImplementedError

    # ---- working ---------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> str | None:
        """The next key, which is ours until done(). None after `timeout` seconds; QueueShutDown."""
        raise NotImplementedError

    def done(self, key: str) -> None:
        """The work on a key that get() gave to this process is done, well or not."""
        raise NotImplementedError

    def forget(self, key: str) -> None:
        """The next add_rate_limited() of the key begins with the shortest wait again."""
        raise NotImplementedError

    def num_requeues(self, key: str) -> int:
        """How often add_rate_limited() was called for the key, in any process, since forget()."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Keys that wait to be handed out; neither those in progress nor those for later."""
        raise NotImplementedError

    # ---- the end ---------------------------------------------------------------------------------

    def shut_down(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """For all processes: nothing is added any more; what is queued is still handed out.

        With `drain`, returns when no key is in progress any more (False: not within `timeout`); a
        second shut_down() without it ends that wait. When the last process has left, the next one
        finds the queue open again.
        """
        raise NotImplementedError

    @property
    def shutting_down(self) -> bool:
        """Whether shut_down() was called, in whatever process."""
        raise NotImplementedError

    def stop(self) -> None:
        """This process takes no more keys: its get() raises QueueShutDown. The others go on."""
        raise NotImplementedError

    def close(self) -> None:
        """Leaves; keys in progress here are given back. Idempotent.

        The last one to leave an empty queue removes it.
        """
        raise NotImplementedError

    def stats(self) -> Mapping[str, int | float]:
        """Of all processes, since the queue was made: depth, delayed, in_progress, adds, ..."""
        raise NotImplementedError
