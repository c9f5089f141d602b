"""Sleeping until something was published: the one place where a reader's thread waits.

Nothing polls. A thread sleeps on its seat's word, and the writer wakes only those who wait for what
it published: objects and states (`interest`), or states and versions (`progress`). A signal's
handler runs at once, and its exception propagates.
"""

from __future__ import annotations

import sys
import time

from shmcache import _native
from shmcache._native import lib
from shmcache.errors import ClosedError
from shmcache.reader.holding import attachment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from shmcache import _hot
    from shmcache.reader.greenlets import Sleep
    from shmcache.reader.succession import Succession

    Wanted = tuple[int, int, int]
    """Interest, progress, and the generation since which."""

EVERYTHING = (1 << 64) - 1  # interest in all resources


def bits(resources: Iterable[int]) -> int:
    """The interest in these resources."""
    found = 0
    for number in resources:
        found |= 1 << (number & 63)
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
    hub = cooperative()
    called = calls(reader)
    deadline = 0.0 if timeout is None else time.monotonic() + timeout
    while True:
        if hub is None:
            found = reader.wait(interest, progress, since, timeout, unless)
        else:
            found = _on_hub(hub, reader, (interest, progress, since), timeout, unless)
        if found is None:
            return elsewhere(reader, timeout, unless)
        if timeout is not None:
            timeout = deadline - time.monotonic()
        over = timeout is not None and timeout <= 0
        if found or over or calls(reader) != called or _ended(reader, unless):
            return found


def calls(reader: _hot.Reader) -> int:
    """How often Cache.wake() was called. Other rings are for those who are to end alone."""
    owner: Any = reader.owner
    return 0 if owner is None else int(owner.called)


def cooperative() -> Sleep | None:
    """How to sleep in a process that gevent or eventlet has patched: without stopping its hub."""
    if "gevent" not in sys.modules and "eventlet" not in sys.modules:
        return None
    from shmcache.reader import greenlets as hubs

    return hubs.sleeping()


def _on_hub(
    hub: Sleep,
    reader: _hot.Reader,
    wanted: Wanted,
    timeout: float | None,
    unless: Callable[[], bool] | None,
) -> bool | None:
    """Reader.wait() of a greenlet."""
    held = attachment(reader)
    handle = held.use()
    try:
        wakes = lib.shmc_reader_wakes(handle)
        if lib.shmc_reader_over(handle):
            return None
        if not _ended(reader, unless) and (timeout is None or timeout > 0):
            hub(reader, wanted, wakes, timeout)
        status = lib.shmc_wait_progress(handle, *wanted, 0)
        if reader.closed:
            raise ClosedError(f"cache {held.name!r} was closed while a greenlet waited")
        return None if lib.shmc_reader_over(handle) else status == _native.OK
    finally:
        held.leave()


def elsewhere(
    reader: _hot.Reader, timeout: float | None, unless: Callable[[], bool] | None = None
) -> bool:
    """Goes on when the reader's own wait() is None: its instance is over, or it cannot be used."""
    held = attachment(reader)
    held.use()
    try:
        succession: Succession = held.succession
        moved = succession.wait(reader, timeout, lambda: _ended(reader, unless))
        if reader.closed:
            raise ClosedError(f"cache {held.name!r} is closed")
        return moved
    finally:
        held.leave()


def _ended(reader: _hot.Reader, unless: Callable[[], bool] | None) -> bool:
    return reader.closed or (unless is not None and unless())


def check_seconds(name: str, seconds: object) -> None:
    """A TypeError that names the cure for something that is not a number of seconds."""
    if not (seconds is None or hasattr(seconds, "__float__")):  # NumPy's numbers, too
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")


def until(
    fact: Callable[[], bool],
    where: Callable[[], tuple[_hot.Reader, int, int]],
    timeout: float | None,
) -> bool:
    """Sleeps until a fact about the latest generation holds; whether it did in time.

    `where()` is the reader to sleep on, interest and progress: others after a writer's restart.
    """
    check_seconds("timeout", timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        reader, interest, progress = where()
        since = reader.latest  # later publications end the sleep
        if fact():
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not sleep(reader, interest, progress, since, left):
            return fact()
