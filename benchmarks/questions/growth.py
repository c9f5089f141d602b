"""What grows with the number of objects: from 1,000 to 1,000,000 of 1 KB, with one index?

A cache of each size, and a dict of as many of the same JSON texts, answer in turns: for keys in
random order, equal to the stored ones and not the same Python objects; for a snapshot; and each
writer stores updates, as a watch brings them, of random objects. There are so many keys that those
of the largest cache fit no CPU cache of the machine.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, Timing, at_most, ratio_of, show_bytes, show_ns
from benchmarks.scenes.shared import directory
from shmcache.protocol.items import Item

RESOURCE = "things"
THINGS = shmcache.Resource(RESOURCE, {"node": "spec.nodeName"})
SIZES = (1_000, 10_000, 100_000, 1_000_000)
BATCH = 2_000
KEYS = 200_000
COMMITS = 5_000
SNAPSHOTS = 20_000
ROUNDS = 7
CONSTANT = 1.2


def run(quick: bool) -> list[Row]:
    sizes = SIZES[:3] if quick else SIZES
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(_side(size)) for size in sizes]
        keys, rounds = (KEYS // 10, 3) if quick else (KEYS, ROUNDS)
        gets = harness.measure({name: loop for side in sides for name, loop in side.gets(keys)},
                               keys, rounds)  # fmt: skip
        commits = harness.measure({side.name: side.commits() for side in sides}, COMMITS, rounds)
        snapshots = harness.measure(
            {side.name: (_snapshot, side.caches) for side in sides}, SNAPSHOTS, rounds
        )
        return [
            *(_relative(side, sides[0], gets, commits, snapshots) for side in sides),
            *_rows(sides[-1], sides[0], gets, commits, snapshots),
            *(harness.not_asked(f"the same of {SIZES[-1]:,}") if quick else []),
        ]


# ---- the sides -----------------------------------------------------------------------------------


class Side:
    """A cache of `size` objects, its writer, and a dict of the same."""

    def __init__(self, size: int, writer: Any, cache: Any) -> None:
        self.size = size
        self.name = f"{size:,}"
        self.cache = cache
        self._writer = writer
        self._random = random.Random(size)
        self._version = size
        self._dict: dict[str, bytes] = {}
        start = time.monotonic()
        for first in range(0, size, BATCH):
            items = [_item("LISTED", n, n) for n in range(first, min(first + BATCH, size))]
            writer.apply_items(RESOURCE, items)
            self._dict |= {item.key: item.raw for item in items}
        self.took = time.monotonic() - start
        stats = writer.stats()
        self.each = (stats["value_bytes"] + stats["tree_bytes"]) / size  # bytes of an object

    def gets(self, count: int) -> Iterator[tuple[str, Any]]:
        keys = [_key(number) for number in self._random.choices(range(self.size), k=count)]
        yield f"get {self.name}", (_get(self.cache[RESOURCE].get), lambda: keys)
        yield f"dict {self.name}", (_get(self._dict.get), lambda: keys)

    def commits(self) -> Any:
        """Each turn's updates are new ones."""

        def loop(items: Sequence[list[Item]]) -> None:
            for item in items:
                self._writer.apply_items(RESOURCE, item)

        return loop, self._updates

    def _updates(self) -> list[list[Item]]:
        numbers = self._random.choices(range(self.size), k=COMMITS)
        self._version += COMMITS
        return [[_item("MODIFIED", n, self._version + place)] for place, n in enumerate(numbers)]

    def caches(self) -> list[Any]:
        return [self.cache] * SNAPSHOTS

    def high_water(self) -> int:
        return int(self._writer.stats()["high_water_bytes"])


@contextlib.contextmanager
def _side(size: int) -> Iterator[Side]:
    with (
        directory() as name,
        shmcache.Writer(name, [THINGS], arena_max="8GiB") as writer,
        shmcache.attach(name) as cache,
    ):
        yield Side(size, writer, cache)


def _key(number: int) -> str:
    return f"namespace-{number % 50}/thing-{number:07d}"


def _item(kind: str, number: int, version: int) -> Item:
    """An object of 1 KB of JSON with four texts and a uid of its own, and a version's status."""
    own = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" * 11
    raw = (
        f'{{"kind":"Thing","apiVersion":"v1","metadata":{{"name":"thing-{number:07d}","namespace":'
        f'"namespace-{number % 50}","uid":"{number:08d}-0000-4000-8000-{own[:12]}","labels":{{'
        f'"app":"application-{number % 300}"}},"resourceVersion":"{version}"}},"spec":{{"nodeName":'
        f'"node-{number % 1000}","a":"a{own}","b":"b{own}","c":"c{own}","d":"d{own}"}},"status":'
        f'{{"phase":"Running","checked":"{version}","conditions":[{{"type":"Ready","status":"True"}}]'
        f"}}}}"
    )
    return Item(kind, _key(number), str(version), None, None, None, raw.encode())


def _get(get: Any) -> Any:
    def loop(keys: Sequence[str]) -> None:
        for key in keys:
            get(key)

    return loop


def _snapshot(caches: Sequence[Any]) -> None:
    for cache in caches:
        cache.snapshot().close()


# ---- rows ----------------------------------------------------------------------------------------

Timings = dict[str, Timing]


def _relative(
    side: Side, first: Side, gets: Timings, commits: Timings, snapshots: Timings
) -> Row:  # fmt: skip
    relative = {
        "get": ratio_of(gets[f"get {side.name}"], gets[f"get {first.name}"]),
        "get of a dict": ratio_of(gets[f"dict {side.name}"], gets[f"dict {first.name}"]),
        "commit": ratio_of(commits[side.name], commits[first.name]),
        "snapshot": ratio_of(snapshots[side.name], snapshots[first.name]),
        "data of an object": side.each / first.each,
    }
    return Row(
        question=f"{side.name} objects",
        ours=f"get {show_ns(gets[f'get {side.name}'].ns)}, commit "
        f"{show_ns(commits[side.name].ns)}, snapshot {show_ns(snapshots[side.name].ns)}",
        peer=f"dict {show_ns(gets[f'dict {side.name}'].ns)}",
        note=f"{show_bytes(side.each)} of data an object, high water "
        f"{show_bytes(side.high_water())}, filled in {side.took:.1f} s",
        data={
            "objects": side.size,
            "relative": relative,
            "ns": {
                "get": gets[f"get {side.name}"].ns,
                "get of a dict": gets[f"dict {side.name}"].ns,
            },
        },
    )


def _rows(
    large: Side, small: Side, gets: Timings, commits: Timings, snapshots: Timings
) -> list[Row]:  # fmt: skip
    return [
        Row(
            question=f"get among {large.name} objects of 1 KB",
            ours=str(gets[f"get {large.name}"]),
            peer=f"dict of as many {gets[f'dict {large.name}']}",
            **at_most(2, ratio_of(gets[f"get {large.name}"], gets[f"dict {large.name}"])),
        ),
        Row(
            question=f"commit of one update among {large.name} objects",
            ours=str(commits[large.name]),
            peer=f"among {small.name} {commits[small.name]}",
            **at_most(3, ratio_of(commits[large.name], commits[small.name])),
        ),
        Row(
            question=f"snapshot of {large.name} objects",
            ours=str(snapshots[large.name]),
            peer=f"of {small.name} {snapshots[small.name]}",
            **at_most(CONSTANT, ratio_of(snapshots[large.name], snapshots[small.name])),
        ),
    ]


if __name__ == "__main__":
    harness.main(__doc__, run)
