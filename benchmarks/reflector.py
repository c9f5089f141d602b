"""What does it cost to follow a server, from its socket to a worker's handler?

A dumb server (canned.py) sends what was encoded before; reflector, workers and peers are processes
of their own. Times are on the wall, by the one monotonic clock, each side in turns; CPU time is
that of whole processes. Five questions:

    events     from the first byte sent until the last of those who read has read a field of the
               last event. Idle workers have a handler of a resource in which nothing happens; then
               it is until the reflector has published it.
    lists      from the LIST's arrival until the watch's: whoever asks for that has all objects.
    relists    the same, after the server has ended a watch as too old and nothing has changed.
    memory     the kernel's high-water mark of the reflector's resident pages, private and shared,
               against what is resident in the end.
    requests   what `shmcache run` asks of testing.ApiServer.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

import shmcache
from benchmarks import canned, harness
from benchmarks.children import Children
from benchmarks.following import CLIENT, OTHER, READY_S, reflect, work
from benchmarks.harness import Row, at_least, at_most, show_bytes
from benchmarks.objects import FIRST_UPDATE_VERSION
from benchmarks.peers.watching import BY_HAND, INFORMER, follow_by_hand, follow_by_informer
from benchmarks.shared import RESOURCE, directory

WORKERS = 8
PODS = 10_000
MANY = 100_000
POLL_S = 0.002
MIB = 1 << 20
PEAK_MAX = 64 * MIB


def run(quick: bool) -> list[Row]:
    return [*_events(quick), *_lists(quick), *_relists(quick), _memory(quick)]


class Server:
    """The canned server and what is asked of it."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self.url = f"http://127.0.0.1:{children.receive()[0]}"
        self._next = FIRST_UPDATE_VERSION

    def ask(self, *command: Any) -> Any:
        return ask(self._children, *command)[0]

    def versions(self, count: int) -> str:
        """The version of the last of the next `count` events."""
        self._next += count
        return str(self._next - 1)

    def took(self, client: str) -> float:
        """Seconds from this client's LIST until its watch, which is awaited."""
        asked: list[canned.Asked] = []
        deadline = time.monotonic() + READY_S
        while not asked or asked[-1][0] != "watch":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{client} never watched: {asked}")
            time.sleep(POLL_S)
            asked += self.ask("asked", client)
        kinds = [kind for kind, _ in asked]
        if kinds.count("list") != 1 or kinds.count("watch") != 1:
            raise RuntimeError(f"{client} asked for {kinds}")
        return asked[-1][1] - asked[0][1]


def ask(children: Children, *command: Any) -> list[Any]:
    children.send(command)
    return children.receive()


@contextlib.contextmanager
def serving(count: int, how: str) -> Iterator[Server]:
    with Children(canned.serve, [(count, how)]) as children:
        yield Server(children)


@contextlib.contextmanager
def started(target: Any, *arguments: Any) -> Iterator[Children]:
    """A process that is ready, and was told to go."""
    with Children(target, [arguments]) as children:
        children.receive()
        children.send("go")
        yield children


@contextlib.contextmanager
def reflecting(url: str) -> Iterator[tuple[str, Children]]:
    """A cache's name, and its reflector, which is synced."""
    with directory() as name, started(reflect, name, url) as reflector:
        reflector.receive()
        yield name, reflector


@contextlib.contextmanager
def working(name: str, count: int) -> Iterator[Children]:
    with Children(work, [(name,)] * count) as workers:
        workers.receive()
        yield workers


# ---- events --------------------------------------------------------------------------------------


class Race:
    """Turns of one side: events a second, and CPU microseconds an event by who spent them."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.costs: dict[str, list[float]] = {}
        self.note = ""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def __str__(self) -> str:
        low, high = min(self.rates), max(self.rates)
        return f"{self.rate / 1e3:.3g} k/s ({low / 1e3:.3g} to {high / 1e3:.3g})"

    def cost(self, who: str) -> str:
        return f"{statistics.median(self.costs[who]):.3g} µs"


def _events(quick: bool) -> list[Row]:
    turns, count = (3, 2 * PODS) if quick else (5, 10 * PODS)
    races = {name: Race() for name in ("idle", "one", "all", "hand", "informer")}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        server = enter(serving(PODS, canned.WHOLE))
        name, reflector = enter(reflecting(server.url))
        first, others = enter(working(name, 1)), enter(working(name, WORKERS - 1))
        hand = enter(started(follow_by_hand, server.url, False, False))
        informer = enter(started(follow_by_informer, server.url))
        cache = enter(shmcache.attach(name))
        ours = Ours(server, reflector, cache, first, others)
        server.took(INFORMER)
        for _ in range(turns + 1):
            ours.turn(races["idle"], count, [])
            _peer(races["hand"], server, BY_HAND, hand, count)
            ours.turn(races["one"], count, [first])
            ours.turn(races["all"], count, [first, others])
            _peer(races["informer"], server, INFORMER, informer, count // 10)
    for race in races.values():
        del race.rates[0]  # the first turn warms up
    return _event_rows(races)


class Ours:
    """Our side of the race."""

    def __init__(self, server: Server, reflector: Children, cache: Any, *workers: Children) -> None:
        self._server = server
        self._reflector = reflector
        self._cache = cache
        self._workers = workers

    def turn(self, race: Race, count: int, reading: list[Children]) -> None:
        """`count` events, with these workers told of them and all others idle."""
        for workers in self._workers:
            ask(workers, "handle", RESOURCE if workers in reading else OTHER)
        version = self._server.versions(count)
        for workers in reading:
            ask(workers, "expect", version)
        before = self._spent()
        began = self._server.ask("send", CLIENT, count)
        ended = max([self._published(version)] + [at for some in reading for at in reached(some)])
        after = self._spent()
        race.rates.append(count / (ended - began))
        for who, cpu in after.items():
            race.costs.setdefault(who, []).append((cpu - before[who]) / count * 1e6)
        told = [each for workers in reading for each in ask(workers, "own")]
        if told:
            handled = min(each["handled"] for each in told)
            race.note = f"the slowest handler was called {handled - PODS:,} times for the last "
            race.note += f"{count:,} events, {max(each['lapses'] for each in told)} lapses"

    def _published(self, version: str) -> float:
        deadline = time.monotonic() + READY_S
        while self._cache[RESOURCE].version != version:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{version} was never published")
            time.sleep(POLL_S)
        return time.monotonic()

    def _spent(self) -> dict[str, float]:
        workers = [own["cpu"] for each in self._workers for own in ask(each, "own")]
        return {
            "reflector": ask(self._reflector, "stats")[0]["cpu"],
            "workers": sum(workers),
            "server": self._server.ask("cpu"),
        }


def reached(children: Children) -> list[float]:
    return [float(at) for at in ask(children, "reached")]


def _peer(race: Race, server: Server, client: str, peer: Children, count: int) -> None:
    ask(peer, "expect", server.versions(count))
    before = ask(peer, "own")[0]["cpu"]
    began = server.ask("send", client, count)
    ended = max(reached(peer))
    race.rates.append(count / (ended - began))
    cost = (ask(peer, "own")[0]["cpu"] - before) / count * 1e6
    race.costs.setdefault("peer", []).append(cost)


def _event_rows(races: dict[str, Race]) -> list[Row]:
    hand, informer = races["hand"], races["informer"]
    rows = []
    for name, who in (("idle", "8 idle"), ("one", "1 reads, 7 idle"), ("all", "8 read")):
        race = races[name]
        ratio = _ratio(race, hand)
        note = (
            f"CPU an event: reflector {race.cost('reflector')}, all workers "
            f"{race.cost('workers')}, server {race.cost('server')}; peer {hand.cost('peer')}"
        )
        rows.append(
            Row(
                question=f"watch events, {PODS:,} pods, {WORKERS} workers: {who}",
                ours=str(race),
                peer=f"urllib3 + orjson {hand}",
                note="; ".join(filter(None, [note, race.note])),
                **(at_least(1.2, ratio) if name == "idle" else {"ratio": ratio}),
            )
        )
    rows.append(
        Row(
            question=f"watch events, {PODS:,} pods, {WORKERS} workers: 8 idle",
            ours=str(races["idle"]),
            peer=f"SharedInformer {informer}",
            note=f"its CPU an event {informer.cost('peer')}",
            **at_least(9, _ratio(races["idle"], informer)),
        )
    )
    return rows


def _ratio(ours: Race, peer: Race) -> float:
    return statistics.median(a / b for a, b in zip(ours.rates, peer.rates, strict=True))


# ---- lists ---------------------------------------------------------------------------------------


def _lists(quick: bool) -> list[Row]:
    rows = []
    for how in (canned.PAGED, canned.WHOLE):
        with serving(PODS, how) as server:
            rows.append(_list(server, how, 2 if quick else 5, informer=how == canned.WHOLE))
    return rows


def _list(server: Server, how: str, turns: int, *, informer: bool) -> Row:
    ours, tuned, plain = [], [], []
    for _ in range(turns + 1):
        with reflecting(server.url):
            ours.append(server.took(CLIENT))
        for collector, times in ((False, tuned), (True, plain)):
            with started(follow_by_hand, server.url, collector, how == canned.PAGED):
                times.append(server.took(BY_HAND))
    note = f"with its collector on {_seconds(plain[1:])}"
    if informer:
        with started(follow_by_informer, server.url):
            note += f"; SharedInformer {server.took(INFORMER):.3g} s"
    ratio = statistics.median(a / b for a, b in zip(ours[1:], tuned[1:], strict=True))
    return Row(
        question=f"first list of {PODS:,} pods, {how}",
        ours=_seconds(ours[1:]),
        peer=f"urllib3 + orjson, collector off {_seconds(tuned[1:])}",
        note=note,
        **at_most(2, ratio),
    )


def _seconds(times: list[float]) -> str:
    return f"{statistics.median(times):.3g} s ({min(times):.3g} to {max(times):.3g})"


# ---- relists -------------------------------------------------------------------------------------


def _relists(quick: bool) -> list[Row]:
    turns = 2 if quick else 5
    with (
        serving(PODS, canned.WHOLE) as server,
        reflecting(server.url) as (name, reflector),
        working(name, WORKERS) as workers,
    ):
        first = server.took(CLIENT)
        ask(workers, "handle", RESOURCE)
        _relist(server)
        before, handled = ask(reflector, "settle")[0], _handled(workers)
        times = [_relist(server) for _ in range(turns)]
        after = ask(reflector, "settle")[0]
        handled = _handled(workers) - handled
    change = {name: after[name] - before[name] for name in after}
    data = change["value_bytes"] + change["tree_bytes"]
    quiet = not (change["deltas"] or change["wakes"] or handled or data > 0)
    question = f"a relist in which nothing changed, {PODS:,} pods"
    return [
        Row(
            question=f"{question}: what {turns} of them left",
            ours=f"{change['deltas']} deltas, {change['wakes']} wake-ups, {handled} handler calls, "
            f"{show_bytes(data)} of data",
            peer="",
            must="none",
            met=quiet,
            note=f"high water {show_bytes(change['high_water_bytes'])}, private memory "
            f"{show_bytes(change['private'])}, of which tables "
            f"{show_bytes(change['private_bytes'])}",
        ),
        Row(
            question=question,
            ours=_seconds(times),
            peer=f"the first list {first:.3g} s",
            **at_most(1, statistics.median(times) / first),
        ),
    ]


def _relist(server: Server) -> float:
    server.ask("expire", CLIENT)
    return server.took(CLIENT)


def _handled(workers: Children) -> int:
    return sum(each["handled"] for each in ask(workers, "own"))


# ---- memory --------------------------------------------------------------------------------------


def _memory(quick: bool) -> Row:
    count = MANY // 5 if quick else MANY
    with serving(count, canned.HUGE) as server, reflecting(server.url) as (_, reflector):
        took = server.took(CLIENT)
        found = ask(reflector, "settle")[0]
    over = found["peak"] - found["resident"]
    return Row(
        question=f"the reflector's peak during a list of {count:,} pods in one body / final",
        ours=show_bytes(found["peak"]),
        peer=f"final {show_bytes(found['resident'])}",
        ratio=found["peak"] / found["resident"],
        must=f"≤ final + {show_bytes(PEAK_MAX)}",
        met=over <= PEAK_MAX,
        note=f"{show_bytes(over)} over; of the final, shared {show_bytes(found['shared'])}; "
        f"{took:.3g} s",
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
