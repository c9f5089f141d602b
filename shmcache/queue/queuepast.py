"""A queue whose file was removed under its processes: each goes over to the one that has the name.

Every process looks once a second while it waits for keys, tends or adds. Any process that sees the
old file moves its keys: a key is taken from the old file, added to the new one, and done in the old
one. So a key is lost only with its adder; a process that dies in between gives it back.

A worker finishes the key that it holds in the old file. Until then the new one does not know of it:
a key that is added there meanwhile may be handed out at the same time. Keys for later come when
they are due.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from shmcache.errors import BusyError, QueueShutDown, ShmCacheError
from shmcache.reasons import reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache import _hot
    from shmcache.queue.queuefile import QueueFile

    Part = tuple[QueueFile, _hot.Queue]

LOOK_SECONDS = 1.0


class RemovedFiles:
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
            return part  # the past of a parent is not ours; or another thread does it
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
            self._say(
                f"{part[0].file} was removed, and cannot be recreated yet: {reason_of(error)}"
            )
            return part
        self._say(f"{part[0].file} was removed: its keys move to the new file")
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
                priority = hot.priority(key)
                try:
                    to.add(key, priority, LOOK_SECONDS)
                except BusyError as error:
                    self._say(f"keys stay in the file that was removed: {error}")
                    hot.add(key, priority, 0)  # its slot is ours: there is room for it
                    hot.done(key)
                    return
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
        """Leaves the old files; keys in progress there go back to the workers that still look."""
        while self._parts:
            self._parts.pop()[1].close()
