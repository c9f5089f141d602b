"""Invariant tested: whatever a server does, the cache is always one of its true states, its version
never goes back except at a reported rewind, requests never loop, and once the server behaves the
cache equals the server's state (G21, G22).

SEED= repeats a run, SHMCACHE_EXAMPLES= requests more sequences than the few of every day.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from conftest import SEED
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shmcache import states
from shmcache.protocol.items import Item
from shmcache.reflector.machine import ReflectorSettings
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import Driver, FakeSource, Request, statuses

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 60)
STEPS = 50

IN_A_ROW = 7  # two streams, a list, the whole of it, one from "", the watch: then it waits
LONG = 2 * 3600.0  # after the longest silence, the longest wait and the longest watch

INSIDE = [
    statuses.expired(),
    statuses.http(410, "Gone"),
    statuses.throttled(),
    statuses.http(500, "InternalError"),
    statuses.http(500, "StorageReadError"),
    statuses.http(504, "Timeout"),
]
FAILURES = [
    *INSIDE,
    statuses.too_large(99, 10),
    statuses.throttled(20),
    statuses.http(503, "ServiceUnavailable", retry_after=3),
    statuses.http(404, "NotFound"),
    statuses.http(401, "Unauthorized"),
    statuses.http(403, "Forbidden"),
    statuses.http(422, "Invalid"),
    statuses.refused(),
    statuses.reset(),
    statuses.hung_up(),
    SourceFailure(FailureKind.SILENT, "no byte"),
    SourceFailure(FailureKind.GARBAGE, "no list"),
]

happened: Counter[str] = Counter()


def runs(requests: list[Request]) -> Iterator[int]:
    """The longest row of requests with less than half a second in between; a list counts once."""
    length, last = 0, float("-inf")
    for request in requests:
        if request.options.continue_token:
            continue
        length = length + 1 if request.time - last < 0.5 else 1
        last = request.time
        yield length


class Machine(RuleBasedStateMachine):
    """A server that misbehaves, and a reflector on it."""

    @initialize(
        watch_list=st.booleans(),
        watch_cache=st.booleans(),
        page=st.integers(1, 5),
        always=st.booleans(),
        retry=st.sampled_from([0.0, 30.0]),
        luck=st.integers(0, 2**32),
    )
    def start(
        self,
        *,
        watch_list: bool,
        watch_cache: bool,
        page: int,
        always: bool,
        retry: float,
        luck: int,
    ) -> None:
        self.source = FakeSource()
        self.source.watch_cache = watch_cache
        for name in "abcdef":
            self.source.create({"metadata": {"namespace": "prod", "name": name}})
        self.settings = ReflectorSettings(
            use_watch_list=watch_list,
            page_size=page,
            page_always=always,
            internal_error_retry=retry,
            kind="Pod",
        )
        self.rng = random.Random(luck)
        self.lost = False  # a change that no client can know without a list
        self.past: list[Driver] = []
        self.driver = Driver(self.source, self.settings, self.rng)

    # ---- the steps -------------------------------------------------------------------------------

    def _before_change(self) -> None:
        """A server that went back and passed our version before our next request hides it."""
        version = self.driver.machine.version
        if version and int(version) > self.source.version:
            self.lost = True

    @rule(name=st.sampled_from("abcdefgh"), gone=st.booleans(), heard=st.integers(0, 9))
    def change(self, name: str, *, gone: bool, heard: int) -> None:
        self._before_change()
        self.lost = self.lost or heard == 0
        obj = {"metadata": {"namespace": "prod", "name": name}, "at": self.source.version}
        if f"prod/{name}" not in self.source.objects:
            self.source.create(obj, announced=heard > 0)
        elif gone:
            self.source.delete(f"prod/{name}", announced=heard > 0)
        else:
            self.source.update(obj, announced=heard > 0)

    @rule(times=st.integers(1, 3))
    def others_change(self, times: int) -> None:
        self._before_change()
        self.source.touch(times)

    @rule(seconds=st.sampled_from([0.0, 0.0, 0.3, 1.0, 5.0, 30.0, 100.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.run(seconds)

    @rule(
        failure=st.sampled_from(FAILURES),
        on=st.sampled_from(["any", "list", "watch"]),
        times=st.integers(1, 6),
        after=st.integers(0, 2),
    )
    def requests_fail(self, failure: SourceFailure, on: str, times: int, after: int) -> None:
        self.source.refuse(failure, on=on, times=times, after=after)

    @precondition(lambda self: self.source.watches)
    @rule(how=st.sampled_from(["close", "cut", "end", "kill", "babble"]))
    def watch_ends(self, how: str) -> None:
        happened[how] += 1
        watch = self.source.watches[0]
        match how:
            case "close":
                watch.close()
            case "cut":
                watch.cut(statuses.reset())
            case "end":
                watch.cut(statuses.hung_up())
            case "kill":
                watch.kill()
            case _:
                watch.babble()

    @precondition(lambda self: self.source.watches)
    @rule(failure=st.sampled_from(INSIDE))
    def watch_says_error(self, failure: SourceFailure) -> None:
        self.source.watches[0].end_with(failure)

    @precondition(lambda self: self.source.watches)
    @rule(kind=st.sampled_from(["RENAMED", "ADDED"]))
    def watch_says_nonsense(self, kind: str) -> None:
        version = str(self.source.version)
        nonsense = Item(kind, "x", version, "u", "Node", "v1", b'{"metadata":{"name":"x"}}')
        self.source.watches[0].say(nonsense)

    @precondition(lambda self: self.source.watches)
    @rule(back=st.integers(0, 5))
    def watch_repeats_itself(self, back: int) -> None:
        changes = self.source.since(10) or []
        for change in changes[-1 - back :][:1]:
            if change.announced:
                item = self.source.item(change.type, change.key, change.raw)
                self.source.watches[0].say(item)

    @rule()
    def server_forgets(self) -> None:
        happened["forgot"] += 1
        self.source.forget()

    @precondition(lambda self: self.source.version > 11)
    @rule(back=st.integers(1, 5))
    def server_goes_back(self, back: int) -> None:
        happened["went back"] += 1
        self.source.restore(max(10, self.source.version - back))

    @rule(what=st.sampled_from(["bookmarks", "end_bookmark", "watch_list", "watch_cache"]))
    def server_is_changed(self, what: str) -> None:
        setattr(self.source, what, not getattr(self.source, what))

    @rule(batch=st.integers(1, 5))
    def batches_change(self, batch: int) -> None:
        self.source.batch = batch

    @rule(really=st.sampled_from([True, False, False, False]))
    def reflector_is_restarted(self, *, really: bool) -> None:
        if not really:
            return
        self.driver.stop()
        self.past.append(self.driver)
        happened["restarted"] += 1
        self.driver = Driver(
            self.source,
            self.settings,
            self.rng,
            resume=self.driver.version or None,
            content=self.driver.content,
        )

    # ---- the invariants --------------------------------------------------------------------------

    @invariant()
    def versions_go_back_only_at_rewinds(self) -> None:
        for driver in [*self.past[-1:], self.driver]:
            versions = [int(version) for version in driver.versions]
            back = sum(b < a for a, b in pairwise(versions))
            rewinds = driver.machine.counts.rewinds
            happened["rewind"] += rewinds > 0
            assert back <= rewinds <= back + 1  # one may be from a version of the life before

    @invariant()
    def requests_come_in_no_loop(self) -> None:
        assert max(runs(self.driver.requests), default=0) <= IN_A_ROW
        for watch in self.driver.requests:
            happened["stream"] += bool(watch.options.send_initial_events)
            happened["page"] += bool(watch.options.continue_token)

    @invariant()
    def content_is_a_true_state(self) -> None:
        version = self.driver.version
        if self.lost or not version or int(version) > self.source.version:
            return
        happened["compared"] += 1
        assert self._state_at(int(version)) == self.driver.content

    def _state_at(self, version: int) -> dict[str, bytes]:
        at: dict[str, bytes] = {}
        for change in self.source.history:
            if change.version > version:
                break
            if change.type == "DELETED":
                del at[change.key]
            else:
                at[change.key] = change.raw
        return at

    def teardown(self) -> None:
        """At last the server behaves: the cache reaches the server's state."""
        if not hasattr(self, "driver"):
            return
        source = self.source
        source.forgive()
        source.bookmarks = source.end_bookmark = True
        self.requests_come_in_no_loop()
        self.driver.run(LONG)
        if self.lost:
            source.touch()
            source.forget()
            self.driver.run(LONG)
        assert source.objects == self.driver.content
        assert states.SYNCED == self.driver.state
        self.versions_go_back_only_at_rewinds()
        self.requests_come_in_no_loop()
        late = [r for r in self.driver.requests if r.time > source.clock() - LONG / 2]
        assert len(late) <= LONG / 2 / 300 + 1
        assert len(source.watches) == 1
        happened["settled"] += 1


MET = (
    "close", "cut", "end", "kill", "babble", "forgot", "went back", "restarted", "rewind",
    "stream", "page", "compared", "settled",
)  # fmt: skip
"""Events that a run must have met to prove anything."""
TURNS = 5
"""Other sequences are tried so often if one of these events has not happened."""


def test_the_cache_reaches_the_servers_state_whatever_the_server_does() -> None:
    happened.clear()
    for turn in range(TURNS):
        run_state_machine_as_test(
            seed(SEED + turn)(Machine),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
        if all(happened[what] for what in MET):
            return
    pytest.fail(f"too tame: {happened}")
