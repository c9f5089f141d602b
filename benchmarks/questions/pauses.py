"""How long does Python's collector stop a worker that knows 10,000 pods?

A full collection visits every container of the process: with decoded objects of its own that is
each dict and list of each pod, with ours it is the views that the program holds, if any. Each side
is a process of its own that collects several times; the median counts.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import orjson

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most, show_ns
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.objects import key_of
from benchmarks.scenes.shared import RESOURCE, Corpus, filled

PODS, FEWER = 10_000, 2_000
"""Of a full run, and of a quick one."""
LIMIT = 1 / 20


def run(quick: bool) -> list[Row]:
    rounds = 3 if quick else 15
    corpus = Corpus("pods", FEWER if quick else PODS)
    with filled(corpus) as name:
        found = {
            how: _asked(_views, name, corpus.count, how == "holding a view of each", rounds)
            for how in ("that read a field of each", "holding a view of each")
        }
    own = _asked(_dicts, corpus, rounds)
    return [
        Row(
            question=f"a full collection in a worker {how}, {corpus}",
            ours=show_ns(ours),
            peer=f"dicts of its own {show_ns(own)}",
            **at_most(LIMIT, ours / own),
        )
        for how, ours in found.items()
    ]


def _asked(target: Any, *arguments: Any) -> float:
    with Children(target, [arguments]) as children:
        return float(children.receive()[0])


def _views(pipe: Pipe, name: str, count: int, hold: bool, rounds: int) -> None:
    pods = shmcache.attach(name)[RESOURCE]
    held = list(pods.values()) if hold else []
    read = sum(1 for pod in pods.values() if pod["spec"]["nodeName"])
    pipe.answer(_pause(rounds))
    assert read == count
    del held


def _dicts(pipe: Pipe, corpus: Corpus, rounds: int) -> None:
    gc.disable()  # or filling would collect all the time
    pods = {}
    for thing in corpus.objects():
        pods[key_of(thing)] = orjson.loads(orjson.dumps(thing))
    gc.enable()
    pipe.answer(_pause(rounds))
    del pods


def _pause(rounds: int) -> float:
    gc.collect()
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        gc.collect()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


if __name__ == "__main__":
    harness.main(__doc__, run)
