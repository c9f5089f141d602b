"""One resource: look-ups by key (in C), and lists, indices and ranges in key order.

Obtained from a Cache it always answers from the latest state; obtained from a Snapshot, from that
one. Each single answer belongs to one state in either case.
"""

from __future__ import annotations

from shmcache import _hot
from shmcache.freshness import Fresh

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from shmcache.asynchronous import Event
    from shmcache.handlers import OnAdd, OnDelete, OnUpdate, Registration
    from shmcache.listing import Fields, Labels, Plan, Remembered
    from shmcache.reader import Cache

    Views = list[_hot.View]
    Strings = list[str]
    Items = list[tuple[str, _hot.View]]
    IndexItems = list[tuple[str, str, _hot.View]]


class _Late:
    """The module of this name, imported when it is first asked for something."""

    def __getattr__(self, name: str) -> Any:
        from shmcache import listing

        self.__dict__.update(vars(listing))
        return getattr(listing, name)


_listing = _Late()


class CachedResource(Fresh):
    """A read-only mapping of keys to views, ordered by key, with indices."""

    __slots__ = ("_indices", "_named", "_through", "_ways", "cache")

    _indices: dict[str, int]
    _named: str
    _through: _hot.Reader
    _ways: dict[tuple[object, ...], Remembered]
    cache: Cache
    """Whose latest state it shows; not set on what a snapshot gave."""

    def list(
        self,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        *,
        after: str | None = None,
        limit: int = 0,
        shard: tuple[int, int] | None = None,
        max_age: float | None = None,
        fallback: Callable[[], Any] | None = None,
        busy: bool = False,
    ) -> Views:
        """The selected objects of one state, in key order; `limit` of them behind `after`.

        No namespace, or "", is all. `labels` is a selector, its text, or a dict; `fields` a
        selector or its text, of any paths; `shard` (i, n) the i-th of n shards by UID. The best
        index is found: see explain(). To go on, pass the key of the last one as `after`, within one
        snapshot. `max_age`: see too_old(); what is too old raises CacheTooOld, or is what
        `fallback()` gives.
        """
        error = None if max_age is None else self.too_old(max_age, busy=busy)
        if error is not None:
            if fallback is None:
                raise error
            instead: Views = fallback()
            return instead
        if labels is None and fields is None and shard is None:
            prefix = namespace + "/" if namespace else None
            found: Views = self.scan(prefix=prefix, after=after, limit=limit, want="values")
            return found
        selected: Views = _listing.select(self, (namespace, labels, fields, shard), after, limit)
        return selected

    def explain(
        self,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        *,
        shard: tuple[int, int] | None = None,
    ) -> Plan:
        """How list() would go about it now, and why."""
        found: Plan = _listing.plan(self, _listing.selection(namespace, labels, fields, shard))
        return found

    def owned_by(self, uid: str) -> Views:
        """The objects with an owner of this UID, in key order.

        Quick with an index on metadata.ownerReferences[*].uid; else everything is looked at.
        """
        from shmcache.protocol.fields import escape

        return self.list(fields=f"metadata.ownerReferences[*].uid={escape(uid)}")

    def owner_of(self, obj: Any) -> _hot.View | None:
        """The owner of an object that is in this resource, the controlling one first; or None.

        It must have the UID that the reference names: one made anew under the name is another.
        """
        metadata = obj["metadata"]
        references = sorted(
            metadata.get("ownerReferences") or (), key=lambda one: not one.get("controller")
        )
        for reference in references:
            for key in (f"{metadata.get('namespace')}/{reference['name']}", reference["name"]):
                found = self.get(key)
                if found is not None and found["metadata"].get("uid") == reference["uid"]:
                    return found
        return None

    def range(
        self,
        start: str | None = None,
        stop: str | None = None,
        *,
        after: str | None = None,
        limit: int = 0,
    ) -> Items:
        """(key, object) with start <= key < stop, in order; `limit` of them behind `after`."""
        found: Items = self.scan(start=start, stop=stop, after=after, limit=limit)
        return found

    def by_index(  # type: ignore[override]  # the base takes its number
        self, index: str, value: str, *, after: str | None = None, limit: int = 0
    ) -> Views:
        """The objects with this value in an index, in key order; `limit` of them behind `after`."""
        return super().by_index(self._index(index), value, after=after, limit=limit)

    def index_keys(
        self, index: str, value: str, *, after: str | None = None, limit: int = 0
    ) -> Strings:
        """The keys of by_index(), without the objects."""
        return super().by_index(self._index(index), value, after=after, limit=limit, want="keys")

    def index_values(  # type: ignore[override]  # as by_index()
        self, index: str, *, prefix: str | None = None, after: str | None = None, limit: int = 0
    ) -> Strings:
        """The distinct values of an index, in order; `limit` of them behind `after`."""
        return super().index_values(self._index(index), after=after, limit=limit, prefix=prefix)

    def scan_index(self, index: str, **bounds: Any) -> IndexItems:
        """(value, key, object) of an index, in order of value and key.

        Bounds (start, stop, prefix) are values; `after` is the last (value, key), `limit` a count.
        """
        found: IndexItems = self.scan(self._index(index), **bounds)
        return found

    @property
    def indices(self) -> tuple[str, ...]:
        """The names of the indices, in the order of their declaration."""
        return tuple(name for name, _, _ in self.record()["indices"])

    @classmethod
    def of(cls, cache: Cache, name: str) -> CachedResource:
        """The resource of this name, always in the latest state."""
        reader, number = cache.locate(name)
        made = cls(reader, number)
        made.cache = cache
        made._named = name
        made._through = reader
        return made

    def renew(self) -> None:
        """Reads on where the cache reads now, if that is elsewhere. Called by look-ups."""
        try:
            cache = self.cache
        except AttributeError:
            return  # of a snapshot
        reader, number = cache.locate(self._named)
        if reader is not self._through:
            _hot.Resource.__init__(self, reader, number)
            self._through = reader
            self._indices = {}
            self._ways = {}

    def _index(self, index: str) -> int:
        _ = self.reader  # numbers are those of the instance that is read
        try:
            return self._indices[index]
        except (AttributeError, KeyError):
            self._indices = {name: number for number, name in enumerate(self.indices)}
        try:
            return self._indices[index]
        except KeyError:
            known = ", ".join(self._indices) or "none"
            raise KeyError(f"{self.name} has the indices {known}, not {index!r}") from None

    # ---- handlers ------------------------------------------------------------------------------

    def add_handler(
        self,
        on_add: OnAdd | None = None,
        on_update: OnUpdate | None = None,
        on_delete: OnDelete | None = None,
        *,
        labels: Labels | None = None,
        fields: Fields | None = None,
        namespace: str | None = None,
        resync: float | None = None,
        shard: tuple[int, int] | None = None,
        name: str | None = None,
    ) -> Registration:
        """Calls these for every change, after one on_add for each object there is (G11).

            on_add(obj, initial)           initial: part of the first content, not news
            on_update(old, new)
            on_delete(obj, unknown)        unknown: the end was found, not seen

        Only what the selectors, the namespace and the shard (i, n) let through: an object that
        begins to match is added, one that ends to match is deleted. What cannot be had any more is
        a Tombstone. `resync`: seconds, after which all is told again, as updates from `new` to
        `new`. Nothing is called before cache.start() or cache.run().
        """
        from shmcache.registering import add_handler

        return add_handler(
            self,
            (on_add, on_update, on_delete),
            labels=labels,
            fields=fields,
            namespace=namespace,
            resync=resync,
            shard=shard,
            name=name,
        )

    def events(
        self,
        *,
        labels: Labels | None = None,
        fields: Fields | None = None,
        namespace: str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> AsyncIterator[Event]:
        """`async for event in pods.events()`: what a registration would be told, on asyncio (G11).

        Each iteration has a place in the ring of its own, and needs no start().
        """
        from shmcache.registering import events

        return events(self, labels=labels, fields=fields, namespace=namespace, shard=shard)

    def __repr__(self) -> str:
        return f"<shmcache.CachedResource {self.name}: {len(self)} objects>"
