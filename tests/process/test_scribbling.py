"""Invariant tested: whatever a worker writes into the files that it may write, and however short it
makes them, no process crashes, hangs or reads anything false; when it ends, everything is as before
(G9, G29). Only its writer's uid can write DATA; damaged words in it are still read to the end or
refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache.controllers.board import Board
from shmcache.errors import ShmCacheError, StaleObjectError
from shmcache.integrations.frames import total
from shmcache.memory.segments import Place
from shmcache.queue.workqueue import WorkQueue

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
KEYS = 40


def file_of(place: Place, end: str) -> Path:
    (found,) = (name for name in place.location.names(place.stem) if name.endswith(end))
    return Path(place.location.file(found))


def vandal(pipe: Connection, path: str, seed: int, cuts: list[int], spare: list[int]) -> None:
    """Writes random words into writable files until it must end; leaves the range `spare` alone."""
    rng = random.Random(seed)
    signal.alarm(int(PATIENCE) * 2)
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    pipe.send("ready")
    while not pipe.poll(0):
        if cuts and rng.random() < 0.02:
            os.ftruncate(fd, rng.choice(cuts))
            continue
        at = (rng.randrange(4096) if rng.random() < 0.5 else rng.randrange(size)) & ~7
        if spare and spare[0] <= at < spare[1]:
            continue
        word = rng.choice([0, 1, (1 << 64) - 1, rng.getrandbits(64), rng.getrandbits(8)])
        os.pwrite(fd, word.to_bytes(8, "little"), at)
        if rng.random() < 0.1:
            time.sleep(0)
    pipe.recv()
    os.close(fd)
    pipe.send("ended")


# ---- SEATS -----------------------------------------------------------------------------------


def thing(key: int, number: int) -> dict[str, Any]:
    name = f"k{key}"
    metadata = {"name": name, "uid": name, "resourceVersion": str(number + 1)}
    return {"metadata": metadata, "n": number, "text": f"{number:06d}" * (key + 1)}


def reading(pipe: Connection, name: str, seed: int) -> None:
    """Reads, waits and runs handlers, with an alarm; reports how often it read."""
    signal.alarm(int(PATIENCE) * 2)
    rng = random.Random(seed)
    delivered, reads = 0, 0

    def count(*_: object) -> None:
        nonlocal delivered
        delivered += 1

    with shmcache.attach(name) as cache:
        cache["pods"].add_handler(on_add=count, on_update=count, on_delete=count)
        cache.start()
        pipe.send("ready")
        while not pipe.poll(0):
            with contextlib.suppress(StaleObjectError):
                with cache.snapshot() as at:
                    for view in at["pods"].values():
                        found = view.to_dict()
                        assert found == thing(int(found["metadata"]["name"][1:]), found["n"])
                        reads += 1
                cache.wait(cache.latest, timeout=rng.random() / 50)
        last = pipe.recv()
        eventually(lambda: cache["pods"]["k0"]["n"] >= last, "it does not see the last state")
        before = delivered
        pipe.send("still")
        eventually(lambda: delivered > before, "its handlers receive nothing any more")
    pipe.send((reads, delivered))


def test_g9_a_vandal_in_seats_harms_neither_writer_nor_readers(
    name: str, rng: random.Random
) -> None:
    with shmcache.Writer(name, ["pods"], arena_max="32MiB", seats=8, ring_slots=256) as writer:
        writer.apply("pods", [thing(key, 0) for key in range(KEYS)])
        path = file_of(writer.place, ".seats")
        size = path.stat().st_size
        readers = [Worker("fork", reading, name, rng.getrandbits(32)) for _ in range(2)]
        with contextlib.ExitStack() as stack:
            for reader in readers:
                stack.enter_context(reader)
                assert "ready" == reader.hear()
            cuts = [0, 100, 4096, 5000, size]
            scribbler = stack.enter_context(
                Worker("fork", vandal, str(path), rng.getrandbits(32), cuts, [])
            )
            assert "ready" == scribbler.hear()
            number = 0
            deadline = time.monotonic() + PATIENCE
            while number < 3000 and time.monotonic() < deadline:
                number += 1
                writer.apply("pods", [thing(number % KEYS, number), thing(0, number)])
            assert number >= 300, "the writer was held up"
            assert "ended" == scribbler.ask("enough")
            writer._tend()
            for reader in readers:
                assert "still" == reader.ask(number)
            eventually(lambda: heard(writer, readers), "readers do not end")
        writer.check()
        assert size == path.stat().st_size


def heard(writer: shmcache.Writer, readers: list[Worker]) -> bool:
    """Keeps writing until each reader has reported its figures."""
    writer._tend()
    stats = writer.stats()
    writer.apply("pods", [thing(1, 10_000 + stats["generation"])])
    for reader in list(readers):
        if not reader.silent():
            reads, delivered = reader.hear()
            assert reads > 0
            assert delivered > 0
            readers.remove(reader)
    return not readers


# ---- a queue's file --------------------------------------------------------------------------


def working(pipe: Connection, name: str, held: str) -> None:
    """Takes and finishes keys; while it has one, a file of that name exists, and no other's may."""
    signal.alarm(int(PATIENCE) * 2)
    done = twice = 0
    with WorkQueue(Place(name), "work", slots=1024, rate=None) as queue:
        pipe.send("ready")
        while not pipe.poll(0):
            key = queue.get(timeout=0.01)
            if key is None:
                continue
            file = os.path.join(held, key[:32].replace("/", "_"))
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                twice += 1
            else:
                time.sleep(0)
                os.unlink(file)
            queue.done(key)
            done += 1
        pipe.recv()
        pipe.send((done, twice))
        while (key := pipe.recv()) is not None:
            found: list[str] = []
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and not (key in found and pipe.poll(0)):
                taken = queue.get(timeout=0.05)
                if taken is not None:
                    found.append(taken)
                    queue.done(taken)
                    if taken == key:
                        pipe.send("found")
                        break
                elif pipe.poll(0):
                    break


SLOTS = 1024


@pytest.mark.parametrize("what", ["all", "hints", "cuts"])
def test_g29_a_queue_works_again_after_a_vandal_in_it_has_ended(
    name: str, rng: random.Random, tmp_path: Path, what: str
) -> None:
    """`hints`: everything but the slots and keys themselves; then no two workers hold the same
    key."""
    place = Place(name)
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(WorkQueue(place, "work", slots=SLOTS, rate=None))
        path = file_of(place, ".queue")
        size = path.stat().st_size
        slots = [size - SLOTS * (128 + 320), size]
        workers = [
            stack.enter_context(Worker("fork", working, name, str(tmp_path))) for _ in range(2)
        ]
        for worker in workers:
            assert "ready" == worker.hear()
        cuts = [0, 5000, size // 2, size] if what == "cuts" else []
        spare = slots if what == "hints" else []
        scribbler = stack.enter_context(
            Worker("fork", vandal, str(path), rng.getrandbits(32), cuts, spare)
        )
        assert "ready" == scribbler.hear()
        for number in range(2000):
            with contextlib.suppress(ShmCacheError):
                queue.add(f"k{number % 100}", number % 3, timeout=0.05)
        assert "ended" == scribbler.ask("enough")
        figures = [worker.ask("enough") for worker in workers]
        if what == "hints":
            assert [0, 0] == [twice for _, twice in figures], "two workers held the same key"
        recover(queue, workers)
        eventually(lambda: tended(queue) and size == path.stat().st_size, "it is not mended")
        for worker in workers:
            worker.tell(None)


def recover(queue: WorkQueue, workers: list[Worker]) -> None:
    """The documented way: the next sweep mends damage. No noise is a shutdown of this queue."""
    assert queue.stats() is not None
    assert not queue.shutting_down
    queue.add("afterwards", 1000, timeout=PATIENCE)
    for worker in workers:
        worker.tell("afterwards")
    eventually(lambda: any(not worker.silent() for worker in workers), "nothing is handed out")


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_queue_ends_no_process(name: str, part: float) -> None:
    with WorkQueue(Place(name), "work", slots=SLOTS, rate=None) as queue:
        queue.add_many(f"k{number}" for number in range(500))
        path = file_of(Place(name), ".queue")
        size = path.stat().st_size
        rebuilds = queue.stats()["rebuilds"]
        held = queue.get(timeout=PATIENCE)
        os.truncate(path, int(size * part))

        queue.done(str(held))
        eventually(
            lambda: tended(queue)["rebuilds"] != rebuilds or part < 0.1, "the damage went unnoticed"
        )
        eventually(lambda: path.stat().st_size == size, "its length is not restored")
        queue.add("after", 1000)
        assert "after" == queue.get(timeout=PATIENCE)
        queue.done("after")


def tended(queue: WorkQueue) -> dict[str, int | float]:
    queue.tend()
    return queue.stats()


def test_a_truncated_board_ends_no_process(name: str) -> None:
    board, other = Board(Place(name), "things"), Board(Place(name), "things")
    mine = board.take_row(1)
    assert 0 == board.resource("pods")
    os.truncate(file_of(Place(name), ".board"), 0)

    assert [] == [row for row in other.rows if row.number > 0]
    mine.leave() if hasattr(mine, "leave") else board.leave_row(mine.number)
    assert 0 == other.resource("pods")
    board.close()
    other.close()


# ---- DATA ------------------------------------------------------------------------------------


def pod(number: int) -> dict[str, Any]:
    metadata = {
        "name": f"p{number}",
        "namespace": f"n{number % 3}",
        "labels": {"app": f"a{number % 4}"},
    }
    inside = {"deep": [[{"a": number}], "a longer string " * (number % 5), 1.5, True, None]}
    return {"metadata": metadata, "spec": {"node": f"node-{number % 5}", **inside}}


@dataclasses.dataclass
class Metadata:
    name: str
    labels: dict[str, str]


@dataclasses.dataclass
class Spec:
    node: str
    deep: list[Any]


@dataclasses.dataclass
class Node:
    """A class of the user's."""

    metadata: Metadata
    spec: Spec


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A cache in a directory, with history in its ring; its writer works on the original."""
    pods = shmcache.Resource("pods", {"node": "spec.node", "label": "metadata.labels"})
    with shmcache.Writer(
        str(tmp_path / "original"), [pods], arena_max="4MiB", ring_slots=256
    ) as writer:
        writer.replace("pods", [pod(number) for number in range(100)], version="100")
        for number in range(50):
            with writer.batch():
                changed = pod(number) | {"again": True}
                changed["metadata"]["resourceVersion"] = str(101 + number)
                writer.apply("pods", [changed])
                writer.set_version("pods", str(101 + number))
        with writer.batch():
            writer.delete("pods", "n0/p99", "151")
            writer.set_version("pods", "151")
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
    return tmp_path / "copy"


def reach(found: Any, *names: str) -> Any:
    """An attribute of an attribute; None where damage left another kind of value."""
    for name in names:
        found = getattr(found, name, None)
    return found


def ways(cache: shmcache.Cache) -> dict[str, Callable[[], object]]:
    """Each way of reading, until it ends."""
    pods = cache["pods"]

    def views() -> None:
        for view in pods.values():
            for name in view:
                assert view[name] == view.get(name)
            list(view["spec"]["deep"])
            repr(view)

    def deltas() -> None:
        cursor = cache.follow(start=cache.reader.root().tail)
        while cursor.ready():
            for delta in cursor.take():
                _ = (
                    delta.key,
                    delta.old and delta.old.to_dict(),
                    delta.new and delta.new.to_dict(),
                )

    def columns() -> None:
        with cache.snapshot() as at:
            shmcache.columns(at["pods"], node="spec.node", name="metadata.name")

    def past() -> None:
        generation = cache.reader.root().generation
        for back in (1, 7, 40):
            at = cache.at(generation=generation - back)
            for view in at["pods"].list():
                view.to_dict()
            at["pods"].list(labels="app in (a1,a2)")
        for number in ("110", "130", "151"):
            cache.at(number)["pods"].list(fields="spec.node=node-3")

    def models() -> None:
        for one in pods.models().list():
            one.to_dict()
            repr((one.spec, reach(one, "metadata", "labels"), reach(one, "spec", "node_name")))
        for node in pods.models(Node).list():
            repr((reach(node, "spec", "node"), reach(node, "spec", "deep"), node.metadata))
        for node in pods.models(Node, validate="at once").list(namespace="n1"):
            repr(node)

    def frames() -> None:
        pods.frame({"node": "spec.node", "again": "again", "deep": "spec.deep[*][*].a"}).to_dict()
        pods.frame({"n": total("spec.deep[*][*].a")}, labels="app=a1").to_dict()
        pods.group_by("spec.node").count()
        pods.group_by("metadata.labels.app").sum("spec.deep[*][*].a")

    return {
        "past": past,
        "models": models,
        "frames": frames,
        "get": lambda: [pods.get(f"n{number % 3}/p{number}") for number in range(100)],
        "to_dict": lambda: [view.to_dict() for view in pods.values()],
        "json": lambda: [json.loads(view.json()) for view in pods.values()],
        "views": views,
        "scan": lambda: [key for key, _ in pods.items()],
        "prefix": lambda: pods.list(namespace="n1"),
        "labels": lambda: pods.list(labels="app in (a1,a2)"),
        "fields": lambda: pods.list(fields="spec.node=node-3"),
        "index": lambda: [
            list(pods.by_index("node", value)) for value in pods.index_values("node")
        ],
        "deltas": deltas,
        "columns": columns,
        "status": lambda: (pods.status, len(pods)),
    }


ANSWERS = (ShmCacheError, LookupError, ArithmeticError, ValueError, TypeError)
"""Any other exception is a crash. Content that passed validation in a corrupt file can be any JSON:
a path that leads nowhere, a text instead of a number."""


def read_all_ways(pipe: Connection, directory: str) -> None:
    while True:
        pipe.recv()
        signal.alarm(30)  # a hang ends the process, and thereby the test
        outcomes: dict[str, str] = {}
        try:
            with shmcache.attach(directory) as cache:
                for name, read in ways(cache).items():
                    try:
                        read()
                        outcomes[name] = "whole"
                    except ANSWERS as error:
                        outcomes[name] = type(error).__name__
        except ANSWERS as error:
            outcomes["attach"] = type(error).__name__
        signal.alarm(0)
        pipe.send(outcomes)


def scribble(rng: random.Random, data: bytearray) -> None:
    """A few words, most of them taken from elsewhere in the file, so that they pass for longer."""
    for _ in range(rng.randrange(1, 6)):
        at, other = rng.randrange(len(data) // 8) * 8, rng.randrange(len(data) // 8) * 8
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + 8] = data[other : other + 8]
            case 2:
                data[at : at + 8] = (data[at] & 7 | other).to_bytes(8, "little")
            case _:
                data[at : at + 8] = rng.getrandbits(64).to_bytes(8, "little")


def test_an_untouched_data_file_is_read_whole_in_every_way(copied: Path) -> None:
    with Worker("fork", read_all_ways, str(copied)) as worker:
        outcomes = worker.ask("read")
    assert not {name: one for name, one in outcomes.items() if one != "whole"}


@pytest.mark.slow
def test_a_scribbled_data_file_is_read_to_the_end_or_refused(
    copied: Path, rng: random.Random
) -> None:
    (path,) = copied.glob("*.data")
    good = path.read_bytes()
    used = len(good.rstrip(b"\0")) + 8 & ~7
    refused = 0
    with Worker("fork", read_all_ways, str(copied)) as worker:
        for _ in range(EXAMPLES * 5):
            data = bytearray(good[:used])
            scribble(rng, data)
            path.write_bytes(bytes(data) + good[used:])
            outcomes = worker.ask("read")
            refused += "whole" not in outcomes.values() or len(set(outcomes.values())) > 1
    assert refused > 0, "nothing was hit: the test proves nothing"


@pytest.mark.slow
def test_data_that_changes_while_it_is_read_ends_no_process(
    copied: Path, rng: random.Random
) -> None:
    """Not what a worker can do, but what a reader must survive: each word is loaded once."""
    (path,) = copied.glob("*.data")
    with (
        Worker("fork", read_all_ways, str(copied)) as worker,
        Worker("fork", vandal, str(path), rng.getrandbits(32), [], [0, 4096]) as scribbler,
    ):
        assert "ready" == scribbler.hear()
        for _ in range(EXAMPLES):
            assert worker.ask("read")
        assert "ended" == scribbler.ask("enough")
