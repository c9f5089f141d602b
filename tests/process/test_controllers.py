"""Invariants tested: a controller's processes work on each key alone, whatever happens to them.

G37 to G39 (G37, G38, G39); REC1 to REC3 of reconciling.py, WRITTEN1 and WRITTEN2 of written.py,
BOARD3 of board.py.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import Controlled, Journal, act, at_fifty, of_node
from workers import eventually

import shmcache
from shmcache import states

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="64MiB", ring_slots=1024) as made:
        made.set_state("pods", states.SYNCED, "1")
        yield made
        made.check()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal")


def put(writer: shmcache.Writer, name: str, version: int, do: str = "note", **more: Any) -> None:
    """An object, and with it the resource's version."""
    metadata = {
        "namespace": "prod", "name": name, "uid": more.pop("uid", f"u-{name}"),
        "resourceVersion": str(version),
    }  # fmt: skip
    with writer.batch():
        writer.apply("pods", [{"metadata": metadata, "do": do, **more}])
        writer.set_state("pods", states.SYNCED, str(version))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_key_is_reconciled_by_one_of_the_processes(
    writer: shmcache.Writer, path: str, method: str
) -> None:
    for number in range(40):
        put(writer, f"web-{number}", number + 2)
    with Controlled(writer.name, path, method) as controlled:
        journal = controlled.journal
        eventually(lambda: len({one.key for one in journal.lines("end")}) == 40, "a key is missing")
        put(writer, "web-7", 100)
        journal.wait("end", "prod/web-7", 2)
        writer.delete("pods", "prod/web-8")
        journal.wait("end", "prod/web-8", 2)
        assert controlled.drain() == 0
        numbers = controlled.numbers()
        assert numbers.results["success"] == len(journal.lines("end")) >= 42
        assert (numbers.errors, numbers.panics, numbers.active, numbers.concurrent) == (0, 0, 0, 0)


def test_a_signal_to_end_lets_running_reconciles_finish(writer: shmcache.Writer, path: str) -> None:
    put(writer, "slow", 2, "wait")
    with Controlled(writer.name, path) as controlled:
        controlled.journal.wait("begin")
        assert controlled.numbers().active == 1
        controlled.send_signal(signal.SIGTERM)
        eventually(lambda: "SIGTERM" in controlled.journal.log(), "the signal was not logged")
        assert controlled.journal.lines("end") == []
        controlled.release()
        assert controlled.hear() == 0
        assert len(controlled.journal.lines("end")) == len(controlled.journal.lines("begin"))


def test_a_reconcile_that_does_not_end_in_time_is_returned_to_the_queue(
    writer: shmcache.Writer, path: str
) -> None:
    put(writer, "slow", 2, "wait")
    with Controlled(writer.name, path, drain_seconds=0.3) as controlled:
        controlled.journal.wait("begin")
        assert controlled.drain() == 0
    with Controlled(writer.name, path) as controlled:  # and the next workers find it
        controlled.release()
        controlled.journal.wait("end", "prod/slow")
        assert controlled.drain() == 0


def test_nothing_is_reconciled_before_the_first_content_is_complete(name: str, path: str) -> None:
    """CR: "should not call Reconcile until all event handlers have processed initial objects"."""
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="16MiB", ring_slots=256) as writer:
        metadata = {"namespace": "prod", "name": "web", "uid": "u"}
        writer.apply("pods", [{"metadata": metadata, "do": "note"}])
        with Controlled(name, path, sync_timeout=0.5) as controlled:
            eventually(lambda: "is not complete after" in controlled.journal.log(), "no time limit")
            assert controlled.journal.lines("begin") == []
            writer.set_state("pods", states.SYNCED, "5")
            assert controlled.journal.wait("begin", "prod/web")[0].version == "5"
            controlled.journal.wait("end")
            assert controlled.drain() == 0


def test_a_controller_waits_for_a_cache_that_starts_later(name: str, path: str) -> None:
    with Controlled(name, path) as controlled:
        eventually(
            lambda: controlled.journal.log().count("waiting for it") == 2, "no process waits"
        )
        with shmcache.Writer(name, ["pods"], arena_max="16MiB", ring_slots=256) as writer:
            put(writer, "web", 5)
            controlled.journal.wait("end", "prod/web")
            assert controlled.drain() == 0


def test_errors_are_retried_and_logged_once(writer: shmcache.Writer, path: str) -> None:
    """R3."""
    for name in ("bad", "worse"):
        put(writer, name, 5, "raise", until=4)
    with Controlled(writer.name, path) as controlled:
        for name in ("bad", "worse"):
            waits = [one.at for one in controlled.journal.wait("begin", f"prod/{name}", 5)]
            gaps = [after - before for before, after in itertools.pairwise(waits)]
            for gap, least in zip(gaps, (5, 10, 20, 40), strict=False):
                assert gap >= least * 1_000_000  # and longer on a busy machine
        eventually(lambda: controlled.numbers().results["success"] >= 2, "no success")
        assert controlled.numbers().errors == 8
        assert controlled.drain() == 0
    log = controlled.journal.log()
    told = log.count("Traceback")
    assert told in {1, 2}  # two errors at once, in two processes, may both be the first
    assert log.count("is refused") == 3 * told  # the line, the source, the error: 8 errors are one


def test_a_terminal_error_is_not_retried(writer: shmcache.Writer, path: str) -> None:
    put(writer, "bad", 5, "terminal")
    with Controlled(writer.name, path) as controlled:
        eventually(lambda: controlled.numbers().terminal == 1, "it was not counted")
        put(writer, "good", 6)
        controlled.journal.wait("end", "prod/good")
        assert len(controlled.journal.lines("begin", "prod/bad")) == 1
        put(writer, "bad", 7)  # unless the object changes
        controlled.journal.wait("end", "prod/bad", 2)
        assert controlled.drain() == 0
    assert "prod/bad is hopeless" in controlled.journal.log()


def test_a_requeued_key_comes_again(writer: shmcache.Writer, path: str) -> None:
    put(writer, "again", 5, "requeue", until=2)
    put(writer, "later", 6, "after", until=2, value="0.3")
    with Controlled(writer.name, path) as controlled:
        controlled.journal.wait("end", "prod/again", 3)
        times = [one.at for one in controlled.journal.wait("begin", "prod/later", 3)]
        assert all(b - a >= 300_000_000 for a, b in itertools.pairwise(times))
        eventually(lambda: controlled.numbers().results["success"] == 2, "no end")
        assert controlled.drain() == 0
        results = controlled.numbers().results
        assert results == {"success": 2, "error": 0, "requeue": 2, "requeue_after": 2}


def test_a_key_of_a_killed_worker_goes_to_another(writer: shmcache.Writer, path: str) -> None:
    put(writer, "deadly", 5, "die", until=3)
    put(writer, "slow", 6, "wait")
    with Controlled(writer.name, path, settle=0.01) as controlled:
        journal = controlled.journal
        pids = [one.pid for one in journal.wait("begin", "prod/deadly", 4)]
        assert len(set(pids[:4])) == 4  # a new process each time
        journal.wait("end", "prod/deadly")
        assert controlled.numbers().panics == 3
        controlled.release()
        journal.wait("end", "prod/slow")
        assert controlled.drain() == 0
    assert "prod/deadly: a worker died in it" in journal.log()


@pytest.mark.parametrize("how", ["hang", "choke"])
def test_a_hung_worker_is_replaced(writer: shmcache.Writer, path: str, how: str) -> None:
    put(writer, "stuck", 5, how, until=1)
    with Controlled(writer.name, path, time_limit=0.5, settle=0.01, processes=1) as controlled:
        first, second = controlled.journal.wait("begin", "prod/stuck", 2)
        assert first.pid != second.pid
        controlled.journal.wait("end", "prod/stuck")
        begun = len(
            controlled.journal.lines("begin")
        )  # on a busy machine it may have been late once more
        assert 1 <= controlled.numbers().panics < begun
        assert controlled.drain() == 0
    said = "over its time limit of 0.5 s" if how == "hang" else "hangs, and is killed"
    assert said in controlled.journal.log()
    assert how == "choke" or "time.sleep(PATIENCE" in controlled.journal.log()  # where it hung


def test_a_hung_key_does_not_end_the_others_of_its_process(
    writer: shmcache.Writer, path: str
) -> None:
    """REC4: they end in time, and then the process ends."""
    limit = 2.0
    put(writer, "stuck", 5, "hang", until=1)
    with Controlled(
        writer.name, path, time_limit=limit, settle=0.01, processes=1, concurrency=2
    ) as controlled:
        first = controlled.journal.wait("begin", "prod/stuck")[0]
        time.sleep(limit * 0.6)
        put(writer, "slow", 6, "nap", value=str(limit * 0.6))
        begun = controlled.journal.wait("begin", "prod/slow")[0]
        second = controlled.journal.wait("begin", "prod/stuck", 2)[1]
        [ended] = controlled.journal.lines("end", "prod/slow")
        assert first.pid == begun.pid == ended.pid != second.pid
        controlled.journal.wait("end", "prod/stuck")
        assert controlled.numbers().panics == 1
        assert controlled.drain() == 0


def test_keys_of_an_event_loop_that_another_key_blocks_do_not_count_as_failures(
    writer: shmcache.Writer, path: str
) -> None:
    """REC4, where the others cannot end."""
    put(writer, "slow", 6, "wait")
    settings: dict[str, Any] = {
        "asynchronous": True, "processes": 1, "concurrency": 2, "time_limit": 1.0, "settle": 0.01
    }  # fmt: skip
    with Controlled(writer.name, path, **settings) as controlled:
        controlled.journal.wait("begin", "prod/slow")
        put(writer, "stuck", 7, "block", until=1)
        controlled.journal.wait("begin", "prod/stuck", 2)
        controlled.release()
        controlled.journal.wait("end", "prod/stuck")
        controlled.journal.wait("end", "prod/slow")
        assert controlled.numbers().panics == 1
        assert controlled.drain() == 0
    assert "prod/slow: its worker ended for another key" in controlled.journal.log()


def test_coroutines(writer: shmcache.Writer, path: str) -> None:
    """Many at a time in one process, each cancelled at its time limit."""
    for number in range(8):
        put(writer, f"web-{number}", number + 2, "wait")
    put(writer, "stuck", 20, "hang")
    put(writer, "bad", 21, "raise", until=2)
    settings: dict[str, Any] = {
        "asynchronous": True,
        "processes": 1,
        "concurrency": 10,
        "time_limit": 1.0,
    }
    with Controlled(writer.name, path, **settings) as controlled:
        journal = controlled.journal
        eventually(
            lambda: len({x.key for x in journal.lines("begin")}) == 10, "not at the same time"
        )
        controlled.release()
        for number in range(8):
            journal.wait("end", f"prod/web-{number}")
        journal.wait("end", "prod/stuck", 2)
        journal.wait("end", "prod/bad", 3)
        assert len({one.pid for one in journal.lines()} - {os.getpid()}) == 1
        assert controlled.numbers().timeouts >= 1
        assert controlled.drain() == 0


def test_owners_and_watches_make_keys_dirty(writer: shmcache.Writer, path: str) -> None:
    put(writer, "web", 5)
    sources: dict[str, Any] = {"owns": ["nodes"], "watches": [shmcache.Watches("nodes", of_node)]}
    writer.set_state("nodes", states.SYNCED, "1")
    with Controlled(writer.name, path, **sources) as controlled:
        controlled.journal.wait("end", "prod/web")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": True}
        metadata = {"name": "n", "namespace": "prod", "uid": "u-n", "resourceVersion": "6"}
        writer.apply("nodes", [{"metadata": {**metadata, "ownerReferences": [owner]}}])
        controlled.journal.wait("end", "prod/web", 2)
        controlled.journal.wait("end", "prod/on-n")
        writer.delete("nodes", "prod/n")
        controlled.journal.wait("end", "prod/web", 3)
        assert controlled.drain() == 0


# ---- reading one's own writes (R-RW-01, R-RW-02) -------------------------------------------------


def test_no_key_is_reconciled_on_a_cache_older_than_its_own_write(
    writer: shmcache.Writer, path: str
) -> None:
    """In every process; other keys go on."""
    put(writer, "mine", 5, "write", until=1, value="50")
    with Controlled(writer.name, path, catch_up=0.05) as controlled:
        controlled.journal.wait("end", "prod/mine")
        put(writer, "mine", 40)  # not there yet
        eventually(lambda: controlled.numbers().behind >= 3, "it does not wait")
        put(writer, "other", 41)
        controlled.journal.wait("end", "prod/other")
        assert len(controlled.journal.lines("begin", "prod/mine")) == 1
        put(writer, "unrelated", 50)
        assert controlled.journal.wait("begin", "prod/mine", 2)[1].version == "50"
        controlled.journal.wait("end", "prod/mine", 2)
        assert controlled.drain() == 0


def test_waiting_for_the_cache_does_not_count_as_a_slow_reconcile(
    writer: shmcache.Writer, path: str
) -> None:
    put(writer, "mine", 5, "write", until=1, value="50")
    with Controlled(writer.name, path, catch_up=2.5, time_limit=1.0, processes=1) as controlled:
        controlled.journal.wait("end", "prod/mine")
        put(writer, "mine", 40)
        eventually(lambda: controlled.numbers().behind >= 1, "it does not wait")
        put(writer, "mine", 50)
        controlled.journal.wait("end", "prod/mine", 2)
        assert controlled.numbers().panics == controlled.numbers().timeouts == 0
        assert controlled.drain() == 0


def test_no_key_is_reconciled_before_its_own_deletion_is_seen(
    writer: shmcache.Writer, path: str
) -> None:
    put(writer, "victim", 4)
    put(writer, "mine", 5, "delete", until=1, value="victim u-victim")
    with Controlled(writer.name, path, catch_up=0.05) as controlled:
        controlled.journal.wait("end", "prod/mine")
        put(writer, "mine", 40)
        eventually(lambda: controlled.numbers().behind >= 3, "it does not wait")
        assert len(controlled.journal.lines("begin", "prod/mine")) == 1
        put(writer, "victim", 50, uid="another")
        controlled.journal.wait("end", "prod/mine", 2)
        assert controlled.drain() == 0


def test_later_processes_know_the_written_versions(writer: shmcache.Writer, path: str) -> None:
    put(writer, "mine", 5, "write", until=1, value="50")
    with Controlled(writer.name, path) as controlled:
        controlled.journal.wait("end", "prod/mine")
        assert controlled.drain() == 0
    with Controlled(writer.name, path, catch_up=0.05) as controlled:
        put(writer, "mine", 40)
        eventually(lambda: controlled.numbers().behind >= 2, "it does not wait")
        assert len(controlled.journal.lines("begin", "prod/mine")) == 1
        put(writer, "unrelated", 50)
        controlled.journal.wait("end", "prod/mine", 2)
        assert controlled.drain() == 0


def test_after_a_death_the_server_is_queried(writer: shmcache.Writer, path: str) -> None:
    """Nobody knows what the dead process wrote: at most the server's current version."""
    put(writer, "deadly", 5, "die", until=1)
    with Controlled(writer.name, path, recover=at_fifty) as controlled:
        controlled.journal.wait("recover", "prod/deadly", 2)
        assert len(controlled.journal.lines("begin")) == 1
        put(writer, "unrelated", 50)
        assert controlled.journal.wait("begin", "prod/deadly", 2)[1].version == "50"
        controlled.journal.wait("end", "prod/deadly")
        assert controlled.drain() == 0


def test_after_a_death_without_a_server_a_delay_passes(writer: shmcache.Writer, path: str) -> None:
    put(writer, "deadly", 5, "die", until=1)
    with Controlled(writer.name, path, settle=0.7) as controlled:
        first, second = controlled.journal.wait("begin", "prod/deadly", 2)
        assert second.at - first.at >= 700_000_000
        controlled.journal.wait("end", "prod/deadly")
        assert controlled.drain() == 0


def test_a_write_that_the_server_lost_is_forgotten(
    writer: shmcache.Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WRITTEN2: a server restored from a backup never reaches that version."""
    monkeypatch.setenv("SHMCACHE_TEST_JOURNAL", path)
    monkeypatch.setattr("shmcache.controllers.rows.EXPIRE", 0.3)
    put(writer, "mine", 5, "write", until=1, value="50")
    with shmcache.attach(writer.name) as cache:
        worker = shmcache.controller("pods", catch_up=0.02)(act).start(cache)
        Journal(path).wait("end", "prod/mine")
        put(writer, "mine", 40)
        first, second = Journal(path).wait("begin", "prod/mine", 2)
        assert second.at - first.at >= 300_000_000
        assert second.version == "40"
        worker.stop()
        assert worker.join(60)


# ---- under another supervisor --------------------------------------------------------------------


def test_threads_of_a_process_with_other_work(
    writer: shmcache.Writer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMCACHE_TEST_JOURNAL", path)
    put(writer, "web", 5)
    declared = shmcache.controller("pods", concurrency=3)(act)
    before = signal.getsignal(signal.SIGTERM)
    with shmcache.attach(writer.name) as cache:
        worker = declared.start(cache)
        Journal(path).wait("end", "prod/web")
        worker.stop()
        assert worker.join(60)
        assert worker.failed is None
    assert signal.getsignal(signal.SIGTERM) is before
    Journal(path).check()
