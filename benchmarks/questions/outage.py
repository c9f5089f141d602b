"""How soon are all resources equal to their server and ready, once it answers again?

`shmcache run` caches 60 resources of an API server in a process of its own. The server goes away
for half a minute, in which objects change: it refuses connections, it is stopped by a signal with
its connections open, it comes back with the state of a backup, or with another, empty state. The
time counts from its return until the cache has what the server has, of all resources, and all are
synced. Requests are those after the return, less one for each resource.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import shmcache
from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache.protocol.builtins import builtin, optional
from shmcache.testing import ApiServer

RESOURCES, OBJECTS = 60, 5
AWAY_S, FEWER_S = 30.0, 3.0
"""Of a full run, and of a quick one."""
BACK_S, REQUESTS_A_SECOND = 5.0, 3.0
PATIENCE_S = 200.0
LOOK_S = 0.02
Versions = dict[str, dict[str, str]]
"""Of each resource, by key."""


class Outage(NamedTuple):
    """How a server goes away, and how it returns."""

    go: Callable[[Server], object]
    back: Callable[[Server], object]


class Server:
    """The process of the API server, which takes commands."""

    def __init__(self, children: Children, pid: int) -> None:
        self._children = children
        self.pid = pid

    def ask(self, command: str) -> Any:
        self._children.send(command)
        (answer,) = self._children.receive()
        return answer


def _thaw(server: Server) -> None:
    os.kill(server.pid, signal.SIGCONT)
    server.ask("change")


OUTAGES = {
    "refused connections": Outage(lambda one: one.ask("down"), lambda one: one.ask("up")),
    "frozen": Outage(lambda one: os.kill(one.pid, signal.SIGSTOP), _thaw),
    "restored from a backup": Outage(lambda one: one.ask("down"), lambda one: one.ask("restore")),
    "wiped": Outage(lambda one: one.ask("down"), lambda one: one.ask("wipe")),
}


def run(quick: bool) -> list[Row]:
    kinds = [kind for kind in (*builtin(), *optional()) if kind.key not in _LEFT_OUT]
    resources = [kind.key for kind in kinds][:RESOURCES]
    away = FEWER_S if quick else AWAY_S
    return [_row(name, outage, resources, away) for name, outage in OUTAGES.items()]


_LEFT_OUT = {"customresourcedefinitions.apiextensions.k8s.io", "secrets"}


def _row(name: str, outage: Outage, resources: list[str], away: float) -> Row:
    with directory() as cache_name, Children(_serve, [(resources,)]) as children:
        ((pid, url),) = children.receive()
        server = Server(children, pid)
        command = [sys.executable, "-m", "shmcache", "run", *resources, "--server", url]
        command += ["--cache", cache_name, "--no-keep", "--log-level", "error"]
        process = subprocess.Popen(command, cwd=harness.ROOT)
        try:
            with shmcache.attach(cache_name, timeout=PATIENCE_S) as cache:
                _await(cache, server)
                server.ask("change")
                _await(cache, server)
                outage.go(server)
                time.sleep(away)
                outage.back(server)
                start, before = time.monotonic(), server.ask("requests")
                seconds = _await(cache, server, start)
                requests = server.ask("requests") - before - len(resources)
        finally:
            os.kill(pid, signal.SIGCONT)
            process.terminate()
            process.wait()
    rate = max(requests, 0) / max(seconds, 1.0)
    return Row(
        question=f"{name} for {away:g} s ▸ all of {len(resources)} resources equal and synced",
        ours=f"{seconds:.2f} s",
        peer="",
        ratio=seconds / BACK_S,
        must=f"≤ {BACK_S:g} s, ≤ {REQUESTS_A_SECOND:g} requests a second besides one each",
        met=seconds <= BACK_S and rate <= REQUESTS_A_SECOND,
        note=f"{requests + len(resources)} requests",
    )


def _await(cache: shmcache.Cache, server: Server, start: float = 0.0) -> float:
    """Returns when the cache is equal to its server; the seconds since `start`."""
    wanted: Versions = server.ask("versions")
    deadline = time.monotonic() + PATIENCE_S
    different = list(wanted)
    while different:
        different = [name for name in different if not _equal(cache, name, wanted[name])]
        if time.monotonic() > deadline:
            raise AssertionError(f"not equal after {PATIENCE_S:g} s: {different}")
        time.sleep(LOOK_S if different else 0)
    return time.monotonic() - start


def _equal(cache: shmcache.Cache, name: str, wanted: dict[str, str]) -> bool:
    shown = cache[name]
    return shown.synced and wanted == {
        key: obj["metadata"]["resourceVersion"] for key, obj in shown.items()
    }


# ---- the server's process ------------------------------------------------------------------------


def _serve(pipe: Pipe, resources: list[str]) -> None:
    with ApiServer(seed=1, namespaces=(), optional_resources=True) as server:
        empty = server.backup()
        for name in resources:
            for number in range(OBJECTS):
                server.load(name, _object(name, number, "old"))
        backup, changes = server.backup(), 0
        pipe.answer((os.getpid(), server.url))
        while True:
            command = pipe.next()
            if command == "down":
                server.go_down()
                changes += 1
                _change(server, resources, changes)
            elif command == "change":
                changes += 1
                _change(server, resources, changes)
            elif command == "restore":
                server.restore(backup)
                server.come_back()
            elif command == "wipe":
                server.restore(empty)
                server.come_back()
            elif command == "up":
                server.come_back()
            pipe.answer(
                _versions(server, resources) if command == "versions" else server.requests.total()
            )


def _change(server: ApiServer, resources: list[str], turn: int) -> None:
    for name in resources:
        server.load(name, _object(name, 0, f"turn {turn}"))
        server.load(name, _object(name, OBJECTS + turn, "new"))


def _object(name: str, number: int, text: str) -> dict[str, Any]:
    metadata = {"name": f"one-{number}", "annotations": {"text": text}}
    kind = next(kind for kind in (*builtin(), *optional()) if kind.key == name)
    if kind.namespaced:
        metadata["namespace"] = "default"
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def _versions(server: ApiServer, resources: list[str]) -> Versions:
    found: Versions = {}
    for name in resources:
        found[name] = {}
        for obj in server.list(name):
            metadata = obj["metadata"]
            key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            found[name][key] = metadata["resourceVersion"]
    return found


if __name__ == "__main__":
    harness.main(__doc__, run)
