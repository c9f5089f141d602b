"""How long from publish until a sleeping Python consumer runs, against a raw sem_t wake?

The writer waits until all sleepers have had time to fall asleep, puts one already encoded value
into a batch, notes the time, and commits; a consumer notes the time when `wait` returns. The peer
is a C program that does the same with one process-shared sem_t per sleeper. Both run in turns. Then
the same until a handler is called or `wait_until` returns, and with the usual means of Python
programs, in the same turns: an event of iceoryx2, a message of ZeroMQ or multiprocessing.Queue. And
without sleepers: what do 64 claimed seats cost the writer at each commit?
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most, percentile, show_ns
from benchmarks.peers import semaphore
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.waking import GAP_US, Way, consumer, handler, ours, peer, publisher, waiter

SEATS = 64
SEAT_PROCESSES = 4
SCAN_LIMIT_NS = 100
LIMITS = {1: 3.0, 4: 2.0}
SLEEPERS = (1, 4, 16)
PEERS = {"iceoryx2": "iceoryx", "ZeroMQ": "zeromq", "multiprocessing.Queue": "mpqueue"}
PEERS_UP_TO = 4
CONSUMER, HANDLER, WAITER = "a Python consumer runs", "a handler is called", "wait_until returns"
KINDS = {CONSUMER: consumer, HANDLER: handler, WAITER: waiter}
WAITER_LIMIT = 1.2
"""Times a handler's."""
PERCENTILES = (1, 5, *range(10, 91, 5), 95, 98, 99, 99.5, 99.9)


def run(quick: bool) -> list[Row]:
    turns, rounds = (2, 200) if quick else (5, 1_000)
    rows: list[Row] = []
    with semaphore.compiled() as program:
        for sleepers in SLEEPERS[: 2 if quick else None]:
            few = sleepers <= (1 if quick else PEERS_UP_TO)
            rounds_each = max(50, rounds // 4) if sleepers > PEERS_UP_TO else rounds
            rows += _wake(program, sleepers, turns, rounds_each, PEERS if few else {})
    if quick:
        rows += harness.not_asked("the same, 16 asleep, and 4 next to the peers")
    rows.append(_nobody_asleep(5 if quick else 21))
    return rows


def _wake(
    program: Path, sleepers: int, turns: int, rounds: int, peers: dict[str, str]
) -> list[Row]:
    limit: list[list[int]] = []
    with ExitStack() as stack:
        ways = {
            **{what: stack.enter_context(ours(sleepers, kind)) for what, kind in KINDS.items()},
            **{name: stack.enter_context(peer(each, sleepers)) for name, each in peers.items()},
        }
        for _ in range(turns):
            limit.append(semaphore.wake(program, sleepers, rounds, GAP_US).took)
            for way in ways.values():
                way.turn(rounds)
    rows = [_limit_row(what, ways[what], limit, sleepers) for what in (CONSUMER, HANDLER)]
    mine, handled, waited = (ways[what].took for what in KINDS)
    rows.append(
        Row(
            question=f"publish until {WAITER}, {sleepers} asleep, p50 / p99",
            ours=_show(waited),
            peer=f"a handler {_show(handled)}",
            **at_most(WAITER_LIMIT, _ratio(waited, handled)),
        )
    )
    return rows + [
        Row(
            question=f"publish until {CONSUMER}, {sleepers} asleep, p50 / p99, against {name}",
            ours=_show(mine),
            peer=f"{name} {_show(ways[name].took)}",
            ratio=_ratio(mine, ways[name].took),
        )
        for name in peers
    ]


def _limit_row(what: str, way: Way, limit: list[list[int]], sleepers: int) -> Row:
    ratio = _ratio(way.took, limit)
    bound = LIMITS.get(sleepers) if what == CONSUMER else None
    return Row(
        question=f"publish until {what}, {sleepers} asleep, p50 / p99",
        ours=_show(way.took),
        peer=f"sem_t in C {_show(limit)}",
        note=f"such a commit costs the writer {show_ns(statistics.median(way.costs))}",
        data={
            "sleepers": sleepers,
            "what": what,
            "ours": _distribution(way.took),
            "sem_t in C": _distribution(limit),
        },
        **(at_most(bound, ratio) if bound else {"ratio": ratio}),
    )


def _ratio(ours: list[list[int]], peer: list[list[int]]) -> float:
    return statistics.median(
        percentile(a, 50) / percentile(b, 50) for a, b in zip(ours, peer, strict=True)
    )


def _distribution(turns: list[list[int]]) -> list[tuple[float, float]]:
    """(percentile, microseconds), for a picture."""
    every = [took for turn in turns for took in turn]
    return [(each, percentile(every, each) / 1e3) for each in PERCENTILES]


def _show(turns: list[list[int]]) -> str:
    return " / ".join(
        show_ns(statistics.median(percentile(turn, percent) for turn in turns))
        for percent in (50, 99)
    )


def _nobody_asleep(rounds: int) -> Row:
    """The same commits to a cache with 64 claimed seats and to one with none, in turns."""
    number = 5_000
    nothing = [None] * number
    with publisher() as (name, crowded), publisher() as (_, alone):
        each = [(name, SEATS // SEAT_PROCESSES)] * SEAT_PROCESSES
        with Children(_sit, each) as children:
            children.receive()
            times = harness.measure(
                {
                    "crowded": (crowded.put_all, lambda: nothing),
                    "alone": (alone.put_all, lambda: nothing),
                },
                number,
                rounds,
            )
    pairs = zip(times["crowded"].rounds, times["alone"].rounds, strict=True)
    scan = statistics.median(a - b for a, b in pairs)
    return Row(
        question=f"nobody asleep, {SEATS} seats claimed: what they add to a commit",
        ours=show_ns(scan),
        peer="",
        must=f"≤ {SCAN_LIMIT_NS} ns",
        met=scan <= SCAN_LIMIT_NS,
        note=f"commit {show_ns(times['crowded'].ns)}, without seats {show_ns(times['alone'].ns)}",
    )


def _sit(pipe: Pipe, name: str, seats: int) -> None:
    """Claims seats, and never sleeps in them."""
    claimed = [shmcache.attach(name) for _ in range(seats)]
    cursors = [cache.follow() for cache in claimed]
    pipe.ready()
    del cursors


if __name__ == "__main__":
    harness.main(__doc__, run)
