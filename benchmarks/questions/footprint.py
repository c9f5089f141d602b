"""What does it cost a machine that W of its processes know 10,000 pods?

All sides fill from the same dumb server (canned.py; managedFields stripped everywhere), and every
worker reads one field of every object before anything is measured. The kernel reports the memory,
from outside, for every process of a side: its anonymous pages and its page tables, shared ones in
proportion, and the blocks of all files in memory (segments, LMDB's map), once.

    net     that, less the same processes right after their imports
    gross   that, with interpreters, imports, and the pages of libraries
    peak    gross, with each process at its own high-water mark

A side grows worker by worker while its memory, by its own growth so far, stays below half of the
machine's; its end is shown as such. A quick run has fewer workers, and gives slow sides fewer pods;
each is compared with ours for as many.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row, show, show_bytes, show_s
from benchmarks.scenes import canned, sides
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.lean import ChildFailed
from benchmarks.scenes.scene import serving
from benchmarks.scenes.shared import Corpus, directory
from benchmarks.scenes.sides import Found, Scene, Side, each_its_own
from shmcache.testing import ApiServer

PODS = 10_000
FEWER, FEW = 1_000, 200
"""Pods of the slow sides in a quick run."""
WORKERS = (1, 2, 4, 8, 16, 32)
QUICK_WORKERS = {PODS: 8, FEWER: 2, FEW: 1}
"""At most so many workers, by the number of pods."""
AT = 8
"""Workers of the rows with a verdict."""
MIB = 1 << 20

OURS = "shmcache"
SIDES: dict[str, tuple[Scene, int]] = {
    # name: (scene, pods of a quick run)
    OURS: (sides.shared, PODS),
    "urllib3 + orjson, dicts": (each_its_own("Dicts"), PODS),
    "urllib3 + orjson, collector tuned": (each_its_own("TunedDicts"), FEWER),
    "dicts filled before fork": (sides.preloaded, FEWER),
    "raw JSON bytes": (each_its_own("RawBytes"), PODS),
    "msgspec, six fields": (each_its_own("Projection"), PODS),
    "msgspec, six short fields": (each_its_own("ShortProjection"), FEWER),
    "LMDB, raw JSON": (sides.lmdb, PODS),
    "Redis, raw JSON": (sides.redis, FEWER),
    "lightkube": (each_its_own("Lightkube"), FEWER),
    "SharedInformer": (each_its_own("Informer"), FEW),
    "kubernetes_asyncio": (each_its_own("AsyncClient"), FEW),
    "kr8s": (each_its_own("Kr8s"), FEW),
}
DISCOVERS = "kr8s"
"""A side that requests discovery first, which the dumb server does not have."""
MUST_NET = {
    "urllib3 + orjson, dicts": 45, "SharedInformer": 180, "raw JSON bytes": 12,
    "msgspec, six fields": 3, "LMDB, raw JSON": 1.7,
}  # fmt: skip
MUST_GROSS = {"urllib3 + orjson, dicts": 13, "SharedInformer": 50, "LMDB, raw JSON": 1}


def run(quick: bool) -> list[Row]:
    ours: dict[int, Found] = {}
    found: list[Found] = []
    for count in (PODS, FEWER, FEW) if quick else (PODS,):
        with serving(count, canned.PAGED) as server, contextlib.ExitStack() as stack:
            for name, (scene, quick_count) in SIDES.items():
                if quick and quick_count != count and name != OURS:
                    continue
                most = QUICK_WORKERS[count] if quick else WORKERS[-1]
                url = stack.enter_context(_api_server(count)) if name == DISCOVERS else server.url
                each = _grown(scene, Found(name, count), url, most)
                if name == OURS:
                    ours[count] = each
                if name != OURS or count == PODS:
                    found.append(each)
    return [*_rows(found, ours), *_unlike(1_000 if quick else PODS)]


def _grown(scene: Scene, found: Found, url: str, most: int) -> Found:
    workers = [each for each in WORKERS if each <= most]
    try:
        sides.grown(scene, found, url, workers, sides.half_of_the_machine())
    except (OSError, RuntimeError, ChildFailed) as error:
        if found.name == OURS:
            raise
        traceback.print_exc()  # a failing peer is shown as such, and does not stop the others
        found.stopped = f"failed: {type(error).__name__}: {error}"
    costs = ", ".join(f"{each.workers}: {show_bytes(each.net)}" for each in found.costs.values())
    said = f"  {found.name}, {found.count:,} pods: {costs}; full after {show_s(found.first_s)}"
    print(f"{said} {found.stopped}".rstrip(), flush=True)
    return found


@contextlib.contextmanager
def _api_server(count: int) -> Iterator[str]:
    with Children(_serve_all, [(count,)]) as children:
        yield children.receive()[0]


def _serve_all(pipe: Pipe, count: int) -> None:
    with ApiServer() as server:
        for pod in canned.ordered(count):
            del pod["metadata"]["resourceVersion"]  # the server assigns it
            server.create("pods", pod)
        pipe.answer(server.url)
        pipe.next()


# ---- the rows ------------------------------------------------------------------------------------


def _rows(found: list[Found], ours: dict[int, Found]) -> list[Row]:
    named = {each.name: each for each in found}
    rows = [_side_row(each, ours[each.count]) for each in found]
    for what, limits in (("net", MUST_NET), ("gross", MUST_GROSS)):
        rows += [
            _verdict(what, limit, ours[named[name].count], named[name])
            for name, limit in limits.items()
        ]
    rows.append(_further(ours[PODS]))
    return rows + [_time_row(each, ours[each.count]) for each in found if each.further_s]


def _side_row(found: Found, ours: Found) -> Row:
    if not found.costs:
        question = f"{found.count:,} pods: {found.name}"
        return Row(question=question, ours=show_bytes(ours.most.net), peer=found.stopped)
    at = max(each for each in found.costs if each <= AT)
    cost, mine = found.costs[at], ours.costs[at]
    note = f"gross {show_bytes(cost.gross)}, peak {show_bytes(cost.peak)}"
    return Row(
        question=f"{found.count:,} pods in {at} workers: {found.name}",
        ours=show_bytes(mine.net),
        peer="" if found.name == OURS else show_bytes(cost.net),
        ratio=None if found.name == OURS else cost.net / mine.net,
        note="; ".join(filter(None, [note, found.stopped])),
        data={
            "side": found.name,
            "pods": found.count,
            "stopped": found.stopped,
            "costs": [dataclasses.asdict(each) for each in found.costs.values()],
        },
    )


def _verdict(what: str, limit: float, ours: Found, peer: Found) -> Row:
    question = f"{what} memory of {AT} workers, {PODS:,} pods, against {peer.name}"
    if AT in peer.costs and peer.count == PODS:
        mine, its = getattr(ours.costs[AT], what), getattr(peer.costs[AT], what)
        return Row(
            question=question,
            ours=show_bytes(mine),
            peer=show_bytes(its),
            **harness.at_least(limit, its / mine),
        )
    why = peer.stopped or harness.NOT_ASKED
    return Row(question=question, ours="", peer=why, must=f"≥ {show(limit)} ×")


def _further(ours: Found) -> Row:
    few, many = ours.costs[min(ours.costs)], ours.most
    further = (many.net - few.net) / (many.workers - few.workers)
    return Row(
        question=f"each further worker, net, of {many.workers}",
        ours=show_bytes(further),
        peer="",
        must="≤ 1 MiB",
        met=further <= MIB,
    )


def _time_row(found: Found, ours: Found) -> Row:
    """A worker that comes later: ours finds the cache full, a peer's fills its own."""
    question = f"from a worker's start until it has read {found.count:,} pods: {found.name}"
    if found.name == OURS:
        return Row(
            question=question,
            ours=show_s(ours.further_s),
            peer="",
            note=f"{show_s(ours.first_s)} from nothing, with the start of a reflector and its list",
        )
    return Row(
        question=question,
        ours=show_s(ours.further_s),
        peer=show_s(found.further_s),
        ratio=found.further_s / ours.further_s,
        note=f"{show_s(found.first_s)} from nothing",
    )


def _unlike(count: int) -> list[Row]:
    """For objects that share only keys: all memory, against one copy of the JSON."""
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(directory())
        side = Side(stack, count, name)
        writer = side.start("benchmarks.scenes.knowing:writer", name, "unlike", count)
        side.work("benchmarks.scenes.knowing:worker", AT, name)
        cost = side.cost()
        writer.send("size")
        text: int = writer.receive()
    met = cost.net <= 1.4 * text + AT * MIB
    limit: dict[str, Any] = {"must": f"≤ 1.4 × JSON + {AT} MiB", "met": met}
    return [
        Row(
            question=f"net memory of {AT} workers, {Corpus('unlike', count)}",
            ours=show_bytes(cost.net),
            peer=f"JSON once {show_bytes(text)}",
            ratio=cost.net / text,
            **(limit if count == PODS else {}),  # for few objects the fixed parts dominate
        )
    ]


if __name__ == "__main__":
    harness.main(__doc__, run)
