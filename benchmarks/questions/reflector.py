"""What does it cost to follow a server, from its socket to a worker's handler?

A dumb server (canned.py) sends bytes that were encoded before; reflector, workers and peers are
processes of their own. Times are wall-clock, by the one monotonic clock, each side in turns; CPU
time is that of whole processes. Five questions:

    events     from the first byte sent until the last of the readers has read a field of the last
               event. Idle workers have a handler of a resource without events; then it is until the
               reflector has published the last event.
    lists      from the LIST's arrival until the watch's: a client that starts its watch has all
               objects.
    relists    the same, after the server has ended a watch as too old and nothing has changed.
    memory     the kernel's high-water mark of the reflector's resident pages, private and shared,
               against the resident pages at the end.
    requests   the requests of `shmcache run` to testing.ApiServer.
"""

from __future__ import annotations

import collections
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_least, at_most, show, show_bytes, show_s
from benchmarks.peers.watching import BY_HAND, INFORMER, follow_by_hand, follow_by_informer
from benchmarks.scenes import canned
from benchmarks.scenes.children import Children
from benchmarks.scenes.following import CLIENT, OTHER, READY_S
from benchmarks.scenes.scene import Server, ask, await_, reflecting, serving, started, working
from benchmarks.scenes.shared import RESOURCE, directory
from shmcache.testing import ApiServer

WORKERS, SOME = 8, 2
"""Workers of a full run, and of a quick one if it counts and does not time."""
PODS, FEWER = 10_000, 1_000
"""Of a full run, and of a quick one."""
MANY = 100_000
MIB = 1 << 20
PEAK_MAX = 64 * MIB
ASKED = ("pods", "configmaps", "deployments.apps")
OBJECTS = 50


def run(quick: bool) -> list[Row]:
    return [*_events(quick), *_lists(quick), *_relists(quick), _memory(quick), *_requests(quick)]


# ---- events --------------------------------------------------------------------------------------


class Race:
    """Turns of one side: events a second, and CPU microseconds an event by process."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.costs: dict[str, list[float]] = {}
        self.note = ""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def __str__(self) -> str:
        low, high = min(self.rates), max(self.rates)
        return f"{show(self.rate / 1e3)} k/s ({show(low / 1e3)} to {show(high / 1e3)})"

    def cost(self, who: str) -> str:
        return f"{show(statistics.median(self.costs[who]))} µs"


def _events(quick: bool) -> list[Row]:
    pods = FEWER if quick else PODS
    turns, count = (1, 10 * pods) if quick else (3, 10 * pods)
    races = {name: Race() for name in ("idle", "one", "all", "hand", "informer")}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        server = enter(serving(pods, canned.WHOLE))
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
            _peer(races["informer"], server, INFORMER, informer, count // 20)
    for race in races.values():
        del race.rates[0]  # the first turn warms up
    return _event_rows(races, pods)


class Ours:
    """Our side of the race."""

    def __init__(self, server: Server, reflector: Children, cache: Any, *workers: Children) -> None:
        self._server = server
        self._reflector = reflector
        self._cache = cache
        self._workers = workers

    def turn(self, race: Race, count: int, reading: list[Children]) -> None:
        """`count` events, delivered to these workers while all others are idle."""
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
            called = handled - len(self._cache[RESOURCE])  # its handler has received all objects
            race.note = f"the slowest handler was called {called:,} times for the last "
            race.note += f"{count:,} events, {max(each['lapses'] for each in told)} lapses"

    def _published(self, version: str) -> float:
        await_(lambda: self._cache[RESOURCE].version == version, f"version {version}")
        return time.monotonic()

    def _spent(self) -> dict[str, float]:
        workers = [cpu for each in self._workers for cpu in ask(each, "cpu")]
        return {
            "reflector": ask(self._reflector, "cpu")[0],
            "workers": sum(workers),
            "server": self._server.ask("cpu"),
        }


def reached(children: Children) -> list[float]:
    return [float(at) for at in ask(children, "reached")]


def _peer(race: Race, server: Server, client: str, peer: Children, count: int) -> None:
    ask(peer, "expect", server.versions(count))
    before = ask(peer, "cpu")[0]
    began = server.ask("send", client, count)
    ended = max(reached(peer))
    race.rates.append(count / (ended - began))
    cost = (ask(peer, "cpu")[0] - before) / count * 1e6
    race.costs.setdefault("peer", []).append(cost)


def _event_rows(races: dict[str, Race], pods: int) -> list[Row]:
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
                question=f"watch events, {pods:,} pods, {WORKERS} workers: {who}",
                ours=str(race),
                peer=f"urllib3 + orjson {hand}",
                note="; ".join(filter(None, [note, race.note])),
                **(at_least(1.2, ratio) if name == "idle" else {"ratio": ratio}),
            )
        )
    rows.append(_cpu_row(races["all"], hand))
    rows.append(
        Row(
            question=f"watch events, {pods:,} pods, {WORKERS} workers: 8 idle",
            ours=str(races["idle"]),
            peer=f"SharedInformer {informer}",
            note=f"its CPU an event {informer.cost('peer')}",
            **at_least(9, _ratio(races["idle"], informer)),
        )
    )
    return rows


def _cpu_row(ours: Race, hand: Race) -> Row:
    """All our processes against as many peers as we have workers; the server counts for neither."""
    spent = [
        reflector + workers
        for reflector, workers in zip(ours.costs["reflector"], ours.costs["workers"], strict=True)
    ]
    theirs = [WORKERS * each for each in hand.costs["peer"]]
    ratio = statistics.median(a / b for a, b in zip(spent, theirs, strict=True))
    return Row(
        question=f"CPU of all processes per event, {WORKERS} workers that read a field of each",
        ours=f"{show(statistics.median(spent))} µs",
        peer=f"{WORKERS} × urllib3 + orjson {show(statistics.median(theirs))} µs",
        **at_most(1 / 4, ratio),
    )


def _ratio(ours: Race, peer: Race) -> float:
    return statistics.median(a / b for a, b in zip(ours.rates, peer.rates, strict=True))


# ---- lists ---------------------------------------------------------------------------------------


def _lists(quick: bool) -> list[Row]:
    rows, pods = [], FEWER if quick else PODS
    for how in (canned.PAGED,) if quick else (canned.PAGED, canned.WHOLE):
        with serving(pods, how) as server:
            slow, turns = how == canned.WHOLE, 1 if quick else 3
            rows.append(_list(server, f"{pods:,} pods, {how}", turns, how, informer=slow))
    return rows + (harness.not_asked(f"the same, {canned.WHOLE}") if quick else [])


def _list(server: Server, what: str, turns: int, how: str, *, informer: bool) -> Row:
    ours: list[float] = []
    tuned: list[float] = []
    plain: list[float] = []
    for _ in range(turns + 1):
        with reflecting(server.url):
            ours.append(server.took(CLIENT))
        for collector, times in ((False, tuned), (True, plain)):
            with started(follow_by_hand, server.url, collector, how == canned.PAGED):
                times.append(server.took(BY_HAND))
    note = f"with its collector on {_seconds(plain[1:])}"
    if informer:
        with started(follow_by_informer, server.url):
            note += f"; SharedInformer {show_s(server.took(INFORMER))}"
    ratio = statistics.median(a / b for a, b in zip(ours[1:], tuned[1:], strict=True))
    return Row(
        question=f"first list of {what}",
        ours=_seconds(ours[1:]),
        peer=f"urllib3 + orjson, collector off {_seconds(tuned[1:])}",
        note=note,
        **at_most(2, ratio),
    )


def _seconds(times: list[float]) -> str:
    return f"{show_s(statistics.median(times))} ({show_s(min(times))} to {show_s(max(times))})"


# ---- relists -------------------------------------------------------------------------------------


def _relists(quick: bool) -> list[Row]:
    turns, pods = (2, FEWER) if quick else (5, PODS)
    with (
        serving(pods, canned.WHOLE) as server,
        reflecting(server.url) as (name, reflector),
        working(name, SOME if quick else WORKERS) as workers,
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
    question = f"a relist in which nothing changed, {pods:,} pods"
    note = "" if quick else _informer_relist()
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
            peer=f"the first list {show_s(first)}",
            note=note,
            **at_most(1, statistics.median(times) / first),
        ),
    ]


def _relist(server: Server, client: str = CLIENT) -> float:
    server.ask("expire", client)
    return server.took(client)


def _informer_relist() -> str:
    with (
        serving(PODS, canned.WHOLE) as server,
        started(follow_by_informer, server.url) as informer,
    ):
        try:
            server.took(INFORMER)
            before = ask(informer, "own")[0]
            server.ask("expire", INFORMER)
            server.asked(INFORMER)  # it retries once at the same version, and lists after that
            took = _relist(server, INFORMER)
        except RuntimeError as error:  # it watched instead: its behaviour is not ours to mend
            return f"SharedInformer did not list as expected: {error}"
        after = ask(informer, "own")[0]
    return (
        f"SharedInformer {show_s(took)}, {after['calls'] - before['calls']:,} handler calls, "
        f"peak {show_bytes(before['peak'])} to {show_bytes(after['peak'])}"
    )


def _handled(workers: Children) -> int:
    return sum(each["handled"] for each in ask(workers, "own"))


# ---- memory --------------------------------------------------------------------------------------


def _memory(quick: bool) -> Row:
    count = MANY // 20 if quick else MANY
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
        f"private {show_bytes(found['private'])}, of which tables "
        f"{show_bytes(found['private_bytes'])}; {show_s(took)}",
    )


# ---- requests ------------------------------------------------------------------------------------


def _requests(quick: bool) -> list[Row]:
    count = SOME if quick else WORKERS
    return [_request(count, watch_list=True), _request(count, watch_list=False)]


def _request(count: int, *, watch_list: bool) -> Row:
    """All workers read all resources; every request to the server counts, of any kind."""
    with ApiServer(watch_list=watch_list) as server, directory() as name:
        for number in range(OBJECTS):
            for resource in ASKED:
                server.create(resource, {"metadata": {"name": f"a-{number}", "namespace": "prod"}})
        with _running(name, server.url) as ready, working(name, count) as workers:
            ready()
            for resource in ASKED:
                ask(workers, "handle", resource)
            for resource in ASKED:
                server.create(resource, {"metadata": {"name": "late", "namespace": "prod"}})
            wanted = len(ASKED) * (OBJECTS + 1)
            with shmcache.attach(name) as cache:
                await_(lambda: sum(len(cache[each]) for each in ASKED) == wanted, "objects")
            log = [(record.verb, record.resource, record.query) for record in server.log]
    counts = [_kinds(log, resource) for resource in ASKED]
    way = "with watch-lists" if watch_list else "that refuses watch-lists"
    return Row(
        question=f"requests for each of {len(ASKED)} resources, {count} workers, a server {way}",
        ours="; ".join(sorted({_listed(each) for each in counts})),
        peer=f"a client in each worker: {count} lists, {count} watches",
        must="1 list, 1 watch",
        met=all(each["list"] <= 1 and each["watch"] <= 1 for each in counts),
        note="of discovery " + str(len(log) - sum(each.total() for each in counts)),
    )


def _kinds(log: list[tuple[str, str, dict[str, str]]], resource: str) -> collections.Counter[str]:
    """The requests for one resource; a watch that begins with all objects is a kind of its own."""
    return collections.Counter(
        "watch-list" if "sendInitialEvents" in query else verb
        for verb, found, query in log
        if found == resource
    )


def _listed(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


@contextlib.contextmanager
def _running(name: str, url: str) -> Iterator[Callable[[], None]]:
    """`shmcache run`; the yielded function waits until all of its resources are synced."""
    command = [sys.executable, "-m", "shmcache", "run", "--cache", name, "--log-level", "error"]
    with subprocess.Popen([*command, "-s", url, *ASKED]) as process:
        try:
            with shmcache.attach(name, timeout=READY_S) as cache:
                yield lambda: await_(lambda: all(cache[each].synced for each in ASKED), "lists")
        finally:
            process.terminate()
            process.wait(READY_S)
    if process.returncode:
        raise RuntimeError(f"shmcache run ended with {process.returncode}")


if __name__ == "__main__":
    harness.main(__doc__, run)
