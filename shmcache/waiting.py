"""Sleeping until something was published: the one place where a reader's thread waits.

Nothing polls. A thread sleeps on its seat's word, and the writer wakes only those who wait for what
it published: objects and states (`interest`), or states and versions (`progress`). A signal's
handler runs at once, and its exception propagates.
"""

from __future__ import annotations

import time

from shmcache import _native
from shmcache._native import check, lib
from shmcache.errors import ClosedError, ForkedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from shmcache import _hot
    from shmcache.succession import Succession

EVERYTHING = (1 << 64) - 1  # interest in all resources


def bits(resources: Iterable[int]) -> int:
    """The interest in these resources."""
    found = 0
    for number in resources:
        found |= 1 << (number & 63)
    return found


def attachment(reader: _hot.Reader) -> Any:
    """What keeps the reader's handle: use() gives it, leave() is due then."""
    found: Any = reader.owner
    name = found.name if found is not None else ""
    if reader.forked:
        raise ForkedError(f"cache {name!r} was attached by the parent process: attach again here")
    if found is None or reader.closed:
        raise ClosedError(f"cache {name!r} is closed")
    return found


def sleep(
    reader: _hot.Reader,
    interest: int,
    progress: int,
    since: int,
    timeout: float | None,
    *,
    unless: Callable[[], bool] | None = None,
) -> bool:
    """Until a generation after `since` brought something waited for; False if the time is over.

    Does not begin if `unless()`; who makes that true and then wakes us, ends the sleep in any case.
    """
    held = attachment(reader)
    handle = held.use()
    try:
        reader.release()  # a sleeper should pin nothing
        left = -1 if timeout is None else max(0, int(timeout * 1e9))
        deadline = time.monotonic_ns() + left
        wakes = lib.shmc_reader_wakes(handle)
        while not reader.closed and (unless is None or not unless()):
            status = lib.shmc_wait_unless(handle, interest, progress, since, wakes, left)
            if reader.closed:
                raise ClosedError(f"cache {held.name!r} was closed while a thread waited")
            if status == _native.OVER:
                succession: Succession = held.succession
                moved = succession.wait(reader, timeout, lambda: _ended(reader, unless))
                if not _ended(reader, None):
                    return moved
                break
            if status in (_native.OK, _native.TIMEOUT):
                return bool(status == _native.OK)
            if status != _native.INTERRUPTED:
                check(status, "waiting")
            if timeout is not None:  # a signal's handler has run by now
                left = max(0, deadline - time.monotonic_ns())
        if reader.closed:
            raise ClosedError(f"cache {held.name!r} is closed")
        return False
    finally:
        held.leave()


def _ended(reader: _hot.Reader, unless: Callable[[], bool] | None) -> bool:
    return reader.closed or (unless is not None and unless())


def until(
    fact: Callable[[], bool],
    where: Callable[[], tuple[_hot.Reader, int, int]],
    timeout: float | None,
) -> bool:
    """Sleeps until a fact about the latest generation holds; whether it did in time.

    `where()` is the reader to sleep on, interest and progress: others after a writer's restart.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        reader, interest, progress = where()
        since = reader.latest  # what is published from here on ends the sleep
        if fact():
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not sleep(reader, interest, progress, since, left):
            return fact()
