"""gunicorn for tests: a master of its own on a unix socket, and load that counts answers."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import psutil
from workers import PATIENCE, eventually

ROOT = Path(__file__).resolve().parent.parent.parent

APPLICATION = """
import json, os
import shmcache
from shmcache.integrations import attached

cache = attached()

def application(environ, start_response):
    bound = float(os.environ.get("BOUND", "120"))
    try:
        with cache.snapshot(max_age=bound, busy=True) as at:
            pods = at["pods"]
            last = pods.get("prod/clock")
            answer = {
                "pid": os.getpid(),
                "pods": len(pods),
                "clock": int(last["metadata"]["labels"]["at"]) if last else 0,
            }
    except shmcache.CacheTooOld as error:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [str(error).encode()]
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""
CONFIGURATION = """
from shmcache.integrations.gunicorn import hooks

globals().update(hooks({words}))
"""


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    began: float
    status: int
    body: bytes

    @property
    def content(self) -> Any:
        assert self.status == 200, self
        return json.loads(self.body)


def ask(path: str) -> Answer:
    """One request on a connection of its own. OSError or HTTPException if it is cut."""
    began = time.monotonic()
    connection = Connection(path)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        answer = connection.getresponse()
        return Answer(began, answer.status, answer.read())
    finally:
        connection.close()


class Gunicorn:
    """`gunicorn` with these hooks, as text; a context manager that leaves nothing."""

    def __init__(
        self, place: Path, hooks: str, *options: str, application: str = APPLICATION, **env: str
    ) -> None:
        (place / "served.py").write_text(application)
        self.configuration = place / "gunicorn.conf.py"
        self.configuration.write_text(CONFIGURATION.format(words=hooks))
        self.path = str(place / "socket")
        self.log = place / "log"
        command = [sys.executable, "-m", "gunicorn", "-b", f"unix:{self.path}", *options]
        command += ["--no-control-socket", "-c", "gunicorn.conf.py", "served:application"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            )
        self.masters = [psutil.Process(self.process.pid)]
        self._seen: set[psutil.Process] = set()

    def await_answer(self) -> Answer:
        """The first answer with status 200."""
        found: list[Answer] = []

        def answered() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            try:
                found.append(ask(self.path))
            except OSError:
                return False
            return found[-1].status == 200

        eventually(answered, "gunicorn does not answer")
        return found[-1]

    def keeper(self, master: int = 0) -> psutil.Process | None:
        for child in self.children(self.masters[master]):
            if "integrations.keeper" in _command(child):
                return child
        return None

    def reflector(self, master: int = 0) -> psutil.Process | None:
        keeper = self.keeper(master)
        return next(iter(self.children(keeper)), None) if keeper else None

    def workers(self, master: int = 0) -> list[psutil.Process]:
        keeper = self.keeper(master)
        return [
            each
            for each in self.children(self.masters[master])
            if each != keeper and each not in self.masters
        ]

    def writers(self) -> list[int]:
        """The pids of the processes that wrote the cache, one after the other."""
        return [int(pid) for pid in re.findall(r": writing, pid (\d+)", self.log.read_text())]

    def kill_a_worker(self) -> None:
        """SIGKILL to one, but not to one that has just reached its max_requests."""
        eventually(lambda: any(map(_killed, self.workers())), "no worker can be killed")

    def children(self, of: psutil.Process) -> list[psutil.Process]:
        found = [child for child in _family(of) if _lives(child)]
        self._seen.update(found)
        return found

    def await_reflector(self, *, other_than: psutil.Process | None = None) -> psutil.Process:
        eventually(
            lambda: self.reflector() not in {None, other_than}, "the reflector does not return"
        )
        found = self.reflector()
        assert found is not None
        return found

    def upgrade(self) -> None:
        """USR2: a second master."""
        self.masters[0].send_signal(signal.SIGUSR2)

        def second() -> bool:
            for child in self.children(self.masters[0]):
                if "GUNICORN_PID" in _environment(child) and child not in self.masters:
                    self.masters.append(child)
                    return True
            return False

        eventually(second, "there is no second master")

    def configure(self, hooks: str) -> None:
        """HUP with another configuration."""
        self.configuration.write_text(CONFIGURATION.format(words=hooks))
        self.masters[0].send_signal(signal.SIGHUP)

    def end(self, number: int = signal.SIGTERM) -> str:
        """Ends the master; returns its log."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        return self.log.read_text()

    def all_gone(self) -> bool:
        return not any(each.is_running() and _lives(each) for each in self._seen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.write(self.log.read_text())  # shown if the test fails
        for master in self.masters:
            for each in [*_family(master, all_of_it=True), master]:
                try:
                    each.kill()
                except psutil.NoSuchProcess:
                    continue
        self.process.wait(PATIENCE)


def _killed(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except psutil.NoSuchProcess:
        return {}


def _family(process: psutil.Process, *, all_of_it: bool = False) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=all_of_it))
    except psutil.NoSuchProcess:
        return []


class Load:
    """Threads that send requests without end. A request whose connection was cut unanswered is
    repeated once, as a proxy in front does: it counts as cut, and its second answer must be a good
    one."""

    def __init__(self, path: str, threads: int = 3) -> None:
        self.answers: list[Answer] = []
        self.cut = 0
        self.lost: list[str] = []
        self._path = path
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.answers.append(self._ask())
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))

    def _ask(self) -> Answer:
        try:
            return ask(self._path)
        except (OSError, http.client.HTTPException):
            self.cut += 1
            return ask(self._path)

    def await_more(self, count: int = 20) -> None:
        """Returns after so many more answers."""
        before = len(self.answers)
        eventually(lambda: len(self.answers) >= before + count, "nothing answers any more")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
