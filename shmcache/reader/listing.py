"""Which way to a list is the shortest, and the list itself.

A selection is a namespace, a label selector, a field selector, a shard. There are several ways to
what it selects, and each gives a little too much:

    a key         namespace and metadata.name are both known: one look-up
    an index      on metadata.labels, or on the very path of a label or field that must have a value
    a namespace   the keys that begin with it
    everything

The way that ends first is taken (they are tried with growing limits where there are several); what
it gives too much is sifted out by the core, before any object is made.
"""

from __future__ import annotations

from shmcache import _hot
from shmcache.errors import StaleObjectError
from shmcache.protocol.selectors import fields as field_paths
from shmcache.protocol.selectors.labels import DOUBLE_EQUALS, EQUALS, IN
from shmcache.reader.selectors import FieldSelector, LabelSelector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from shmcache.protocol.selectors.shards import ShardSelector
    from shmcache.reader.resources import CachedResource

    Shard = tuple[int, int] | ShardSelector
    Asked = tuple[str | None, "Labels | None", "Fields | None", Shard | None]
    Group = tuple[tuple[str, ...], tuple[_hot.Test, ...]]
    Labels = str | LabelSelector | Mapping[str, str]
    Fields = str | FieldSelector

_by_index = _hot.Resource.by_index  # which takes the number of an index
_LABELS = ("metadata", "labels")
_ONE_OF = frozenset((EQUALS, DOUBLE_EQUALS, IN))
_FIRST_LOOK, _WIDER = 16, 8  # how many entries of each way are counted at first, and how it grows
_TRIES = 32  # of a union of index values, on as many roots
_REMEMBERED = 256  # selections that were compiled, and ways of a resource
_TERM, _LARGE = 4, 256  # a term counts as so many values; larger selections are not remembered
_USES = 64  # of a way, until they are compared again


class Selection:
    """A compiled selection. `simple`: `where` has a single requirement.

    `sift`: the requirements that the core cannot evaluate, for the objects that it lets through.
    `large`: it takes so much memory that many of them are not kept for later.
    """

    __slots__ = (
        "fields", "labels", "large", "namespace", "prefix", "shard", "sift", "simple", "where",
    )  # fmt: skip

    def __init__(
        self,
        namespace: str | None,
        labels: LabelSelector | None,
        fields: FieldSelector | None,
        shard: Shard | None,
    ) -> None:
        self.labels = labels
        self.fields = fields
        self.shard = shard
        exact = fields.exact("metadata.namespace") if fields else None
        self.namespace = namespace or exact or None
        self.prefix = None if self.namespace is None else self.namespace + "/"  # of the keys
        groups = (*_label_groups(labels), *_field_groups(fields))
        self.simple = not shard and sum(len(tests) for _, tests in groups) == 1
        self.where = _where(groups, shard) if groups or shard else None
        self.sift = fields if fields and fields.sifts else None
        terms = (*(labels.requirements if labels else ()), *(fields.requirements if fields else ()))
        self.large = sum(_TERM + len(term.values) for term in terms) > _LARGE

    @property
    def selects(self) -> bool:
        """Whether it has requirements on objects."""
        return self.where is not None or self.sift is not None


def _where(groups: tuple[Group, ...], shard: Shard | None) -> _hot.Where:
    if shard is None or isinstance(shard, tuple):
        return _hot.Where(groups, shard)
    return _hot.Where(groups, hashes=shard.hashes)


_compiled: dict[tuple[object, ...], Selection] = {}


def selection(
    namespace: str | None, labels: Labels | None, fields: Fields | None, shard: Shard | None
) -> Selection:
    """The selection; InvalidSelector or TypeError for invalid ones. Texts are parsed once."""
    check_fields(fields)
    asked = (namespace, _hashable(labels), fields, shard)
    found = _compiled.get(asked)
    if found is None:
        check_namespace(namespace)
        found = Selection(namespace, label_selector(labels), field_selector(fields), shard)
        if found.large:
            return found
        if len(_compiled) >= _REMEMBERED:
            _compiled.clear()
        _compiled[asked] = found
    return found


def check_namespace(namespace: object) -> None:
    """A TypeError that names the cure for a namespace that is not a str."""
    if not (namespace is None or isinstance(namespace, str)):
        raise TypeError(f"namespace must be a str, not {namespace!r}")
    if namespace and "/" in namespace:
        raise ValueError(
            f"namespace={namespace!r} has a slash: the objects of a namespace are list('prod'), "
            "one object is [namespace/name]"
        )


def check_fields(fields: object) -> None:
    """A TypeError that names the cure for something that is not a field selector."""
    if not (fields is None or isinstance(fields, str | FieldSelector)):
        raise TypeError(f"fields must be a FieldSelector or its text, not {fields!r}")


def _hashable(labels: Labels | None) -> object:
    if labels is None or isinstance(labels, (str, LabelSelector)):
        return labels
    if not hasattr(labels, "items"):
        raise TypeError(f"labels must be a LabelSelector, its text or a dict, not {labels!r}")
    return frozenset(labels.items())


def label_selector(labels: Labels | None) -> LabelSelector | None:
    """The selector that labels stand for."""
    if labels is None or isinstance(labels, LabelSelector):
        return labels
    return LabelSelector.parse(labels) if isinstance(labels, str) else LabelSelector.of(labels)


def field_selector(fields: Fields | None) -> FieldSelector | None:
    """The selector that fields stand for."""
    if fields is None or isinstance(fields, FieldSelector):
        return fields
    return FieldSelector.parse(fields)


def _label_groups(labels: LabelSelector | None) -> Iterator[Group]:
    if labels:
        tests = []
        for requirement in labels.requirements:
            operator = IN if requirement.operator in _ONE_OF else requirement.operator
            operator = "notin" if operator == "!=" else operator
            tests.append(((requirement.key,), operator, requirement.values))
        yield _LABELS, tuple(tests)


def _field_groups(fields: FieldSelector | None) -> Iterator[Group]:
    for requirement in fields.asked if fields else ():
        steps = field_paths.steps_of(requirement.key)
        cut = steps.index(None) if None in steps else len(steps)
        head = tuple(step for step in steps[:cut] if step is not None)
        yield head, ((steps[cut:], requirement.operator, requirement.values),)


# ---- ways ----------------------------------------------------------------------------------------


class Way:
    """One way to a list: of these values of an index, of a prefix of the keys, or everything."""

    __slots__ = ("index", "key", "name", "values")

    def __init__(
        self,
        name: str,
        index: int = -1,
        values: tuple[str, ...] = (),
        key: str | None = None,
    ) -> None:
        self.name = name
        self.index = index
        self.values = values
        self.key = key

    def keys(self, resource: _hot.Resource, prefix: str | None, limit: int) -> int:
        """How many keys it leads to, counted up to a limit."""
        if self.index < 0:
            return len(resource.scan(prefix=prefix, limit=limit, want="keys"))
        found = 0
        for value in self.values:
            left = limit - found
            if left > 0:
                found += len(
                    _by_index(resource, self.index, value, None, left, "keys", None, prefix)
                )
        return found

    def items(
        self, resource: _hot.Resource, wanted: Selection, after: str | None, limit: int
    ) -> list[Any]:
        """The objects, sorted by key. One question, but for the values of an index: one each."""
        prefix, where = wanted.prefix, wanted.where
        if wanted.simple and self.index >= 0:
            where = None  # the index has answered all that is asked
        if self.key is not None:
            return _one(resource, self.key, wanted, after)
        if self.index < 0:
            return resource.scan(
                prefix=prefix, after=after, limit=limit, want="values", where=where
            )
        merged: dict[str, Any] = {}
        for value in self.values:
            merged.update(
                _by_index(resource, self.index, value, after, limit, "items", where, prefix)
            )
        ordered = sorted(merged, key=str.encode)
        return [merged[key] for key in (ordered[:limit] if limit else ordered)]


def _one(resource: _hot.Resource, key: str, wanted: Selection, after: str | None) -> list[Any]:
    if after is not None and key.encode() <= after.encode():
        return []
    return resource.scan(start=key, stop=key + "\0", want="values", where=wanted.where)


def ways_to(wanted: Selection, indices: list[_hot.IndexEntry]) -> list[Way]:
    """All ways, the widest last. `indices`: as record() has them.

    An index by a function has no path: no selector can know what its values mean.
    """
    name = wanted.fields.exact("metadata.name") if wanted.fields else None
    if name and wanted.namespace is not None:
        key = f"{wanted.namespace}/{name}"
        return [Way(f"key {key}", key=key)]
    found = []
    for number, (index, path, _) in enumerate(indices):
        if isinstance(path, str):
            found += [
                Way(f"index {index} = {' or '.join(values)}", number, values)
                for values in _values_in(field_paths.steps_of(path), wanted)
            ]
    if wanted.namespace is not None:
        found.append(Way(f"namespace {wanted.namespace}"))
    return found or [Way("everything")]


def _values_in(steps: tuple[str | None, ...], wanted: Selection) -> Iterator[tuple[str, ...]]:
    """Values of an index of this path, one of which each selected object must have."""
    for requirement in wanted.labels.requirements if wanted.labels else ():
        if requirement.operator in _ONE_OF:
            if steps == _LABELS:
                yield tuple(f"{requirement.key}={value}" for value in requirement.values)
            elif steps == (*_LABELS, requirement.key):
                yield requirement.values
    for requirement in wanted.fields.asked if wanted.fields else ():
        something = requirement.operator == EQUALS and requirement.values[0]
        if something and steps == field_paths.steps_of(requirement.key):
            yield requirement.values


class ListPlan:
    """Which way a list would go, and why: what explain() gives. str() is for people."""

    __slots__ = ("others", "sifted", "way", "why")

    def __init__(self, way: Way, others: list[Way], why: str, *, sifted: bool) -> None:
        self.way = way
        self.others = others
        self.why = why
        self.sifted = sifted

    @property
    def uses(self) -> str:
        """The way taken: "index node = n-7", "namespace prod", "key prod/web-0", "everything"."""
        return self.way.name

    def __str__(self) -> str:
        rest = ", sifted by the selectors" if self.sifted else ""
        return f"{self.way.name}{rest} ({self.why})"

    def __repr__(self) -> str:
        return f"<shmcache.ListPlan: {self}>"


def _sifted(wanted: Selection, way: Way) -> bool:
    return wanted.where is not None and not (wanted.simple and way.index >= 0)


def plan(resource: _hot.Resource, wanted: Selection) -> ListPlan:
    """The way that ends first."""
    ways = ways_to(wanted, resource.record()["indices"])
    if len(ways) == 1:
        only = "there is no index for it" if ways[0].name == "everything" else "the only way"
        if wanted.where is None:
            only = "nothing else is asked"
        return ListPlan(ways[0], [], only, sifted=_sifted(wanted, ways[0]))
    limit, counts = _FIRST_LOOK, [0] * len(ways)
    while True:
        counts = [way.keys(resource, wanted.prefix, limit) for way in ways]
        least = min(counts)
        if least < limit:
            break
        limit *= _WIDER
    best = ways[counts.index(least)]
    others = [way for way in ways if way is not best]
    why = f"{least} entries; " + ", ".join(
        f"{way.name}: {'at least ' if count >= limit else ''}{count}"
        for way, count in zip(ways, counts, strict=True)
        if way is not best
    )
    return ListPlan(best, others, why, sifted=_sifted(wanted, best))


class Remembered:
    """The way that a selection took last in a resource; thought over again after some uses.

    An index that came meanwhile is found then: until then the old way is a detour, no error. The
    numbers of indices are those of one instance of the cache: that of `reader`.
    """

    __slots__ = ("index", "prefix", "reader", "uses", "value", "wanted", "way", "where")

    def __init__(self, resource: CachedResource, wanted: Selection) -> None:
        self.reader = resource.reader
        self.wanted = wanted
        self.way = way = plan(resource, wanted).way
        self.uses = _USES
        self.index = way.index
        self.value = way.values[0] if len(way.values) == 1 else None
        self.where = None if wanted.simple and way.index >= 0 else wanted.where
        self.prefix = wanted.prefix


def _known(resource: CachedResource, asked: Asked) -> Remembered:
    """The way remembered, or one thought over; what is asked may be written as a dict here."""
    try:
        ways = resource._ways  # noqa: SLF001 - ours: kept there for its lifetime
    except AttributeError:
        ways = resource._ways = {}  # noqa: SLF001
    namespace, labels, fields, shard = asked
    check_namespace(namespace)
    check_fields(fields)
    key = (namespace, _hashable(labels), fields, shard)
    found = ways.get(key)
    if found is None or found.uses <= 0:
        wanted = selection(*asked)
        found = Remembered(resource, wanted)
        if wanted.large:
            return found
        if len(ways) >= _REMEMBERED:
            ways.clear()
        ways[key] = found
    return found


def select(resource: CachedResource, asked: Asked, after: str | None, limit: int) -> list[Any]:
    """The selected objects of one state, sorted by key: `limit` of them behind `after`."""
    while True:
        try:
            known = resource._ways[asked]  # noqa: SLF001
        except (AttributeError, KeyError, TypeError):  # TypeError: a dict of labels
            known = _known(resource, asked)
        if known.uses <= 0:
            known = _known(resource, asked)
        known.uses -= 1
        sift = known.wanted.sift
        try:
            found = _go(resource, known, after, 0 if sift else limit)
            if sift:
                chosen = [obj for obj in found if sift.matches(obj)]
                found = chosen[:limit] if limit else chosen
        except LookupError:  # an index that the instance read now does not have
            if resource.reader is known.reader:
                raise
            continue
        if resource.reader is known.reader:  # else the numbers of its indices meant others
            return found


def _go(resource: CachedResource, known: Remembered, after: str | None, limit: int) -> list[Any]:
    if known.value is not None:
        where, prefix = known.where, known.prefix
        return _by_index(resource, known.index, known.value, after, limit, "values", where, prefix)
    if known.index < 0 or resource.root is not None:
        return known.way.items(resource, known.wanted, after, limit)
    return _union(resource, known, after, limit)


def _union(resource: CachedResource, known: Remembered, after: str | None, limit: int) -> list[Any]:
    """Of several values of an index: several questions to one root."""
    for tries in range(_TRIES):
        at = _hot.Resource(resource.reader, resource.id, resource.reader.root())
        try:
            return known.way.items(at, known.wanted, after, limit)
        except StaleObjectError:  # so much was written meanwhile: on a newer root
            if tries == _TRIES - 1:
                raise
    raise AssertionError("unreachable")
