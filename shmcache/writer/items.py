"""Objects and items into a resource, in the open batch.

The JSON text of an item becomes values of the arena without a Python object between them. It is
decoded only where index functions run on the objects. An object that cannot be stored is refused
alone: it is logged with its key, counted, and its key stays as it was.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from shmcache import _hot, _native
from shmcache._native import check, lib
from shmcache.errors import LimitExceeded, UnsupportedValue
from shmcache.writer.catalogue import emit, text_of

if TYPE_CHECKING:
    from shmcache.protocol.items import Item
    from shmcache.writer.catalogue import Declared
    from shmcache.writer.handle import Handle
    from shmcache.writer.staging import Staged

logger = logging.getLogger(__name__)

_STORED = frozenset({"ADDED", "MODIFIED", "LISTED"})


def put(handle: Handle, declared: Declared, key: str, obj: Any, version: str | None) -> bool:
    """Stores one object; whether that changed anything."""
    with handle.change(declared.name, whole=False):
        emitted = emit(handle, declared, key, obj) if declared.functions else None
        return _hot.put(handle.address, declared.id, key, obj, version, emitted)


def delete(
    handle: Handle, declared: Declared, key: str, version: str | None, *, unknown: bool = False
) -> bool:
    """Removes a key; whether it existed."""
    name, last = key.encode(), text_of(version)
    with handle.change(declared.name, whole=False) as raw:
        status = lib.shmc_delete(raw, declared.id, name, len(name), *last, unknown)
        if status == _native.NOT_FOUND:
            return False
        check(status, f"{declared.name}: delete {key}")
        return True


def apply_items(
    handle: Handle, declared: Declared, items: list[Item], staged: Staged | None
) -> int:
    """Stores, deletes or stages in the open batch; how many items changed (staged) something."""
    if declared.functions:
        return sum(_decoded(handle, declared, item, staged) for item in items)
    drop = not declared.keep_managed_fields
    changes, refused = _hot.apply_items(
        handle.address, declared.id, items, drop, staged is not None
    )
    log_refused(declared, refused)
    return changes


def log_refused(declared: Declared, refused: list[tuple[str, str]]) -> None:
    """Logs and counts the objects that could not be stored, each with its reason."""
    for key, why in refused:
        _refuse(declared, key, why)


def _refuse(declared: Declared, key: str, why: str) -> None:
    declared.refused += 1
    logger.error("%s: %s is refused: %s", declared.name, key or "an object", why)


def _decoded(handle: Handle, declared: Declared, item: Item, staged: Staged | None) -> int:
    """One item by way of a dict, which the index functions receive."""
    if item.type == "DELETED" and item.key:
        if staged is None:
            return delete(handle, declared, item.key, item.version)
        staged.delete(item.key)
        return 1
    if item.type not in {*_STORED, "DELETED"}:
        raise ValueError(f"an item of type {item.type!r} is not a change of an object")
    try:
        obj = _object(declared, item)
        if staged is None:
            return put(handle, declared, item.key, obj, item.version)
        staged.put(item.key, obj, item.version)
    except (UnsupportedValue, LimitExceeded, ValueError) as error:
        _refuse(declared, item.key, str(error))
        if staged is not None and item.key:
            staged.keep(item.key)
        return 0
    return 1


def _object(declared: Declared, item: Item) -> dict[str, object]:
    import orjson

    if not item.key:
        raise UnsupportedValue("it has no name")
    obj = orjson.loads(item.raw)
    if not isinstance(obj, dict):
        raise UnsupportedValue("it is not a JSON object")
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and not declared.keep_managed_fields:
        metadata.pop("managedFields", None)
    return obj
