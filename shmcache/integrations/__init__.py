"""shmcache under the servers that people run: gunicorn, and whatever speaks ASGI.

    from shmcache.integrations import attached

    cache = attached()                # this process's one attachment, and full

A Cache that was full once goes on to the next instance only when that is full, too. So one that is
kept from the start of a process never shows a half of the truth; one that is attached while a
reflector lists may.
"""

from __future__ import annotations

import os
import time

import shmcache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 30.0
_TURN_SECONDS = 1.0

_caches: dict[str, shmcache.Cache] = {}
_asked: set[tuple[int, str]] = set()  # processes, and what they have waited for already


def attached(
    name: str | None = None,
    *,
    wait: float = WAIT_SECONDS,
    turn: Callable[[], object] | None = None,
) -> shmcache.Cache:
    """This process's attachment to the cache (or SHMCACHE_NAME's): the same one at each call.

    The first call of each process, forked ones included, waits up to `wait` seconds until the first
    list of every resource is stored. Meanwhile it calls `turn` about once a second. After a second
    it logs the reason for the wait. SegmentNotFound if no cache exists by then; a cache that is
    still incomplete is returned as it is (`pods.synced` is false).
    """
    name = name or os.environ.get("SHMCACHE_NAME", "")
    here = (os.getpid(), name)
    if here in _asked:
        found = _caches.get(name)
        return found if found is not None and not found.closed else _attach(name, 0.0)
    deadline = time.monotonic() + wait
    noted = False
    try:
        while not _is_full(name, min(_TURN_SECONDS, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                break
            if not noted:
                noted = True
                _note(name, wait)
            if turn is not None:
                turn()
    finally:
        _asked.add(here)
    return attached(name)


def _attach(name: str, timeout: float) -> shmcache.Cache:
    found = _caches[name] = shmcache.attach(name or None, timeout=timeout)
    return found


def _note(name: str, wait: float) -> None:
    """Logs the reason of a start that takes long: people see a server that does nothing."""
    import logging  # late: a worker that need not wait does without

    cache = _caches.get(name)
    logging.getLogger(__name__).warning(
        "cache %s: waiting for %s, %g s at most",
        name or "shmcache",
        "its first lists" if cache is not None else "its reflector, `shmcache run`",
        wait,
    )


def _is_full(name: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    try:
        cache = _caches.get(name)
        if cache is None or cache.closed:
            cache = _attach(name, seconds)
        return all(
            cache[resource].wait_synced(max(0.001, deadline - time.monotonic()))
            for resource in cache.resources
        )
    except shmcache.SegmentNotFound:  # no cache yet, or none any more in a forked child
        return False
