"""Machines for tests of shared controllers: each a cache, a run of processes, and a way to the
server that can be cut."""

from __future__ import annotations

import logging
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from controlled import QUICK, Journal, act
from workers import Worker, eventually

import shmcache


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
