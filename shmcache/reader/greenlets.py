"""Sleeping in processes that gevent or eventlet has patched: a greenlet sleeps, its hub does not.

A thread of the core waits and writes an eventfd; the greenlet waits for that as for a socket. It is
used where the package has patched threads, since then our own threads are greenlets.
"""

from __future__ import annotations

import sys

from shmcache.reader.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache import _hot
    from shmcache.reader.waiting import Wanted

    AwaitReadable = Callable[[int, float | None], None]
    Sleep = Callable[[_hot.Reader, Wanted, int, float | None], None]


def sleeping() -> Sleep | None:
    """waiting.sleep()'s way to sleep here; None where threads are threads."""
    wait = _gevent() or _eventlet()
    if wait is None:
        return None

    def sleep(reader: _hot.Reader, wanted: Wanted, wakes: int, timeout: float | None) -> None:
        _sleep(wait, reader, wanted, wakes, timeout)

    return sleep


def _gevent() -> AwaitReadable | None:
    if "gevent.monkey" not in sys.modules:
        return None
    from gevent import monkey, socket
    from gevent import timeout as timeouts

    if not monkey.is_module_patched("threading"):
        return None

    def wait(fd: int, seconds: float | None) -> None:
        try:
            socket.wait_read(fd, timeout=seconds, timeout_exc=timeouts.Timeout(seconds))
        except timeouts.Timeout:
            pass

    return wait


def _eventlet() -> AwaitReadable | None:
    if "eventlet.patcher" not in sys.modules:
        return None
    from eventlet import hubs, patcher, timeout

    if not patcher.is_monkey_patched("thread"):
        return None

    def wait(fd: int, seconds: float | None) -> None:
        try:
            hubs.trampoline(fd, read=True, timeout=seconds, timeout_exc=timeout.Timeout)
        except timeout.Timeout:
            pass

    return wait


def _sleep(
    wait: AwaitReadable, reader: _hot.Reader, wanted: Wanted, wakes: int, timeout: float | None
) -> None:
    with Relay(reader, wanted, wakes) as relay:
        wait(relay.fd, timeout)
