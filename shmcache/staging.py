"""Staging the new content of a resource, while its old content is served.

Staged objects are encoded in batches that publish nothing, so that a long list holds up nobody;
Writer.begin_replace() swaps them in when all are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shmcache import _hot
from shmcache._native import check, lib
from shmcache.applying import apply_items
from shmcache.indexing import identity

if TYPE_CHECKING:
    from shmcache.protocol.items import Item
    from shmcache.writer import Declared, Writer

CHUNK = 500  # objects that are encoded in one turn of the writer


class Staged:
    """The new content of a resource, not visible yet: see Writer.begin_replace()."""

    __slots__ = ("_declared", "_writer", "marks", "prefix", "version")

    def __init__(
        self, writer: Writer, declared: Declared, version: str | None, prefix: str = ""
    ) -> None:
        self._writer = writer
        self._declared = declared
        self.prefix = prefix
        self.version = version
        """The resource's resourceVersion once this is swapped in; may be set until then."""
        self.marks = ""
        """As Writer.set_marks(), in the same generation; "" leaves them."""

    def put(self, key: str, obj: Any, version: str | None = None) -> None:
        """Stages one object; of two under one key the later counts."""
        writer, declared = self._writer, self._declared
        if not key.startswith(self.prefix):
            raise ValueError(f"{declared.name}: {key!r} is not under {self.prefix!r}")
        with writer._change(declared.name, whole=False):  # noqa: SLF001
            emitted = writer._emit(declared, key, obj) if declared.functions else None  # noqa: SLF001
            _hot.stage(writer._address, declared.id, key, obj, version, emitted)  # noqa: SLF001

    def delete(self, key: str) -> None:
        """Takes back what was staged under `key`, if anything was."""
        writer, name = self._writer, key.encode()
        with writer._change(self._declared.name, whole=False) as handle:  # noqa: SLF001
            check(lib.shmc_unstage(handle, self._declared.id, name, len(name)), f"unstage {key}")

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> int:
        """Stages Kubernetes objects under namespace/name; how many."""
        writer, declared, count = self._writer, self._declared, 0
        for chunk in _chunks(objects, CHUNK):
            with writer._change(declared.name, whole=True):  # noqa: SLF001
                if not declared.functions and not self.prefix:
                    _hot.stage_all(writer._address, declared.id, chunk)  # noqa: SLF001
                    count += len(chunk)
                    continue
                for obj in chunk:
                    key, version = identity(obj)
                    self.put(key, obj, version)
            count += len(chunk)
        return count

    def apply_items(self, items: list[Item]) -> int:
        """Stages objects as they came, DELETED takes back; how many were staged or taken back.

        What cannot be stored is refused as by Writer.apply_items().
        """
        writer, declared, count = self._writer, self._declared, 0
        for chunk in _chunks(items, CHUNK):
            for item in chunk if self.prefix else ():
                if item.key and not item.key.startswith(self.prefix):
                    raise ValueError(f"{declared.name}: {item.key!r} is not under {self.prefix!r}")
            with writer._change(declared.name, whole=True):  # noqa: SLF001
                count += apply_items(writer, declared, chunk, self)
        return count


def _chunks(objects: Iterable[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for obj in objects:
        chunk.append(obj)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
