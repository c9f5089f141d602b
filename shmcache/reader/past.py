"""Time travel: `cache.at(...)`, any state of the window, exactly as it was.

A past state is the latest root and the values that have changed since then (undoing.py). It costs
what the changes since then cost, and holds one root for as long as it is kept. A moment that has
left the window is an error that says how far the past is known: never a state that is nearly right.
"""

from __future__ import annotations

import time

from shmcache.errors import PastUnknown
from shmcache.protocol import versions
from shmcache.protocol.versions import number_of
from shmcache.reader import instants, listing
from shmcache.reader.snapshot import Snapshot
from shmcache.reader.undoing import undone, undone_to_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

    from shmcache import _hot
    from shmcache.reader.cache import Cache
    from shmcache.reader.listing import Fields, Labels

    Views = list[_hot.View]


_MOST_SECONDS = 1e9


def at(
    cache: Cache,
    version: str | None = None,
    *,
    seconds_ago: float | None = None,
    generation: int | None = None,
) -> PastSnapshot:
    """See Cache.at()."""
    given = [one for one in (version, seconds_ago, generation) if one is not None]
    if len(given) != 1:
        raise TypeError("at() takes a version, or seconds_ago=, or generation=: one of them")
    root = cache.reader.root()
    if version is not None:
        if not isinstance(version, str):
            raise TypeError(f"version must be a resourceVersion, which is a str, not {version!r}")
        versions.compare(version, version)
        return PastSnapshot(root, version=version)
    if seconds_ago is not None:
        generation = _generation_at(cache, root, seconds_ago)
    assert generation is not None
    if generation > root.generation:
        raise ValueError(f"generation {generation} is not published yet: {root.generation} is")
    return PastSnapshot(root, generation=generation)


def _generation_at(cache: Cache, root: _hot.Root, seconds: float) -> int:
    if not 0 <= seconds < _MOST_SECONDS:
        raise ValueError(f"seconds_ago must be a number of seconds, not {seconds!r}")
    known = instants.read(cache.place, root)
    instant = instants.last_before(known, time.monotonic_ns() - int(seconds * 1e9))
    if instant is not None:
        return instant.generation
    if not known:
        raise PastUnknown(
            "the times of this cache's changes are not noted: `shmcache run` notes them, a Writer "
            "alone does not; its resourceVersions lead back as well"
        )
    raise PastUnknown(f"the times of changes are known for the last {known[0].age:.3g} s only")


class PastSnapshot:
    """One past state of all resources. A context manager; keep it for short."""

    def __init__(
        self, root: _hot.Root, *, version: str | None = None, generation: int | None = None
    ) -> None:
        self.latest = Snapshot(root)
        """The state of now that it is derived from."""
        self.version = version
        self.generation = generation
        self._root = root
        self._known: dict[str, PastResource] = {}

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources."""
        return self.latest.resources

    def __getitem__(self, resource: str) -> PastResource:
        """The resource as it was. KeyError if the cache does not have it; PastUnknown."""
        name = self.latest[resource].name
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._of(name)
        return found

    def _of(self, name: str) -> PastResource:
        root, number = self._root, self._root.names().index(name)
        if self.generation is not None:
            changed = undone(root, number, self.generation)
            moment = f"generation {self.generation}"
        else:
            changed = self._at_version(name, number)
            moment = f"version {self.version}"
        if changed is None:
            raise PastUnknown(
                f"{name}: the ring no longer has every change since {moment}; a longer ring keeps "
                "more (ring_slots)"
            )
        return PastResource(self.latest[name], changed)

    def _at_version(self, name: str, number: int) -> dict[str, _hot.View | None] | None:
        assert self.version is not None
        record = self._root.record(number)
        latest = record["version"]
        if latest is None or number_of(latest) < number_of(self.version):
            now = "has no version yet" if latest is None else f"is at version {latest}"
            raise PastUnknown(f"{name} {now}: {self.version} is still to come")
        return undone_to_version(self._root, number, number_of(self.version))

    def close(self) -> None:
        """Releases the state, once its views are gone, too. Idempotent."""
        self.latest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PastResource:
    """A read-only mapping of keys to views, as it was."""

    def __init__(self, latest: Any, changed: dict[str, _hot.View | None]) -> None:
        self._latest = latest
        self.changed = changed
        """Each key that has changed since then, with its object then; None: there was no object."""

    @property
    def name(self) -> str:
        """The name of the resource."""
        found: str = self._latest.name
        return found

    def get(self, key: str, default: Any = None) -> Any:
        """The object as it was."""
        if key in self.changed:
            found = self.changed[key]
            return default if found is None else found
        return self._latest.get(key, default)

    def __getitem__(self, key: str) -> _hot.View:
        """The object as it was. KeyError if it did not exist."""
        found: _hot.View | None = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        now = sum(key in self._latest for key in self.changed)
        then = sum(one is not None for one in self.changed.values())
        return len(self._latest) - now + then

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.items())

    def keys(self) -> Iterator[str]:
        """The keys in their order."""
        return iter(self)

    def values(self) -> Iterator[_hot.View]:
        """The objects in the order of their keys."""
        return (obj for _, obj in self.items())

    def items(self) -> Iterator[tuple[str, _hot.View]]:
        """Keys and objects, in the order of keys."""
        yield from self._merged(None, None)

    def list(
        self,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> Views:
        """The selected objects, in key order: see CachedResource.list()."""
        listing.check_namespace(namespace)
        wanted = listing.selection(namespace, labels, fields, None)
        return [obj for _, obj in self._merged(wanted.prefix, wanted)]

    def _merged(
        self, prefix: str | None, wanted: listing.Selection | None
    ) -> Iterator[tuple[str, _hot.View]]:
        """Today's objects without those that have changed, and the earlier ones instead."""
        mine = {
            key: obj
            for key, obj in self.changed.items()
            if obj is not None and (prefix is None or key.startswith(prefix)) and _fits(obj, wanted)
        }
        old = sorted(mine, key=str.encode)
        start = 0
        for key, obj in self._selected(prefix, wanted):
            if key in self.changed:
                continue
            while start < len(old) and old[start].encode() < key.encode():
                yield old[start], mine[old[start]]
                start += 1
            yield key, obj
        for key in old[start:]:
            yield key, mine[key]

    def _selected(
        self, prefix: str | None, wanted: listing.Selection | None
    ) -> Iterator[tuple[str, _hot.View]]:
        for key, obj in self._latest.scan(prefix=prefix):
            if _fits(obj, wanted):
                yield key, obj


def _fits(obj: _hot.View, wanted: listing.Selection | None) -> bool:
    if wanted is None:
        return True
    labels, fields = wanted.labels, wanted.fields
    return (labels is None or labels.matches(obj)) and (fields is None or fields.matches(obj))
