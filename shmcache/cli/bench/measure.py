"""The processes of `shmcache bench`: one fills, each of the others measures one thing and says it.

python -m shmcache.cli.bench.measure WHAT ARGUMENT...
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from typing import Any

import shmcache
from shmcache import states

READS = 20_000
SEED = 1


def fill(directory: str, count: str) -> None:
    """Made-up pods, in a cache that stays until the parent is done."""
    from shmcache.cli.demo.objects import pods

    resource = shmcache.Resource("pods", indices={"node": "spec.nodeName"})
    with shmcache.Writer(directory, resources=[resource]) as writer:
        writer.replace("pods", pods(int(count), random.Random(SEED)))
        writer.set_state("pods", states.SYNCED, version=count)
        sys.stdin.read()


def sizes(directory: str) -> dict[str, Any]:
    """How many objects, how much JSON they are, and what all segments take."""
    with shmcache.attach(directory) as cache:
        resources = {
            name: {
                "objects": len(cache[name]),
                "json": sum(len(each.json()) for each in cache[name].values()),
            }
            for name in cache
        }
    files = (os.stat(f"{directory}/{name}") for name in os.listdir(directory))
    return {"resources": resources, "segments": sum(file.st_blocks * 512 for file in files)}


def memory(pid: str) -> dict[str, int]:
    """Of another process: its own pages and its page tables."""
    return {"private": _private(pid)}


def read(directory: str) -> dict[str, float]:
    """A worker that has read a field of every object."""
    before = _private()
    start = time.perf_counter()
    cache = shmcache.attach(directory)
    stores = {name: cache[name] for name in cache}
    for store in stores.values():
        for each in store.values():
            each["metadata"]["name"]
    return {"ready_s": time.perf_counter() - start, "private": _private() - before} | _timed(stores)


def decode(directory: str) -> dict[str, float]:
    """A worker with dicts of its own, decoded from what the server would have sent."""
    from orjson import loads

    with shmcache.attach(directory) as cache:
        texts = {name: {key: each.json() for key, each in cache[name].items()} for name in cache}
    before = _private()
    gc.disable()
    start = time.perf_counter()
    stores = {
        name: {key: loads(text) for key, text in store.items()} for name, store in texts.items()
    }
    taken = {"ready_s": time.perf_counter() - start, "private": _private() - before}
    gc.enable()
    del texts
    return taken | _timed(stores)


def _timed(stores: dict[str, Any]) -> dict[str, float]:
    """A get and a field of it, of random objects; and how long the collector stops everything."""
    pairs = [(store, key) for store in stores.values() for key in store]
    if not pairs:
        return {"field_ns": 0.0, "collect_s": 0.0}
    chosen = random.Random(SEED).choices(pairs, k=READS)
    began = time.perf_counter_ns()
    for store, key in chosen:
        store[key]["metadata"]["name"]
    took = time.perf_counter_ns() - began
    del pairs, chosen
    gc.collect()
    collecting = time.perf_counter()
    gc.collect()
    return {"field_ns": took / READS, "collect_s": time.perf_counter() - collecting}


def _private(pid: str = "self") -> int:
    """Bytes of a process' own pages, without those of shared memory, and of its page tables."""
    wanted = {"smaps_rollup": "Pss_Anon:", "status": "VmPTE:"}
    total = 0
    for file, name in wanted.items():
        with open(f"/proc/{pid}/{file}", encoding="ascii") as lines:
            total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
    return total


if __name__ == "__main__":
    asked, *arguments = sys.argv[1:]
    if asked == "fill":
        fill(*arguments)
    else:
        measures = {"sizes": sizes, "memory": memory, "read": read, "decode": decode}
        json.dump(measures[asked](*arguments), sys.stdout)
