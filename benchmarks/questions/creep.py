"""Does anything grow that should not, over ten million updates?

One writer, and one worker that follows every delta and reads a field of it. Each update gives one
of 2,000 pods its other status and a new version, in batches of 64. The memory of the data, of the
writer's tables and of both processes is noted after a tenth of the updates, when the ring is full,
and at the end. For a process it is the maximum of the last LOOKS rounds: the lists of changes that
are made for each round may need one arena of Python's allocator more, a MiB, and the next round may
give it back.
"""

from __future__ import annotations

import collections
import gc
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row, at_most, show_bytes
from benchmarks.scenes.channel import Receiver, Sender
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory, fill_variants, open_writer

UPDATES = 10_000_000
OBJECTS = 2_000
BATCH = 64
ROUND = 16_000
SLACK = 1.05
LOOKS = 10


def run(quick: bool) -> list[Row]:
    updates = UPDATES // 25 if quick else UPDATES
    with directory() as name, open_writer(name) as writer:
        first = updates // 2 if quick else updates // 10  # a tenth of few is not yet settled
        early, end = _noted(writer, name, updates, first)
    return [
        Row(
            question=f"{what} after {updates:,} updates / after {first:,}",
            ours=show_bytes(end[key]),
            peer=show_bytes(early[key]),
            **at_most(SLACK, end[key] / early[key]),
        )
        for what, key in (
            ("values and trees", "reachable_bytes"),
            ("high water", "high_water_bytes"),
            ("the writer's tables", "private_bytes"),
            ("the writer's process, private", "private"),
            ("a following worker, private", "worker"),
        )
    ]


def _noted(writer: Any, name: str, updates: int, first: int) -> list[dict[str, int]]:
    """All memory after the first updates, and after all."""
    fill_variants(writer, OBJECTS)
    sender = Sender(name, writer)
    noted = []
    looks: collections.deque[tuple[int, int]] = collections.deque(maxlen=LOOKS)
    with Children(_follow, [(name,)]) as follower:
        follower.receive()
        for done in range(ROUND, updates + 1, ROUND):
            follower.send(ROUND)
            changes = sender.encoded(ROUND)
            for start in range(0, ROUND, BATCH):
                sender.send(changes[start : start + BATCH])
            worker = follower.receive()[0]
            del changes
            gc.collect()
            looks.append((harness.private_bytes(), worker))
            if done // ROUND in {first // ROUND, updates // ROUND}:
                private, worker = map(max, zip(*looks, strict=True))
                noted.append({**writer.stats(), "private": private, "worker": worker})
    sender.close()
    return noted


def _follow(pipe: Pipe, name: str) -> None:
    receiver = Receiver(name, 1)
    pipe.answer("ready")
    while True:
        receiver.consume(pipe.next())
        gc.collect()
        pipe.answer(harness.private_bytes())


if __name__ == "__main__":
    harness.main(__doc__, run)
