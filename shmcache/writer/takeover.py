"""Taking over the cache that the previous writer left, as far as it still fits.

    DATA and SEATS of the same geometry ▸ verified by the core ▸ each resource: the same settings?
                                                                 each index: computed the same way?

Only the parts that do not fit are dropped or rebuilt, in one generation: an index is filled from
the stored objects; a resource whose settings differ keeps its objects for its readers and has no
version until it was listed again. If nothing fits, the log gives the reason, and a fresh cache is
built next to the old one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shmcache import _hot, _native, states
from shmcache._native import check, ffi, lib
from shmcache.errors import LayoutMismatch, SegmentNotFound, UntrustedSegment
from shmcache.memory.mapping import Inherited
from shmcache.writer.catalogue import settings_of
from shmcache.writer.indexing import identity_of, looking, resolve

if TYPE_CHECKING:
    from shmcache.memory.segments import Place
    from shmcache.settings import Emit, IndexSpec, Resource, WriterSettings
    from shmcache.writer.catalogue import Declarations, Declared
    from shmcache.writer.handle import Handle

logger = logging.getLogger(__name__)

CHANGED = "its configuration changed: it is to be listed again"


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The state of a resource whose content was taken over as it is."""

    version: str
    """Of the whole content; "" if it has none."""
    marks: str
    """How far each part of its source was, from the previous writer's set_marks()."""
    state: int
    reason: str
    count: int
    contact_ns: int
    """Time of the last contact with its source; 0: never."""


def take_over(
    place: Place, settings: WriterSettings, lock_fd: int
) -> tuple[Inherited, _native.WriterHandle] | None:
    """The segments with their new writer, at the last generation; None: no cache to take over.

    `lock_fd` holds the writer's lock.
    """
    try:
        found = Inherited(place, settings, lock_fd)
    except SegmentNotFound:
        return None
    except (LayoutMismatch, UntrustedSegment) as error:
        logger.warning("cache %s: starting a fresh cache: %s", place.name, error)
        return None
    made, what = ffi.new("struct shmc_writer **"), ffi.new("char[256]")
    status = lib.shmc_writer_takeover(
        found.data, found.seats, found.settings, what, len(what), made
    )
    if status == _native.OK:
        return found, made[0]
    refusal = _native.failure(status, f"cache {place.name!r}: taking over the previous cache")
    found.close()
    if isinstance(refusal, MemoryError):
        raise refusal
    why = ffi.string(what).decode(errors="replace")
    logger.warning("%s%s; starting a fresh cache", refusal, why and f" ({why})")
    return None


def adopt(
    handle: Handle, catalogue: Declarations, resources: Iterable[Resource]
) -> dict[str, Inheritance]:
    """Brings what was taken over to this configuration, in one generation; nothing if it fits.

    Returns the resources whose content remains valid.
    """
    kept: dict[str, Inheritance] = {}
    with looking(handle.mapped) as reader, handle.change("", whole=True) as raw:
        root = reader.root()
        found = {name: (at, root.record(at)) for at, name in enumerate(root.names()) if name}
        for resource in resources:
            there = found.pop(resource.name, None)
            if there is None:
                catalogue.add(resource)
                continue
            at, record = there
            declared = catalogue.enlist(resource, at)
            if _Adoption(handle, catalogue, declared, record).settle(resource):
                kept[resource.name] = Inheritance(
                    version=record["version"] or "",
                    marks=record["marks"] or "",
                    reason=record["reason"] or "",
                    state=record["state"],
                    count=record["count"],
                    contact_ns=_hot.Resource(reader, at).contact()["contact_ns"],
                )
        for name, (at, _) in found.items():
            logger.info("cache %s: %s is not cached any more", handle.name, name)
            check(lib.shmc_retire_resource(raw, at), name)
    return kept


class _Adoption:
    """One resource that exists already, in the open batch."""

    def __init__(
        self, handle: Handle, catalogue: Declarations, declared: Declared, record: Mapping[str, Any]
    ) -> None:
        self._name = handle.name
        self._raw = handle.opened
        self._catalogue = catalogue
        self._declared = declared
        self._record = record

    def settle(self, resource: Resource) -> bool:
        """Brings indices and settings to this configuration; whether the content remains valid."""
        self._reindex(resource.indices)
        wanted, stored = settings_of(resource), self._record["settings"]
        have = stored if isinstance(stored, dict) else {}
        if {name: have.get(name) for name in wanted} == wanted and bool(have) == bool(wanted):
            self._declared.settings = have
            return True
        self._distrust(wanted)
        return False

    def _distrust(self, wanted: dict[str, Any]) -> None:
        """Keeps the objects for readers, without a version.

        It goes in the same generation: the next writer must not trust the objects either.
        """
        name, number = self._declared.name, self._declared.id
        logger.info("cache %s: %s: %s", self._name, name, CHANGED)
        self._declared.settings = wanted
        text = json.dumps(wanted, sort_keys=True).encode()
        check(lib.shmc_set_settings(self._raw, number, text, len(text)), name)
        check(lib.shmc_set_version(self._raw, number, b"", 0), name)
        check(lib.shmc_set_source(self._raw, number, b"", 0), name)
        if self._record["state"] != states.ABSENT:
            reason = CHANGED.encode()
            check(lib.shmc_set_state(self._raw, number, states.LISTING), name)
            check(lib.shmc_set_reason(self._raw, number, reason, len(reason)), name)

    # ---- indices ---------------------------------------------------------------------------

    def _reindex(self, specs: Mapping[str, IndexSpec]) -> None:
        """Drops indices that are computed differently now, and declares the missing ones."""
        emits = {name: resolve(name, spec) for name, spec in specs.items()}
        wanted = {name: _stored_form(specs[name], emit) for name, emit in emits.items()}
        have = {name: stored for name, stored, _ in self._record["indices"]}
        outside = {name for name, emit in emits.items() if emit is not None}
        same = self._same_outside(have, wanted, outside)
        stay = {name for name, stored in have.items() if wanted.get(name) == stored}
        if not same:
            stay -= outside | {name for name, stored in have.items() if not isinstance(stored, str)}
        for name in have:
            if name not in stay:
                self._drop(name)
            elif (emit := emits[name]) is not None:
                self._declared.functions.add(name, emit)
        fresh = [name for name in specs if name not in stay]
        for name in fresh:
            self._catalogue.declare_index(self._declared, name, emits[name] or specs[name])
        if outside.intersection(fresh):
            self._catalogue.refill(self._declared)
        if set(have) != stay or fresh:
            logger.info("cache %s: %s: indices changed", self._name, self._declared.name)

    def _same_outside(
        self, have: Mapping[str, Any], wanted: Mapping[str, Any], outside: set[str]
    ) -> bool:
        """Whether all functions are the same as before.

        Each object stores their values together: none can be dropped without the others.
        """
        there = {name: stored for name, stored in have.items() if not isinstance(stored, str)}
        asked = {name: wanted[name] for name in outside}
        return there == asked and None not in asked.values()

    def _drop(self, index: str) -> None:
        name = index.encode()
        status = lib.shmc_drop_index(self._raw, self._declared.id, name, len(name))
        if status != _native.NOT_FOUND:  # it went with another function
            check(status, f"{self._declared.name}: dropping index {index}")


def _stored_form(spec: IndexSpec, emit: Emit | None) -> Any:
    """The stored description of how an index is computed: its path, or [its function]."""
    if emit is None:
        return spec
    identity = identity_of(emit)
    return None if identity is None else [identity]
