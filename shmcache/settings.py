"""Settings of a cache: frozen, with their defaults, checked where they are given.

Only writers import this; a reader learns everything from the segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from shmcache.callables import check_plain

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_ARENA = 32 * GIB
PAGE = 16 * KIB  # of the arena, which is a whole number of them
MIN_SLOTS, MAX_SLOTS = 8, 1 << 24
MAX_SEATS = 1024
MAX_INDICES = 32
MAX_NAME = 255

_SIZE = re.compile(r"\s*+(\d++(?:\.\d++)?)\s*+([kmgt]?)(i?)b?\s*+", re.IGNORECASE)

Emit = Callable[[Any], "str | Iterable[str] | None"]
"""An index function: is given an object, returns its value, its values, or nothing."""
IndexSpec = str | Emit
"""A path ("spec.nodeName"), a function, or where one is to be imported from ("module:name")."""


def parse_size(size: int | str, what: str = "a size") -> int:
    """Bytes of 4096, "64MiB", "4 GiB", "500M" (decimal, as everywhere). ValueError otherwise."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f"{what} must be an int or a text such as '4GiB', not {size!r}")
    if isinstance(size, int):
        found = size
    else:
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{what} must be bytes or a text such as '4GiB', not {size!r}")
        number, unit, binary = match.groups()
        base = 1024 if binary else 1000
        found = int(float(number) * base ** (" kmgt".index(unit.lower() or " ")))
    if found < 0:
        raise ValueError(f"{what} must not be negative, not {size!r}")
    return found


def format_size(size: int) -> str:
    """The shortest exact-looking text for people: 1536 -> '1.5 KiB'."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.4g} {unit}"


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _between(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{what} must be from {low:,} to {high:,}, not {value:,}")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource to be cached and its indices, in the order of their declaration."""

    name: str
    indices: Mapping[str, IndexSpec] = field(default_factory=dict)
    keep_managed_fields: bool = False
    """Whether items keep metadata.managedFields; otherwise it is neither read nor stored."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that its content depends on, as JSON: the next writer continues with the content
    only if its settings are equal."""

    def __post_init__(self) -> None:
        check_label("a resource's name", self.name)
        for index, spec in self.indices.items():
            check_label("an index's name", index)
            check_index_spec(index, spec)
        if len(self.indices) > MAX_INDICES:
            raise ValueError(f"{self.name}: at most {MAX_INDICES} indices, not {len(self.indices)}")


def check_label(what: str, name: str) -> None:
    """Names of resources and indices: not empty, printable, at most 255 bytes."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {name!r}")
    if not name or not name.isprintable() or len(name.encode()) > MAX_NAME:
        raise ValueError(f"{what} must be 1 to {MAX_NAME} printable bytes, not {name!r}")


def check_index_spec(index: str, spec: IndexSpec) -> None:
    """A path, "module:name" or a callable; anything else is a TypeError that names the index."""
    if callable(spec):
        check_plain(spec, f"the function of index {index!r}", iterated=True)
        return
    if not isinstance(spec, str):
        raise TypeError(f"index {index!r}: a path or a function is needed, not {spec!r}")
    if not spec.strip():
        raise ValueError(f"index {index!r}: the path is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """The geometry of a cache. Sizes take ints or texts such as "4GiB"."""

    arena_max: int | str = "4GiB"
    """Address space of DATA; memory is taken only as objects need it."""
    ring_slots: int = 65_536
    """The largest number of slots of the ring, a power of two; the window holds at most half of
    them. The ring takes memory as it needs it."""
    ring_bytes: int | str = 0
    """Memory that old versions may retain; 0 is a fifth of the live bytes, 1 to 64 MiB."""
    garbage_max: int | str = 0
    """Garbage that pins may hold back before the writer revokes them; 0: a quarter of arena_max."""
    seats: int = 128
    """The number of processes that may be attached at a time."""
    mode: int = 0o600
    """Permission to read: 0600 own uid, 0640 group, 0644 all. Readers may also write seats."""

    def __post_init__(self) -> None:
        for name in ("arena_max", "ring_bytes", "garbage_max"):
            object.__setattr__(self, name, parse_size(getattr(self, name), name))
        _between("ring_slots", self.ring_slots, MIN_SLOTS, MAX_SLOTS)
        if not _is_power_of_two(self.ring_slots):
            raise ValueError(f"ring_slots must be a power of two, not {self.ring_slots:,}")
        least = MIB + 64 * self.ring_slots
        _between("arena_max", int(self.arena_max), least, MAX_ARENA)
        object.__setattr__(self, "arena_max", int(self.arena_max) // PAGE * PAGE)
        _between("seats", self.seats, 1, MAX_SEATS)
        if self.mode & ~0o644 or self.mode & 0o600 != 0o600:
            raise ValueError(f"mode must be 0600, 0640, 0604 or 0644, not {self.mode:04o}")


class WriterOptions(TypedDict, total=False):
    """The fields of WriterSettings as keyword arguments."""

    arena_max: int | str
    ring_slots: int
    ring_bytes: int | str
    garbage_max: int | str
    seats: int
    mode: int
