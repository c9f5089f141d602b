"""Names of resources as people write them, and the resources of a cache that they mean.

    po  pod  pods  Pod  deployments.apps  deploy.v1.apps  widgets.example.com/v1  all

NAME1  The name of a resource in the cache always means that resource.
NAME2  Otherwise plural, singular, kind and short names count, in any case, each with a group or a
       version and a group after it, as kubectl reads them.
NAME3  A category (all) means every resource in it, in the order of the cache; names go first.
NAME4  Several resources of one name (events, events.events.k8s.io) are the core group's one, or an
       AmbiguousName that lists them.
"""

from __future__ import annotations

from shmcache.protocol.describing import called, in_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shmcache.protocol.kinds import Kind

_SUGGESTIONS = 3


class UnknownName(LookupError):
    """No resource of the cache has this name."""

    def __init__(self, name: str, names: Iterable[str], near: Iterable[str]) -> None:
        super().__init__(name, tuple(names), tuple(near))
        self.name = name
        self.names = tuple(names)
        """The resources that there are."""
        self.near = tuple(near)
        """Those of them whose names are spelt alike, the best one first."""
        self.builtin = called(name)
        """The resource that the name means on a server, if it is a built-in one."""

    def __str__(self) -> str:
        there = ", ".join(self.names) or "no resources"
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"no resource {self.name!r}{hint or f', only {there}'}"


class AmbiguousName(LookupError):
    """Several resources of the cache have this name."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        super().__init__(name, tuple(names))
        self.name = name
        self.names = tuple(names)

    def __str__(self) -> str:
        return f"{self.name!r} may mean {' or '.join(self.names)}: name the group, too"


def resolve(name: str, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """The resources that a name means: one, or those of a category. UnknownName, AmbiguousName.

    `kinds`: the resources of the cache by their names there.
    """
    if name in kinds:
        return (name,)
    lower = name.lower()
    found = tuple(name for name, kind in kinds.items() if _means(lower, kind))
    if len(found) > 1:
        found = tuple(name for name in found if not kinds[name].group) or found
    if len(found) > 1:
        raise AmbiguousName(name, found)
    found = found or tuple(name for name, kind in kinds.items() if lower in kind.categories)
    if not found:
        raise UnknownName(name, kinds, near(name, kinds))
    return found


def _means(name: str, kind: Kind) -> bool:
    full, slash, version = name.partition("/")
    name, dot, group = full.partition(".")
    if name not in {kind.resource, kind.singular, kind.kind.lower(), *kind.short_names}:
        return False
    if slash and version != kind.version:
        return False
    return not dot or in_group(kind, group)


def near(name: str, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """The resources whose names are spelt like the name, the nearest one first."""
    import difflib

    spelt = {
        alias: name
        for name, kind in reversed(list(kinds.items()))
        for alias in (name, kind.resource, kind.singular, kind.key, *kind.short_names)
    }
    close = difflib.get_close_matches(name.lower(), spelt, _SUGGESTIONS, cutoff=0.7)
    return tuple(dict.fromkeys(spelt[alias] for alias in close))
