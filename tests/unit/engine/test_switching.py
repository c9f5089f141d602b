"""A leaf with several upstreams: real HTTP, two relays and the API server (SWITCH1 to SWITCH3,
SERVERS3, RELAYED1, RELAYED2)."""

from __future__ import annotations

import contextlib
import http.client
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from doors import Door

import shmcache
from shmcache.engine import switching
from shmcache.engine import upstreams as upstreams_module
from shmcache.engine.config.timing import Timing
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.engine.switching import STAY_SECONDS, SwitchingSource
from shmcache.engine.upstreams import Upstreams
from shmcache.protocol.options import ListOptions
from shmcache.protocol.relays import LAG_HEADER, REACHED_HEADER, VERSION_HEADER
from shmcache.source.access import ServerAccess
from shmcache.source.base import SourceFailed
from shmcache.source.client import ApiConnection
from shmcache.source.kube import KubeSource
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 60.0
ALL_PODS = "/api/v1/pods"


def eventually(holds: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def pod(number: int, **labels: str) -> Any:
    return {"metadata": {"name": f"p-{number}", "namespace": "prod", "labels": labels}}


def connection(url: str) -> ApiConnection:
    return ApiConnection(lambda: ServerAccess(url=url), connect_timeout=3.0)


@contextlib.contextmanager
def engine(
    name: str, urls: list[str], *resources: str, timing: Timing | None = None
) -> Iterator[tuple[Engine, shmcache.Cache]]:
    servers = [connection(url) for url in urls]
    opener = KubeOpener(servers[0] if len(servers) == 1 else Upstreams(servers))
    plans = [Plan(name=one) for one in resources or ("pods",)]
    with shmcache.Writer(name, [plan.resource_at(opener.origin, ()) for plan in plans]) as writer:
        running = Engine(writer, plans, opener, pace=Pace(1000.0), timing=timing)
        running.start()
        try:
            assert running.ready.wait(DEADLINE)
            with shmcache.attach(name) as cache:
                yield running, cache
        finally:
            assert running.stop()
            opener.close()


class Leaf:
    """The changes that a leaf's readers saw, in their order."""

    def __init__(self, engine: Engine, cache: shmcache.Cache) -> None:
        self.engine = engine
        self.cache = cache
        self.seen: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self.registration = cache["pods"].add_handler(
            on_add=lambda new, initial: self._note("add", new),  # noqa: ARG005
            on_update=lambda old, new: self._note("update", new),  # noqa: ARG005
            on_delete=lambda old, unknown: self._note("delete", old),  # noqa: ARG005
        )
        cache.start()
        assert self.registration.wait_synced(DEADLINE)

    def _note(self, kind: str, obj: Any) -> None:
        with self._lock:
            name, version = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
            self.seen.append((kind, name, "" if kind == "delete" else version))

    @property
    def upstream(self) -> str:
        return self.cache["pods"].status.upstream

    @property
    def relists(self) -> int:
        return self.cache["pods"].status.counters["relists"]

    def contents(self) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in self.cache["pods"].list()
        }


class World:
    """An API server, two relays behind doors, and a leaf of all three."""

    def __init__(self, server: ApiServer, doors: list[Door], leaf: Leaf) -> None:
        self.server = server
        self.doors = doors
        self.leaf = leaf
        self.written: list[tuple[str, str, str]] = []

    def write(self, first: int, last: int) -> None:
        """Creates, changes and deletes pods."""
        for number in range(first, last):
            created = self.server.create("pods", pod(number))
            self._note("add", created)
            self._note("update", self.server.update("pods", pod(number, step="2")))
            if number % 3 == 0:
                self.server.delete("pods", f"p-{number}", "prod")
                self.written.append(("delete", f"p-{number}", ""))

    def _note(self, kind: str, obj: Any) -> None:
        found = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
        self.written.append((kind, *found))

    def check(self) -> None:
        """Each change was seen once, in its order; both ends are equal."""
        eventually(lambda: len(self.leaf.seen) >= len(self.written))
        assert self.leaf.seen == self.written
        theirs = {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in self.server.list("pods")
        }
        assert self.leaf.contents() == theirs


@contextlib.contextmanager
def relaying(name: str, url: str, *resources: str) -> Iterator[Door]:
    with (
        engine(name, [url], *resources) as (_, cache),
        ServeThread(cache) as serve,
        Door(serve.port) as door,
    ):
        yield door


@pytest.fixture
def world(name: str) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        doors = [stack.enter_context(relaying(f"{name}-{at}", server.url)) for at in "ab"]
        urls = [*(door.url for door in doors), server.url]
        running, cache = stack.enter_context(engine(name, urls))
        found = World(server, doors, Leaf(running, cache))
        assert found.leaf.upstream == doors[0].url
        yield found


def lists(server: ApiServer) -> int:
    """Full lists, and watch-lists, of pods so far; no probes, and no proofs of a resume."""
    return sum(
        "sendInitialEvents" in record.query
        or (
            record.verb == "list"
            and record.query.get("limit") != "1"
            and record.query.get("resourceVersionMatch") != "Exact"
        )
        for record in server.log
        if record.resource == "pods"
    )


def test_a_leaf_goes_on_at_the_next_relay_without_a_list(world: World) -> None:
    before = lists(world.server)
    world.write(0, 30)
    world.doors[0].shut()
    world.write(30, 60)
    eventually(lambda: world.leaf.upstream == world.doors[1].url)
    world.check()
    world.doors[1].shut()
    world.write(60, 90)
    eventually(lambda: world.leaf.upstream == world.server.url)
    world.check()

    assert world.leaf.relists == 0
    assert lists(world.server) == before


def test_a_leaf_goes_home_when_its_relay_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams_module, "SCOUT_SECONDS", 0.05)
    world.doors[0].shut()
    world.write(0, 5)
    eventually(lambda: world.leaf.upstream == world.doors[1].url)
    [feed] = world.leaf.engine._kept[0].feeds
    resumes = feed._resumes
    world.doors[0].open()
    while world.leaf.upstream != world.doors[0].url:
        world.write(len(world.written), len(world.written) + 1)
        time.sleep(0.02)
        assert len(world.written) < 5000
    world.check()
    assert feed._resumes > resumes  # CONFIRM11

    assert world.leaf.relists == 0


def test_a_silent_relay_is_left(name: str) -> None:
    """A stopped process or a partition: its connections stay open, and nothing comes."""
    timing = Timing(silence=2.0)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        doors = [stack.enter_context(relaying(f"{name}-{at}", server.url)) for at in "ab"]
        urls = [door.url for door in doors]
        running, cache = stack.enter_context(engine(name, urls, timing=timing))
        world = World(server, doors, Leaf(running, cache))
        world.write(0, 10)
        world.check()
        doors[0].freeze()
        world.write(10, 20)
        eventually(lambda: world.leaf.upstream == doors[1].url)
        world.check()
        assert world.leaf.relists == 0


def test_a_version_too_old_for_one_relay_is_not_too_old_for_all(name: str) -> None:
    """SWITCH1: a relay that began later does not know our version, the API server does."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        first = stack.enter_context(relaying(f"{name}-a", server.url))
        late = stack.enter_context(Door(server.port))
        running, cache = stack.enter_context(engine(name, [first.url, late.url, server.url]))
        world = World(server, [first], Leaf(running, cache))
        late.shut()
        world.write(0, 10)
        world.check()
        first.shut()
        world.write(10, 20)
        with engine(f"{name}-c", [server.url]) as (_, cached), ServeThread(cached) as serve:
            late.behind = serve.port
            late.open()
            world.check()
        assert world.leaf.relists == 0


def test_a_version_too_old_for_all_upstreams_is_listed_again(name: str) -> None:
    """SWITCH1: each of them accepts the watch, and refuses the version inside it."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        doors = [stack.enter_context(Door(server.port)) for _ in "ab"]
        running, cache = stack.enter_context(engine(name, [door.url for door in doors]))
        world = World(server, doors, Leaf(running, cache))
        world.write(0, 10)
        world.check()
        server.advance(int(server.version) + 100)
        server.compact()
        server.end_watches()
        eventually(lambda: world.leaf.relists == 1)
        theirs = {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in server.list("pods")
        }
        eventually(lambda: world.leaf.contents() == theirs)


@pytest.mark.parametrize("returns", [True, False], ids=["it returns", "it stays away"])
def test_a_list_waits_for_a_relay_that_has_what_the_server_lost(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, returns: bool
) -> None:
    """SWITCH5: a relay and the API server restart together, and only the relay has the past."""
    caplog.set_level(logging.INFO, "shmcache.engine.switching")
    if not returns:
        monkeypatch.setattr(switching, "PATIENT_SECONDS", (1.0, 1.0))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        relay = stack.enter_context(relaying(f"{name}-a", server.url))
        running, cache = stack.enter_context(engine(name, [relay.url, server.url]))
        world = World(server, [relay], Leaf(running, cache))
        world.write(0, 10)
        world.check()
        relay.shut()
        server.go_down()
        world.write(10, 20)
        server.compact()
        server.come_back()
        eventually(lambda: "does not have our version" in caplog.text)
        assert world.leaf.relists == 0
        if returns:
            relay.open()
        theirs = {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in server.list("pods")
        }
        eventually(lambda: world.leaf.contents() == theirs)
        assert world.leaf.relists == (0 if returns else 1)


def test_a_version_that_only_one_server_understands_does_not_end_a_leaf(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SWITCH3: the next server refuses the version (400), and no probe came before the watch."""
    monkeypatch.setattr(upstreams_module, "SCOUT_SECONDS", 0.05)
    monkeypatch.setattr(upstreams_module, "SCOUT_SILENCE", 0.5)
    with contextlib.ExitStack() as stack:
        odd = stack.enter_context(ApiServer(seed=7))
        server = stack.enter_context(ApiServer(seed=8))
        server.create("pods", pod(2))
        door = stack.enter_context(Door(odd.port))
        _, cache = stack.enter_context(engine(name, [door.url, server.url]))
        odd.advance(1 << 70)
        odd.create("pods", pod(1))
        eventually(lambda: "prod/p-1" in cache["pods"])
        time.sleep(STAY_SECONDS)
        door.freeze()
        eventually(lambda: "prod/p-2" in cache["pods"])
        assert "prod/p-1" not in cache["pods"]


def test_patience_ends_where_several_servers_refuse_the_version(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SWITCH5: the relay stays away; both of the others refuse once more, then a list follows."""
    caplog.set_level(logging.INFO, "shmcache.engine.switching")
    monkeypatch.setattr(switching, "PATIENT_SECONDS", (1.0, 1.0))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        doors = [stack.enter_context(Door(server.port)) for _ in "abc"]
        running, cache = stack.enter_context(engine(name, [door.url for door in doors]))
        world = World(server, doors, Leaf(running, cache))
        world.write(0, 10)
        world.check()
        doors[0].shut()
        server.go_down()
        world.write(10, 20)
        server.compact()
        server.come_back()
        eventually(lambda: "does not have our version" in caplog.text)
        theirs = {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in server.list("pods")
        }
        eventually(lambda: world.leaf.contents() == theirs)
        assert world.leaf.relists == 1


def test_a_resource_that_a_relay_does_not_have_comes_from_elsewhere(name: str) -> None:
    """SWITCH2: the others stay."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        door = stack.enter_context(relaying(f"{name}-a", server.url, "pods"))
        server.create("pods", pod(1))
        server.create("configmaps", {"metadata": {"name": "c", "namespace": "prod"}})
        _, cache = stack.enter_context(engine(name, [door.url, server.url], "pods", "configmaps"))

        assert cache["pods"].status.upstream == door.url
        assert cache["configmaps"].status.upstream == server.url
        assert len(cache["configmaps"]) == 1


@pytest.fixture
def behind(name: str) -> Iterator[tuple[ApiServer, Door, shmcache.Writer]]:
    """A relay whose cache stands still at the version of its writer."""
    settings = Plan(name="pods").resource_at("", ())
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        for number in range(5):
            server.create("pods", pod(number))
        writer = stack.enter_context(shmcache.Writer(f"{name}-old", [settings]))
        writer.replace("pods", server.list("pods"), version=server.version)
        cache = stack.enter_context(shmcache.attach(f"{name}-old"))
        serve = stack.enter_context(ServeThread(cache))
        yield server, stack.enter_context(Door(serve.port)), writer


def test_a_relay_behind_the_leaf_does_not_rewind_it(
    behind: tuple[ApiServer, Door, shmcache.Writer], name: str
) -> None:
    """SERVERS3: the leaf keeps what it has, waits, and goes on when the relay has come."""
    server, old, writer = behind
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(Door(server.port))
        running, cache = stack.enter_context(engine(name, [door.url, old.url]))
        world = World(server, [door], Leaf(running, cache))
        seen = list(world.leaf.seen)
        world.written = seen
        world.write(10, 20)
        world.check()
        door.shut()
        eventually(lambda: old.connections >= 3)
        time.sleep(0.5)  # time passes in which it could go back
        assert len(world.leaf.seen) == len(world.written)
        assert world.leaf.relists == 0
        with writer.batch():
            for one in server.list("pods"):
                writer.apply("pods", [one])
            writer.set_version("pods", server.version)
        eventually(lambda: world.leaf.upstream == old.url)
        world.check()
        assert world.leaf.relists == 0


def test_a_restored_server_is_believed_and_its_relays_are_not_asked_meanwhile(
    behind: tuple[ApiServer, Door, shmcache.Writer], name: str
) -> None:
    """SERVERS5: the relay still has the history that is gone."""
    server, old, _ = behind
    backup = server.backup()
    for number in range(50, 60):
        server.create("pods", pod(number))
    with engine(name, [server.url, old.url]) as (running, cache):
        leaf = Leaf(running, cache)
        assert len(leaf.contents()) == 15
        server.restore(backup)
        eventually(lambda: len(leaf.contents()) == 5)
        assert leaf.upstream == server.url
        server.create("pods", pod(99))
        eventually(lambda: "p-99" in leaf.contents())


def test_relays_state_their_version_and_their_lag(world: World) -> None:
    """RELAYED1; and RELAYED2: a version that is not there yet is refused as the API server does."""
    port = world.doors[0].port

    def get(path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as asked:
            asked.request("GET", path, headers=headers)
            answer = asked.getresponse()
            return answer.status, answer.headers, b"" if "watch" in path else answer.read()

    world.write(0, 3)
    world.check()
    version = world.leaf.cache["pods"].version
    for path in (ALL_PODS, f"{ALL_PODS}?watch=1&timeoutSeconds=1"):
        code, headers, _ = get(path, **{REACHED_HEADER: str(version)})
        assert code == 200
        assert headers[VERSION_HEADER] == version
        assert 0 <= float(headers[LAG_HEADER]) < DEADLINE
        code, _, body = get(path, **{REACHED_HEADER: str(int(version or 0) + 1000)})
        assert code == 504
        assert not body or b"Too large resource version" in body
    code, headers, _ = get("/readyz")
    assert code == 200
    assert 0 <= float(headers[LAG_HEADER]) < DEADLINE


def test_only_a_server_before_our_version_has_rewound(monkeypatch: pytest.MonkeyPatch) -> None:
    """SERVERS5: relays are held off after that alone."""
    with ApiServer(seed=7) as server:
        server.create("pods", pod(1))
        upstreams, said = Upstreams([connection(server.url)]), list[str]()
        monkeypatch.setattr(upstreams, "rewound", lambda: said.append("rewound"))
        source = SwitchingSource(upstreams, lambda one: KubeSource(one.server, "pods"), "pods")
        for version, expected in ((server.version, []), (10**9, ["rewound"])):
            options = ListOptions(resource_version=str(version))
            with contextlib.suppress(SourceFailed), source.watch(options, silence=DEADLINE):
                pass
            assert source.probe(ListOptions(limit=1)) == str(server.version)
            assert said == expected
        source.close()
        upstreams.close()


def test_resources_of_a_relay_have_versions_of_their_own(name: str) -> None:
    """A probe at a relay tells the other feeds that it answers, and no version to compare with."""
    kinds = ("pods", "configmaps")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=7))
        server.create("configmaps", {"metadata": {"name": "c", "namespace": "prod"}})
        door = stack.enter_context(relaying(f"{name}-a", server.url, *kinds))
        running, cache = stack.enter_context(engine(name, [door.url], *kinds))
        shared: list[str] = []
        answered = running._gate.answered

        def note(cause: str, began: float, version: str) -> None:
            shared.append(version)
            answered(cause, began, version)

        running._gate.answered = note  # type: ignore[method-assign]
        server.create("pods", pod(1))
        eventually(lambda: len(cache["pods"]) == 1)
        before = {kind: cache[kind].status.counters["watches"] for kind in kinds}
        time.sleep(1.1)  # a watch that ends within a second is not followed
        door.cut()
        eventually(
            lambda: all(cache[kind].status.counters["watches"] > before[kind] for kind in kinds)
        )

        assert shared
        assert set(shared) == {""}
        assert [cache[kind].status.counters["relists"] for kind in kinds] == [0, 0]


def test_a_look_at_a_watch_that_has_just_failed_does_no_harm() -> None:
    """The feed has chosen another upstream, at which it has asked nothing yet."""
    servers = [connection(f"http://127.0.0.1:{port}") for port in (1, 2)]
    upstreams = Upstreams(servers)
    source = SwitchingSource(upstreams, lambda one: KubeSource(one.server, "pods"), "pods")
    try:
        source._source_at(source.upstream)
        source._opened = upstreams.now() - STAY_SECONDS
        source.upstream = upstreams.all[1]

        assert not source.leave()
        source.upstream = upstreams.all[0]
        assert source.leave()
    finally:
        source.close()
        upstreams.close()


@pytest.mark.parametrize(("version", "refused"), [("99", True), ("100", False), ("0101", False)])
def test_a_leaf_refuses_the_answer_of_a_relay_that_is_behind(
    monkeypatch: pytest.MonkeyPatch, version: str, refused: bool
) -> None:
    """SERVERS3, also where the relay itself does not look at the version that the leaf states."""
    upstreams = Upstreams([connection(f"http://127.0.0.1:{port}") for port in (1, 2)])
    source = SwitchingSource(upstreams, lambda one: KubeSource(one.server, "pods"), "pods")
    try:
        asked = source._source_at(source.upstream)
        monkeypatch.setattr(asked.client, "answered", {LAG_HEADER: "0", VERSION_HEADER: version})
        source._reach("100")
        expected = pytest.raises(SourceFailed, match="is behind: at version 99, we are at 100")
        with expected if refused else contextlib.nullcontext():
            source._check(asked)
    finally:
        source.close()
        upstreams.close()
