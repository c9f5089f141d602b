"""Compares a list of the server with the cache: key by key, by UID and version.

A list is of one version, and the cache moves on while it is on its way. So it is compared with two
states of the cache: the one before the request, and one that has reached the version of the list.

    COMPARE1  a listed object that has not changed since a version that the cache had reached before
        the request was in the cache then, with the same UID and version.
    COMPARE2  an object of the cache that has not changed since the version of the list is in the
        list, with the same UID and version, once the cache has reached that version.
    COMPARE3  anything else may be a change on its way, and counts as agreement.
    COMPARE4  the memory is bounded: eight bytes for each key, and the disagreements, of which at
        most MOST are kept. A list with MOST_MORE objects more than the cache is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.engine.evidence import Refusal
from shmcache.protocol.items import Identity
from shmcache.protocol.versions import number_of

if TYPE_CHECKING:
    from shmcache.engine.shown import FeedContent
    from shmcache.protocol.items import Item

MOST = 1000
MOST_MORE = 100_000
_MASK = (1 << 64) - 1


class Disagreement(NamedTuple):
    """A key of which the server and the cache have different states."""

    key: str
    ours: Identity | None
    theirs: Identity | None

    @property
    def backward(self) -> bool:
        """Whether the server's object is older: its history is another one, or it is behind."""
        ours, theirs = self.ours, self.theirs
        return bool(ours and theirs and number_of(theirs.version) < number_of(ours.version))

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.theirs)} at the server, {_shown(self.ours)} in the cache"


def _shown(found: Identity | None) -> str:
    return "absent" if found is None else f"version {found.version or '?'}"


def digest(identities: Iterable[tuple[str, Identity]]) -> tuple[int, int]:
    """Of keys, UIDs and versions in any order: how many, and the sum of their hashes.

    Of texts (SipHash): hashes of tuples are nearly linear, and sums of them collide where two
    objects have exchanged their versions.
    """
    count = total = 0
    for key, (uid, version) in identities:
        count += 1
        total += hash(f"{key} {uid} {version}")
    return count, total & _MASK


def digest_of_items(items: list[Item]) -> tuple[int, int]:
    """The same of listed items: each costs a few instructions, and a proof has all (proof.py)."""
    return len(items), sum(
        [hash(f"{key} {uid or ''} {version or ''}") for _, key, version, uid, _, _, _ in items]
    )


def digest_of_objects(objects: Iterable[tuple[str, Any]]) -> tuple[int, int]:
    """The same of stored objects, which are the server's: no transform has touched them."""
    count = total = 0
    for key, obj in objects:
        of = obj.get("metadata") or {}
        count += 1
        total += hash(f"{key} {of.get('uid') or ''} {of.get('resourceVersion') or ''}")
    return count, total & _MASK


def identities_of(items: Iterable[Item]) -> Iterator[tuple[str, Identity]]:
    """Of listed items."""
    for item in items:
        yield item.key, Identity(item.uid or "", item.version or "")


class Comparison:
    """One list, as its items come, against the content of one feed. For one thread."""

    def __init__(self, before: FeedContent, scope: str = "") -> None:
        """`before`: the content before the list was requested. `scope`: a namespace, or all."""
        self.count = 0
        """Listed objects."""
        self.found: dict[str, Disagreement] = {}
        self.more = 0
        """Disagreements beyond MOST."""
        self.latest = ""
        """The latest version of an object that changed after `before`."""
        self._before = before
        self._scope = scope
        self._passed = number_of(before.version)
        self._most = before.size("", 0) + MOST_MORE
        self._total = 0
        self._keys = array("q")
        self._late: dict[str, Identity] = {}
        """Objects that changed after `before`."""

    def take(self, items: list[Item]) -> None:
        """Some items of the list. Refusal (COMPARE4)."""
        if self.count > self._most:
            raise Refusal(f"the server lists {MOST_MORE} objects more than the cache holds")
        for key, theirs in identities_of(items):
            self.count += 1
            self._total += hash(f"{key} {theirs.uid} {theirs.version}")
            self._keys.append(hash(key))
            if number_of(theirs.version) > self._passed:
                self._late[key] = theirs
                if number_of(theirs.version) > number_of(self.latest):
                    self.latest = theirs.version
                continue
            ours = self._before.identity(key)  # COMPARE1
            if ours != theirs:
                self._note(key, ours, theirs)

    def same(self, found: FeedContent) -> bool:
        """Whether a content holds exactly what was listed."""
        return digest(found.identities(self._scope)) == (self.count, self._total & _MASK)

    def finish(self, after: FeedContent, version: str) -> list[Disagreement]:
        """All disagreements. `after`: a content that has reached the version of the list."""
        keys = array("q", sorted(self._keys))
        listed = number_of(version)
        for key, ours in after.identities(self._scope):
            if number_of(ours.version) > listed:
                continue
            theirs = self._late.get(key)  # COMPARE2
            if theirs is not None and theirs != ours:
                self._note(key, ours, theirs)
            elif theirs is None and not _has(keys, hash(key)):
                self._note(key, ours, None)
        return list(self.found.values())

    def _note(self, key: str, ours: Identity | None, theirs: Identity | None) -> None:
        if len(self.found) < MOST or key in self.found:
            self.found[key] = Disagreement(key, ours, theirs)
        else:
            self.more += 1


def _has(keys: array[int], wanted: int) -> bool:
    at = bisect_left(keys, wanted)
    return at < len(keys) and keys[at] == wanted
