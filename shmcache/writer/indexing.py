"""Index functions: values of an index that no path can name, computed in the writer.

A function is given the object and returns a str, several, or nothing. One that raises leaves
that object without values in that index: the failure is counted, and logged once for each kind of
error; all else goes on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING, Any

from shmcache import _hot, _native
from shmcache._native import NULL, check, ffi, lib
from shmcache.callables import check_plain, imported, refuse_awaitable
from shmcache.settings import Emit, IndexSpec

if TYPE_CHECKING:
    from shmcache.memory.mapping import Segments

logger = logging.getLogger(__name__)


def resolve(index: str, spec: IndexSpec) -> Emit | None:
    """The function of a spec, imported if need be; None for a path, which the core evaluates."""
    if not isinstance(spec, str):
        return spec
    if ":" not in spec:
        return None
    found = imported(spec)
    if not callable(found):
        raise TypeError(f"index {index!r}: {spec} is not a function")
    check_plain(found, f"index {index!r}: {spec}", iterated=True)
    emit: Emit = found
    return emit


class Functions:
    """The index functions of one resource, in the order of their declaration."""

    __slots__ = ("_seen", "emits", "failures", "resource")

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.failures = 0
        self._seen: set[tuple[str, type[Exception]]] = set()
        self.emits: list[tuple[str, Emit]] = []

    def __len__(self) -> int:
        return len(self.emits)

    def add(self, index: str, emit: Emit) -> None:
        """Behind those that are there already."""
        self.emits.append((index, emit))

    def drop_last(self) -> None:
        """Undoes the latest add()."""
        self.emits.pop()

    def emit(self, key: str, obj: Any) -> tuple[tuple[str, ...], ...]:
        """One tuple of values per function; an empty one where the function raised."""
        return tuple(self._one(index, emit, key, obj) for index, emit in self.emits)

    def _one(self, index: str, emit: Emit, key: str, obj: Any) -> tuple[str, ...]:
        try:
            values = emit(obj)
            refuse_awaitable(values, f"the function of index {index!r}")
            return values_of(values)
        except Exception as error:
            self.failures += 1
            if (index, type(error)) not in self._seen:  # the rest is only counted
                self._seen.add((index, type(error)))
                logger.exception("%s: index %s fails on %s", self.resource, index, key)
            return ()


def values_of(answer: str | Iterable[str] | None) -> tuple[str, ...]:
    """The values as a tuple of str; TypeError for anything else."""
    if answer is None:
        return ()
    if isinstance(answer, str):
        return (answer,)
    values = tuple(answer)
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"an index value must be a str, not {value!r}")
    return values


def identity_of(emit: Callable[..., Any]) -> str | None:
    """Identifies a function, and differs after a change of its code.

    Its name, and a digest of its code with all inner definitions; not of functions that it calls.
    None if the function cannot be identified: then it counts as another one each time.
    """
    code = getattr(emit, "__code__", None)
    if code is None or getattr(emit, "__closure__", None):
        return None
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr((emit.__defaults__, emit.__kwdefaults__)).encode())
    _digest(digest, code)
    return f"{emit.__module__}:{emit.__qualname__}#{digest.hexdigest()}"


def _digest(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_argcount)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _digest(digest, constant)
        elif isinstance(constant, frozenset):  # whose order is another in each process
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())


@contextmanager
def looking(segments: Segments) -> Iterator[_hot.Reader]:
    """A reader of the process that writes, without a seat.

    The writer must reclaim nothing meanwhile, as it does while its own batch is open.
    """
    made = ffi.new("struct shmc_reader **")
    check(lib.shmc_reader_create(segments.data, NULL, made), "reading what is there")
    reader = _hot.Reader(
        _native.address(made[0]), segments, lambda: lib.shmc_reader_destroy(made[0])
    )
    try:
        yield reader
    finally:
        reader.close()


def published(segments: Segments, number: int) -> Iterator[tuple[str, Any]]:
    """(key, View) of each object of resource `number`, for the process that writes it."""
    with looking(segments) as reader:
        yield from _hot.Resource(reader, number).items()


def identity(obj: Mapping[str, Any]) -> tuple[str, str | None]:
    """Key and version of a Kubernetes object, as `_hot.apply` takes them in C."""
    metadata = obj["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace")
    return f"{namespace}/{name}" if namespace else name, metadata.get("resourceVersion")
