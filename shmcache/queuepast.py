"""A queue whose file was removed under its processes: each goes over to the one that has the name.

Every process looks once a second while it waits for keys, tends or adds. What stands in the old
file is taken along by whoever sees it: a key is taken from the old file, added to the new one,
and done in the old one. So a key is lost only with its adder; who dies in between gives it back.

What a worker has in hand it ends in the old file. Until then the new one does not know of it: a key
that is added there meanwhile may be handed out beside it. Keys for later come when they are due.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from shmcache.errors import QueueShutDown, ShmCacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache import _hot
    from shmcache.queuefile import QueueFile

    Part = tuple[QueueFile, _hot.Queue]

LOOK_SECONDS = 1.0


class Past:
    """The files that this process has left, until nothing is left in them."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._pid = os.getpid()
        self._turn = allocate_lock()
        self.next_look = time.monotonic() + LOOK_SECONDS
        self._said = ""

    def due(self) -> bool:
        """Whether it is time to look."""
        return time.monotonic() >= self.next_look

    def look(self, part: Part, reopen: Callable[[], Part]) -> Part:
        """The part to use from now on: another one if the file of this one has lost its name."""
        if self._pid != os.getpid() or not self._turn.acquire(blocking=False):
            return part  # a parent's past is none of ours; or another thread does it
        try:
            self.next_look = time.monotonic() + LOOK_SECONDS
            if not part[0].named():
                part = self._move(part, reopen)
            for old in list(self._parts):
                self._bring(old, part[1])
        finally:
            self._turn.release()
        return part

    def _move(self, part: Part, reopen: Callable[[], Part]) -> Part:
        try:
            new = reopen()
        except (ShmCacheError, OSError) as error:
            self._say(f"{part[0].file} was removed, and cannot be made anew yet: {error}")
            return part
        self._say(f"{part[0].file} was removed: its keys go over to the one that is there now")
        self._parts.append(part)
        return new

    def _say(self, text: str) -> None:
        if text != self._said:
            import logging

            self._said = text
            logging.getLogger(__name__).warning("queue %s", text)

    def _bring(self, old: Part, to: _hot.Queue) -> None:
        file, hot = old
        try:
            while (key := hot.get(0, 0)) is not None:
                to.add(key, 0, LOOK_SECONDS)
                hot.done(key)
        except QueueShutDown:
            pass
        if file.is_idle():
            self._parts.remove(old)
            hot.close()

    def done(self, key: str) -> None:
        """Ends the work on a key that was taken from an old file."""
        for _, hot in self._parts if self._pid == os.getpid() else ():
            hot.done(key)

    def close(self) -> None:
        """Leaves the old files; what is in progress there is given back, to whoever still looks."""
        while self._parts:
            self._parts.pop()[1].close()
