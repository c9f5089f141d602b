"""Where this process's consumers are in the ring: written on its seat, for whoever looks (G35).

A consumer is busy from the moment it took something until it asks for more and there is nothing;
then it rests, and is behind nobody. What a seat shows is the slowest one of the busy, with how many
they are, or of all if none is. Nothing but displays depends on it.
"""

from __future__ import annotations

from shmcache._native import lib
from shmcache.errors import ClosedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache import _hot
    from shmcache.attachment import Attachment


def note(
    reader: _hot.Reader, who: int, position: int, *, busy: bool, taken: int = 0, lapped: int = 0
) -> None:
    """The consumer `who` is here now; it took so many deltas, and was lapped so often."""
    held: Attachment | None = reader.owner  # type: ignore[assignment]
    place = (max(position, 0), busy)
    if held is None or (not taken and not lapped and held.places.get(who) == place):
        return
    held.places[who] = place
    _show(held, taken, lapped)


def forget(reader: _hot.Reader | None, who: int) -> None:
    """There is no such consumer any more."""
    held: Attachment | None = reader.owner if reader is not None else None  # type: ignore[assignment]
    if held is not None and held.places.pop(who, None) is not None:
        _show(held, 0, 0)


def _show(held: Attachment, taken: int, lapped: int) -> None:
    places = list(held.places.values())
    busy = [position for position, is_busy in places if is_busy]
    slowest = min(busy or [position for position, _ in places], default=-1)
    try:
        handle = held.use()
    except ClosedError:
        return
    lib.shmc_reader_report(handle, slowest + 1, len(busy), taken, lapped)
    held.leave()
