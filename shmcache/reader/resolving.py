"""The resources of a cache by what people call them: cache["po"], and the arguments of a command.

The rules are those of protocol/naming.py; the kinds come from the descriptions in the cache.
"""

from __future__ import annotations

from shmcache.protocol import naming
from shmcache.protocol.describing import known_as

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache._hot import Root
    from shmcache.protocol.kinds import Kind
    from shmcache.reader.cache import Cache
    from shmcache.reader.snapshot import Snapshot

UnknownName = naming.UnknownName
AmbiguousName = naming.AmbiguousName


def kinds_in(root: Root) -> dict[str, Kind]:
    """The kind of each resource in one state of a cache, by its name there, in their order."""
    return {
        name: known_as(name, root.record(number)["settings"] or {})
        for number, name in enumerate(root.names())
        if name
    }


def kinds(at: Cache | Snapshot) -> dict[str, Kind]:
    """The kind of each resource of a cache or of one state of it, by its name there."""
    return {name: known_as(name, at[name].record()["settings"] or {}) for name in at.resources}


def find(at: Cache | Snapshot, name: str) -> tuple[str, ...]:
    """The resources that a name means: one, or those of a category. UnknownName, AmbiguousName."""
    return naming.resolve(name, kinds(at))


def one(root: Root, name: str) -> str:
    """The one resource that a name means. KeyError with a reason if it means none or several."""
    try:
        found = naming.resolve(name, kinds_in(root))
    except (UnknownName, AmbiguousName) as error:
        raise KeyError(str(error)) from None
    if len(found) > 1:
        raise KeyError(f"{name!r} means several resources: {', '.join(found)}")
    return found[0]
