"""Relays that share a Lease: one watches the API server, the others follow it, and hand over
without a list (HOLDERS1 to HOLDERS3, SERVERS7). Real processes, kills and stops."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from relays import DEADLINE, Group, asked, contents_of, eventually, free_ports

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

LEASES = "leases.coordination.k8s.io"
DURATION = 3.0


@dataclass
class Machine:
    """One relay with its cache."""

    url: str
    group: Group
    cache: shmcache.Cache

    @property
    def upstream(self) -> str:
        status = self.cache["pods"].status
        return status.upstream


class Machines:
    """Relays of several machines at one API server."""

    def __init__(
        self, server: ApiServer, name: str, folder: Path, stack: contextlib.ExitStack, *flags: str
    ) -> None:
        self.server = server
        self._name, self._folder, self._stack, self._flags = name, folder, stack, flags
        self.all: list[Machine] = []

    def add(self) -> Machine:
        """Another one, when it is synced."""
        port = free_ports(1)[0]
        url, cache = f"http://127.0.0.1:{port}", f"{self._name}-{len(self.all)}"
        arguments = ["relay", "pods", "--cache", cache, "--listen", f"127.0.0.1:{port}"]
        arguments += ["--server", self.server.url, "--drain-timeout", "2s"]
        arguments += ["--lease", "relays", "--lease-duration", f"{DURATION}s", "--advertise", url]
        group = Group(cache, [*arguments, *self._flags], self._folder / f"{cache}.log")
        self._stack.callback(Place(cache).remove)
        self._stack.callback(group.end, signal.SIGKILL)
        group.start()
        attached = self._stack.enter_context(shmcache.attach(cache, timeout=DEADLINE))
        machine = Machine(url, group, attached)
        self.all.append(machine)
        assert attached["pods"].wait_synced(DEADLINE)
        return machine

    def named(self, lease: str = "relays") -> str:
        """The holder as the Lease has it."""
        found = self.server.get(LEASES, lease, "default")["spec"]["holderIdentity"]
        assert isinstance(found, str)
        return found

    def holder(self) -> Machine:
        """The one that is named."""
        name = self.named()
        return next(one for one in self.all if one.url == name)

    def write(self, name: str) -> None:
        self.server.create("pods", {"metadata": {"name": name, "namespace": "prod"}})

    def equal(self, *machines: Machine) -> Callable[[], bool]:
        theirs = {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in self.server.list("pods")
        }
        return lambda: all(contents_of(one.cache["pods"]) == theirs for one in machines)

    def settled(self, *machines: Machine) -> Callable[[], bool]:
        """Whether the holder follows the API server, and all others the holder."""

        def holds() -> bool:
            name = self.named()
            return name in {one.url for one in machines} and all(
                one.upstream == (self.server.url if one.url == name else name) for one in machines
            )

        return holds


@pytest.fixture
def machines(name: str, tmp_path: Path) -> Iterator[Machines]:
    with ApiServer(seed=1, history=1_000_000) as server, contextlib.ExitStack() as stack:
        found = Machines(server, name, tmp_path, stack)
        found.write("first")
        for _ in range(3):
            found.add()
        eventually("one holder and two followers", found.settled(*found.all))
        yield found


def lists(server: ApiServer) -> dict[str, int]:
    """The requests of whole contents."""
    found = asked(server)
    return {kind: found[kind] for kind in ("list", "watch-list")}


def test_one_watches_and_the_others_follow_it(machines: Machines) -> None:
    assert machines.server.open_watches == 1
    assert sum(lists(machines.server).values()) == 1
    machines.write("second")
    eventually("the same content", machines.equal(*machines.all))


def test_a_killed_holder_is_replaced_without_a_list(machines: Machines) -> None:
    """Its successor goes on at its own version; one that starts again follows the successor."""
    before, old = lists(machines.server), machines.holder()
    left = [one for one in machines.all if one is not old]
    old.group.end(signal.SIGKILL)
    machines.write("second")

    eventually("the next holder", machines.settled(*left))
    eventually("the same content", machines.equal(*left))
    old.group.start()
    eventually("a follower more", machines.settled(*machines.all))
    machines.write("third")
    eventually("the same content", machines.equal(*machines.all))
    assert lists(machines.server) == before
    eventually("one watch", lambda: machines.server.open_watches == 1)


def test_a_stopped_holder_is_replaced_and_follows_when_it_goes_on(machines: Machines) -> None:
    """SIGSTOP: nothing is closed, and the Lease expires by the others' clocks."""
    before, old = lists(machines.server), machines.holder()
    left = [one for one in machines.all if one is not old]
    old.group.send(signal.SIGSTOP)
    machines.write("second")

    eventually("the next holder", machines.settled(*left))
    eventually("the same content", machines.equal(*left))
    old.group.send(signal.SIGCONT)
    eventually("a follower more", machines.settled(*machines.all))
    machines.write("third")
    eventually("the same content", machines.equal(*machines.all))
    assert lists(machines.server) == before


def test_a_drained_holder_gives_its_lease_back(machines: Machines) -> None:
    """SIGTERM: the record is empty, or another's, before the process has ended."""
    old = machines.holder()
    left = [one for one in machines.all if one is not old]
    old.group.end(signal.SIGTERM)

    assert machines.named() != old.url
    eventually("the next holder", machines.settled(*left))


def test_a_holder_that_starts_again_at_its_address_holds_on(machines: Machines) -> None:
    """HOLDERS3: its supervisor starts the reflector again."""
    holder = machines.holder()
    terms = machines.server.get(LEASES, "relays", "default")["spec"]["leaseTransitions"]
    before = lists(machines.server)
    holder.group.end(signal.SIGKILL)
    holder.group.start()
    machines.write("second")

    eventually("the same roles", machines.settled(*machines.all))
    eventually("the same content", machines.equal(*machines.all))
    if machines.named() == holder.url:  # it came back within the duration
        spec = machines.server.get(LEASES, "relays", "default")["spec"]
        assert spec["leaseTransitions"] == terms
    assert lists(machines.server) == before


def test_without_the_api_server_everybody_keeps_the_role(machines: Machines) -> None:
    """HOLDERS2: for longer than the Lease lasts, and nobody lists afterwards."""
    server, holder = machines.server, machines.holder()
    before = lists(server)
    server.go_down()
    time.sleep(2.2 * DURATION)  # time itself has to pass: that of the Lease, twice
    followers = [one for one in machines.all if one is not holder]
    assert [one.upstream for one in followers] == [holder.url] * len(followers)
    server.come_back()
    machines.write("second")

    eventually("the same roles", machines.settled(*machines.all))
    eventually("the same content", machines.equal(*machines.all))
    assert lists(server) == before


def test_two_holders_of_three(name: str, tmp_path: Path) -> None:
    """HOLDERS1: --lease-holders 2."""
    with ApiServer(seed=1, history=1_000_000) as server, contextlib.ExitStack() as stack:
        found = Machines(server, name, tmp_path, stack, "--lease-holders", "2")
        found.write("first")
        for _ in range(3):
            found.add()

        def two() -> bool:
            names = {found.named("relays"), found.named("relays-2")}
            upstreams = [one.upstream for one in found.all]
            following = sum(one.url in upstreams for one in found.all)
            return len(names - {""}) == 2 and (upstreams.count(server.url), following) == (2, 1)

        eventually("two holders, one follower", two)
        follower = next(one for one in found.all if one.upstream != server.url)
        before = lists(server)
        leader: Any = next(one for one in found.all if one.url == follower.upstream)
        leader.group.end(signal.SIGKILL)
        found.write("second")
        left = [one for one in found.all if one is not leader]
        eventually("the same content", found.equal(*left))
        assert lists(server) == before
