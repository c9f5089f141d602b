"""A checker of etcd's watch guarantees over recorded runs.

Recorded are every transaction with its revision (Ledger), every delta that came out of the cache,
and samples: the whole content of a snapshot with the versions that it reports. From etcd's API
documentation, in the order of their names there:

    ORDERED1     deltas come in the order of revisions
    UNIQUE1      no change comes twice
    RELIABLE1    no change is left out, except between the ends of a relist's gap
    ATOMIC1      a sample never shows a part of a transaction
    RESUMABLE1   the same over restarts of the reflector, and of members
    BOOKMARK1    a sample at version V is the state at V: nothing before it is still to come

A transaction whose answer was lost may have been applied or not: its keys are never written again,
and are left out of the comparison.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Change(NamedTuple):
    """A delta of the cache: `relist` if it came by the difference of a list."""

    resource: str
    kind: str
    key: str
    revision: int
    relist: bool = False


class Sample(NamedTuple):
    """One snapshot: the version of each resource, and the revision of each object."""

    versions: dict[str, int]
    content: dict[str, dict[str, int]]


@dataclass
class Ledger:
    """Transactions by revision: each a map of (resource, key) to whether it is there afterwards."""

    past: dict[int, dict[tuple[str, str], bool]] = field(default_factory=dict)
    doubtful: set[tuple[str, str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wrote(self, revision: int, changes: dict[tuple[str, str], bool]) -> None:
        with self.lock:
            assert revision not in self.past, "two transactions with one revision"
            self.past[revision] = changes

    def lost(self, changes: Iterable[tuple[str, str]]) -> None:
        with self.lock:
            self.doubtful |= set(changes)

    def states(self, revisions: Iterable[int]) -> dict[int, dict[str, dict[str, int]]]:
        """The state at each of these revisions: the revision of each key, by resource."""
        found: dict[int, dict[str, dict[str, int]]] = {}
        state: dict[str, dict[str, int]] = {}
        writes = iter(sorted(self.past))
        following = next(writes, None)
        for wanted in sorted(set(revisions)):
            while following is not None and following <= wanted:
                for (resource, key), there in self.past[following].items():
                    keys = state.setdefault(resource, {})
                    if there:
                        keys[key] = following
                    else:
                        keys.pop(key, None)
                following = next(writes, None)
            found[wanted] = {name: dict(keys) for name, keys in state.items()}
        return found


def problems(
    ledger: Ledger,
    changes: list[Change],
    samples: list[Sample],
    gaps: list[tuple[int, int]],
    span: tuple[int, int],
) -> list[str]:
    """The violations, in words. `gaps`: revisions (from, to] that relists stepped over."""
    found = [*_order(changes), *_uniqueness(changes)]
    found += _completeness(ledger, changes, gaps, span)
    found += _samples(ledger, samples)
    return found


def _order(changes: list[Change]) -> Iterable[str]:
    last = 0
    for change in changes:
        if change.relist:
            continue
        if change.revision < last:
            yield f"ordered: {change} after revision {last}"
        last = max(last, change.revision)


def _uniqueness(changes: list[Change]) -> Iterable[str]:
    seen: set[Change] = set()
    for change in changes:
        plain = change._replace(relist=False)
        if plain in seen:
            yield f"unique: {change} again"
        seen.add(plain)


def _completeness(
    ledger: Ledger, changes: list[Change], gaps: list[tuple[int, int]], span: tuple[int, int]
) -> Iterable[str]:
    came = {(change.resource, change.key, change.revision) for change in changes}
    for revision, written in sorted(ledger.past.items()):
        if not span[0] < revision <= span[1] or any(a < revision <= b for a, b in gaps):
            continue
        for resource, key in written:
            if (resource, key, revision) not in came:
                yield f"reliable: {resource} {key} at {revision} never came"
    known = {
        (resource, key, revision)
        for revision, written in ledger.past.items()
        for resource, key in written
    }
    for change in changes:
        place = (change.resource, change.key)
        is_known = (*place, change.revision) in known or place in ledger.doubtful
        if not is_known and not change.relist:  # a relist shows a deletion at its own version
            yield f"reliable: nobody wrote {change}"


def _samples(ledger: Ledger, samples: list[Sample]) -> Iterable[str]:
    wanted = [version for sample in samples for version in sample.versions.values()]
    states = ledger.states(wanted)
    for sample in samples:
        for resource, version in sample.versions.items():
            theirs = _certain(ledger, resource, states[version].get(resource, {}))
            ours = _certain(ledger, resource, sample.content[resource])
            if theirs != ours:
                different = set(theirs.items()) ^ set(ours.items())
                yield f"bookmarkable: {resource} at {version}: {sorted(different)[:4]}"
        tokens: dict[str, int] = {}
        for resource, content in sample.content.items():
            for key in content:
                if key.startswith("tokens/") and (resource, key) not in ledger.doubtful:
                    tokens[key] = tokens.get(key, 0) + 1
        yield from (f"atomic: {key} is there {n} times" for key, n in tokens.items() if n != 1)


def _certain(ledger: Ledger, resource: str, keys: dict[str, int]) -> dict[str, int]:
    return {key: rev for key, rev in keys.items() if (resource, key) not in ledger.doubtful}
