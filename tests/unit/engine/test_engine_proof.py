"""Invariant tested: after an outage the cache is proved to be of the server's history, and a server
that was restored and went on beyond our version is found out, although no number shows it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

import shmcache
from shmcache import states
from shmcache.engine.comparing import digest, digest_of_items, digest_of_objects
from shmcache.engine.config.timing import Timing
from shmcache.engine.difference import ServerDifference
from shmcache.engine.engine import Engine
from shmcache.engine.feed import CLAIM_SECONDS
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.proof import Claim, Prover
from shmcache.engine.rate_limit import Pace
from shmcache.engine.resource_state import ResourceState
from shmcache.protocol.items import Identity, Item
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer, FakeSource, ManualClock, statuses

DEADLINE = 60.0


def pod(name: str, namespace: str = "prod", **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


def eventually(fact: Callable[[], bool], words: str) -> None:
    end = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < end, words
        time.sleep(0.01)


@contextmanager
def running(name: str, server: ApiServer, plan: Plan) -> Iterator[tuple[Engine, shmcache.Cache]]:
    opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
    with shmcache.Writer(name, [plan.resource], arena_max="64MiB") as writer:
        engine = Engine(writer, [plan], opener, pace=Pace(100))
        engine.start()
        try:
            assert engine.ready.wait(DEADLINE)
            with shmcache.attach(name) as cache:
                yield engine, cache
        finally:
            assert engine.stop()


def versions(cache: shmcache.Cache) -> dict[str, str]:
    return {key: obj["metadata"]["resourceVersion"] for key, obj in cache["pods"].items()}


def of_server(server: ApiServer) -> dict[str, str]:
    found = [obj["metadata"] for obj in server.list("pods")]
    return {f"{one['namespace']}/{one['name']}": one["resourceVersion"] for one in found}


def watched(publish: Callable[[int, str], bool], seen: list[str]) -> Callable[[int, str], bool]:
    """As `publish`; and notes each state."""

    def published(state: int, reason: str) -> bool:
        seen.append(states.NAMES[state])
        return publish(state, reason)

    return published


def no_difference(_: threading.Event) -> ServerDifference:
    raise AssertionError("nothing is disproved here")


def ignored(_: ServerDifference) -> None:
    raise AssertionError("nothing is to be repaired here")


PLANS = {
    "all": Plan(name="pods"),
    "namespaces": Plan(name="pods", namespaces=("prod", "test")),
    "selected": Plan(name="pods", labels="app=web"),
    "metadata": Plan(name="pods", metadata_only=True),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("restored", [True, False])
def test_a_restore_that_overtook_us_while_we_were_away_is_found(
    name: str, plan: str, *, restored: bool
) -> None:
    with ApiServer(bookmark_seconds=0.05) as server:
        for number in range(3):
            server.create("pods", pod(f"a-{number}", app="web"))
            server.create("pods", pod(f"b-{number}", "test", app="web"))
        backup = server.backup()
        with running(name, server, PLANS[plan]) as (engine, cache):
            server.update("pods", pod("a-0", app="web", undone="yes"))
            server.delete("pods", "a-1", "prod")
            eventually(lambda: versions(cache) == of_server(server), "it does not follow")
            ours = int(server.version)
            server.go_down()
            if restored:
                server.restore(backup)
            server.advance(ours + 100)
            server.come_back()
            prover = engine._prover
            lists = cache["pods"].status.counters["relists"]

            if restored:
                eventually(lambda: versions(cache) == of_server(server), "nobody finds out")
                assert prover.disproved
                eventually(
                    lambda: cache["pods"].status.counters["relists"] > lists, "nothing is listed"
                )
            else:
                eventually(lambda: prover.proved > 0, "nothing is proved")
                assert 0 == prover.disproved
                assert lists == cache["pods"].status.counters["relists"]
            assert versions(cache) == of_server(server)
            eventually(lambda: cache["pods"].status.state == "synced", "it is not synced")
        compared = [
            one.headers["accept"]
            for one in server.log
            if one.query.get("resourceVersionMatch") == "Exact" and one.query.get("limit") != "1"
        ]
        assert compared
        assert all("as=PartialObjectMetadataList" in one for one in compared)


def test_a_digest_knows_no_order_and_every_difference() -> None:
    """PROOF2."""
    a, b, c = ("a", Identity("u1", "1")), ("b", Identity("u2", "2")), ("c", Identity("", ""))

    assert digest([a, b, c]) == digest([c, b, a])
    for other in (
        [b, c],
        [a, b, c, ("d", Identity("u4", "4"))],
        [("a", Identity("u1", "2")), ("b", Identity("u2", "1")), c],
        [("b", Identity("u1", "1")), ("a", Identity("u2", "2")), c],
        [("a", Identity("other", "1")), b, c],
    ):
        assert digest([a, b, c]) != digest(other)


def test_listed_items_and_stored_objects_have_the_same_digest(name: str) -> None:
    """PROOF2: each is counted in its own way."""
    found = [("prod/a", Identity("u1", "1")), ("prod/b", Identity("u2", "2"))]
    items = [Item("LISTED", key, version, uid, None, None, b"") for key, (uid, version) in found]
    items.append(Item("LISTED", "prod/c", None, None, None, None, b""))
    found.append(("prod/c", Identity("", "")))
    with shmcache.Writer(name, ["pods"]) as writer:
        for key, (uid, version) in found:
            of = {"uid": uid, "resourceVersion": version} if uid else {}
            writer.put("pods", key, {"metadata": of})
        count, total = digest_of_items(items)
        assert digest(found) == digest_of_objects(writer.objects("pods"))
        assert digest(found) == (count, total & (1 << 64) - 1)
        writer.put("pods", "prod/b", {"metadata": {"uid": "u2", "resourceVersion": "3"}})
        assert digest(found) != digest_of_objects(writer.objects("pods"))


def test_objects_that_have_exchanged_their_versions_have_another_digest() -> None:
    """Sums of the hashes of pairs (tuples) collide here nearly half of the time."""
    for number in range(3000):
        left, right = (f"a-{number}", f"b-{number}"), (str(number), str(number + 1))
        states = [Identity("u", version) for version in right]
        straight, crossed = (
            zip(left, states, strict=True),
            zip(left, reversed(states), strict=True),
        )
        assert digest(straight) != digest(crossed), number


@pytest.mark.parametrize("failing", [True, False])
def test_an_answer_at_another_version_proves_nothing(*, failing: bool) -> None:
    """PROOF1, PROOF3: of an old server that knows no Exact, or one that fails."""
    source, stop = FakeSource(ManualClock(), version=10), threading.Event()
    source.create({"metadata": {"name": "a"}})
    if failing:
        source.refuse(statuses.expired(), on="list")
    unknown, disproved = list[int](), list[str]()
    prover = Prover(Pace(100), stop)
    version = "11" if failing else "10"
    claim = Claim(
        "pods", version, (7, 7), source, "", "", disproved.append, lambda: unknown.append(1),
        no_difference, ignored,
    )  # fmt: skip
    thread = threading.Thread(target=prover.run)
    thread.start()
    prover.submit(claim)
    prover.end()
    thread.join(DEADLINE)

    assert ([1], []) == (unknown, disproved)
    assert (0, 0) == (prover.proved, prover.disproved)


def test_a_server_that_proves_nothing_is_not_asked_at_each_change(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROOF5: each answer is of another version, as of a server that knows no Exact."""
    asked: list[float] = []

    def answer(_: Prover, __: Claim) -> None:
        asked.append(time.monotonic())

    monkeypatch.setattr(Prover, "_listed", answer)
    with ApiServer(bookmark_seconds=0.05) as server:
        server.create("pods", pod("first"))
        with running(name, server, Plan(name="pods")) as (_, cache):
            server.go_down()
            server.come_back()
            changes = 0
            while len(asked) < 2:
                server.create("pods", pod(f"p-{changes}"))
                changes += 1
                eventually(lambda: versions(cache) == of_server(server), "it does not follow")

    assert asked[1] - asked[0] >= CLAIM_SECONDS
    assert changes > 2


def test_a_disproved_cache_is_listed_again_although_its_watch_is_silent(name: str) -> None:
    """And readers see at once that it is not synced."""
    with ApiServer(bookmark_seconds=3600.0) as server:
        server.create("pods", pod("a"))
        with running(name, server, Plan(name="pods")) as (engine, cache):
            [feed] = engine._kept[0].feeds
            server.wait_for_watches()
            seen: list[str] = []
            standing = feed.parts.standing
            assert isinstance(standing, ResourceState)
            standing._publish = watched(standing._publish, seen)

            feed.doubt(feed.claim_number, "as after a restored backup")

            assert ["retrying"] == seen[:1]  # before doubt() returned
            eventually(lambda: cache["pods"].status.counters["relists"] == 1, "it waits for bytes")
            eventually(lambda: cache["pods"].status.state == "synced", "it is not synced")


def test_answers_to_earlier_claims_are_ignored(name: str) -> None:
    """PROOF6: also those that come after the feed has listed again."""
    with ApiServer(bookmark_seconds=0.05) as server:
        server.create("pods", pod("a"))
        with running(name, server, Plan(name="pods")) as (engine, cache):
            [feed] = engine._kept[0].feeds
            first = feed.claim_number
            feed.doubt(first, "as after a restored backup")
            eventually(lambda: cache["pods"].status.counters["relists"] == 1, "it is not listed")
            eventually(lambda: feed.claim_number > first, "the claim is still valid")

            feed.doubt(first, "too late")
            feed.claim_again(first)
            server.create("pods", pod("b"))
            eventually(lambda: versions(cache) == of_server(server), "it does not follow")

            assert 1 == cache["pods"].status.counters["relists"]
            assert "synced" == cache["pods"].status.state
            assert CLAIM_SECONDS == feed._claim_wait


def test_a_newer_claim_of_a_feed_replaces_one_that_waits() -> None:
    """PROOF4: claims of a server that does not answer are not heaped up."""
    stop, checked = threading.Event(), list[str]()
    sources = [FakeSource(ManualClock(), version=10) for _ in range(3)]
    prover = Prover(Pace(100), stop)
    for label in ("pods", "jobs"):
        for version in ("7", "8", "9"):
            claim = Claim(
                label, version, (0, 0), sources[0], "", "", checked.append,
                partial(checked.append, f"{label} {version}"), no_difference, ignored,
            )  # fmt: skip
            prover.submit(claim)
    prover.end()
    prover.run()

    assert ["pods 9", "jobs 9"] == checked


def test_a_resource_with_refused_objects_claims_nothing(name: str) -> None:
    """The digests would differ for ever, as after a restored backup."""
    plan = PLANS["all"]
    with ApiServer(bookmark_seconds=0.05) as server:
        server.create("pods", pod("a"))
        with running(name, server, plan) as (engine, _):
            [feed] = engine._kept[0].feeds
            assert engine._proofs["pods"].claim(feed) is not None
            engine._writer.apply_items(
                "pods", [Item("ADDED", "prod/b", "1", None, None, None, b"[]")]
            )

            assert engine._proofs["pods"].claim(feed) is None


def test_a_lost_event_is_found_within_a_period(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an outage, and without any reader that asks; off with an interval of 0."""
    monkeypatch.setattr("shmcache.engine.engine.LOOK_SECONDS", 0.02)
    with ApiServer(bookmark_seconds=0.05) as server:
        server.create("pods", pod("a"))
        with running(name, server, PLANS["all"]) as (engine, cache):
            [feed] = engine._kept[0].feeds
            content = feed.parts.content
            applying = content.apply

            def lose(items: list[Item], version: str) -> None:
                assert items
                content.advance(version)

            content.apply = lose  # type: ignore[method-assign]
            server.update("pods", pod("a", lost="yes"))
            eventually(lambda: cache["pods"].version == server.version, "the version is not there")
            content.apply = applying  # type: ignore[method-assign]
            assert versions(cache) != of_server(server)

            engine._timing = Timing(proof_interval=0)
            engine._prove_next(time.monotonic() + 1e6)
            assert feed._unproved is None
            engine._timing, engine._prove_at = Timing(proof_interval=0.1), 0.0

            def is_found() -> bool:
                server.advance(int(server.version) + 1)  # a claim waits for the next version
                return engine._prover.disproved > 0

            eventually(is_found, "nobody finds out")
            eventually(lambda: versions(cache) == of_server(server), "not mended")
