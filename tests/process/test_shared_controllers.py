"""Invariants tested: a key is with one process of one machine at a time (leader=, machines=).

TENURE1 to TENURE3 of tenure.py, COORD1 of coordinator.py, SHAREFEED1 of share.py.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import hand_overs
import pytest
from conftest import SEED
from controlled import act
from sharing_machines import LEASES, PODS, Site, pod
from workers import eventually

import shmcache
from shmcache.lease.slots import slot_of

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def site(name: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(name, str(tmp_path / "journal"), stack)


def test_one_machine_works_and_the_next_takes_over(site: Site) -> None:
    first = site.machine("leader")
    site.await_all()
    second = site.machine("leader")
    since = len(site.journal.lines())
    site.change()
    site.await_all(since)
    assert {line.pid for line in site.journal.lines()} <= first.pids()

    since = len(site.journal.lines())
    first.signal_all(signal.SIGKILL)
    site.await_all(since)
    assert {
        line.pid for line in site.journal.lines()[since:] if line.what == "begin"
    } <= second.pids()
    site.check()
    second.send_signal(signal.SIGTERM)
    assert second.hear() == 0
    assert set(re.findall(r"ended with status (\d+)", second.log())) == {"0"}
    assert site.server.get(LEASES, "web", "default")["spec"]["holderIdentity"] == ""


def test_a_drained_machine_hands_over_at_once(site: Site) -> None:
    """With a Lease that would take ten minutes to expire; the keys in work end first."""
    calm = {"duration": 600.0, "renew_deadline": 400.0, "retry_period": 0.1}
    first = site.machine("leader", calm)
    site.await_all()
    site.machine("leader", calm)
    since = len(site.journal.lines())
    first.send_signal(signal.SIGTERM)
    assert first.hear() == 0
    site.await_all(since)
    site.check()


def test_machines_share_the_keys(site: Site) -> None:
    machines = [site.machine("machines") for _ in range(2)]
    eventually(lambda: len(set(site.owners().owners)) == 2, "one machine has all slots")
    site.await_all()
    since = len(site.journal.lines())
    site.change()
    site.await_all(since)
    begins = [line for line in site.journal.lines()[since:] if line.what == "begin"]
    for machine in machines:
        mine = [line for line in begins if line.pid in machine.pids()]
        assert 0 < len(mine) < PODS
    site.check()

    since = len(site.journal.lines())
    machines[0].send_signal(signal.SIGTERM)
    assert machines[0].hear() == 0
    site.change()
    site.await_all(since)
    eventually(lambda: len(set(site.owners().owners)) == 1, "slots are left")
    names = [one["metadata"]["name"] for one in site.server.list(LEASES)]
    assert len(names) == 2, "the table, and the Lease of the one that is left"
    site.check()


@pytest.mark.parametrize("how", ["kill", "stop", "cut"])
def test_the_slots_of_a_machine_that_fails_move(site: Site, how: str) -> None:
    machines = [site.machine("machines") for _ in range(2)]
    eventually(lambda: len(set(site.owners().owners)) == 2, "one machine has all slots")
    site.await_all()
    since = len(site.journal.lines())
    if how == "kill":
        machines[0].signal_all(signal.SIGKILL)
    elif how == "stop":
        machines[0].signal_all(signal.SIGSTOP)
    else:
        site.proxies[machines[0].name].cut()
    eventually(lambda: len(set(site.owners().owners)) == 1, "the slots did not move")
    site.change()
    site.await_all(since)
    if how == "stop":
        machines[0].signal_all(signal.SIGCONT)
    elif how == "cut":
        site.proxies[machines[0].name].mend()
    if how != "kill":
        eventually(lambda: len(set(site.owners().owners)) == 2, "it did not come back")
        since = len(site.journal.lines())
        site.change()
        site.await_all(since)
    site.check()


def test_a_deletion_that_a_dead_machine_missed_is_reconciled(site: Site) -> None:
    """SHAREFEED1."""
    machines = [site.machine("machines") for _ in range(2)]
    eventually(lambda: len(set(site.owners().owners)) == 2, "one machine has all slots")
    site.await_all()
    table = site.owners()
    machines[0].signal_all(signal.SIGSTOP)
    since = len(site.journal.lines())
    for writer in site.writers.values():
        for number in range(PODS):
            writer.delete("pods", f"prod/web-{number}")
    site.await_all(since)
    assert len({table.owners[slot_of(f"prod/web-{number}")] for number in range(PODS)}) == 2
    machines[0].signal_all(signal.SIGKILL)
    machines[0].signal_all(signal.SIGCONT)


def test_a_reconcile_ends_with_the_term(site: Site) -> None:
    """TENURE2: without the server, the process in a key ends before another machine begins it."""
    first = site.machine("leader")
    site.await_all()
    for writer in site.writers.values():
        slow = {**pod(0, 5), "do": "nap", "value": "600"}
        writer.apply("pods", [slow])
    site.journal.wait("begin", "prod/web-0", 2)
    second = site.machine("leader")
    since = len(site.journal.lines())
    site.proxies[first.name].cut()
    site.await_all(since)
    assert first.log().count("the term of its Lease is over") == 1, "a process in no key goes on"
    assert second.process.is_alive()
    site.check()


def test_the_token_of_a_key_rises_with_each_machine(site: Site) -> None:
    first = site.machine("machines")
    site.await_all()
    tokens = [token_of(site, 1)]
    site.machine("machines")
    since = len(site.journal.lines())
    first.send_signal(signal.SIGTERM)
    assert first.hear() == 0
    eventually(lambda: "prod/web-0" in site.done(since), "the key did not move")
    tokens.append(token_of(site, 2))
    assert 0 < tokens[0] < tokens[1]
    with pytest.raises(RuntimeError, match="outside"):
        shmcache.fencing_token()


def token_of(site: Site, turn: int) -> int:
    """The token of a reconcile that is caused now."""
    seen = len(site.journal.lines("token"))
    for writer in site.writers.values():
        writer.apply("pods", [{**pod(0, 10 + turn), "do": "token"}])
    return int(site.journal.wait("token", "prod/web-0", seen + 1)[-1].version or 0)


@pytest.mark.slow
def test_a_few_forced_hand_overs(name: str, tmp_path: Path) -> None:
    """HAND2 and HAND3; `make hand-overs` runs for longer, and looks at the clock."""
    hand_overs.run(3, 3.0, SEED, name=name, folder=tmp_path)


def test_a_controller_with_a_lease_is_run_and_not_started(name: str) -> None:
    with (
        shmcache.Writer(name, ["pods"], arena_max="16MiB", ring_slots=256),
        shmcache.attach(name) as cache,
        pytest.raises(ValueError, match="has a Lease"),
    ):
        shmcache.controller("pods", leader="web")(act).start(cache)
    with pytest.raises(ValueError, match="exclude each other"):
        shmcache.controller("pods", leader="web", machines="web")
    with pytest.raises(ValueError, match="at most 63"):
        shmcache.controller("pods", machines="w" * 64)
