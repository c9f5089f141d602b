"""Columns: some fields of all objects of a resource as NumPy arrays.

    with cache.snapshot() as at:
        table = shmcache.columns(at["pods"], node="spec.nodeName", phase="status.phase")
    node, count = numpy.unique(table["node"], return_counts=True)

An array is a copy: no buffer leads into the cache, and an array outlives its snapshot. Needs the
extra `analysis`. NumPy is imported at first use, sharedmem (GPLv3) only for `shared=True`, which
puts the arrays where forked children can write them for their parent to read:

    * only children of fork() share them; in spawned ones they are copies;
    * the memory is given back when the last process that has it ends, or drops it;
    * nothing orders what several processes write: give each its own part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shmcache.callables import check_plain
from shmcache.protocol.selectors.fields import steps_of
from shmcache.writer.indexing import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmcache import CachedResource, View

    Column = str | Callable[[View], Any]


class Columns(dict[str, Any]):
    """Arrays by name; `keys_of` has the objects' keys in the same order."""

    keys_of: list[str]

    def __init__(self, arrays: Mapping[str, Any], keys: list[str]) -> None:
        super().__init__(arrays)
        self.keys_of = keys


def columns(
    source: CachedResource | Iterable[View], /, *, shared: bool = False, **wanted: Column
) -> Columns:
    """One array for each of `wanted`; a row for each object of the source, in its order.

    The source is a resource (best a snapshot's: all is of one moment), or what list() gave. A
    column is a path, as in an index, or a function of the object. Its values are all texts, all
    flags, or all numbers; TypeError names the object where that is not so. A missing value is ""
    in a column of texts, and NaN in one of numbers, which then has floats; no flag may be missing.
    A path with [*] gives the first value. Whole numbers are int64, OverflowError beyond.
    """
    readers = {name: _reader(column) for name, column in wanted.items()}
    keys: list[str] = []
    found: dict[str, list[Any]] = {name: [] for name in wanted}
    for key, obj in _rows(source):
        keys.append(key)
        for name, read in readers.items():
            found[name].append(read(obj))
    make = _shared if shared else _own
    return Columns({name: make(_array(name, found[name], keys)) for name in wanted}, keys)


def _rows(source: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(source, "items"):
        rows: Iterable[tuple[str, Any]] = source.items()
        return rows
    return ((identity(obj)[0], obj) for obj in source)


# ---- values --------------------------------------------------------------------------------------


def _reader(column: Column) -> Callable[[Any], Any]:
    if callable(column):
        check_plain(column, "the function of a column")
        return column
    steps = steps_of(column)
    return lambda obj: _first(obj, steps)


def _first(value: Any, steps: Sequence[str | None]) -> Any:
    """The first value where the steps lead to; None if they lead nowhere."""
    for at, step in enumerate(steps):
        if step is not None:
            value = value.get(step) if isinstance(value, Mapping) else None
        elif isinstance(value, Sequence) and not isinstance(value, str):
            rest = steps[at + 1 :]
            return next((v for each in value if (v := _first(each, rest)) is not None), None)
        else:
            return None
        if value is None:
            return None
    return value


_KINDS = {str: "texts", bool: "flags", int: "numbers", float: "numbers"}


def _array(name: str, values: list[Any], keys: list[str]) -> Any:
    """The values as an array of the one kind that they are of."""
    import numpy as np

    kinds = {_kind(name, value, key) for value, key in zip(values, keys, strict=True)} - {None}
    if len(kinds) > 1:
        raise TypeError(f"column {name}: {' and '.join(sorted(map(str, kinds)))} in one column")
    kind, missing = next(iter(kinds), "numbers"), None in values
    if kind == "texts":
        return np.array(["" if value is None else value for value in values], dtype=str)
    if kind == "flags":
        if missing:
            raise TypeError(f"column {name}: {keys[values.index(None)]} has no value")
        return np.array(values, dtype=bool)
    if missing or any(isinstance(value, float) for value in values):
        return np.array([math.nan if v is None else v for v in values], dtype=np.float64)
    return np.array(values, dtype=np.int64)


def _kind(name: str, value: Any, key: str) -> str | None:
    if value is None:
        return None
    found = _KINDS.get(type(value))
    if found is None:
        raise TypeError(
            f"column {name}: {key} has a {type(value).__name__}, no text, flag or number"
        )
    return found


# ---- memory --------------------------------------------------------------------------------------


def _own(array: Any) -> Any:
    return array


def _shared(array: Any) -> Any:
    """The same in memory that children of fork() share; a plain array, which pickles as a copy."""
    import numpy as np
    import sharedmem

    made = sharedmem.empty(array.shape, array.dtype).view(np.ndarray)
    made[...] = array
    return made
