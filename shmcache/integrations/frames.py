"""Data frames and groups, from columns that the core makes.

    cpu = total("spec.containers[*].resources.requests.cpu")
    frame = pods.frame({"node": "spec.nodeName", "cpu": cpu})
    polars.DataFrame(frame); pyarrow.table(frame); duckdb.sql("select * from frame")

A ColumnFrame speaks Arrow's PyCapsule protocol, so that each of these takes its memory as it is;
texts are dictionary-encoded. None of them is needed to make one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from shmcache import _hot
from shmcache.errors import StaleObjectError
from shmcache.protocol.selectors.fields import steps_of
from shmcache.reader import listing
from shmcache.states import has_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shmcache.reader.listing import Fields, Labels, Selection
    from shmcache.reader.resources import CachedResource

    Value = str | int | float | bool | None

_NANO = 10**9
_TRIES = 32


class Total:
    """A column of sums: see total()."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


def total(path: str) -> Total:
    """A column of frame(): the sum of all quantities of a path in an object, such as 250m or 1Gi.

    As a double; missing where the object has none. Texts that are not quantities are left out.
    """
    return Total(path)


class ColumnFrame:
    """Columns of one state of a resource. A copy: it outlives the state."""

    def __init__(self, arrow: _hot.ArrowColumns) -> None:
        self._arrow = arrow
        self.__arrow_c_array__ = arrow.__arrow_c_array__
        self.__arrow_c_schema__ = arrow.__arrow_c_schema__
        self.__arrow_c_stream__ = arrow.__arrow_c_stream__

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._arrow.names

    def __len__(self) -> int:
        return len(self._arrow)

    def polars(self) -> Any:
        """As a polars.DataFrame; columns of texts are categorical."""
        import polars as pl

        return pl.DataFrame(self)

    def pyarrow(self) -> Any:
        """As a pyarrow.Table, without a copy."""
        import pyarrow as pa

        return pa.table(self)

    def pandas(self) -> Any:
        """As a pandas.DataFrame; columns of texts are categorical. Does not need pyarrow."""
        import pandas as pd

        columns = {
            name: _series(*self._arrow.buffers(number), rows=len(self))
            for number, name in enumerate(self.columns)
        }
        return pd.DataFrame(columns)

    def to_dict(self) -> dict[str, list[Value]]:
        """Lists of Python values, by column; None where a value is missing."""
        return {
            name: _plain(*self._arrow.buffers(number), rows=len(self))
            for number, name in enumerate(self.columns)
        }

    def __repr__(self) -> str:
        return f"<shmcache.ColumnFrame of {len(self)} rows: {', '.join(self.columns)}>"


def _texts(offsets: bytes | None, data: bytes | None) -> list[str]:
    ends = memoryview(offsets or b"").cast("i")
    texts = data or b""
    return [texts[start:end].decode() for start, end in pairwise(ends)]


def _present(validity: bytes | None, rows: int) -> list[bool]:
    if validity is None:
        return [True] * rows
    return [bool(validity[row >> 3] >> (row & 7) & 1) for row in range(rows)]


def _plain(
    kind: str,
    values: bytes,
    validity: bytes | None,
    offsets: bytes | None,
    data: bytes | None,
    *,
    rows: int,
) -> list[Value]:
    found: list[Value]
    if kind == "texts":
        texts = _texts(offsets, data)
        codes = memoryview(values).cast("i")
        found = [texts[code] if texts else None for code in codes]
    elif kind == "flags":
        found = list(_present(values, rows))
    else:
        found = list(memoryview(values).cast("q" if kind == "integers" else "d"))
    present = _present(validity, rows)
    return [value if there else None for value, there in zip(found, present, strict=True)]


def _series(
    kind: str,
    values: bytes,
    validity: bytes | None,
    offsets: bytes | None,
    data: bytes | None,
    *,
    rows: int,
) -> Any:
    import numpy as np
    import pandas as pd

    here = np.array(_present(validity, rows)) if validity is not None else None
    if kind == "texts":
        codes = np.frombuffer(values, np.int32)
        if here is not None:
            codes = np.where(here, codes, -1)
        return pd.Categorical.from_codes(codes, _texts(offsets, data))
    if kind == "flags":
        flags = np.array(_present(values, rows), bool)
        missing = np.zeros(rows, bool) if here is None else ~here
        return pd.arrays.BooleanArray(flags, missing)
    numbers = np.frombuffer(values, np.int64 if kind == "integers" else np.float64)
    return numbers.copy() if here is None else np.where(here, numbers, np.nan)


def frame(
    resource: CachedResource,
    wanted: Mapping[str, str | Total],
    *,
    namespace: str | None,
    labels: Labels | None,
    fields: Fields | None,
) -> ColumnFrame:
    """See CachedResource.frame()."""
    if not wanted:
        raise ValueError("a frame needs a column, such as {'node': 'spec.nodeName'}")
    columns = tuple(_column(name, path) for name, path in wanted.items())
    selected = _selection(namespace, labels, fields)
    for _ in range(_TRIES):
        root = resource.root or resource.reader.root()
        try:
            return ColumnFrame(
                root.columns(columns, resource.id, prefix=selected.prefix, where=selected.where)
            )
        except StaleObjectError:
            if resource.root is not None:
                raise
    raise StaleObjectError(f"{resource.name}: the writer needed the memory of {_TRIES} states")


def _column(name: object, path: object) -> tuple[str, tuple[str | None, ...], bool]:
    sums = isinstance(path, Total)
    text = path.path if isinstance(path, Total) else path
    if not isinstance(name, str) or not isinstance(text, str):
        raise TypeError(
            "a column must be a name and a path, such as 'node': 'spec.nodeName', "
            f"not {name!r}: {path!r}"
        )
    return name, tuple(steps_of(text)), sums


def _selection(namespace: str | None, labels: Labels | None, fields: Fields | None) -> Selection:
    listing.check_namespace(namespace)
    found = listing.selection(namespace, labels, fields, None)
    if found.sift is not None:
        raise ValueError(
            f"fields={fields!r} needs a look at each object, which only list() takes: "
            "select by fields that are paths"
        )
    return found


# ---- groups --------------------------------------------------------------------------------------


class GroupBy:
    """The objects of a resource by the value of a path; count() and sum() read all of them."""

    def __init__(
        self,
        resource: CachedResource,
        path: str,
        *,
        namespace: str | None,
        labels: Labels | None,
        fields: Fields | None,
    ) -> None:
        self._resource = resource
        self._by = tuple(steps_of(path))
        self._selected = _selection(namespace, labels, fields)

    def count(self) -> dict[Value, int]:
        """Objects for each value; None stands for objects without one."""
        return _merged((value, numbers[0]) for value, numbers in self._filled(()).items())

    def sum(self, path: str) -> dict[Value, int | float]:
        """The sum of the quantities of a path, for each value. Exact; an int where it is whole."""
        filled = self._filled((tuple(steps_of(path)),))
        return _sums((value, numbers[1]) for value, numbers in filled.items())

    def _filled(self, sums: tuple[tuple[str | None, ...], ...]) -> _hot.Groups:
        groups = _hot.Groups(self._by, sums)
        resource = self._resource
        for _ in range(_TRIES):
            root = resource.root or resource.reader.root()
            try:
                self._fill(groups, root, resource.id)
            except StaleObjectError:
                if resource.root is not None:
                    raise
            else:
                return groups
        raise StaleObjectError(f"{resource.name}: the writer needed the memory of {_TRIES} states")

    def _fill(self, groups: _hot.Groups, root: _hot.Root, number: int) -> None:
        selected = self._selected
        groups.fill(root, number, prefix=selected.prefix, where=selected.where)

    def live(self, **sums: str) -> LiveGroups:
        """Groups that follow the changes: each read first takes the deltas since the last one.

        `sums` are paths by name: live(cpu="spec.containers[*].resources.requests.cpu").
        """
        if self._resource.root is not None:
            raise ValueError(f"{self._resource.name} is of a snapshot and never changes")
        return LiveGroups(self._resource, self, self._by, sums)


class LiveGroups:
    """Counts and sums by a value, of the latest state at each read. Not thread-safe.

    A read costs the deltas since the last one; where the ring does not lead on, it reads all
    objects again.
    """

    def __init__(
        self,
        resource: CachedResource,
        source: GroupBy,
        by: tuple[str | None, ...],
        sums: Mapping[str, str],
    ) -> None:
        self._resource = resource
        self._source = source
        self._names = {name: number for number, name in enumerate(sums, 1)}
        self._groups = _hot.Groups(by, tuple(tuple(steps_of(path)) for path in sums.values()))
        self._instance = 0
        self._seen: tuple[_hot.Reader | None, int] = (None, 0)
        self.fills = 0
        """How often all objects were read: once at the start, and after each lapse."""

    def _now(self) -> _hot.Groups:
        reader, latest = self._seen
        if reader is not None and reader.latest == latest and not reader.spent:
            return self._groups
        while True:
            root, number = self._resource.cache.look(self._resource.name)
            try:
                self._follow(root, number)
            except StaleObjectError:
                continue
            self._seen = (root.reader, root.generation)
            return self._groups

    def _follow(self, root: _hot.Root, number: int) -> None:
        selected = self._source._selected  # noqa: SLF001 - its own
        groups = self._groups
        if number < 0 or (self.fills and root.instance != self._instance):
            if number < 0 or not has_content(root.record(number)):
                return  # the next instance has not listed it yet: the last counts stay
        elif groups.advance(root, number, selected.where, selected.prefix):
            return
        self._source._fill(groups, root, number)  # noqa: SLF001
        self._instance = root.instance
        self.fills += 1

    def count(self, value: str | None) -> int:
        """Objects with this value; None: without one."""
        found = self._now().get(value)
        return 0 if found is None else found[0]

    def sum(self, name: str, value: str | None) -> int | float:
        """One of the sums, for this value."""
        found = self._now().get(value)
        return 0 if found is None else _number(found[self._names[name]])

    def counts(self) -> dict[Value, int]:
        """Objects for each value."""
        return _merged((value, numbers[0]) for value, numbers in self._now().items())

    def sums(self, name: str) -> dict[Value, int | float]:
        """One of the sums, for each value."""
        column = self._names[name]
        return _sums((value, numbers[column]) for value, numbers in self._now().items())

    def __iter__(self) -> Iterator[Value]:
        return iter(self.counts())

    @property
    def invalid(self) -> int:
        """Values that are not quantities, and are in no sum."""
        return self._now().invalid


def _merged(pairs: Iterable[tuple[Value, int]]) -> dict[Value, int]:
    """A list or a map counts as no value, and Python takes 1 and True for one key."""
    found: dict[Value, int] = {}
    for value, number in pairs:
        found[value] = found.get(value, 0) + number
    return found


def _sums(pairs: Iterable[tuple[Value, int]]) -> dict[Value, int | float]:
    return {value: _number(nano) for value, nano in _merged(pairs).items()}


def _number(nano: int) -> int | float:
    whole, rest = divmod(nano, _NANO)
    return whole if rest == 0 else nano / _NANO
