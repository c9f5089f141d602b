"""Past states from the latest one: the value that each key had before it changed.

The ring has the object before each change. A past state is the latest root, with the earlier value
put back for each key that changed since then. The difference is exact, or unknown; never nearly.

    REWIND1  the value put back is that before the first change after the wanted moment.
    REWIND2  a RELIST delta, a deletion whose last state is unknown, and a change that has left the
        window make every state before them unknown.
    REWIND3  one version differs from the next only where versions rise strictly from one
        recorded change to the next.
"""

from __future__ import annotations

from shmcache.errors import Lapped, StaleObjectError
from shmcache.protocol.versions import number_of
from shmcache.reader import namespace_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache._hot import Delta, Root, View

TAKE = 1024


def undone(root: Root, number: int, generation: int) -> dict[str, View | None] | None:
    """Values to put back to get from a root to an older generation; None: unknown."""
    if root.record(number)["generation"] <= generation:
        return {}
    try:
        position = _first_after(root, generation)
        return None if position is None else _put_back(root, number, position)
    except Lapped:
        return None


def undone_to_version(root: Root, number: int, version: int) -> dict[str, View | None] | None:
    """undone(), to the resource at a version: HISTORY1 of history.py; None: unknown.

    This reads everything in the window that the ring recorded as it happened: only where versions
    rise strictly can one version be distinguished from the next.
    """
    record = root.record(number)
    if namespace_versions.versions(record) or not 0 <= version <= number_of(record["version"]):
        return None  # namespaces with versions of their own; an invalid or future version
    position, floor = max(root.tail, record["unbroken"]), number_of(record["listed"])
    if root.tail > record["unbroken"]:
        floor = -1  # deltas that left the window precede the first one in it
    changed: dict[str, View | None] = {}
    try:
        last = floor
        while position < root.head:
            deltas, position = root.take(position, TAKE, [number])
            for delta in deltas:
                found = number_of(delta.version)
                if delta.key is None or delta.kind == "RELIST" or found <= last:
                    return None
                floor, last = (found - 1 if floor < 0 else floor), found
                if found > version and not _put_one_back(changed, delta):
                    return None
    except (Lapped, StaleObjectError):
        return None
    return changed if 0 <= floor <= version else None


def _first_after(root: Root, generation: int) -> int | None:
    """The position of the first change after a generation; None if it may have been before."""
    low, high = root.tail, root.head
    if low == high:
        return None
    first, _ = root.take(low, 1)
    if low > 0 and first and first[0].generation > generation:
        return None
    while low < high:
        middle = (low + high) // 2
        found, _ = root.take(middle, 1)
        if found and found[0].generation <= generation:
            low = middle + 1
        else:
            high = middle
    return low


def _put_back(root: Root, number: int, position: int) -> dict[str, View | None] | None:
    changed: dict[str, View | None] = {}
    while position < root.head:
        deltas, position = root.take(position, TAKE, [number])
        for delta in deltas:
            if delta.kind == "RELIST" or delta.key is None:
                return None
            if not _put_one_back(changed, delta):
                return None
    return changed


def _put_one_back(changed: dict[str, View | None], delta: Delta) -> bool:
    """Whether the earlier state of the object is known."""
    assert delta.key is not None
    if delta.key in changed:
        return True
    changed[delta.key] = delta.old
    return delta.old is not None or delta.kind == "ADDED"
