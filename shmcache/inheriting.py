"""What a writer goes on with: the cache that the writer before it left, as far as it still fits.

    DATA and SEATS of the same geometry ▸ verified by the core ▸ each resource: the same settings?
                                                                 each index: computed the same way?

What does not fit is dropped or made anew in one generation, and only that: an index is filled from
the objects that are there; a resource whose settings differ keeps its objects for its readers, and
has no version until it was listed again. If the whole cannot be gone on with, the log says why,
and a fresh cache is built beside it.
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
from shmcache.indexing import identity_of, looking, resolve
from shmcache.mapping import Inherited

if TYPE_CHECKING:
    from shmcache.segments import Place
    from shmcache.settings import Emit, IndexSpec, Resource, WriterSettings
    from shmcache.writer import Declared, Writer

logger = logging.getLogger(__name__)

CHANGED = "its configuration changed: it is to be listed again"


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What is known of a resource whose content was taken over as it is."""

    version: str
    """Of the whole content; "" if it has none."""
    marks: str
    """How far the parts of its source were, as the writer before noted it (set_marks())."""
    state: int
    reason: str
    count: int
    contact_ns: int
    """When its source was last heard; 0: never."""


def take_over(
    place: Place, settings: WriterSettings, lock_fd: int
) -> tuple[Inherited, _native.WriterHandle] | None:
    """The segments with their new writer, at the last generation; None: nothing to go on with.

    `lock_fd` holds the writer's lock.
    """
    try:
        found = Inherited(place, settings, lock_fd)
    except SegmentNotFound:
        return None
    except (LayoutMismatch, UntrustedSegment) as error:
        logger.warning("cache %s: begins anew: %s", place.name, error)
        return None
    made, what = ffi.new("struct shmc_writer **"), ffi.new("char[256]")
    status = lib.shmc_writer_takeover(
        found.data, found.seats, found.settings, what, len(what), made
    )
    if status == _native.OK:
        return found, made[0]
    refusal = _native.failure(status, f"cache {place.name!r}: going on with what is there")
    found.close()
    if isinstance(refusal, MemoryError):
        raise refusal
    why = ffi.string(what).decode(errors="replace")
    logger.warning("%s%s; it begins anew", refusal, why and f" ({why})")
    return None


def settings_of(resource: Resource) -> dict[str, Any]:
    """What is stored of a resource: on what its content depends."""
    if not resource.settings and not resource.keep_managed_fields:
        return {}
    return {**resource.settings, "managed_fields": resource.keep_managed_fields}


def adopt(writer: Writer, resources: Iterable[Resource]) -> dict[str, Inheritance]:
    """Brings what was taken over to this configuration, in one generation; nothing if it fits.

    Returns the resources whose content can be gone on with.
    """
    kept: dict[str, Inheritance] = {}
    assert writer._segments is not None  # noqa: SLF001 - half of the Writer
    with looking(writer._segments) as reader, writer.batch():  # noqa: SLF001
        root = reader.root()
        found = {name: (at, root.record(at)) for at, name in enumerate(root.names()) if name}
        for resource in resources:
            at, record = found.pop(resource.name, (-1, {}))
            if at < 0:
                writer.add_resource(resource)
                continue
            declared = writer._enlist(resource, at)  # noqa: SLF001
            if _Adoption(writer, declared, record).settle(resource):
                kept[resource.name] = Inheritance(
                    **{name: record[name] or "" for name in ("version", "marks", "reason")},
                    state=record["state"],
                    count=record["count"],
                    contact_ns=_hot.Resource(reader, at).contact()["contact_ns"],
                )
        for name, (at, _) in found.items():
            logger.info("cache %s: %s is not cached any more", writer.name, name)
            check(lib.shmc_retire_resource(writer._handle, at), name)  # type: ignore[arg-type]  # noqa: SLF001
    return kept


class _Adoption:
    """One resource that is there already, in the open batch."""

    def __init__(self, writer: Writer, declared: Declared, record: Mapping[str, Any]) -> None:
        self._writer = writer
        self._handle: Any = writer._handle  # noqa: SLF001
        self._declared = declared
        self._record = record

    def settle(self, resource: Resource) -> bool:
        """Indices and settings as this writer wants them; whether the content is as well."""
        self._reindex(resource.indices)
        wanted, stored = settings_of(resource), self._record["settings"]
        have = stored if isinstance(stored, dict) else {}
        if {name: have.get(name) for name in wanted} == wanted and bool(have) == bool(wanted):
            self._declared.settings = have
            return True
        self._distrust(wanted)
        return False

    def _distrust(self, wanted: dict[str, Any]) -> None:
        """The objects stay for who reads them, without a version.

        It goes in the same generation: the writer after this one must not go on with them either.
        """
        name, number = self._declared.name, self._declared.id
        logger.info("cache %s: %s: %s", self._writer.name, name, CHANGED)
        self._declared.settings = wanted
        text = json.dumps(wanted, sort_keys=True).encode()
        check(lib.shmc_set_settings(self._handle, number, text, len(text)), name)
        check(lib.shmc_set_version(self._handle, number, b"", 0), name)
        check(lib.shmc_set_source(self._handle, number, b"", 0), name)
        if self._record["state"] != states.ABSENT:
            reason = CHANGED.encode()
            check(lib.shmc_set_state(self._handle, number, states.LISTING), name)
            check(lib.shmc_set_reason(self._handle, number, reason, len(reason)), name)

    # ---- indices ---------------------------------------------------------------------------

    def _reindex(self, specs: Mapping[str, IndexSpec]) -> None:
        """Drops what is computed otherwise now, and declares what is not there."""
        emits = {name: resolve(name, spec) for name, spec in specs.items()}
        wanted = {name: _mark_of(specs[name], emit) for name, emit in emits.items()}
        have = {name: mark for name, mark, _ in self._record["indices"]}
        outside = {name for name, emit in emits.items() if emit is not None}
        same = self._same_outside(have, wanted, outside)
        stay = {name for name, mark in have.items() if wanted.get(name) == mark}
        if not same:
            stay -= outside | {name for name, mark in have.items() if not isinstance(mark, str)}
        for name in have:
            if name not in stay:
                self._drop(name)
            elif (emit := emits[name]) is not None:
                self._declared.functions.add(name, emit)
        fresh = [name for name in specs if name not in stay]
        for name in fresh:
            self._writer._declare_index(  # noqa: SLF001
                self._handle, self._declared, name, emits[name] or specs[name]
            )
        if outside.intersection(fresh):
            self._writer._refill(self._declared)  # noqa: SLF001
        if set(have) != stay or fresh:
            logger.info("cache %s: %s: indices changed", self._writer.name, self._declared.name)

    def _same_outside(
        self, have: Mapping[str, Any], wanted: Mapping[str, Any], outside: set[str]
    ) -> bool:
        """Whether all functions are the ones that were.

        Their values stand side by side with each object: none can be dropped without the others.
        """
        there = {name: mark for name, mark in have.items() if not isinstance(mark, str)}
        marks = {name: wanted[name] for name in outside}
        return there == marks and None not in marks.values()

    def _drop(self, index: str) -> None:
        name = index.encode()
        status = lib.shmc_drop_index(self._handle, self._declared.id, name, len(name))
        if status != _native.NOT_FOUND:  # it went with another function
            check(status, f"{self._declared.name}: dropping index {index}")


def _mark_of(spec: IndexSpec, emit: Emit | None) -> Any:
    """What stands in the cache for how an index is computed: its path, or [its function]."""
    if emit is None:
        return spec
    identity = identity_of(emit)
    return None if identity is None else [identity]
