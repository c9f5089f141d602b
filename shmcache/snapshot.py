"""A snapshot: one generation, all of whose answers belong to one state."""

from __future__ import annotations

from shmcache.errors import ClosedError
from shmcache.resources import CachedResource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from shmcache import _hot


class Difference:
    """What differs between two snapshots in one resource; each list in the order of its keys.

    Objects are views into the snapshot that shows them: they go stale as it does.
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

    __slots__ = ("_open_root",)

    def __init__(self, root: _hot.Root) -> None:
        self._open_root: _hot.Root | None = root

    @property
    def _root(self) -> _hot.Root:
        if self._open_root is None:
            raise ClosedError("the snapshot is closed")
        return self._open_root

    @property
    def generation(self) -> int:
        """What Cache.latest was when it was taken."""
        return self._root.generation

    @property
    def instance(self) -> int:
        """Of the DATA segment that it is of."""
        return self._root.instance

    @property
    def head(self) -> int:
        """Where to follow from, to get exactly what this snapshot does not show yet."""
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
        """The resource as it was. KeyError if there was none of the name."""
        root = self._root
        return CachedResource(root.reader, self._number(resource), root)

    def _number(self, resource: str) -> int:
        names = self._root.names()
        if resource not in names:
            raise KeyError(f"there was no {resource!r} at {self.generation}")
        return names.index(resource)

    def __contains__(self, resource: object) -> bool:
        return resource in self.resources

    def diff(self, old: Snapshot, resource: str) -> Difference:
        """What happened in a resource since an older snapshot, in time proportional to it.

        Both must be of one attachment. To swap them is to see it backwards.
        """
        newer = self if self.generation > old.generation else old
        number = newer._number(resource)  # noqa: SLF001
        return Difference(*self._root.diff(number, old._root))

    def close(self) -> None:
        """Lets the generation go, once its views have gone too. Idempotent."""
        self._open_root = None

    def __enter__(self) -> Self:
        self._root  # noqa: B018 - raises if it is closed
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
