"""Controllers for tests: the object states what a reconcile does, and a journal records it.

The journal is one file to which all processes append; a line is written by one system call.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache.controllers.numbers import Numbers
from shmcache.reflector.backoff import BackoffSettings

QUICK = BackoffSettings(initial=0.01, cap=0.5, jitter=0.1, reset_after=60.0)
RELEASED = "released"


class Line(NamedTuple):
    """One recorded act."""

    what: str
    key: str
    pid: int
    at: int
    version: str | None


class Journal:
    """The acts of all processes, in order."""

    def __init__(self, path: str) -> None:
        self.path = path

    def note(self, what: str, key: str, version: str | None = None) -> None:
        line = json.dumps([what, key, os.getpid(), time.monotonic_ns(), version]) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)

    def lines(self, what: str | None = None, key: str | None = None) -> list[Line]:
        try:
            text = Path(self.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1]  # a line that is still being written ends later
        found = [Line(*json.loads(line)) for line in whole.splitlines()]
        return [one for one in found if what in {None, one.what} and key in {None, one.key}]

    def wait(self, what: str, key: str | None = None, count: int = 1) -> list[Line]:
        """The lines, once there are so many."""
        eventually(
            lambda: len(self.lines(what, key)) >= count,
            f"no {count} {what} of {key}: {self.lines()[-9:]}, {self.log()[-3000:]}",
        )
        return self.lines(what, key)

    def log(self) -> str:
        """The log so far."""
        path = Path(f"{self.path}.log")
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def check(self) -> None:
        """Never two processes in one key: an earlier reconcile has ended, or its process does
        nothing more."""
        inside: dict[str, Line] = {}
        last = {line.pid: number for number, line in enumerate(self.lines())}
        for number, line in enumerate(self.lines()):
            if line.what == "begin":
                before = inside.get(line.key)
                assert before is None or last[before.pid] < number, (before, line)
                inside[line.key] = line
            elif line.what == "end":
                assert inside[line.key].pid == line.pid, line
                del inside[line.key]


def journal() -> Journal:
    return Journal(os.environ["SHMCACHE_TEST_JOURNAL"])


def act(key: str, cache: shmcache.Cache) -> shmcache.Requeue | None:
    """Does what the object states."""
    note = journal().note
    note("begin", key, cache["pods"].version)
    try:
        found = cache["pods"].get(key)
        if found is None:
            return None
        if found["do"] == "token":
            note("token", key, str(shmcache.fencing_token()))
        return _do(key, found["do"], found.get("until", 0), found.get("value", ""))
    finally:
        note("end", key, cache["pods"].version)


def _do(key: str, what: str, until: int, value: str) -> shmcache.Requeue | None:
    again = len(journal().lines("begin", key)) <= until  # so many times
    if what == "raise" and again:
        raise ValueError(f"{key} is refused")
    if what == "terminal":
        raise shmcache.TerminalError(f"{key} is hopeless")
    if what == "requeue" and again:
        return shmcache.Requeue()
    if what == "after" and again:
        return shmcache.Requeue(after=float(value))
    if what == "wait":
        while not journal().lines(RELEASED):
            time.sleep(0.005)
    if what in {"nap", "token"} and value:
        time.sleep(float(value))
    if what == "die" and again:
        os.kill(os.getpid(), signal.SIGKILL)
    if what in {"hang", "block"} and again:
        time.sleep(PATIENCE * 2)
    if what == "choke" and again:
        ctypes.PyDLL(None).sleep(int(PATIENCE * 2))  # and keeps the GIL
    if what == "write" and again:
        shmcache.written("pods", {"metadata": {"resourceVersion": value}})
    if what == "delete" and again:
        name, uid = value.split()
        shmcache.deleted("pods", {"metadata": {"namespace": "prod", "name": name, "uid": uid}})
    return None


async def act_async(key: str, cache: shmcache.Cache) -> shmcache.Requeue | None:
    """The same as a coroutine; "wait" and "hang" leave the loop to others."""
    found = cache["pods"].get(key)
    what = found["do"] if found is not None else ""
    if what not in {"hang", "wait"}:
        return act(key, cache)
    note = journal().note
    note("begin", key)
    try:
        if what == "hang" and len(journal().lines("begin", key)) <= 1:
            await asyncio.sleep(PATIENCE * 2)
        while what == "wait" and not journal().lines(RELEASED):
            await asyncio.sleep(0.005)
    finally:
        note("end", key)
    return None


@shmcache.controller("pods", processes=2)
def plain(key: str, cache: shmcache.Cache) -> shmcache.Requeue | None:
    """A function of this module, which therefore can be sent to another process."""
    return act(key, cache)


def of_node(node: Any, _cache: shmcache.Cache) -> list[str]:
    """The keys that a node makes dirty."""
    return [f"prod/on-{node['metadata']['name']}"]


def at_fifty(key: str, cache: shmcache.Cache) -> None:
    """Waits for the server's version, which is 50."""
    journal().note("recover", key)
    if not cache["pods"].wait_for("50", 0.1):
        raise TimeoutError("not at 50 yet")


def run(pipe: Connection, name: str, path: str, method: Any, settings: dict[str, Any]) -> None:
    """The supervising process."""
    os.environ["SHMCACHE_TEST_JOURNAL"] = path
    logging.basicConfig(filename=f"{path}.log", level=logging.INFO, force=True)
    function = act_async if settings.pop("asynchronous", False) else act
    drain = settings.pop("drain_seconds", PATIENCE)
    one = plain
    if method == "fork":
        one = shmcache.controller("pods", **{"processes": 2, **settings})(function)
    pipe.send("ready")
    status = shmcache.run_controllers(
        one, cache=name, method=method, backoff=QUICK, drain_seconds=drain
    )
    pipe.send(status)


class Controlled(Worker):
    """The processes of one controller, and their journal."""

    def __init__(self, name: str, path: str, method: str = "fork", **settings: Any) -> None:
        self.journal = Journal(path)
        self._name = name
        super().__init__("spawn", run, name, path, method, settings)
        assert self.hear() == "ready"

    def numbers(self) -> Numbers:
        return plain.numbers(self._name)

    def release(self) -> None:
        """All waiting reconciles go on."""
        self.journal.note(RELEASED, "")

    def drain(self) -> int:
        """Ends it by a signal; returns its status."""
        self.send_signal(signal.SIGTERM)
        status: int = self.hear()
        return status

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.journal.check()
