"""Items into a resource: the JSON text of objects, as a list or a watch brought it.

The text becomes values of the arena without a Python object between them. Only where functions run
on the objects (indices that no path can name) is it decoded first. One object that cannot be stored
is refused alone: it is logged with its key, counted, and its key stays as it was.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shmcache import _hot, _native
from shmcache._native import check, lib
from shmcache.errors import LimitExceeded, UnsupportedValue

if TYPE_CHECKING:
    from shmcache.protocol.items import Item
    from shmcache.staging import Staged
    from shmcache.writer import Declared, Writer

logger = logging.getLogger(__name__)

_STORED = frozenset({"ADDED", "MODIFIED", "LISTED"})


def apply_items(
    writer: Writer, declared: Declared, items: list[Item], staged: Staged | None
) -> int:
    """Stores, deletes or stages in the open batch; how many items changed (staged) something."""
    if declared.functions:
        return sum(_decoded(writer, declared, item, staged) for item in items)
    changes, refused = _hot.apply_items(
        writer._address,  # noqa: SLF001
        declared.id,
        items,
        not declared.keep_managed_fields,
        staged is not None,
    )
    log_refused(declared, refused)
    return changes


def log_refused(declared: Declared, refused: list[tuple[str, str]]) -> None:
    """Says and counts what could not be stored, and why."""
    for key, why in refused:
        _refuse(declared, key, why)


def _refuse(declared: Declared, key: str, why: str) -> None:
    declared.refused += 1
    logger.error("%s: %s is refused: %s", declared.name, key or "an object", why)


def _decoded(writer: Writer, declared: Declared, item: Item, staged: Staged | None) -> int:
    """One item by way of a dict, which the index functions are given."""
    if item.type == "DELETED" and item.key:
        if staged is not None:
            staged.delete(item.key)
            return 1
        return writer.delete(declared.name, item.key, item.version)
    if item.type not in {*_STORED, "DELETED"}:
        raise ValueError(f"an item of type {item.type!r} is no change of an object")
    try:
        obj = _object(declared, item)
        if staged is None:
            return writer.put(declared.name, item.key, obj, item.version)
        staged.put(item.key, obj, item.version)
    except (UnsupportedValue, LimitExceeded, ValueError) as error:
        _refuse(declared, item.key, str(error))
        if staged is not None and item.key:
            _restage(writer, declared, item.key)
        return 0
    return 1


def _object(declared: Declared, item: Item) -> dict[str, object]:
    import orjson

    if not item.key:
        raise UnsupportedValue("it has no name")
    obj = orjson.loads(item.raw)
    if not isinstance(obj, dict):
        raise UnsupportedValue("it is no JSON object")
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and not declared.keep_managed_fields:
        metadata.pop("managedFields", None)
    return obj


def _restage(writer: Writer, declared: Declared, key: str) -> None:
    """What is published under the key goes on to be there."""
    name = key.encode()
    with writer._change(declared.name, whole=False) as handle:  # noqa: SLF001
        status = lib.shmc_restage(handle, declared.id, name, len(name))
        if status != _native.NOT_FOUND:
            check(status, f"{declared.name}: staging what is there")
