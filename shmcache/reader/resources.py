"""One resource: look-ups by key (in C), and lists, indices and ranges in key order.

A resource of a Cache always answers from the latest state, one of a Snapshot from that state. In
either case each single answer belongs to one state.
"""

from __future__ import annotations

from shmcache import _hot
from shmcache.errors import ShmCacheError, UnconfirmedError
from shmcache.reader.asking import TIMEOUT, Question
from shmcache.reader.confirmed import ConfirmableResource
from shmcache.reader.freshness import instead
from shmcache.reader.sharding import uid_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import Any

    from shmcache.handlers.aio import Event
    from shmcache.handlers.consumer import Consumer
    from shmcache.handlers.registration import OnAdd, OnDelete, OnUpdate, Registration
    from shmcache.integrations.frames import ColumnFrame, GroupBy, Total
    from shmcache.models.lister import ModelResource
    from shmcache.reader.cache import Cache
    from shmcache.reader.listing import Fields, Labels, ListPlan, Remembered

    Views = list[_hot.View]
    Strings = list[str]
    Items = list[tuple[str, _hot.View]]
    IndexItems = list[tuple[str, str, _hot.View]]


class _Late:
    """The module of this name, imported at its first use."""

    def __getattr__(self, name: str) -> Any:
        from shmcache.reader import listing

        self.__dict__.update(vars(listing))
        return getattr(listing, name)


_listing = _Late()
_COMPLETIONS = 1000  # keys that a prompt is offered


class CachedResource(ConfirmableResource):
    """A read-only mapping of keys to views, ordered by key, with indices."""

    __slots__ = ("_indices", "_named", "_through", "_ways")

    _indices: dict[str, int]
    _named: str
    _through: _hot.Reader
    _ways: dict[tuple[object, ...], Remembered]

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
        consistent: bool = False,
        timeout: float = TIMEOUT,
    ) -> Views:
        """The selected objects of one state, in key order.

        `namespace`: only this one; None or "" is all. `labels`: a selector, its text, or a dict.
        `fields`: a selector or its text, with any paths. `shard`: (i, n), the i-th of n shards by
        UID. `limit`: at most so many, after the key `after`; to page, use one snapshot and pass the
        key of the last object. `max_age`, `busy`: see too_old(); a cache that is too old raises
        CacheTooOld, or returns the result of `fallback()`. The best index is used: see explain().
        `consistent`: a state at least as new as this call, as the reflector confirms within
        `timeout` seconds; otherwise UnconfirmedError, or the result of `fallback()`.
        """
        error: ShmCacheError | None = self._unfit(max_age, busy=busy)
        if error is None and consistent:
            _listing.check_namespace(namespace)
            at = self._confirmed(Question(self.name, None, namespace), timeout)
            if not isinstance(at, UnconfirmedError):
                return at.list(namespace, labels, fields, after=after, limit=limit, shard=shard)
            error = at
        if error is not None:
            found_instead: Views = instead(error, fallback)
            return found_instead
        if labels is None and fields is None and shard is None:
            _listing.check_namespace(namespace)
            prefix = namespace + "/" if namespace else None
            found: Views = self.scan(prefix=prefix, after=after, limit=limit, want="values")
            return found
        selected: Views = _listing.select(self, (namespace, labels, fields, shard), after, limit)
        return selected

    async def list_async(
        self,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        *,
        shard: tuple[int, int] | None = None,
        timeout: float = TIMEOUT,
        fallback: Callable[[], Any] | None = None,
    ) -> Views:
        """list(consistent=True) for asyncio."""
        at = await self._confirmed_async(Question(self.name, None, namespace), timeout)
        if isinstance(at, UnconfirmedError):
            found: Views = instead(at, fallback)
            return found
        return at.list(namespace, labels, fields, shard=shard)

    def explain(
        self,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        *,
        shard: tuple[int, int] | None = None,
    ) -> ListPlan:
        """The way that list() would take now, and the reason."""
        found: ListPlan = _listing.plan(self, _listing.selection(namespace, labels, fields, shard))
        return found

    def owned_by(self, uid: str) -> Views:
        """The objects with an owner of this UID, in key order.

        Quick with an index on metadata.ownerReferences[*].uid; without it, it reads every object.
        """
        from shmcache.protocol.selectors.fields import escape

        if not isinstance(uid, str):
            raise TypeError(f"uid must be a str, not {uid!r}")
        return self.list(fields=f"metadata.ownerReferences[*].uid={escape(uid)}")

    def owner_of(self, obj: Any) -> _hot.View | None:
        """The owner of an object in this resource, the controlling one first; or None.

        The owner has the UID of the reference: a later object of the same name is another one.
        """
        metadata = obj.get("metadata") if hasattr(obj, "get") else None
        if metadata is None:
            raise TypeError(f"owner_of() needs an object with metadata, not {obj!r}")
        references = sorted(
            metadata.get("ownerReferences") or (), key=lambda one: not one.get("controller")
        )
        for reference in references:
            for key in (f"{metadata.get('namespace')}/{reference['name']}", reference["name"]):
                found = self.get(key)
                if found is not None and uid_of(found) == reference["uid"]:
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
        """(key, object) with start <= key < stop, in order; at most `limit`, after `after`."""
        found: Items = self.scan(start=start, stop=stop, after=after, limit=limit)
        return found

    def by_index(  # type: ignore[override]  # the base takes its number
        self, index: str, value: str, *, after: str | None = None, limit: int = 0
    ) -> Views:
        """The objects with this value in an index, in key order; at most `limit`, after `after`."""
        return super().by_index(self._index(index), value, after=after, limit=limit)

    def index_keys(
        self, index: str, value: str, *, after: str | None = None, limit: int = 0
    ) -> Strings:
        """The keys of by_index(), without the objects."""
        return super().by_index(self._index(index), value, after=after, limit=limit, want="keys")

    def index_values(  # type: ignore[override]  # as by_index()
        self, index: str, *, prefix: str | None = None, after: str | None = None, limit: int = 0
    ) -> Strings:
        """The distinct values of an index, in order; at most `limit`, after `after`."""
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
        """Moves to the reader that the cache has now. Called by look-ups."""
        try:
            cache = self.cache
        except AttributeError:
            return  # a resource of a snapshot
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
            known = f", only {', '.join(self._indices)}" if self._indices else ""
            raise KeyError(
                f"{self.name}: no index {index!r}{known}; "
                f"the reflector adds it with `--index {self.name}:{index}=PATH`"
            ) from None

    # ---- models --------------------------------------------------------------------------------

    def models(
        self, of: Any = None, *, version: str | None = None, validate: str = "lazily"
    ) -> ModelResource:
        """The same resource with objects that read as models, straight from the cache.

        `of`: a client library, whose models' attributes they have: "kubernetes" (the default),
        "kubernetes.aio", "kubernetes_asyncio" or "lightkube", in its installed version or in
        `version`; or a class: a dataclass, attrs, msgspec.Struct or pydantic class. Objects of
        such a class are validated "lazily", each attribute when it is read, or "at once", which
        makes instances of it.
        """
        from shmcache.models.lister import ModelResource, wrapping

        return ModelResource(self, wrapping(of, version, validate))

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
        """Calls these for every change, after one on_add for each existing object (G11).

            on_add(obj, initial)           initial: part of the first content, not news
            on_update(old, new)
            on_delete(obj, unknown)        unknown: the deletion was found, not seen

        `labels`, `fields`, `namespace`, `shard` (i, n): only objects that they select; an object
        that begins to match is added, one that ceases to match is deleted. A Tombstone stands for
        an object whose last state is lost. `resync`: the seconds after which every object is
        repeated, as an update from `new` to `new`. `name`: for logs and metrics.

        Handlers run after cache.start() or cache.run(), each registration in a thread of its own.
        """
        from shmcache.handlers.registering import add_handler

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
        """`async for event in pods.events()`: the events of a registration, on asyncio (G11).

        Each iteration has its own position in the ring, and does not need start().
        """
        from shmcache.handlers.registering import events

        return events(self, labels=labels, fields=fields, namespace=namespace, shard=shard)

    def consumer(
        self,
        name: str,
        directory: str,
        *,
        labels: Labels | None = None,
        fields: Fields | None = None,
        namespace: str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> Consumer:
        """A durable consumer: it goes on where the last process of this name came to (G49).

            with pods.consumer("scheduler", "/var/lib/scheduler", labels="app=web") as consumer:
                for event in consumer:
                    work(event.type, event.key, event.object)

        Its file in `directory` (which exists, on a disk) has the acknowledged point in the ring and
        the identity of each object that the consumer has. Where the ring does not lead on, it
        receives the difference. An object that exists and is not selected any more has LEFT, one
        that does not exist is DELETED. Another selection under the same name is such a difference.

        BusyError while another consumer has this name open.
        """
        from shmcache.handlers.registering import consumer

        return consumer(
            self,
            name,
            directory,
            labels=labels,
            fields=fields,
            namespace=namespace,
            shard=shard,
        )

    # ---- tables ----------------------------------------------------------------------------------

    def frame(
        self,
        columns: Mapping[str, str | Total],
        *,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> ColumnFrame:
        """Values of all selected objects as columns: {"node": "spec.nodeName", ...}.

        polars, pyarrow, duckdb and others take the result as it is; `.polars()`, `.pandas()`,
        `.pyarrow()` and `.to_dict()` do it. A path with [*] gives the first value, total(path) of
        shmcache.integrations.frames the sum of quantities. The values of a column are all texts,
        all numbers or all flags (TypeError).
        """
        from shmcache.integrations.frames import frame

        return frame(self, columns, namespace=namespace, labels=labels, fields=fields)

    def group_by(
        self,
        path: str,
        *,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> GroupBy:
        """The selected objects by the value of a path: `.count()`, `.sum(path)`, `.live()`."""
        from shmcache.integrations.frames import GroupBy

        return GroupBy(self, path, namespace=namespace, labels=labels, fields=fields)

    # ---- at a prompt -----------------------------------------------------------------------------

    def __repr__(self) -> str:
        try:
            return f"<shmcache.CachedResource {self.name}: {len(self)} objects>"
        except ShmCacheError as error:
            named = getattr(self, "_named", "")
            return f"<shmcache.CachedResource {named}: {type(error).__name__}>"

    def _absent(self, key: str) -> KeyError:
        """The KeyError for a key without a slash: called by [...]."""
        error = KeyError(key)
        first = next(iter(self), "")
        if "/" in first:
            error.add_note(
                f"keys of {self.name} are namespace/name, such as {first!r}; "
                f"in one namespace: {self.name}.get({key!r}, namespace=...)"
            )
        return error

    def _ipython_key_completions_(self) -> Strings:
        found: Strings = self.scan(limit=_COMPLETIONS, want="keys")
        return found

    def _repr_html_(self) -> str:
        from shmcache.prompt import ROWS, table

        objects: Views = self.scan(limit=ROWS, want="values")
        return table(objects, len(self))
