"""Sleeping until a cache appears under its name: there is no segment yet to sleep on."""

from __future__ import annotations

import os
import select
import time

from shmcache._native import lib, new_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from shmcache.memory.segments import Place

LOOK_SECONDS = 0.1
"""Where the kernel does not tell: watches are limited in number, the directory is not there yet."""


class Notice:
    """Watches the place where a cache will be named. First arm(), then look, then wait()."""

    def __init__(self, place: Place) -> None:
        self._directory = place.location.path
        self._name = place.pointer.encode() + b"\0"
        self._fd = new_descriptor()

    def arm(self) -> None:
        """Files that appear after this end wait()."""
        if self._fd[0] < 0:
            lib.shmc_owned_notice(os.fsencode(self._directory), self._fd)

    def wait(self, seconds: float) -> bool:
        """Whether the cache may have been named; False if the time is over."""
        if self._fd[0] < 0:
            time.sleep(min(seconds, LOOK_SECONDS))
            return True
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._fd[0], select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(max(1, left * 1000)):
                return False
            if self._notified():
                return True

    def _notified(self) -> bool:
        try:
            return self._name in os.read(self._fd[0], 65536)
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Gives the watch back. Idempotent."""
        lib.shmc_owned_close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
