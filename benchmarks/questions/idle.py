"""How much CPU does each consumer use while there is nothing to do?

Each kind of consumer meets each state of its resource, in a process of its own; after a second, the
CPU time of the whole process counts, in the kernel, too. The limit is 0.1 % of a core. The table
has the consumer that uses most of each state, and the mean over all.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache import states
from shmcache.queue.feeder import Feeder
from shmcache.reader.cache import Cache

LIMIT = 0.001
SETTLE_S = 1.0
WATCHED_S, FEWER_S = 20.0, 2.0
"""Of a full run, and of a quick one."""

# ---- consumers -----------------------------------------------------------------------------------


def nothing(*_: object) -> None: ...


async def nothing_async(*_: object) -> None: ...


def by_thread(cache: Cache) -> None:
    cache["pods"].add_handler(on_add=nothing)
    cache.start()


def by_selector(cache: Cache) -> None:
    cache["pods"].add_handler(on_add=nothing, labels="app=web", shard=(0, 2))
    cache.start()


def by_foreground(cache: Cache) -> None:
    cache["pods"].add_handler(on_add=nothing)
    threading.Thread(target=cache.run, daemon=True).start()


def by_feeder(cache: Cache) -> None:
    feeder = Feeder(cache, cache.queue("idle"), [("pods", lambda event: [event.key])])
    threading.Thread(target=feeder.run, daemon=True).start()


def by_get(cache: Cache) -> None:
    threading.Thread(target=cache.queue("idle").get, daemon=True).start()


def by_controller(cache: Cache) -> None:
    shmcache.controller("pods", concurrency=2)(nothing).start(cache)


def by_coroutine_controller(cache: Cache) -> None:
    shmcache.controller("pods", concurrency=2)(nothing_async).start(cache)


def _on_a_loop(main: Callable[[Cache], Coroutine[Any, Any, None]]) -> Callable[[Cache], None]:
    def start(cache: Cache) -> None:
        threading.Thread(target=lambda: asyncio.run(main(cache)), daemon=True).start()

    return start


async def _coroutine_handler(cache: Cache) -> None:
    cache["pods"].add_handler(on_add=nothing_async)
    cache.start()
    await asyncio.Event().wait()


async def _events(cache: Cache) -> None:
    async for _ in cache["pods"].events():
        pass


CONSUMERS: dict[str, Callable[[Cache], None]] = {
    "handler on a thread": by_thread,
    "handler with selector and shard": by_selector,
    "foreground": by_foreground,
    "coroutine handler": _on_a_loop(_coroutine_handler),
    "events()": _on_a_loop(_events),
    "feeder": by_feeder,
    "queue.get()": by_get,
    "controller": by_controller,
    "coroutine controller": by_coroutine_controller,
}

# ---- states --------------------------------------------------------------------------------------


def _write(name: str, *resources: str) -> shmcache.Writer:
    return shmcache.Writer(name, list(resources), arena_max="16MiB", seats=64)


def _list(writer: shmcache.Writer) -> None:
    metadata = {"name": "a", "namespace": "prod", "resourceVersion": "1"}
    writer.put("pods", "prod/a", {"metadata": metadata}, "1")
    writer.set_state("pods", states.SYNCED, "1")


def _quiet(_: str, writer: shmcache.Writer) -> shmcache.Writer:
    return writer


def _retrying(_: str, writer: shmcache.Writer) -> shmcache.Writer:
    writer.set_state("pods", states.RETRYING, "1")
    return writer


def _unlisted(name: str, writer: shmcache.Writer) -> shmcache.Writer:
    writer.close()
    return _write(name, "pods", "nodes")


def _missing(name: str, writer: shmcache.Writer) -> shmcache.Writer:
    writer.close()
    return _write(name, "nodes")


def _replaced(name: str, writer: shmcache.Writer) -> shmcache.Writer:
    made = _unlisted(name, writer)
    _list(made)
    return made


def _writerless(_: str, writer: shmcache.Writer) -> shmcache.Writer:
    writer.close()
    return writer


STATES = {
    "listed and quiet": _quiet,
    "retrying": _retrying,
    "not listed any more": _unlisted,
    "missing": _missing,
    "replaced": _replaced,
    "without a writer": _writerless,
}

# ---- measuring -----------------------------------------------------------------------------------


def run(quick: bool) -> list[Row]:
    rows: list[Row] = []
    every: list[float] = []
    for state, reach in STATES.items():
        shares = _shares(reach, FEWER_S if quick else WATCHED_S)
        every += shares.values()
        most = max(shares, key=lambda name: shares[name])
        rows.append(
            Row(
                question=f"{state}: the most of {len(CONSUMERS)} consumers, of a core",
                ours=f"{shares[most]:.3%} ({most})",
                peer="",
                ratio=shares[most] / LIMIT,
                must=f"≤ {LIMIT:.1%}",
                met=shares[most] <= LIMIT,
            )
        )
    mean = Row(question="mean of all", ours=f"{statistics.fmean(every):.3%}", peer="")
    return [*rows, mean]


def _shares(
    reach: Callable[[str, shmcache.Writer], shmcache.Writer], seconds: float
) -> dict[str, float]:
    with directory() as name:
        writer = _write(name, "pods", "nodes")
        _list(writer)
        arguments = [(name, consumer, seconds) for consumer in CONSUMERS]
        with Children(_consume, arguments) as children:
            children.receive()
            writer = reach(name, writer)
            time.sleep(SETTLE_S)
            children.send("go")
            shares = dict(zip(CONSUMERS, children.receive(), strict=True))
        writer.close()
    return shares


def _consume(pipe: Pipe, name: str, consumer: str, seconds: float) -> None:
    cache = shmcache.attach(name)
    CONSUMERS[consumer](cache)
    time.sleep(SETTLE_S)
    pipe.ready()
    cpu, clock = time.process_time(), time.monotonic()
    time.sleep(seconds)
    share = (time.process_time() - cpu) / (time.monotonic() - clock)
    pipe.answer(share)
    cache.close()


if __name__ == "__main__":
    harness.main(__doc__, run)
