"""Machines as network namespaces, with a switch between them: a cable is pulled, a machine loses
its power. Caches go on elsewhere or later, without a list and without a loss, and before readers
that accept the smallest age could notice (SERVERS6)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from relays import DEADLINE, Follower, Group, asked, contents_of, eventually

import shmcache
from shmcache.memory.segments import Place
from shmcache.reader.freshness import QUIET_SECONDS
from shmcache.testing import ApiServer

PORT = 8443
NETWORK = "198.18.0"  # for measurements of networks (RFC 2544): nobody's address
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
ESTABLISHED = "01"


def _reason_to_skip() -> str:
    if shutil.which("ip") is None:
        return "`ip` is not here: apt-get install iproute2"
    tried = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "two"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"no network namespaces (root, and veth): {tried.stderr}" if tried.returncode else ""


REASON = _reason_to_skip()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=DEADLINE)


class Box(Group):
    """A command on a machine of its own: its address, and a cable to the switch."""

    def __init__(self, net: Net, number: int, name: str, arguments: list[str], log: Path) -> None:
        super().__init__(name, arguments, log)
        self._net, self._number = net, number
        self.address = f"{NETWORK}.{number + 1}"
        self.url = f"http://{self.address}:{PORT}"
        self.space = f"{net.prefix}-{number}"

    def plug(self) -> None:
        """A machine, as it is when its power comes."""
        ip("netns", "add", self.space)
        address = f"02:00:00:00:00:{self._number:02}"
        ip("link", "add", "name", "wire", "netns", self.space, "address", address, "type", "veth",
           "peer", "name", self._port, "netns", self._net.switch)  # fmt: skip
        ip("-n", self.space, "address", "add", f"{self.address}/24", "dev", "wire")
        for device in ("lo", "wire"):
            ip("-n", self.space, "link", "set", device, "up")
        ip("-n", self._net.switch, "link", "set", self._port, "up")
        self.connect()

    @property
    def _port(self) -> str:
        return f"port{self._number}"

    def connect(self) -> None:
        ip("-n", self._net.switch, "link", "set", self._port, "master", "bridge")

    def cut(self) -> None:
        """Packets vanish from now on, and nobody is notified."""
        ip("-n", self._net.switch, "link", "set", self._port, "nomaster")

    def lose_power(self) -> None:
        """Its connections are gone, and nothing of that reaches the others."""
        self.cut()
        self.end(signal.SIGKILL)
        ip("-n", self._net.switch, "link", "delete", self._port)
        ip("netns", "delete", self.space)

    def command(self) -> list[str]:
        return ["ip", "netns", "exec", self.space, *super().command()]

    def text(self) -> str:
        """Its log."""
        return self._log.read_text()

    def connections(self) -> set[tuple[str, str]]:
        """The established ones: local and remote address, as the kernel writes them."""
        table = subprocess.run(
            ["ip", "netns", "exec", self.space, "cat", "/proc/net/tcp"],
            capture_output=True, text=True, check=True, timeout=DEADLINE,
        ).stdout.splitlines()[1:]  # fmt: skip
        rows = [line.split() for line in table]
        return {(row[1], row[2]) for row in rows if row[3] == ESTABLISHED}


class Net:
    """A switch with an API server, and machines."""

    def __init__(self, name: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.prefix = f"shm{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self._name, self._folder, self._stack = name, folder, stack
        self._boxes = 0
        ip("netns", "add", self.switch)
        stack.callback(_remove, self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "address", "add", f"{NETWORK}.1/24", "dev", "bridge")
        for device in ("lo", "bridge"):
            ip("-n", self.switch, "link", "set", device, "up")
        self.server = ApiServer(host=f"{NETWORK}.1", seed=1, history=1_000_000)
        inside(self.switch, self.server.start)
        stack.callback(self.server.stop)

    def relay(self) -> Box:
        return self._box("relay", [self.server.url], "--listen", f":{PORT}", "--open-to-all")

    def leaf(self, *servers: str) -> Box:
        return self._box("run", [*servers])

    def _box(self, command: str, servers: list[str], *flags: str) -> Box:
        self._boxes += 1
        cache = f"{self._name}-{self._boxes}"
        arguments = [command, "pods", "--cache", cache, *flags]
        arguments += [word for url in servers for word in ("--server", url)]
        box = Box(self, self._boxes, cache, arguments, self._folder / f"{self._boxes}.log")
        self._stack.callback(Place(cache).remove)
        self._stack.callback(_remove, box.space)
        self._stack.callback(box.end, signal.SIGKILL)
        box.plug()
        box.start()
        with shmcache.attach(cache, timeout=DEADLINE) as attached:
            assert attached["pods"].wait_synced(DEADLINE)
        return box

    def follow(self, box: Box) -> Follower:
        """The changes that readers on a machine see; they are not behind its cable."""
        follower = Follower(box.name)
        self._stack.callback(follower.close)
        assert follower.registration.wait_synced(DEADLINE)
        return follower

    def write(self, *names: str) -> None:
        for name in names:
            self.server.create("pods", {"metadata": {"name": name, "namespace": "prod"}})

    def lists(self) -> int:
        found = asked(self.server)
        return found["list"] + found["watch-list"]


def _remove(space: str) -> None:
    if Path("/run/netns", space).exists():
        ip("netns", "delete", space)


def inside(space: str, call: Callable[[], Any]) -> None:
    """Calls from a thread of another network; threads that it starts belong there, too."""

    def enter() -> None:
        descriptor = os.open(f"/run/netns/{space}", os.O_RDONLY)
        try:
            assert ctypes.CDLL(None, use_errno=True).setns(descriptor, NEW_NETWORK) == 0
        finally:
            os.close(descriptor)
        call()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(DEADLINE)


@pytest.fixture
def net(name: str, tmp_path: Path) -> Iterator[Net]:
    with contextlib.ExitStack() as stack:
        made = Net(name, tmp_path, stack)
        made.write("first")
        yield made


def holds(follower: Follower, *names: str) -> Callable[[], bool]:
    return lambda: sorted(follower.seen) == sorted(names)


def fresh(resource: shmcache.CachedResource) -> bool:
    """CacheTooOld for readers that accept the smallest age."""
    return len(resource.list(max_age=QUIET_SECONDS)) > 0


def once(follower: Follower) -> bool:
    return {len(versions) for versions in follower.seen.values()} == {1}


def test_a_leaf_whose_relay_is_cut_off_goes_on_at_the_next_one(net: Net) -> None:
    """Nothing is closed: looks alone find out. It goes home when the cable is back."""
    first, second = net.relay(), net.relay()
    leaf = net.leaf(first.url, second.url)
    follower = net.follow(leaf)
    pods = follower.cache["pods"]
    eventually("the first relay", lambda: pods.status.upstream == first.url)
    before = net.lists()
    first.cut()
    net.write("second")
    eventually("the second relay", lambda: fresh(pods) and pods.status.upstream == second.url)
    eventually("the change", holds(follower, "first", "second"))

    first.connect()
    eventually("home", lambda: pods.status.upstream == first.url)
    net.write("third")
    eventually("the change", holds(follower, "first", "second", "third"))
    assert once(follower)
    assert pods.status.counters["relists"] == 0
    assert net.lists() == before


def test_a_machine_without_its_cable_states_it_and_catches_up(net: Net) -> None:
    first, second = net.relay(), net.relay()
    leaf = net.leaf(first.url, second.url)
    follower = net.follow(leaf)
    pods = follower.cache["pods"]
    before = net.lists()
    leaf.cut()
    net.write("second")
    eventually("a look fails, long before the connection", lambda: "leaves http" in leaf.text())
    eventually("it is stated", lambda: pods.status.state == "retrying")
    assert contents_of(pods).keys() == {"first"}
    eventually("the age", lambda: (pods.status.age or 0.0) > 1.0)
    with pytest.raises(shmcache.CacheTooOld):
        pods.list(max_age=1.0, busy=True)

    leaf.connect()
    eventually("the change", holds(follower, "first", "second"))
    eventually("synced", lambda: pods.status.state == "synced")
    assert once(follower)
    assert pods.status.counters["relists"] == 0
    assert net.lists() == before


def test_a_watch_at_a_machine_that_lost_its_power_is_begun_again(net: Net) -> None:
    """Half open: the leaf's kernel has the connection, and the relay's kernel never heard of it.
    The only relay is back at its address at once, so no look fails for long."""
    relay = net.relay()
    leaf = net.leaf(relay.url)
    follower = net.follow(leaf)
    before = net.lists()
    relay.lose_power()
    relay.plug()
    relay.start()
    net.write("second")
    with shmcache.attach(relay.name, timeout=DEADLINE) as attached:
        eventually("the relay has it", lambda: "second" in contents_of(attached["pods"]))
    half = leaf.connections() - {(theirs, ours) for ours, theirs in relay.connections()}

    arrived = holds(follower, "first", "second")
    eventually("the change", lambda: fresh(follower.cache["pods"]) and arrived())
    assert half, "the leaf had no connection that its relay did not know"
    assert not half & leaf.connections()
    assert once(follower)
    assert follower.cache["pods"].status.counters["relists"] == 0
    assert net.lists() == before
