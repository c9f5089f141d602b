"""A snapshot: one generation, all of whose answers belong to one state."""

from __future__ import annotations

from shmcache.errors import ClosedError
from shmcache.reader.resources import CachedResource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from shmcache import _hot
    from shmcache.models.lister import Wrapping


class Difference:
    """The difference of two snapshots in one resource; each list in the order of its keys.

    Objects are views of the snapshot that shows them, and go stale with it.
    """

    __slots__ = ("added", "deleted", "modified")

    def __init__(
        self,
        added: list[tuple[str, _hot.View]],
        modified: list[tuple[str, _hot.View, _hot.View]],
        deleted: list[tuple[str, _hot.View]],
    ) -> None:
        self.added = added
        self.modified = modified
        self.deleted = deleted

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.added or self.modified or self.deleted)

    def __repr__(self) -> str:
        return (
            f"<shmcache.Difference: {len(self.added)} added, {len(self.modified)} modified, "
            f"{len(self.deleted)} deleted>"
        )


class Snapshot:
    """One generation: all its answers belong to one state. Views keep it whole for as long."""

    __slots__ = ("_makes", "_open_root")

    def __init__(self, root: _hot.Root, makes: Wrapping | None = None) -> None:
        self._open_root: _hot.Root | None = root
        self._makes = makes

    @property
    def _root(self) -> _hot.Root:
        if self._open_root is None:
            raise ClosedError("the snapshot is closed")
        return self._open_root

    @property
    def generation(self) -> int:
        """The generation: Cache.latest at the moment of the snapshot."""
        return self._root.generation

    @property
    def instance(self) -> int:
        """The number of its DATA segment."""
        return self._root.instance

    @property
    def head(self) -> int:
        """The position to follow from: exactly the changes after this snapshot."""
        return self._root.head

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources, in the order of their declaration."""
        return tuple(name for name in self._root.names() if name)

    @property
    def resource_versions(self) -> dict[str, str | None]:
        """The resourceVersion of each resource."""
        root = self._root
        return {
            name: root.record(number)["version"] or None
            for number, name in enumerate(root.names())
            if name
        }

    def __getitem__(self, resource: str) -> CachedResource:
        """The resource as it was. KeyError if the snapshot does not have it."""
        root = self._root
        found = CachedResource(root.reader, self._number(resource), root)
        if self._makes is not None:
            from shmcache.models.lister import ModelResource

            found = ModelResource(found, self._makes)  # type: ignore[assignment]
        return found

    def __repr__(self) -> str:
        root = self._open_root
        if root is None:
            return "<shmcache.Snapshot: closed>"
        return f"<shmcache.Snapshot of generation {root.generation}>"

    def _number(self, resource: str) -> int:
        if not isinstance(resource, str):
            raise TypeError(f"the name of a resource must be a str, not {resource!r}")
        names = self._root.names()
        if resource not in names:
            from shmcache.reader.resolving import one

            resource = one(self._root, resource)
        return names.index(resource)

    def __contains__(self, resource: object) -> bool:
        try:
            self._number(str(resource))
        except KeyError:
            return False
        return True

    def diff(self, old: Snapshot, resource: str) -> Difference:
        """The changes of a resource since an older snapshot, in time proportional to their number.

        Both must come from one attachment. Swap them to see the changes backwards.
        """
        newer = self if self.generation > old.generation else old
        number = newer._number(resource)  # noqa: SLF001
        return Difference(*self._root.diff(number, old._root))

    def close(self) -> None:
        """Releases the generation, once its views are gone, too. Idempotent."""
        self._open_root = None

    def __enter__(self) -> Self:
        self._root  # noqa: B018 - raises if it is closed
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
