"""How many changes a second reach four consumer processes, and what do they cost the producer?

Ring alone: the producer publishes values that are encoded already, in batches of 64; every consumer
sleeps when nothing has come, and reads one field of each change in Python. A rate is changes over
the time until the last consumer has read the last one; nothing may be lost. The peers carry 64-byte
descriptors of which a consumer reads one word (they state where an object is, but no consumer reads
it), and ZeroMQ once more carries the objects' JSON, of which it reads a field. The limits of both
ends are below: the time of four processes to read the field of dicts in a ready list, and the
producer's rate without followers. The whole way: `put` of decoded objects, with four consumers and
with none.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, at_least, show_ns
from benchmarks.peers.descriptor import descriptors
from benchmarks.scenes import objects
from benchmarks.scenes.channel import VERSIONS, Sender
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import Corpus, directory, fill_variants, open_writer

CONSUMERS = 4
BATCH = 64
COUNT = 32_000  # fewer than the ring's window: no consumer is lapped, however slow
OBJECTS = 2_000  # a divisor of it
REST_S = 0.05  # before each round, so that the scheduler treats both sides alike

# channel: (module of the peer, its receiver, how its sender is made, payload)
PEERS = {
    "iceoryx2, an event per batch": ("iceoryx", "Receiver", {}, "descriptors"),
    "iceoryx2, an event per sample": ("iceoryx", "Receiver", {"notify_each": True}, "descriptors"),
    "ZeroMQ PUB/SUB": ("zeromq", "Receiver", {}, "descriptors"),
    "ZeroMQ PUB/SUB, JSON": ("zeromq", "ObjectReceiver", {}, "objects"),
    "multiprocessing.Queue, one for each": ("mpqueue", "Receiver", {}, "few"),
    "2,000 dicts in a ready list, no ring": ("ready", "Receiver", {}, "ready"),
    "one dict in a ready list, no ring": ("ready", "HotReceiver", {}, "ready"),
}
ALONE = "the same puts when nobody follows"
SLOW = (
    "iceoryx2, an event per sample",
    "ZeroMQ PUB/SUB, JSON",
    "2,000 dicts in a ready list, no ring",
    "one dict in a ready list, no ring",
)
"""Not asked in a quick run."""
LIMITS = {"iceoryx2, an event per batch": 3.0, "ZeroMQ PUB/SUB": 6.0}

Sides = tuple[tuple[float, float], tuple[float, float]]
"""With consumers, without: changes a second, CPU nanoseconds per change."""


def run(quick: bool) -> list[Row]:
    rounds, count = (2, COUNT // 4) if quick else (9, COUNT)
    peers = {label: how for label, how in PEERS.items() if not (quick and label in SLOW)}
    return [*_ring_alone(peers, rounds, count), *_whole_way(rounds)]


def _ring_alone(asked: dict[str, Any], rounds: int, count: int) -> list[Row]:
    rates: dict[str, list[float]] = {}
    bodies = list(Corpus("pods", OBJECTS).bodies().values())
    payloads = {
        "descriptors": descriptors(count),
        "few": descriptors(count // 5),
        "objects": [bodies[n % OBJECTS] for n in range(count // 5)],
        "ready": range(count * 20),
    }
    with ExitStack() as stack:
        ours = stack.enter_context(_shared(consumers=CONSUMERS))
        alone = stack.enter_context(_shared(consumers=0))
        peers = {
            label: (stack.enter_context(_peer(*how[:3])), how[3]) for label, how in asked.items()
        }
        for turn in range(rounds + 1):
            found = {
                "ours": _rate(*ours, ours[0].encoded(count)),
                ALONE: _rate_alone(alone[0], count),
            }
            for label, ((sender, children), kind) in peers.items():
                found[label] = _rate(sender, children, sender.prepare(payloads[kind]))
            for label, rate in found.items() if turn else ():  # the first round warms up
                rates.setdefault(label, []).append(rate)
    return [_ring_row(label, rates["ours"], rates.get(label)) for label in (*PEERS, ALONE)]


def _ring_row(label: str, ours: list[float], peer: list[float] | None) -> Row:
    question = f"ring alone, {CONSUMERS} consumers, batches of {BATCH}, against {label}"
    if peer is None:
        return Row(question=question, ours=_show(ours), peer=harness.NOT_ASKED)
    ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    verdict = at_least(LIMITS[label], ratio) if label in LIMITS else {"ratio": ratio}
    return Row(
        question=question,
        ours=_show(ours),
        peer=_show(peer),
        **verdict,
    )


def _show(rates: list[float]) -> str:
    low, high = min(rates) / 1e3, max(rates) / 1e3
    return f"{statistics.median(rates) / 1e3:.0f} k/s ({low:.0f} to {high:.0f})"


def _rate(sender: Any, children: Children, prepared: Sequence[Any]) -> float:
    """Changes a second, from the first `send` until the last consumer has read the last one."""
    batches = list(_batches(prepared, BATCH))
    children.send(len(prepared))
    children.receive()
    start = time.monotonic_ns()
    for batch in batches:
        sender.send(batch)
    ended: int = max(children.receive())
    return len(prepared) / (ended - start) * 1e9


def _rate_alone(sender: Sender, count: int) -> float:
    batches = list(_batches(sender.encoded(count), BATCH))
    start = time.monotonic_ns()
    for batch in batches:
        sender.send(batch)
    return count / (time.monotonic_ns() - start) * 1e9


def _batches(things: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), size):
        yield things[start : start + size]


@contextmanager
def _peer(module: str, receiver: str, options: dict[str, Any]) -> Iterator[tuple[Any, Children]]:
    channel = importlib.import_module(f"benchmarks.peers.{module}")
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        address = f"{place}/channel" if module == "zeromq" else place
        sender = channel.Sender(address, CONSUMERS, **options)
        try:
            addresses = getattr(sender, "addresses", [address] * CONSUMERS)
            each = [(channel.__name__, receiver, one) for one in addresses]
            with Children(_consume, each) as children:
                children.receive()
                sender.connect()
                yield sender, children
        finally:
            sender.close()


@contextmanager
def _shared(consumers: int) -> Iterator[tuple[Sender, Children]]:
    with directory() as name, open_writer(name, ring_bytes="64MiB") as writer:
        fill_variants(writer, OBJECTS)
        sender = Sender(name, writer)
        with Children(
            _consume, [("benchmarks.scenes.channel", "Receiver", name)] * consumers
        ) as children:
            children.receive()
            yield sender, children
        sender.close()


def _consume(pipe: Pipe, module: str, receiver: str, address: Any) -> None:
    channel = getattr(importlib.import_module(module), receiver)(address, CONSUMERS)
    pipe.answer("connected")
    try:
        while True:
            count = pipe.next()
            pipe.answer("ready")
            channel.consume(count)
            pipe.answer(time.monotonic_ns())
    finally:
        channel.close()


def _whole_way(rounds: int) -> list[Row]:
    pods = list(objects.pods(OBJECTS))
    rows = []
    with _shared(CONSUMERS) as (busy, children), _shared(0) as (alone, nobody):
        for size in (1, BATCH):
            found: list[Sides] = []
            for turn in range(rounds + 1):
                changed = [objects.status_update(pod, next(VERSIONS)) for pod in pods]
                ready = [(objects.key_of(pod), pod, objects.version_of(pod)) for pod in changed]
                sides = [(busy, children), (alone, nobody)]
                order = (0, 1) if turn % 2 else (1, 0)
                rates = {side: _producer(*sides[side], ready, size) for side in order}
                if turn:
                    found.append((rates[0], rates[1]))
            rows.append(_whole_row(size, found))
    return rows


def _producer(
    sender: Sender, children: Children, ready: list[tuple[str, Any, str]], size: int
) -> tuple[float, float]:
    """Changes a second while the consumers run, and the producer's CPU time per change."""
    ready = [(key, orjson.loads(orjson.dumps(pod)), version) for key, pod, version in ready]
    batches = list(_batches(ready, size))
    children.send(len(ready))
    children.receive()
    time.sleep(REST_S)
    cpu, start = time.process_time_ns(), time.monotonic_ns()
    for batch in batches:
        sender.send(batch)
    end, cpu_end = time.monotonic_ns(), time.process_time_ns()
    children.receive()
    return len(ready) / (end - start) * 1e9, (cpu_end - cpu) / len(ready)


def _whole_row(size: int, rounds: list[Sides]) -> Row:
    busy, alone = ([side[which][0] for side in rounds] for which in (0, 1))
    cpu = [statistics.median(side[which][1] for side in rounds) for which in (0, 1)]
    return Row(
        question=f"put of decoded objects in batches of {size}, {CONSUMERS} consumers",
        ours=_show(busy),
        peer=f"no consumer {_show(alone)}",
        note=f"CPU time per object {show_ns(cpu[0])}, without consumers {show_ns(cpu[1])}",
        **at_least(0.5, statistics.median(a / b for a, b in zip(busy, alone, strict=True))),
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
