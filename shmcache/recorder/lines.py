r"""The lines of a reel: what a recorder says about a cache, one fact in each.

The fields of a line are separated by tabs, and JSON never contains one:

    H  {...}                           head: the cache, the instance, why there is a gap before it
    R  id  {...}                       a resource: its name and settings
    O  id  "key"  version  object      of the checkpoint: an object
    C                                  the checkpoint is complete
    S  id  {...}                       state, reason and version of a resource
    T  time  position  generation      all before this is the state at this time
    A  id  "key"  version  object      added
    M  id  "key"  version  patch       modified: a patch of the object before
    W  id  "key"  version  object      modified: the whole object
    D  id  "key"  version  flag        deleted; flag 1: its last state was not seen
    B  time                            the recorder had not looked since this time, or its clock
                                       was set forward from there
    G  {...}                           a gap: how many changes are missing, and why
    E                                  the recorder ended in order

    LINES1  The lines up to a T are one step: they hold together or not at all, and the state after
        them is one that the cache had.
    LINES2  a, m, w and d instead of A, M, W and D are parts of the difference behind a gap: the
        object is so by now, what it was in between is unknown.
    LINES3  Changes become known at the time of the T behind them, and happened since the last look;
        a B says that this was long before. If the clock was set, it may show the times between
        again.
    LINES4  A version is JSON; it is empty where it is the metadata.resourceVersion of the object,
        and where none is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

CHANGES = frozenset(b"AMWDamwd")


def compact(value: object) -> bytes:
    """JSON without white space."""
    return json.dumps(value, separators=(",", ":")).encode()


class ObjectLine(NamedTuple):
    """A line about an object, still as text where it need not be decoded."""

    kind: str
    """A, M, W, D, their small forms, or O."""
    resource: int
    key: bytes
    """JSON."""
    version: bytes
    rest: bytes


def change(line: bytes) -> ObjectLine:
    """A line about an object. ValueError."""
    kind, resource, key, version, rest = line.split(b"\t", 4)
    return ObjectLine(kind.decode(), int(resource), key, version, rest)


def fields(line: bytes) -> list[bytes]:
    """The fields behind the letter."""
    return line.split(b"\t")[1:]


def note(letter: str, value: object, *, of: int | None = None) -> bytes:
    """H, R, S or G."""
    where = b"" if of is None else b"%d\t" % of
    return letter.encode() + b"\t" + where + compact(value) + b"\n"


def moment(time_ns: int, position: int, generation: int) -> bytes:
    """T."""
    return b"T\t%d\t%d\t%d\n" % (time_ns, position, generation)


def blind(since_ns: int) -> bytes:
    """B."""
    return b"B\t%d\n" % since_ns


def of_object(letter: str, resource: int, key: str, version: str | None, rest: bytes) -> bytes:
    """O, A, M, W or D."""
    stated = b"" if version is None else compact(version)
    return b"\t".join([letter.encode(), b"%d" % resource, compact(key), stated, rest]) + b"\n"


def own_version(obj: Any) -> str | None:
    """metadata.resourceVersion of an object."""
    metadata = obj.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) else None


def stated_version(obj: Any, version: str | None) -> str | None:
    """The version that a line has to state with its object (LINES4)."""
    return None if version is None or own_version(obj) == version else version
