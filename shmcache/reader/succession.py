"""From one instance of a cache to the next, after its writer has ended or was replaced.

    over ──▸ is another one named? ──▸ attach ──▸ does it hold what the old one held? ──▸ it
              no: sleep until one is               no: sleep until it does

Until then readers keep the old one. A new instance starts with a list, and after a restart of the
writer no reader shall find an empty cache, or receive deletions of everything.
"""

from __future__ import annotations

import time

from shmcache import states
from shmcache._native import lib
from shmcache.errors import (
    CorruptSegment,
    LayoutMismatch,
    SegmentNotFound,
    ShmCacheError,
    UntrustedSegment,
)
from shmcache.memory.inotify import Notice
from shmcache.reader import waiting
from shmcache.reader.attachment import Attachment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmcache import _hot
    from shmcache.memory.segments import Place

_HUB_SECONDS = 0.05  # where a thread that sleeps would stop all greenlets
_EVERYTHING = (1 << 64) - 1
_LOOK_SECONDS = 0.5  # after which a sleeper here notices that it has to end
_SURE_SECONDS = 5.0  # after which it looks, noticed or not: its directory may have moved


class Succession:
    """Finds the instance after this one. For one thread at a time, except wait()."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._candidate: _hot.Reader | None = None
        self._seen = 0
        self._refused = 0  # an instance that we could not attach to, and when to try again
        self._retry_at = 0.0
        self._logged = False  # whether the log has it

    def find(self, old: _hot.Reader) -> _hot.Reader | None:
        """The reader that replaces `old`; None while nothing can."""
        candidate = self._attach(old)
        if candidate is None:
            return None
        self._seen = candidate.latest
        if not _holds(candidate, old):
            return None
        self._candidate = None
        return candidate

    def _attach(self, old: _hot.Reader) -> _hot.Reader | None:
        if self._candidate is not None and not self._candidate.spent:
            return self._candidate
        self._candidate = None
        named = self._named()
        if named not in {0, _instance(old)} and not self._waits(named):
            try:
                self._candidate = Attachment(self._place, self).reader()
            except SegmentNotFound:
                return None  # it has ended just now
            except (ShmCacheError, OSError) as error:
                self._refuse(named, error)
        return self._candidate

    def _named(self) -> int:
        """The instance that is named now; 0 between two writers, or if we cannot read its name."""
        try:
            named = self._place.named()
        except LayoutMismatch:
            return 0
        except (UntrustedSegment, OSError) as error:
            self._refuse(-1, error)
            return 0
        return 0 if named is None else named.data

    def _waits(self, named: int) -> bool:
        return named == self._refused and time.monotonic() < self._retry_at

    def _refuse(self, named: int, error: Exception) -> None:
        """Keeps the old one: no seat or descriptor is left, or another build wrote the new one.

        Logs it once, or later if there is no descriptor to import logging with.
        """
        self._retry_at = time.monotonic() + _LOOK_SECONDS
        if named == self._refused and self._logged:
            return
        self._refused, self._logged = named, False
        try:
            import logging
        except OSError:
            return
        self._logged = True
        logging.getLogger(__name__).warning(
            "cache %r: the next instance cannot be read yet, the last one goes on: %s",
            self._place.name,
            error,
        )

    def wait(self, old: _hot.Reader, timeout: float | None, unless: Callable[[], bool]) -> bool:
        """Sleeps while nothing can replace `old`; False if the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        look_at = 0.0
        with Notice(self._place) as notice:
            while not unless():
                now = time.monotonic()
                if now >= look_at:
                    notice.arm()
                    if self.possible(old):
                        return True
                    look_at = now + _SURE_SECONDS
                left = _LOOK_SECONDS if deadline is None else deadline - now
                if left <= 0:
                    return False
                if self._sleep(notice, min(left, _LOOK_SECONDS)) or self._refused:
                    look_at = 0.0
        return False

    def possible(self, old: _hot.Reader) -> bool:
        """Whether find() may have an answer: called without the lock that protects find()."""
        candidate = self._candidate
        if candidate is None:
            named = self._named()
            return named not in {0, _instance(old)} and not self._waits(named)
        return candidate.spent or candidate.latest != self._seen

    def _sleep(self, notice: Notice, seconds: float) -> bool:
        """False if nothing can have been named meanwhile."""
        candidate = self._candidate
        owner: Any = None if candidate is None else candidate.owner
        if owner is None:
            return notice.wait(seconds)
        if waiting.cooperative() is not None:
            time.sleep(min(seconds, _HUB_SECONDS))
            return True
        handle = owner.use()
        try:
            left = int(seconds * 1e9)
            lib.shmc_wait_progress(handle, _EVERYTHING, _EVERYTHING, self._seen, left)
        finally:
            owner.leave()
        return True


def _instance(reader: _hot.Reader) -> int:
    owner: Any = reader.owner
    return 0 if owner is None else int(owner.segments.instance)


def _records(reader: _hot.Reader) -> dict[str, _hot.Record]:
    root = reader.root()
    return {name: root.record(number) for number, name in enumerate(root.names()) if name}


def _holds(new: _hot.Reader, old: _hot.Reader) -> bool:
    """Whether what was listed in the old instance is listed in the new one, or will not be.

    A resource that the new one does not have, or could not list, keeps nobody waiting for the rest;
    an old instance that cannot be read any more keeps nobody at all.
    """
    records = _records(new)
    try:
        before = _records(old)
    except CorruptSegment:
        return True
    if not any(states.has_content(record) for record in records.values()):
        return not any(states.has_content(record) for record in before.values())
    listing = {name for name, record in records.items() if record["state"] == states.LISTING}
    return not any(
        name in listing and states.has_content(record) and not states.has_content(records[name])
        for name, record in before.items()
    )
