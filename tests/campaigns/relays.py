"""Relays in two tiers under kills, stops and restarts: do leaves see each change, at what cost?

    API server ▸ 2 relays ▸ 2 relays ▸ leaves           each a process group of its own
                                    ▸ simulated leaves  sockets of one process (roaming.py)

    python tests/campaigns/relays.py --seconds 120 --leaves 4 --simulated 200 --seed 7

Relays are killed with all their children (SIGKILL), stopped for a while (SIGSTOP) and drained
(SIGTERM), and started again on what they left; the API server resets its connections and ends its
watches; now and then all relays go at once. All the while objects are written. A checker follows
each leaf's ring. In the end

    RELAYS1  each leaf saw each change of each object once, in the order of the server;
    RELAYS2  each leaf, and each relay, has the objects of the server;
    RELAYS3  the API server had one full list, or watch-list, of each relay of the first tier, and
        no other one: nothing was compacted. Probes (limit=1) and proofs
        (resourceVersionMatch=Exact, metadata only) are counted apart;
    RELAYS4  the simulated leaves saw the same, and none of them listed twice;
    RELAYS5  so it stays when all relays and the API server are gone at once, each object changes
        meanwhile, and the API server has lost its watch cache: no more lists than relays.

It prints how long leaves whose relay was killed were without it, until the first change that was
written after the kill; and the simulated ones, until the first event of their next watch.

The last line is "passed"; anything else is a failure.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE = 120.0
OBJECTS = 150
RATE = 0.004
"""Seconds between two writes."""
STOPS = (0.5, 12.0)
"""Seconds for which a relay is stopped; a watch is left after about ten."""


class Group:
    """One `shmcache` command with all its children, at one port."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.url = ""
        """Of a relay: where it serves."""
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [sys.executable, "-m", "shmcache", *self._arguments]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=ROOT,
                stderr=log,
                start_new_session=True,
            )

    def send(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Signals the whole group, and waits for its first process."""
        if self._process is None:
            return
        self.send(signal.SIGCONT)
        if number == signal.SIGTERM:
            self._process.terminate()
        else:
            self.send(number)
        self._process.wait(DEADLINE)
        pid, self._process = self._process.pid, None
        eventually(f"the end of {self.name}", lambda: not has_members(pid))


class Follower:
    """The changes that readers of one cache see."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cache = shmcache.attach(name, timeout=DEADLINE)
        self.seen: dict[str, list[str]] = collections.defaultdict(list)
        self.count = 0
        self.arrived: dict[str, float] = {}
        """The moment of each version."""
        self.registration = self.cache["pods"].add_handler(
            on_add=lambda new, initial: self._note(new),  # noqa: ARG005
            on_update=lambda old, new: self._note(new),  # noqa: ARG005
            on_delete=lambda old, unknown: self._gone(old),  # noqa: ARG005
        )
        self.cache.start()

    def _note(self, obj: Any) -> None:
        metadata = obj["metadata"]
        self.seen[metadata["name"]].append(metadata["resourceVersion"])
        self.arrived[metadata["resourceVersion"]] = time.monotonic()
        self.count += 1

    def _gone(self, obj: Any) -> None:
        self.seen[obj["metadata"]["name"]].append("deleted")
        self.count += 1

    def contents(self) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in self.cache["pods"].list()
        }

    def upstream(self) -> str | None:
        return self.cache["pods"].status.upstream

    def close(self) -> None:
        self.cache.close()


class Simulated:
    """The process of the simulated leaves, if there are any."""

    def __init__(self, world: World, leaves: int, seed: int) -> None:
        self.leaves = leaves
        self._process: subprocess.Popen[str] | None = None
        if not leaves:
            return
        urls = [*(one.url for one in world.relays[2:]), *(one.url for one in world.relays[:2])]
        ports = [url.rpartition(":")[2] for url in [*urls, world.server.url]]
        script = str(Path(__file__).with_name("roaming.py"))
        flags = ["--leaves", str(leaves), "--seed", str(seed)]
        self._process = subprocess.Popen(
            [sys.executable, script, *flags, *ports],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self._hear() == "listed"

    def _hear(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def check(self, theirs: dict[str, str], *, expired: bool = False) -> None:
        """RELAYS4. `expired`: versions may be too old for the API server."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({f"prod/{k}": v for k, v in theirs.items()}) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._hear())
        counts = found["counts"]
        say(f"{self.leaves} simulated leaves: {counts}")
        say(f"they were without a watch: {spread(found['broken'])}; where a relay was stopped: "
            f"{spread(found['silent'])}")  # fmt: skip
        assert not found["wrong"], found["wrong"][:5]
        assert counts["lists"] == self.leaves
        assert expired or counts["expired"] == 0

    def end(self) -> None:
        if self._process is not None:
            with self._process as process:  # which closes its pipes, and waits for its end
                process.kill()


class Writes(threading.Thread):
    """Writes until it is ended; the versions of each object, in their order."""

    def __init__(self, server: ApiServer, seed: int, pause: float) -> None:
        super().__init__(name="writes", daemon=True)
        self.written: dict[str, list[str]] = collections.defaultdict(list)
        self.moments: list[tuple[float, str]] = []
        """Before each write, and its version."""
        self.count = 0
        self._pause = pause
        self._server = server
        self._rng = random.Random(f"{seed} writes")
        self._end = threading.Event()
        self._there: set[str] = set()

    def end(self) -> None:
        self._end.set()
        self.join(DEADLINE)

    def run(self) -> None:
        while not self._end.wait(self._pause):
            name = f"p-{self._rng.randrange(OBJECTS)}"
            if name not in self._there:
                self._there.add(name)
                self._note(time.monotonic(), self._server.create("pods", self._pod(name)))
            elif self._rng.random() < 0.1:
                self._there.discard(name)
                self._server.delete("pods", name, "prod")
                self.written[name].append("deleted")
                self.count += 1
            else:
                self._update(name)

    def update_all(self) -> None:
        """After the end of the thread: one more change of each object."""
        for name in sorted(self._there):
            self._update(name)

    def _update(self, name: str) -> None:
        self._note(time.monotonic(), self._server.update("pods", self._pod(name)))

    def _pod(self, name: str) -> Any:
        metadata = {"name": name, "namespace": "prod", "labels": {"n": str(self.count)}}
        return {"metadata": metadata, "spec": {"text": "x" * self._rng.randrange(400)}}

    def _note(self, begun: float, obj: Any) -> None:
        self.written[obj["metadata"]["name"]].append(obj["metadata"]["resourceVersion"])
        self.moments.append((begun, obj["metadata"]["resourceVersion"]))
        self.count += 1


class World:
    """An API server, two tiers of relays, and leaves."""

    def __init__(self, server: ApiServer, name: str, folder: Path, leaves: int) -> None:
        self.server = server
        self.name = name
        ports = free_ports(4)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        first, second = urls[:2], urls[2:]
        self.relays = []
        for at, (port, above) in enumerate(
            zip(ports, [[], [], first, [*reversed(first)]], strict=True)
        ):
            self.relays.append(self._relay(folder, at, port, [*above, server.url]))
        self.leaves = []
        for at in range(leaves):
            order = second if at % 2 == 0 else [*reversed(second)]
            self.leaves.append(self._leaf(folder, at, [*order, *first, server.url]))

    def _relay(self, folder: Path, at: int, port: int, servers: list[str]) -> Group:
        cache = f"{self.name}-relay{at}"
        arguments = ["relay", "pods", "--cache", cache, "--listen", f"127.0.0.1:{port}"]
        arguments += [word for url in servers for word in ("--server", url)]
        arguments += ["--drain-timeout", "2s"]
        group = Group(cache, arguments, folder / f"relay{at}.log")
        group.url = f"http://127.0.0.1:{port}"
        return group

    def _leaf(self, folder: Path, at: int, servers: list[str]) -> Group:
        cache = f"{self.name}-leaf{at}"
        arguments = ["run", "pods", "--cache", cache]
        arguments += [word for url in servers for word in ("--server", url)]
        return Group(cache, arguments, folder / f"leaf{at}.log")

    def start(self) -> None:
        for tier in (self.relays[:2], self.relays[2:], self.leaves):
            for group in tier:
                group.start()
            for group in tier:
                with shmcache.attach(group.name, timeout=DEADLINE) as cache:
                    assert cache["pods"].wait_synced(DEADLINE), group.name

    def end(self) -> None:
        groups = (*self.leaves, *self.relays)
        for group in groups:
            group.end(signal.SIGKILL)
        for group in groups:
            Place(group.name).remove()


FAULTS = {"kill": 10.0, "stop": 3.0, "drain": 3.0, "reset": 2.0, "end": 2.0, "all": 0.5}
"""The kinds, and how often each comes."""


class Weather:
    """Faults of relays and of the API server."""

    def __init__(
        self,
        world: World,
        followers: list[Follower],
        seed: int,
        pause: float,
        kinds: Iterable[str] = FAULTS,
    ) -> None:
        """`pause`: seconds between two faults, at most."""
        self.kills: list[tuple[float, Follower]] = []
        """The moment of each kill of a relay, for each leaf that it served; no relay is stopped."""
        self._world = world
        self._followers = followers
        self._pause = pause
        self._kinds = list(kinds)
        self._rng = random.Random(f"{seed} weather")
        self._stopped: list[tuple[float, Group]] = []
        self.events: collections.Counter[str] = collections.Counter()

    def blow(self, until: float, tick: Callable[[], object]) -> None:
        """Faults until then; `tick` is called before each."""
        while time.monotonic() < until:
            tick()
            time.sleep(self._rng.uniform(0.05, self._pause))
            self._wake()
            [kind] = self._rng.choices(self._kinds, [FAULTS[one] for one in self._kinds])
            self.events[kind] += 1
            getattr(self, f"_{kind}")()
        self._wake(everything=True)

    def _wake(self, *, everything: bool = False) -> None:
        now = time.monotonic()
        left = []
        for due, group in self._stopped:
            if everything or due <= now:
                group.send(signal.SIGCONT)
            else:
                left.append((due, group))
        self._stopped = left

    def _one(self) -> Group:
        return self._rng.choice(self._world.relays)

    def _kill(self) -> None:
        group = self._one()
        calm = not self._stopped
        self._stopped = [one for one in self._stopped if one[1] is not group]
        if calm:
            served = [one for one in self._followers if one.upstream() == group.url]
            self.kills += [(time.monotonic(), one) for one in served]
        group.end(signal.SIGKILL)
        group.start()

    def _drain(self) -> None:
        group = self._one()
        self._stopped = [one for one in self._stopped if one[1] is not group]
        group.end()
        group.start()

    def _stop(self) -> None:
        group = self._one()
        if all(group is not one for _, one in self._stopped):
            group.send(signal.SIGSTOP)
            self._stopped.append((time.monotonic() + self._rng.uniform(*STOPS), group))

    def _all(self) -> None:
        self._stopped.clear()
        for group in self._world.relays:
            group.end(signal.SIGKILL)
        time.sleep(self._rng.uniform(0.0, 2.0))
        for group in self._world.relays:
            group.start()

    def _reset(self) -> None:
        self._world.server.abort_connections()

    def _end(self) -> None:
        self._world.server.end_watches()


def spread(seconds: list[float]) -> str:
    """Some numbers of a distribution."""
    if not seconds:
        return "never"
    found = sorted(seconds)
    p50, p99 = (found[int(len(found) * part)] for part in (0.5, 0.99))
    return f"{len(found)} times, p50 {p50:.2f} s, p99 {p99:.2f} s, at most {found[-1]:.2f} s"


def resumed(weather: Weather, writes: Writes) -> list[float]:
    """Seconds from each kill until the leaf had the first change that was written after it."""
    found = []
    for moment, follower in weather.kills:
        first = bisect.bisect_left(writes.moments, (moment, ""))
        if first < len(writes.moments):
            found.append(follower.arrived[writes.moments[first][1]] - moment)
    return found


def say(text: str) -> None:
    """A line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in found]


class Asked:
    """The requests for pods so far, by their purpose: the server remembers the last ones alone."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._last: Any = None
        self._found: collections.Counter[str] = collections.Counter()

    def so_far(self) -> collections.Counter[str]:
        """To be called before the server forgets."""
        log = self._server.log
        fresh = list(itertools.takewhile(lambda one: one is not self._last, reversed(log)))
        assert self._last is None or len(fresh) < len(log), "the server has forgotten some"
        self._last = log[-1] if log else None
        self._found.update(purpose(one) for one in fresh if one.resource == "pods")
        return self._found.copy()


def asked(server: ApiServer) -> collections.Counter[str]:
    """The requests that the server remembers."""
    return Asked(server).so_far()


def purpose(record: Any) -> str:
    query = record.query
    if "sendInitialEvents" in query:
        return "watch-list"
    if record.verb == "watch":
        return "watch"
    if query.get("limit") == "1":
        return "probe"
    return "proof" if query.get("resourceVersionMatch") == "Exact" else "list"


def has_members(group: int) -> bool:
    """Whether a process of this group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(what: str, holds: Any, otherwise: Any = str) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE:g} s {otherwise()}"
        time.sleep(0.05)


@contextlib.contextmanager
def running(server: ApiServer, name: str, folder: Path, leaves: int) -> Iterator[World]:
    world = World(server, name, folder, leaves)
    try:
        world.start()
        yield world
    finally:
        world.end()


def run(options: argparse.Namespace, *, name: str, folder: Path) -> None:
    """One campaign; AssertionError where a rule is broken."""
    seed = options.seed
    with (
        ApiServer(seed=seed, history=1_000_000) as server,
        running(server, name, folder, options.leaves) as world,
        contextlib.ExitStack() as stack,
    ):
        requests = Asked(server)
        followers = [Follower(group.name) for group in world.leaves]
        for follower in followers:
            stack.callback(follower.close)
            assert follower.registration.wait_synced(DEADLINE)
        simulated = Simulated(world, options.simulated, seed)
        stack.callback(simulated.end)
        begun = requests.so_far()
        writes = Writes(server, seed, options.write_pause)
        weather = Weather(world, followers, seed, options.fault_pause, options.faults)
        writes.start()
        weather.blow(time.monotonic() + options.seconds, requests.so_far)
        writes.end()
        say(f"{writes.count} writes, {dict(weather.events)}")
        check(server, world, followers, writes)
        say(f"requests {dict(requests.so_far())}")
        for kind in ("list", "watch-list"):
            lists = requests.so_far()[kind]
            assert lists == begun[kind], f"{kind}: {lists}, at the beginning {begun[kind]}"
        say(f"{options.leaves} leaves were without their relay: {spread(resumed(weather, writes))}")
        simulated.check(contents_at(server))
        lose_watch_cache(server, world, writes)
        check(server, world, followers, writes)
        fresh = requests.so_far()
        lists = fresh["list"] + fresh["watch-list"] - begun["list"] - begun["watch-list"]
        say(f"{lists} lists after all had restarted, and the API server had no watch cache")
        assert lists <= len(world.relays), f"RELAYS5: {lists} lists of {len(world.relays)} relays"
        simulated.check(contents_at(server), expired=True)


def lose_watch_cache(server: ApiServer, world: World, writes: Writes) -> None:
    """All relays and the API server restart; it has changed, and cannot show how (RELAYS5)."""
    server.go_down()
    for group in world.relays:
        group.end(signal.SIGKILL)
    writes.update_all()
    server.compact()
    server.come_back()
    for group in world.relays:
        group.start()


def contents_at(server: ApiServer) -> dict[str, str]:
    return {
        one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in server.list("pods")
    }


def check(
    server: ApiServer,
    world: World,
    followers: list[Follower],
    writes: Writes,
) -> None:
    """RELAYS1 and RELAYS2."""
    theirs = contents_at(server)
    for follower in followers:
        eventually(follower.name, lambda follower=follower: follower.contents() == theirs)
        eventually(
            f"{follower.name} has all changes",
            lambda follower=follower: follower.count >= writes.count,
            lambda follower=follower: missed(follower, writes),
        )
        for key in {*writes.written, *follower.seen}:
            assert follower.seen[key] == writes.written[key], f"{follower.name}: {key}"
    for group in world.relays:
        with shmcache.attach(group.name) as cache:
            relay = cache["pods"]
            eventually(group.name, lambda relay=relay: contents_of(relay) == theirs)


def missed(follower: Follower, writes: Writes) -> str:
    """The changes that a leaf did not see, for people."""
    status = follower.cache["pods"].status
    texts = [f"{follower.count} of {writes.count}, {dict(status.counters)}"]
    moments = {version: moment for moment, version in writes.moments}
    for key, written in writes.written.items():
        if follower.seen[key] != written:
            gone = [one for one in written if one not in follower.seen[key]]
            ages = [f"{time.monotonic() - moments.get(one, 0.0):.1f} s ago" for one in gone]
            texts.append(f"{key}: {gone}, written {ages}")
    return "; ".join(texts)


def contents_of(resource: Any) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in resource.list()}


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--leaves", type=int, default=4)
    parser.add_argument("--simulated", type=int, default=0, help="leaves that are sockets alone")
    parser.add_argument("--logs", type=Path, help="keep the logs of all commands there")
    parser.add_argument("--write-pause", type=float, default=RATE)
    parser.add_argument("--fault-pause", type=float, default=0.6, help="at most; 0.05 at least")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="KIND",
                        help=f"of {', '.join(FAULTS)}; all by default")  # fmt: skip
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    parser.add_argument("--seed", type=int, default=seed)
    return parser.parse_args(words)


def main() -> int:
    options = options_of()
    say(f"SEED={options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        run(options, name=f"relays-{os.getpid()}", folder=options.logs or Path(folder))
    say("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
