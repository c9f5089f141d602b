"""One attachment: the seat and the maps under a reader, given back when the last view has gone."""

from __future__ import annotations

from shmcache import _hot, _native
from shmcache._native import check, ffi, lib
from shmcache.errors import BusyError, ClosedError
from shmcache.memory.mapping import Attached
from shmcache.memory.segments import Place, boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.reader.succession import Succession


class Attachment:
    """The seat and the maps. `succession` knows what comes when this instance is over."""

    __slots__ = (
        "_handle",
        "_idle",
        "_users",
        "called",
        "name",
        "segments",
        "succession",
    )

    def __init__(self, place: Place, succession: Succession | None = None) -> None:
        self.name = place.name
        self.succession = succession
        self.segments = Attached(place, boot_id())
        made = ffi.addressof(self.segments.owner, "reader")  # OWNED1
        try:
            status = lib.shmc_reader_create(self.segments.data, self.segments.seats, made)
            if status == _native.BUSY:
                raise BusyError(
                    f"cache {place.name!r}: all seats are taken: end some readers, or start the "
                    "writer with more (seats=)"
                )
            check(status, f"attaching to cache {place.name!r}")
        except BaseException:
            self.segments.close()
            raise
        self._handle: list[_native.ReaderHandle] = [made[0]]
        self._users: list[None] = []  # calls under way that gave the GIL away
        self._idle = False
        self.called = 0  # Cache.wake()

    def reader(self) -> _hot.Reader:
        """The reader on this seat. Once: when it and all that came from it has gone, we leave."""
        handle = self.use()
        self.leave()
        return _hot.Reader(_native.address(handle), self, self.release, self.segments.opened)

    def use(self) -> _native.ReaderHandle:
        """The handle, which stays until leave()."""
        self._users.append(None)
        if self._idle:
            self.leave()
            raise ClosedError(f"cache {self.name!r} is closed")
        return self._handle[0]

    def leave(self) -> None:
        """Ends a use; the last one gives back what was released meanwhile."""
        self._users.pop()
        if self._idle and not self._users:
            self._give_back()

    def release(self) -> None:
        """Leaves the seat and unmaps, once nobody uses the handle. Called by `_hot`."""
        self._idle = True
        if not self._users:
            self._give_back()

    def _give_back(self) -> None:
        try:
            self._handle.pop()  # two threads may come here: one gets it
        except IndexError:
            return
        self.segments.close()
