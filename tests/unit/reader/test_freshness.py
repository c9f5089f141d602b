"""Invariant tested: a resource reports its possible age, and a bound on it is kept or refused."""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import pytest

import shmcache
from shmcache import states
from shmcache.errors import CacheTooOld
from shmcache.reader import freshness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache import Cache, Writer

SECOND = 10**9


@pytest.fixture
def writer(name: str) -> Iterator[Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="16MiB", ring_slots=256) as made:
        made.put("pods", "a", {"metadata": {"uid": "1"}}, "3")
        yield made
        made.check()


@pytest.fixture
def cache(writer: Writer) -> Iterator[Cache]:
    with shmcache.attach(writer.name) as made:
        yield made


class Clock:
    """Replaces the module's clock; starts at the real time."""

    def __init__(self) -> None:
        self.now = monotonic_ns()

    def monotonic_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(freshness, "time", made)
    return made


def test_status_has_state_version_age_and_figures(
    writer: Writer, cache: Cache, clock: Clock
) -> None:
    writer.set_state("pods", states.SYNCED, "10", reason="as it should be")
    writer.note("pods", contact_ns=clock.now, watches=2, events=7)
    clock.now += 3 * SECOND

    status = cache["pods"].status

    assert (status.state, status.version, status.objects) == ("synced", "10", 1)
    assert (status.age, status.synced) == (3.0, True)
    assert 2.0 < status.since <= 3.0
    assert status.reason == "as it should be"
    assert (status.counters["watches"], status.counters["events"]) == (2, 7)
    assert "contact_ns" not in status.counters
    assert "contact 3.0 s ago" in repr(status)
    assert cache["pods"].age == 3.0


def test_without_contact_the_age_is_unknown(cache: Cache) -> None:
    assert cache["nodes"].age is None
    assert cache["nodes"].status.age is None
    with pytest.raises(
        CacheTooOld, match="nodes: the time of the last contact with its server is unknown"
    ):
        cache["nodes"].get("x", max_age=90)


@pytest.mark.parametrize(
    ("state", "version", "synced"),
    [
        (states.ABSENT, None, False),
        (states.LISTING, None, False),
        (states.SYNCED, "5", True),
        (states.SYNCED, None, True),
        (states.RETRYING, None, False),  # the first list failed
        (states.RETRYING, "5", True),  # a later watch failed
        (states.STALED, "5", True),
        (states.EXCEEDED, "5", True),
        (states.ABSENT, "5", False),
    ],
)
def test_synced_means_that_a_first_list_is_stored(
    state: int, version: str | None, synced: bool
) -> None:
    assert freshness.is_synced(state, version) is synced


def test_a_bound_is_kept_or_answered_otherwise(writer: Writer, cache: Cache, clock: Clock) -> None:
    pods: Any = cache["pods"]
    writer.note("pods", contact_ns=clock.now)
    clock.now += 100 * SECOND

    assert pods.get("a", max_age=100)["metadata"]["uid"] == "1"
    assert pods.get("b", "none", max_age=100) == "none"
    assert pods.get("b", default="none", max_age=100) == "none"
    clock.now += SECOND // 10
    with pytest.raises(CacheTooOld, match=r"was 100\.1 s ago, not within 100 s"):
        pods.get("a", max_age=100)
    assert pods.get("a", max_age=100, fallback=lambda: "from the server") == "from the server"
    assert pods.get("a", max_age=101)["metadata"]["uid"] == "1"


def test_a_bound_that_idleness_breaks_is_refused_without_busy(
    writer: Writer, cache: Cache, clock: Clock
) -> None:
    writer.note("pods", contact_ns=clock.now)
    pods: Any = cache["pods"]

    with pytest.raises(ValueError, match=r"max_age=5: .* busy=True"):
        pods.get("a", max_age=5)
    assert pods.get("a", max_age=5, busy=True) is not None
    clock.now += 6 * SECOND
    with pytest.raises(CacheTooOld):
        pods.get("a", max_age=5, busy=True)
    with pytest.raises(TypeError):
        pods.get("a", max_aged=5)


def test_a_snapshot_is_checked_when_it_is_taken(writer: Writer, cache: Cache, clock: Clock) -> None:
    writer.note("pods", contact_ns=clock.now)
    with pytest.raises(CacheTooOld, match="nodes"):
        cache.snapshot(max_age=90)
    writer.note("nodes", contact_ns=clock.now)

    with cache.snapshot(max_age=90) as at:
        assert at["pods"].age is None
        assert at["pods"].status.age is None
        with pytest.raises(ValueError, match="a snapshot only ages"):
            at["pods"].get("a", max_age=90)
        with pytest.raises(ValueError, match="a snapshot does not move"):
            at["pods"].wait_for("1", 0)


def test_waiting_for_an_existing_version_or_one_that_never_comes(
    writer: Writer, cache: Cache
) -> None:
    pods = cache["pods"]
    assert not pods.wait_for("1", 0)  # no version yet
    assert not pods.wait_synced(0)
    writer.set_state("pods", states.SYNCED, "10")

    assert pods.wait_synced(0)
    assert pods.wait_for("10", 0)
    assert pods.wait_for("9", 0)
    assert not pods.wait_for("11", 0.01)
    assert not pods.wait_for("9" * 40, 0)  # longer than any integer of the machine
    for wrong in ("", "0", "01", "x", "-1"):
        with pytest.raises(ValueError, match="is not a resourceVersion"):
            pods.wait_for(wrong)


def test_waiting_for_a_deletion(writer: Writer, cache: Cache) -> None:
    pods = cache["pods"]
    writer.set_state("pods", states.SYNCED, "3")

    assert not pods.wait_deleted("a", "1", 0)
    assert pods.wait_deleted("a", "2", 0)  # another object has its name
    assert pods.wait_deleted("b", "2", 0)
    assert not pods.wait_deleted("b", "2", 0, version="4")  # not here yet, or gone: nobody knows
    writer.set_state("pods", states.SYNCED, "4")
    assert pods.wait_deleted("b", "2", 0, version="4")


def test_closing_ends_a_wait(cache: Cache) -> None:
    pods, problems = cache["pods"], []

    def wait() -> None:
        try:
            pods.wait_for("99")
        except shmcache.ClosedError as error:
            problems.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    cache.close()
    thread.join(30)

    assert not thread.is_alive()
    assert len(problems) == 1


def test_a_first_list_without_a_contact_yet_is_as_old_as_its_state(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Readers of an earlier instance may move here at just that moment."""
    pods = cache["pods"]
    writer.set_state("pods", states.LISTING)
    ages = [pods.age]

    writer.replace("pods", [], "7")
    ages += [pods.age, pods.status.age]

    assert [True, False, False] == [age is None for age in ages]
    assert [] == list(pods.list(max_age=90))
