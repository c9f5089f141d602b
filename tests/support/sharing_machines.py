"""Machines for tests of shared controllers: each a cache, a run of processes, and a way to the
server that can be cut."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from controlled import QUICK, Journal, act
from lease_processes import CutProxy
from workers import Worker, eventually

import shmcache
from shmcache import states
from shmcache.lease.slots import SlotTable
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

SHORT: dict[str, Any] = {"duration": 3.0, "renew_deadline": 2.0, "retry_period": 0.2}
LEASES = "leases.coordination.k8s.io"
PODS = 60


def run_machine(pipe: Connection, name: str, path: str, settings: dict[str, Any]) -> None:
    """The supervising process of a machine, the leader of its group."""
    os.setpgid(0, 0)
    os.environ["SHMCACHE_TEST_JOURNAL"] = path
    log = f"{path}.{name}.log"
    logging.basicConfig(filename=log, level=logging.INFO, force=True)
    settings[settings.pop("by")] = shmcache.LeaseSettings("web", **settings.pop("lease"))
    one = shmcache.controller("pods", processes=2, name="web", **settings)(act)
    pipe.send(os.getpid())
    pipe.send(shmcache.run_controllers(one, cache=name, backoff=QUICK))


class Machine(Worker):
    """A machine that works on the pods of its cache, with others or in turn with them."""

    def __init__(self, name: str, path: str, by: str, lease: dict[str, Any], **more: Any) -> None:
        self.name = name
        self.journal = Journal(path)
        super().__init__("spawn", run_machine, name, path, {"by": by, "lease": lease, **more})
        assert self.hear() == self.pid

    def pids(self) -> set[int]:
        """The pids of its processes that reconcile."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(ProcessLookupError):
                    if os.getpgid(int(entry.name)) == self.pid:
                        found.add(int(entry.name))
        return found

    def signal_all(self, number: int) -> None:
        """To every process of the machine, as if the machine itself stopped."""
        os.killpg(self.pid, number)

    def __exit__(self, *_: object) -> None:
        """Kills all of it; returns when nothing of it holds a file any more."""
        try:
            self.signal_all(signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        super().__exit__()
        eventually(lambda: not self._alive(), "a process of a machine does not end")

    def _alive(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def log(self) -> str:
        with open(f"{self.journal.path}.{self.name}.log", encoding="utf-8") as file:
            return file.read()


class Site:
    """A server, and machines whose caches show the same pods."""

    def __init__(self, name: str, path: str, stack: ExitStack, **work: str) -> None:
        """`work`: the settings of a reconcile that does something else than sleep."""
        self.server = stack.enter_context(ApiServer(seed=1))
        self.journal = Journal(path)
        self.writers: dict[str, shmcache.Writer] = {}
        self.proxies: dict[str, CutProxy] = {}
        self._name = name
        self.version = 1
        """Of all pods."""
        self._work = work
        self._stack = stack

    def machine(self, by: str, lease: dict[str, Any] | None = None, **more: Any) -> Machine:
        number = len(self.writers)
        name = f"{self._name}-{number}"
        self._stack.callback(Place(name).unlink)
        writer = self._stack.enter_context(
            shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=4096)
        )
        self.writers[name] = writer
        self._fill(writer)
        proxy = self.proxies[name] = CutProxy(self.server.port)
        self._stack.callback(proxy.close)
        return self._start(name, by, lease, **more)

    def restart(self, old: Machine, by: str, lease: dict[str, Any] | None = None) -> Machine:
        """The same machine, after all of it was killed."""
        return self._start(old.name, by, lease)

    def _start(self, name: str, by: str, lease: dict[str, Any] | None, **more: Any) -> Machine:
        settings = {"server": self.proxies[name].url, **(lease or SHORT)}
        return self._stack.enter_context(Machine(name, self.journal.path, by, settings, **more))

    def _fill(self, writer: shmcache.Writer) -> None:
        with writer.batch():
            writer.apply("pods", self._pods())
            writer.set_state("pods", states.SYNCED, str(self.version))

    def change(self) -> None:
        """All pods change, in all caches."""
        self.version += 1
        for writer in self.writers.values():
            with writer.batch():
                writer.apply("pods", self._pods())
                writer.set_state("pods", states.SYNCED, str(self.version))

    def _pods(self) -> list[dict[str, Any]]:
        return [{**pod(number, self.version), **self._work} for number in range(PODS)]

    def done(self, since: int = 0) -> set[str]:
        """Keys whose reconciles ended after so many lines."""
        return {line.key for line in self.journal.lines()[since:] if line.what == "end"}

    def await_all(self, since: int = 0) -> None:
        eventually(
            lambda: len(self.done(since)) == PODS,
            f"only {len(self.done(since))} keys; {self.server.list(LEASES)}",
        )

    def owners(self) -> SlotTable:
        """The table; an empty one before its first write."""
        found = [one for one in self.server.list(LEASES) if one["metadata"]["name"] == "web"]
        return SlotTable.of(found[0]) if found else SlotTable()

    def check(self) -> None:
        """Never two processes in one key."""
        self.journal.check()


def pod(number: int, version: int = 1) -> dict[str, Any]:
    metadata = {
        "namespace": "prod", "name": f"web-{number}", "uid": f"u-{number}",
        "resourceVersion": str(version),
    }  # fmt: skip
    return {"metadata": metadata, "do": "nap", "value": "0.002"}
