"""Notes once a second when the ring was at which position (reader/instants.py).

The file is made again with each start of the reflector only if it is not ours or of another shape:
instants of the same instance stay valid, as the next writer continues in the same memory.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from shmcache.errors import ShmCacheError
from shmcache.memory.segments import Place
from shmcache.reader import instants
from shmcache.writer.writer import RingPosition

logger = logging.getLogger(__name__)


class InstantWriter:
    """The writer of instants. For one thread."""

    def __init__(
        self, place: Place, mode: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._clock = clock
        self._place = place
        self._mode = mode
        self._fd = -1
        self._next = 0
        self._last = (0, -1)
        self._failed = False

    def note(self, where: RingPosition) -> None:
        """Notes the head of the ring, if it has moved. Without room nothing is noted."""
        noted = (where.instance, where.head)
        if noted == self._last or self._failed:
            return
        try:
            if self._fd < 0:
                self._open()
            data = instants.pack(*where, self._clock())
            os.pwrite(self._fd, data, self._next * instants.SIZE)
        except OSError as error:
            self._failed = error.errno != 28  # ENOSPC passes
            logger.warning("the times of changes are not noted: %s", error.strerror)
            return
        self._next = (self._next + 1) % instants.INSTANTS
        self._last = noted

    def _open(self) -> None:
        """Continues after the youngest instant of the file of the last reflector, or a new file."""
        location, name = self._place.location, self._place.times
        try:
            fd = self._place.open_own_file(name, self._mode)
        except (OSError, ShmCacheError):
            location.unlink(name)
            fd = location.create(name, self._mode)
        self._fd = fd
        self._next = instants.next_row(os.pread(fd, instants.INSTANTS * instants.SIZE, 0))

    def close(self) -> None:
        """The instants stay, for the next reflector."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
