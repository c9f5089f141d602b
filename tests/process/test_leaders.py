"""Invariants tested: of real processes one leads at a time, whatever is done to them (LEAD1 to
LEAD3, ELECT1, ELECT2)."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from controlled import Journal, Line
from lease_processes import CutProxy, LeadingProcess
from workers import eventually

from shmcache.testing import ApiServer

SHORT: dict[str, Any] = {"duration": 2.0, "renew_deadline": 1.2, "retry_period": 0.2}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path / "journal"))


def check(journal: Journal) -> int:
    """The acts of a leader come after all acts of those before; how many led.

    A process that was stopped between its look and its act may note one after its successor
    began: that is the window that only fencing closes, and the token shows it.
    """
    leads, newest, stale = 0, 0, 0
    for line in journal.lines():
        if line.what == "lead":
            leads += 1
            assert token(line) > newest, "a later leader has a greater token"
            newest = token(line)
        elif line.what == "act" and token(line) < newest:
            stale += 1
    assert stale <= len([one for one in journal.lines() if one.what == "lost"])
    return leads


def token(line: Line) -> int:
    return int(line.version or 0)


def next_leader(journal: Journal, after: int, what: str) -> Line:
    """The leader that began after so many."""
    eventually(lambda: len(journal.lines("lead")) > after, f"nobody leads after {what}")
    return journal.lines("lead")[after]


def test_a_killed_leader_is_followed(server: ApiServer, journal: Journal) -> None:
    with ExitStack() as stack:
        processes = {
            one.pid: one
            for one in (
                stack.enter_context(LeadingProcess(journal.path, server=server.url, **SHORT))
                for _ in range(3)
            )
        }
        for turn in range(2):
            leader = next_leader(journal, turn, "a kill")
            processes[leader.pid].kill()
        last = next_leader(journal, 2, "two kills")
        processes[last.pid].drain()
    assert check(journal) == 3


def test_a_stopped_leader_does_not_act_when_it_goes_on(server: ApiServer, journal: Journal) -> None:
    with ExitStack() as stack:
        processes = {
            one.pid: one
            for one in (
                stack.enter_context(LeadingProcess(journal.path, server=server.url, **SHORT))
                for _ in range(2)
            )
        }
        for turn in range(2):
            leader = next_leader(journal, turn, "a stop")
            journal.wait("act", leader.key)
            os.kill(leader.pid, signal.SIGSTOP)
            next_leader(journal, turn + 1, "a stop")
            os.kill(leader.pid, signal.SIGCONT)
            journal.wait("lost", leader.key)
        for one in processes.values():
            one.drain()
    assert check(journal) >= 3


def test_a_leader_without_the_server_stops_before_the_next_begins(
    server: ApiServer, journal: Journal
) -> None:
    proxies = [CutProxy(server.port) for _ in range(2)]
    with ExitStack() as stack:
        for proxy in proxies:
            stack.callback(proxy.close)
        processes = {
            one.pid: (one, proxy)
            for proxy in proxies
            for one in [
                stack.enter_context(LeadingProcess(journal.path, server=proxy.url, **SHORT))
            ]
        }
        leader = next_leader(journal, 0, "the start")
        _, proxy = processes[leader.pid]
        proxy.cut()
        second = next_leader(journal, 1, "a partition")
        assert second.pid != leader.pid
        acts = journal.lines("act", leader.key)
        assert acts[-1].at < second.at, "no process was stopped: the first one ended in time"
        proxy.mend()
        for one, _ in processes.values():
            one.drain()
    check(journal)


def test_a_drained_leader_hands_over_without_an_expiry(server: ApiServer, journal: Journal) -> None:
    """With a Lease that would take ten minutes to expire."""
    calm = {"duration": 600.0, "renew_deadline": 400.0, "retry_period": 0.1}
    with ExitStack() as stack:
        processes = {
            one.pid: one
            for one in (
                stack.enter_context(LeadingProcess(journal.path, server=server.url, **calm))
                for _ in range(3)
            )
        }
        for turn in range(3):
            leader = next_leader(journal, turn, "a drain")
            processes.pop(leader.pid).drain()
    acts = [one.key for one in journal.lines("act")]
    assert [key for key, _ in itertools.groupby(acts)] == list(dict.fromkeys(acts))


def test_random_kills_stops_and_partitions(
    server: ApiServer, journal: Journal, rng: Random
) -> None:
    with ExitStack() as stack:

        def start() -> tuple[LeadingProcess, CutProxy]:
            proxy = CutProxy(server.port)
            stack.callback(proxy.close)
            made = LeadingProcess(journal.path, server=proxy.url, **SHORT)
            return stack.enter_context(made), proxy

        living = {one.pid: (one, proxy) for one, proxy in (start() for _ in range(3))}
        for turn in range(5):
            seen = len(journal.lines("lead"))
            leader = journal.lines("lead")[-1] if seen else next_leader(journal, 0, "start")
            one, proxy = living[leader.pid]
            kind = rng.choice(["kill", "stop", "cut"])
            if kind == "kill":
                one.kill()
                del living[leader.pid]
                fresh, through = start()
                living[fresh.pid] = (fresh, through)
            elif kind == "stop":
                os.kill(leader.pid, signal.SIGSTOP)
            else:
                proxy.cut()
            next_leader(journal, max(seen, 1), f"{kind} in turn {turn}")
            os.kill(one.pid, signal.SIGCONT) if kind == "stop" else proxy.mend()
        for one, _ in living.values():
            one.drain()
    assert check(journal) >= 6
