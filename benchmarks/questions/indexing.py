"""What do indices cost a change: none, three, eight of them?

Status-only updates and updates that move the object in some of the indices, put one at a time,
decoded already; the same objects into three caches, in turns. Times are CPU time of the thread.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import orjson

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, ratio_of
from benchmarks.scenes import objects
from benchmarks.scenes.objects import Object
from benchmarks.scenes.shared import INDICES, RESOURCE, directory, fill

PODS, FEWER = 10_000, 2_000
"""Of a full run, and of a quick one."""
NUMBER = 500
MORE = {
    "phase": "status.phase",
    "account": "spec.serviceAccountName",
    "host": "status.hostIP",
    "address": "status.podIP",
    "image": "spec.containers[*].image",
}
SETS: dict[str, dict[str, Any]] = {
    "no index": {},
    "3 indices": dict(INDICES),
    "8 indices": {**INDICES, **MORE},
}


def run(quick: bool) -> list[Row]:
    pods = list(objects.pods(FEWER if quick else PODS))
    with contextlib.ExitStack() as stack:
        writers = {label: _filled(stack, indices, pods) for label, indices in SETS.items()}
        rows: list[Row] = []
        for what, change in (
            ("a status-only update", objects.status_update),
            ("an update", objects.update),
        ):
            rows += _rows(what, change, writers, pods, 3 if quick else 15)
    return rows


def _filled(stack: contextlib.ExitStack, indices: dict[str, Any], pods: list[Object]) -> Any:
    name = stack.enter_context(directory())
    resource = shmcache.Resource(RESOURCE, indices=indices)
    writer = stack.enter_context(shmcache.Writer(name, resources=[resource], arena_max=1 << 30))
    fill(writer, pods)
    return writer


def _rows(
    what: str, change: Any, writers: dict[str, Any], pods: list[Object], rounds: int
) -> list[Row]:
    numbers = itertools.count()

    def ready() -> list[tuple[str, Object, str]]:
        found = []
        for n in itertools.islice(numbers, NUMBER):
            changed = orjson.loads(orjson.dumps(change(pods[n * 7_919 % len(pods)], n)))
            found.append((objects.key_of(changed), changed, objects.version_of(changed)))
        return found

    def loop_of(writer: Any) -> Any:
        def loop(each: list[tuple[str, Object, str]]) -> None:
            for key, changed, version in each:
                writer.put(RESOURCE, key, changed, version)

        return loop

    times = harness.measure(
        {label: (loop_of(writer), ready) for label, writer in writers.items()}, NUMBER, rounds
    )
    bare = times["no index"]
    return [
        Row(
            question=f"{what} alone, {label}, {len(pods):,} pods",
            ours=str(found),
            peer=f"without an index {bare}",
            ratio=ratio_of(found, bare),
        )
        for label, found in times.items()
        if found is not bare
    ]


if __name__ == "__main__":
    harness.main(__doc__, run)
