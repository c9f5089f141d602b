"""Invariant tested: a feed that falls behind the events of its server shows it: its contact stays
at the last moment at which it had read everything, and its state gives the reason.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from reflecting import pod

import shmcache
from shmcache import states
from shmcache.cli.output.report import resources
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import Opener
from shmcache.engine.plans import Plan
from shmcache.engine.resource_state import GRACE, ResourceState
from shmcache.monitor.metering import Meter
from shmcache.monitor.observing import observe
from shmcache.protocol.options import ListOptions
from shmcache.source.access import ServerAccess
from shmcache.source.base import Source
from shmcache.source.client import ApiConnection
from shmcache.source.kube import KubeSource
from shmcache.source.line import Line
from shmcache.testing import ApiServer, FakeSource, ManualClock

DEADLINE = 60.0


def eventually(fact: Callable[[], bool], words: str) -> None:
    end = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < end, words
        time.sleep(0.01)


class Opening:
    """Opens one source."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source

    def is_namespaced(self, _: Plan, /) -> bool:
        return True

    def open(self, _: Plan, __: str, /) -> Source:
        return self._source

    def open_metadata(self, _: Plan, __: str, /) -> None:
        return None

    def open_beside(self, _: Plan, __: str, /) -> None:
        return None


@contextmanager
def following(name: str, source: FakeSource) -> Iterator[shmcache.CachedResource]:
    plan = Plan(name="pods")
    with shmcache.Writer(name, [plan.resource], arena_max="64MiB") as writer:
        engine = Engine(writer, [plan], cast("Opener", Opening(source)))
        engine.start()
        try:
            assert engine.ready.wait(DEADLINE)
            with shmcache.attach(name) as cache:
                yield cache["pods"]
        finally:
            assert engine.stop()


def test_contact_stays_while_events_wait_to_be_read(name: str) -> None:
    source = FakeSource(ManualClock())
    with following(name, source) as pods:

        def contact() -> int:
            return int(pods.contact()["contact_ns"])

        source.create(pod("a"))
        eventually(lambda: "prod/a" in pods, "it does not follow")
        source.behind = True
        source.create(pod("b"))
        eventually(lambda: "prod/b" in pods, "it does not follow")
        last = contact()
        source.create(pod("c"))
        eventually(lambda: "prod/c" in pods, "it does not follow")
        assert last == contact()

        source.behind = False
        for watch in list(source.watches):
            watch.close()  # a server cuts slow readers: the next watch brings the rest
        source.clock.advance(2.0)
        eventually(lambda: len(source.watches) == 1, "no watch follows")
        assert last == contact()

        source.create(pod("d"))
        eventually(lambda: last < contact(), "it has caught up, and there is no contact")


def test_a_watch_that_is_cut_while_its_feed_is_behind_is_counted(name: str) -> None:
    source = FakeSource(ManualClock())
    with following(name, source) as pods:

        def cut() -> int:
            found: int = pods.status.counters["cut"]
            return found

        def end_watch() -> None:
            watches = pods.status.counters["watches"]
            for watch in list(source.watches):
                watch.close()
            source.clock.advance(2.0)
            eventually(lambda: watches < pods.status.counters["watches"], "no watch follows")

        source.create(pod("a"))
        eventually(lambda: "prod/a" in pods, "it does not follow")
        end_watch()
        assert 0 == cut()  # it was not behind: servers end watches for other reasons, too

        source.behind = True
        source.create(pod("b"))
        eventually(lambda: "prod/b" in pods, "it does not follow")
        source.behind = False  # the rest of what was sent is read before the end is seen
        end_watch()
        assert 1 == cut()
        with shmcache.attach(name) as cache:
            assert 'shmcache_resource_watches_cut_total{cache="' in Meter(cache).text()
            assert "CUT" in resources(observe(cache), None)


def test_the_lag_lasts_from_the_first_unread_event_until_it_has_caught_up(name: str) -> None:
    source = FakeSource(ManualClock())
    with following(name, source) as pods:
        source.create(pod("a"))
        eventually(lambda: pods.status.stored["stored"] == 1, "the way of an event is not timed")
        assert "prod/a" in pods
        assert pods.status.stored["storing_ns"] > 0
        assert pods.status.lag == 0.0

        source.behind = True
        source.create(pod("b"))
        eventually(lambda: (pods.status.lag or 0.0) > 0.0, "no lag is shown")
        first = pods.status.lag
        assert first is not None
        source.create(pod("c"))
        eventually(lambda: "prod/c" in pods, "it does not follow")
        lag, age = pods.status.lag, pods.status.age
        assert lag is not None
        assert age is not None
        assert first < lag <= age
        assert pods.status.state == "synced"
        with shmcache.attach(name) as cache:
            assert cache.snapshot()["pods"].status.lag is None
            assert 'shmcache_resource_lag_seconds{cache="' in Meter(cache).text()

        source.behind = False
        source.create(pod("d"))
        eventually(lambda: pods.status.lag == 0.0, "it has caught up, and the lag stays")


def test_a_state_shows_that_its_feed_is_behind_only_if_that_lasts() -> None:
    seen, clock = list[tuple[int, str]](), ManualClock()

    def publish(state: int, reason: str) -> bool:
        seen.append((state, reason))
        return True

    standing = ResourceState(90.0, publish, clock)
    standing.join(("",))
    standing.report("", states.SYNCED, "")
    standing.behind("", behind=True)
    clock.advance(GRACE)
    standing.look()
    standing.behind("", behind=False)
    standing.behind("", behind=True)
    clock.advance(GRACE + 0.1)
    standing.look()
    standing.look()
    standing.behind("", behind=False)

    words = "more than 5 s behind the events of the server"
    assert [(states.SYNCED, ""), (states.SYNCED, words), (states.SYNCED, "")] == seen


def test_a_line_counts_the_bytes_that_wait() -> None:
    line = Line()
    assert 0 == line.waiting()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line.hold(ours)
        assert 0 == line.waiting()
        theirs.sendall(b"x" * 3000)
        assert 3000 == line.waiting()
        ours.recv(1000)
        assert 2000 == line.waiting()
        line.drop()
    assert 0 == line.waiting()


def test_a_source_is_behind_while_its_socket_is_full() -> None:
    """A reader that stops, a server that goes on: and caught up once all is read."""
    with ApiServer() as server:
        source = KubeSource(ApiConnection(lambda: ServerAccess(url=server.url)), "configmaps")
        options = ListOptions(watch=True, resource_version=server.version)
        with source.watch(options, silence=DEADLINE) as batches:
            server.wait_for_watches(1)
            data: dict[str, Any] = {"data": {"a": "x" * 20_000}}
            for number in range(100):
                server.create("configmaps", {"metadata": {"name": f"a-{number}"}, **data})
            count, seen = 0, set[bool]()
            while count < 100:
                count += len(next(batches))
                seen.add(source.behind)
            assert True in seen
            server.create("configmaps", {"metadata": {"name": "last"}})
            next(batches)
            assert not source.behind
