"""Staging the new content of a resource, while its old content is served.

Staged objects are encoded in batches that publish nothing, so that a long list delays nobody;
Writer.begin_replace() swaps them in when all of them are staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shmcache import _hot
from shmcache._native import NOT_FOUND, check, lib
from shmcache.writer.catalogue import emit
from shmcache.writer.indexing import identity
from shmcache.writer.items import apply_items

if TYPE_CHECKING:
    from shmcache.protocol.items import Item
    from shmcache.writer.catalogue import Declared
    from shmcache.writer.handle import Handle

CHUNK = 500  # objects that are encoded in one turn of the writer


class Staged:
    """The new content of a resource, not visible yet: see Writer.begin_replace()."""

    __slots__ = ("_declared", "_handle", "marks", "prefix", "version")

    def __init__(
        self, handle: Handle, declared: Declared, version: str | None, prefix: str = ""
    ) -> None:
        self._handle = handle
        self._declared = declared
        self.prefix = prefix
        self.version = version
        """The resource's resourceVersion once this is swapped in; may be set until then."""
        self.marks = ""
        """As Writer.set_marks(), in the same generation; "" leaves them."""

    def put(self, key: str, obj: Any, version: str | None = None) -> None:
        """Stages one object; of two under one key the later counts."""
        handle, declared = self._handle, self._declared
        if not key.startswith(self.prefix):
            raise ValueError(f"{declared.name}: {key!r} is not under {self.prefix!r}")
        with handle.change(declared.name, whole=False):
            emitted = emit(handle, declared, key, obj) if declared.functions else None
            _hot.stage(handle.address, declared.id, key, obj, version, emitted)

    def delete(self, key: str) -> None:
        """Removes the staged object of `key`, if there is one."""
        declared, name = self._declared, key.encode()
        with self._handle.change(declared.name, whole=False) as raw:
            check(lib.shmc_unstage(raw, declared.id, name, len(name)), f"unstage {key}")

    def keep(self, key: str) -> None:
        """Stages the published object of `key`, if there is one."""
        declared, name = self._declared, key.encode()
        with self._handle.change(declared.name, whole=False) as raw:
            status = lib.shmc_restage(raw, declared.id, name, len(name))
            if status != NOT_FOUND:
                check(status, f"{declared.name}: staging the published object")

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> int:
        """Stages Kubernetes objects under namespace/name; how many."""
        handle, declared, count = self._handle, self._declared, 0
        for chunk in _chunks(objects, CHUNK):
            with handle.change(declared.name, whole=True):
                if not declared.functions and not self.prefix:
                    _hot.stage_all(handle.address, declared.id, chunk)
                    count += len(chunk)
                    continue
                for obj in chunk:
                    key, version = identity(obj)
                    self.put(key, obj, version)
            count += len(chunk)
        return count

    def apply_items(self, items: list[Item]) -> int:
        """Stages objects as they came, DELETED takes back; how many were staged or taken back.

        An object that cannot be stored is refused as by Writer.apply_items().
        """
        handle, declared, count = self._handle, self._declared, 0
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            for item in chunk if self.prefix else ():
                if item.key and not item.key.startswith(self.prefix):
                    raise ValueError(f"{declared.name}: {item.key!r} is not under {self.prefix!r}")
            with handle.change(declared.name, whole=True):
                count += apply_items(handle, declared, chunk, self)
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
