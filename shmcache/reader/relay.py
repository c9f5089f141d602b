"""A descriptor that becomes readable when something is published: for event loops and hubs."""

from __future__ import annotations

import os
from _thread import RLock

from shmcache._native import check, ffi, lib
from shmcache.reader import holding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from shmcache import _hot
    from shmcache.reader.waiting import Wanted


class Relay:
    """An eventfd, and a thread of the core that writes it. close() ends both.

    One that is forgotten ends when it goes (RELAY1).

    `wakes`: what shmc_reader_wakes() said when it was decided to wait; None is now.
    """

    __slots__ = ("_held", "_locks", "_relay", "fd")

    def __init__(self, reader: _hot.Reader, wanted: Wanted, wakes: int | None = None) -> None:
        self.fd = -1
        self._locks: dict[int, RLock] = {}
        self._held: Any = None
        self._relay: Any = ffi.new("struct shmc_relay **")
        held = holding.attachment(reader)
        handle = held.use()
        self._held = held
        try:
            self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if wakes is None:
                wakes = lib.shmc_reader_wakes(handle)
            status = lib.shmc_relay_start(handle, *wanted, wakes, self.fd, self._relay)
            check(status, "starting a thread that waits")
        except BaseException:
            self.close()
            raise

    def clear(self) -> None:
        """Forgets earlier publications."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Ends the thread. Idempotent, also where several threads close it at once (RELAY1)."""
        with self._locks.setdefault(os.getpid(), RLock()):  # a child finds its own, open
            lib.shmc_relay_stop(self._relay)
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)
            held, self._held = self._held, None
            if held is not None:
                held.leave()

    __del__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
