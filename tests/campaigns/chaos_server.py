"""Chaos, the server: testing.ApiServer in a process of its own, with its writer and its weather."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import orjson
from chaos_history import Written
from chaos_weather import Weather
from chaos_world import CACHED, NAMESPACES, TOKEN, Writes

from shmcache.testing import ApiServer
from shmcache.testing.apiserver.loop import RequestRecord
from shmcache.testing.apiserver.store import Backup
from shmcache.testing.apiserver.stored import StoredChange

TICK = 0.01
ASK_EVERY, BLOW_EVERY = 0.12, 0.5

State = dict[str, dict[str, bytes]]


class Stage:
    """Carries out the run's requests, one command after another."""

    def __init__(self, server: ApiServer, seed: int) -> None:
        self._server = server
        self._rng = random.Random(f"{seed} stage")
        self._writes = Writes(server, random.Random(f"{seed} writes"))
        self._weather = Weather(server, self._writes, random.Random(f"{seed} weather"))
        self._backup: Backup | None = None
        self._last = 0.0
        self._records: list[RequestRecord] = []
        for namespace in NAMESPACES:
            if namespace != "default":
                server.create("namespaces", {"metadata": {"name": namespace}})
        self._writes.define()
        self._writes.fill()
        self._weather.begin()
        self._written: list[Written] = []
        self._keep_writes()

    def _keep_writes(self) -> None:
        store = self._server._store
        apply = store._apply

        def kept(resource: str, change: StoredChange) -> None:
            apply(resource, change)
            if resource in CACHED:
                is_there = change.new is not None
                self._written.append(Written(resource, change.version, change.key, is_there))

        vars(store)["_apply"] = kept

    # ---- the storm -----------------------------------------------------------------------------

    def storm(self, seconds: float, writes: int) -> int:
        """Makes so many writes, evenly over the time, with faults all the while; returns their
        number."""
        before, start = self._writes.count, time.monotonic()
        due = {name: start + rest for name, rest in self._periods(seconds).items()}
        while (now := time.monotonic()) < start + seconds:
            wanted = int(writes * (now - start) / seconds)
            self._writes.some(max(0, wanted - (self._writes.count - before)))
            for name in [name for name, at in due.items() if at <= now]:
                due[name] = now + getattr(self, f"_{name}")()
            self._take_log()
            time.sleep(TICK)  # the rate of writes
        self._writes.some(max(0, writes - (self._writes.count - before)))
        return self._writes.count - before

    def _periods(self, seconds: float) -> dict[str, float]:
        rng = self._rng
        return {
            "ask": 0.0,
            "blow": 0.5,
            "crd": rng.uniform(0.2, 0.5) * seconds,
            "outage": rng.uniform(0.5, 0.8) * seconds,
            "save": rng.uniform(0.4, 0.7) * seconds,
        }

    def _ask(self) -> float:
        self._weather.ask()
        return self._rng.uniform(0, 2 * ASK_EVERY)

    def _blow(self) -> float:
        if self._down:
            return BLOW_EVERY
        self._weather.blow()
        return self._rng.uniform(0, 2 * BLOW_EVERY)

    _down = False

    def _outage(self) -> float:
        """The server is unreachable for a moment."""
        if self._down:
            self._server.come_back()
        else:
            self._weather.down()
        self._down = not self._down
        return self._rng.uniform(0.1, 0.5) if self._down else self._rng.uniform(10, 30)

    def _crd(self) -> float:
        if self._writes.defined:
            self._writes.undefine()
            return self._rng.uniform(0.5, 3)
        self._writes.define()
        return self._rng.uniform(4, 12)

    def _save(self) -> float:
        if not self._writes.defined:
            return 0.1
        self._backup = self._server.backup()
        return 1e9

    # ---- between the storms ----------------------------------------------------------------------

    def calm(self) -> str:
        """No writes, no faults, all objects restored; returns the version."""
        self._weather.clear()
        if self._down:
            self._outage()
        if not self._writes.defined:
            self._writes.define()
            self._writes.some(50)
        return self._server.version

    def restore(self) -> tuple[float, int, int] | None:
        """Goes back to the state in the middle of the storm; returns the time and both versions."""
        if self._backup is None:
            return None
        was, now = int(self._server.version), time.monotonic()
        self._server.restore(self._backup)
        self._backup = None
        return now, was, int(self._server.version)

    def bookmark(self) -> str:
        self._server.send_bookmarks()
        return self._server.version

    def state(self) -> State:
        """Every cached object, as JSON in one form."""
        return {
            name: {
                f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": orjson.dumps(
                    obj, option=orjson.OPT_SORT_KEYS
                )
                for namespace in namespaces
                for obj in self._server.list(name, namespace)
            }
            for name, namespaces in CACHED.items()
        }

    def written(self) -> list[Written]:
        """Every write of cached resources since the last call, in order."""
        taken, self._written = self._written, []
        return taken

    def asked(self) -> list[tuple[float, str, str, str, dict[str, str], str]]:
        """Requests since the last call; fails if the server's log has dropped some."""
        self._take_log()
        taken, self._records = self._records, []
        return [
            (one.seconds, one.verb, one.resource, one.namespace, one.query,
             one.headers.get("accept-encoding", ""))
            for one in taken
        ]  # fmt: skip

    def total(self) -> int:
        """Requests since the start."""
        return self._server.requests.total()

    def faults(self) -> tuple[dict[str, int], dict[str, int]]:
        """How often each fault showed, and what happened to all connections."""
        return self._weather.counts(), dict(self._weather.acts)

    def _take_log(self) -> None:
        found = [record for record in self._server.log if record.seconds > self._last]
        if found:
            self._last = found[-1].seconds
            self._records += found


def serve(pipe: Connection, seed: int, kubeconfig: str) -> None:
    """The process: it receives a command and its arguments, and sends the result."""
    server = ApiServer(
        seed=seed,
        tokens={TOKEN: "admin"},
        bookmark_seconds=1.0,
        fresh_seconds=0.4,
        history=4_000,
    )
    with server:
        stage = Stage(server, seed)
        pipe.send(server.kubeconfig(kubeconfig))
        while (order := pipe.recv()) is not None:
            name, *arguments = order
            act: Callable[..., Any] = getattr(stage, name)
            pipe.send(act(*arguments))
