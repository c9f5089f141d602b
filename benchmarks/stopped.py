"""What does one reader that is stopped, or one view that is kept for ever, cost in memory?

A cache of 10,000 pods gets 1,000,000 updates, once beside a reader that lets go, once while it is
stopped (SIGSTOP) with a view in its hands. What is compared is the high water of DATA:
all the memory that was ever used. The view must be whole at the end.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import shmcache
from benchmarks import harness, objects
from benchmarks.children import Children, Pipe
from benchmarks.harness import Row, at_most, show_bytes
from benchmarks.shared import RESOURCE, Corpus, directory, open_writer

BATCH = 100


def run(quick: bool) -> list[Row]:
    updates = 20_000 if quick else 1_000_000
    pods = list(Corpus("pods", 10_000).objects())
    without = _updated(pods, updates, stop=False)
    stopped = _updated(pods, updates, stop=True)
    return [
        Row(
            question=f"memory with one reader stopped for {updates:,} updates, 10,000 pods",
            ours=show_bytes(stopped["high_water_bytes"]),
            peer=f"without {show_bytes(without['high_water_bytes'])}",
            note=f"held for it {show_bytes(stopped['limbo_bytes'])}; "
            f"{stopped['revoked']} pins revoked",
            **at_most(1.3, stopped["high_water_bytes"] / without["high_water_bytes"]),
        )
    ]


def _updated(pods: list[objects.Object], updates: int, *, stop: bool) -> dict[str, Any]:
    with directory() as name, open_writer(name) as writer:
        writer.apply(RESOURCE, pods)
        key = objects.key_of(pods[0])
        with Children(_hold, [(name, key)]) as children:
            (pid,) = children.receive()
            if stop:
                os.kill(pid, signal.SIGSTOP)
            else:
                children.send("let go")
            for start in range(0, updates, BATCH):
                changed = []
                for n in range(start, start + BATCH):
                    pod = pods[n * 7_919 % len(pods)]
                    change = objects.update if n % 10 == 0 else objects.status_update
                    changed.append(change(pod, n, in_place=True))
                writer.apply(RESOURCE, changed)
            found: dict[str, Any] = writer.stats()
            if stop:
                os.kill(pid, signal.SIGCONT)
                children.send("look")
            assert children.receive() == [True], "the view is not what it was"
        return found


def _hold(pipe: Pipe, name: str, key: str) -> None:
    cache = shmcache.attach(name)
    view = cache[RESOURCE][key]
    before = view.to_dict()
    pipe.answer(os.getpid())
    pipe.next()
    pipe.answer(view.to_dict() == before)
    del view
    cache.close()


if __name__ == "__main__":
    harness.main(__doc__, run)
