"""The content of a cache as the lines of a reel.

PATCHED1  An object that changed is written as a patch of the object before it, or as a whole
where that is shorter. Both give the same object back (PATCH1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shmcache._hot import Delta, Root, View
from shmcache.recorder import lines
from shmcache.recorder.patches import difference

PAGE = 512
_STATE = ("state", "reason", "version", "marks")


def declared(root: Root, number: int) -> dict[str, Any]:
    """Of R: all that a reader has to know of a resource, without its objects."""
    record = root.record(number)
    return {"name": record["name"], "settings": record["settings"]}


def state(root: Root, number: int) -> dict[str, Any]:
    """Of S."""
    record = root.record(number)
    return {name: record[name] for name in _STATE}  # type: ignore[literal-required]


def objects(root: Root, number: int) -> Iterator[bytes]:
    """Of a checkpoint: each object of a resource."""
    after: str | None = None
    while page := root.scan(number, after=after, limit=PAGE):
        for key, obj in page:
            yield lines.of_object("O", number, key, None, obj.json())
        after = page[-1][0]


def deltas(found: Iterable[Delta]) -> Iterator[bytes]:
    """Changes as the ring has them; RELIST is not one."""
    for delta in found:
        assert delta.key is not None
        number, key, version = delta.resource, delta.key, delta.version
        if delta.new is None:
            flag = b"1" if delta.unknown_final_state else b""
            yield lines.of_object("D", number, key, version, flag)
        elif delta.old is None or delta.kind == "ADDED":
            stated = lines.stated_version(delta.new, version)
            letter = "A" if delta.kind == "ADDED" else "W"
            yield lines.of_object(letter, number, key, stated, delta.new.json())
        else:
            yield _modified("MW", number, key, version, (delta.old, delta.new))


def differences(root: Root, number: int, old: Root) -> list[bytes]:
    """All that differs between two states of a resource, as of LINES2."""
    added, modified, deleted = root.diff(number, old)
    found = [lines.of_object("a", number, key, None, obj.json()) for key, obj in added]
    found += [_modified("mw", number, key, None, pair) for key, *pair in modified]
    found += [lines.of_object("d", number, key, None, b"") for key, _ in deleted]
    return found


def _modified(
    letters: str, number: int, key: str, version: str | None, pair: Sequence[View]
) -> bytes:
    old, new = pair
    whole = new.json()
    stated = lines.stated_version(new, version)
    try:
        patch = lines.compact(difference(old.to_dict(), new.to_dict()))
    except RecursionError:
        return lines.of_object(letters[1], number, key, stated, whole)
    if len(patch) < len(whole):
        return lines.of_object(letters[0], number, key, stated, patch)
    return lines.of_object(letters[1], number, key, stated, whole)
