"""Invariant tested: a note about a source is visible at once, and does not publish a generation."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

import pytest

import shmcache
from shmcache import states
from shmcache.monitor.health import READY_LAG, readiness
from shmcache.monitor.observing import observe
from shmcache.writer.status import CAUGHT_UP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache import Writer


@pytest.fixture
def writer(name: str) -> Iterator[Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="16MiB", ring_slots=256) as made:
        yield made
        made.check()


def test_a_note_is_visible_without_a_generation(writer: Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        before, now = cache.latest, monotonic_ns()

        writer.note("pods", contact_ns=now, lists=1, bytes=1000)
        writer.note("pods", contact_ns=now - 5, events=2, bytes=11)

        seen = cache["pods"].contact()
        assert seen["contact_ns"] == now  # it only rises
        assert (seen["lists"], seen["events"], seen["bytes"]) == (1, 2, 1011)
        assert cache["nodes"].contact()["contact_ns"] == 0
        assert cache.latest == before


def test_a_note_inside_a_batch_is_visible_before_the_batch(writer: Writer) -> None:
    with shmcache.attach(writer.name) as cache, writer.batch():
        writer.put("pods", "a", {})
        writer.note("pods", errors=1)

        assert cache["pods"].contact()["errors"] == 1
        assert "a" not in cache["pods"]


def test_the_lag_begins_at_its_moment_and_ends_when_it_is_caught_up(writer: Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        pods = cache["pods"]
        writer.set_state("pods", states.SYNCED, "1")
        writer.note("pods", contact_ns=monotonic_ns())
        assert pods.status.lag == 0.0
        writer.note("pods", behind_ns=monotonic_ns() - 20 * 10**9)
        assert 20 <= (pods.status.lag or 0.0)
        writer.note("pods", events=1)
        assert 20 <= (pods.status.lag or 0.0)
        assert "s behind the events of the server" in dict(readiness(observe(cache)))["pods"]
        writer.note("pods", behind_ns=CAUGHT_UP)
        assert pods.status.lag == 0.0


def test_a_short_lag_leaves_a_resource_ready(writer: Writer) -> None:
    writer.set_state("pods", states.SYNCED, "1")
    with shmcache.attach(writer.name) as cache:
        now = monotonic_ns()
        for seconds, ready in ((READY_LAG / 2, True), (READY_LAG + 1, False)):
            writer.note("pods", contact_ns=now, behind_ns=now - int(seconds * 1e9))
            assert ready == (dict(readiness(observe(cache)))["pods"] == "")


def test_an_invalid_note_is_refused(writer: Writer) -> None:
    with pytest.raises(ValueError, match="pods: note"):
        writer.note("pods", contact_ns=monotonic_ns() + 10**12)
    with pytest.raises(KeyError):
        writer.note("jobs", events=1)
    with pytest.raises(OverflowError):
        writer.note("pods", events=-1)


def test_state_reason_and_version_are_one_generation(writer: Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        before, now = cache.latest, monotonic_ns()

        writer.set_state("pods", states.RETRYING, "7", reason="403: pods is forbidden")

        record = cache["pods"].record()
        assert cache.latest == before + 1
        assert (record["state"], record["version"]) == (states.RETRYING, "7")
        assert record["reason"] == "403: pods is forbidden"
        assert now <= record["since_ns"] <= monotonic_ns()
        writer.set_state("pods", states.SYNCED)
        assert cache["pods"].record()["reason"] == ""


def test_a_long_reason_is_cut_at_a_character(writer: Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        writer.set_state("pods", states.RETRYING, reason="ü" * 2000)

        assert cache["pods"].record()["reason"] == "ü" * 512
