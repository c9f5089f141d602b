"""Standing by: waiting for the writer's lock of a cache that another process keeps.

The kernel drops the lock when its holder ends, however it ends; a holder that is only stopped keeps
it. Where the lock's file was replaced meanwhile, Place.take_lock() finds the new one.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from shmcache.engine.notify import notify
from shmcache.errors import BusyError

if TYPE_CHECKING:
    from shmcache.memory.segments import Place

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  # a system call or two each; a thread blocked in the kernel could not be ended


def stand_by(place: Place, drain: threading.Event, *, wait: bool) -> int | None:
    """The descriptor that holds the writer's lock; None if the drain begins first.

    BusyError at once if somebody has it and we are not to wait.
    """
    since = time.monotonic()
    said = ""
    while not drain.is_set():
        try:
            fd = place.take_lock()
        except BusyError as error:
            if not wait:
                raise
            if str(error) != said:  # or another one was faster than we
                said = str(error)
                logger.info("standing by: %s", said)
                notify("READY=1", f"STATUS=standing by: {said}")
            drain.wait(LOOK_SECONDS)
        else:
            if said:
                waited = time.monotonic() - since
                logger.info("taking over cache %s after %.1f s of standing by", place.name, waited)
                notify(f"STATUS=taking over cache {place.name}")
            return fd
    return None
