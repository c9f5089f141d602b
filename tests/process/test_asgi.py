"""Invariant tested: an ASGI worker accepts requests once its cache is full, and closes the cache
when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from masters import ROOT
from workers import PATIENCE, eventually

import shmcache
from shmcache import states
from shmcache.integrations.asgi import WithCache, lifespan

starlette = pytest.importorskip("starlette", reason="needs starlette: pip install fastapi")
pytest.importorskip("uvicorn", reason="needs uvicorn: pip install uvicorn")

POD = {"metadata": {"name": "a", "namespace": "prod", "resourceVersion": "5", "uid": "u"}}
APPLICATION = """
import os
from fastapi import FastAPI, Request
from shmcache.integrations.asgi import lifespan

app = FastAPI(lifespan=lifespan())

@app.get("/")
async def count(request: Request) -> dict[str, int]:
    return {"pods": len(request.state.cache["pods"]), "pid": os.getpid()}
"""


def fill(writer: shmcache.Writer) -> None:
    writer.replace("pods", [POD], "5")
    writer.set_state("pods", states.SYNCED)


def ask(port: int) -> dict[str, int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        answer = connection.getresponse()
        assert answer.status == 200
        found: dict[str, int] = json.loads(answer.read())
        return found
    finally:
        connection.close()


def answers(port: int) -> bool:
    try:
        return bool(ask(port))
    except ConnectionRefusedError:
        return False


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_uvicorn_with_workers_answers_from_a_full_cache_and_goes_on_when_one_is_killed(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "served.py").write_text(APPLICATION)
    log = tmp_path / "log"
    command = [sys.executable, "-m", "uvicorn", "served:app", "--workers", "2", "--port", "0"]
    with (
        shmcache.Writer(name, resources=["pods"], arena_max="64MiB") as writer,
        log.open("w") as to,
    ):
        uvicorn = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=to,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SHMCACHE_NAME": name},
        )
        try:
            eventually(lambda: "running on" in log.read_text(), "uvicorn does not start")
            found = re.search(r"running on \S+:(\d+)", log.read_text())
            assert found is not None
            port = int(found[1])
            with pytest.raises(ConnectionRefusedError):  # no worker listens before the first list
                ask(port)
            fill(writer)
            eventually(lambda: answers(port), "no worker answers")
            answer = ask(port)
            assert 1 == answer["pods"]

            killed = psutil.Process(answer["pid"])
            killed.kill()
            eventually(lambda: not lives(killed), "it is not killed")  # nor accepts a request
            others = {ask(port)["pid"] for _ in range(5)}
            assert answer["pid"] not in others
            assert others
        finally:
            uvicorn.send_signal(signal.SIGTERM)
            uvicorn.wait(PATIENCE)
        assert "Traceback" not in log.read_text()


def test_the_lifespan_supplies_the_cache_wraps_the_inner_one_and_closes_it(
    writer: shmcache.Writer,
) -> None:
    events: list[str] = []
    for resource in ("pods", "nodes"):
        writer.set_state(resource, states.SYNCED)

    @contextlib.asynccontextmanager
    async def inner(app: Any) -> AsyncIterator[dict[str, int]]:
        events.append(app.state.cache["pods"].name)
        yield {"answer": 42}
        events.append("over")

    async def live() -> None:
        app = starlette.applications.Starlette()
        async with lifespan(writer.name, inner=inner)(app) as state:
            assert 42 == state["answer"]
            assert not state["cache"].closed
        assert state["cache"].closed

    import starlette.applications

    asyncio.run(live())

    assert ["pods", "over"] == events


def test_startup_without_a_cache_fails_with_a_reason(name: str) -> None:
    async def live() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, str]:
            return {"type": "lifespan.startup"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        with pytest.raises(shmcache.SegmentNotFound):
            await WithCache(None, name, wait=0.0)({"type": "lifespan", "state": {}}, receive, send)
        return sent

    (failed,) = asyncio.run(live())

    assert "lifespan.startup.failed" == failed["type"]
    assert name in failed["message"]


def test_an_application_without_a_framework_finds_the_cache_in_its_state(
    writer: shmcache.Writer,
) -> None:
    for resource in ("pods", "nodes"):
        writer.set_state(resource, states.SYNCED)
    seen: list[bool] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["state"]["cache"].closed)

    async def live() -> None:
        state: dict[str, Any] = {}
        sent: list[str] = []
        wrapped = WithCache(app, writer.name)

        async def receive() -> dict[str, str]:
            if "lifespan.startup.complete" in sent and not seen:
                await wrapped({"type": "http", "state": state}, receive, send)
            return {"type": "lifespan.whatever"}

        async def send(message: dict[str, str]) -> None:
            sent.append(message["type"])

        await wrapped({"type": "lifespan", "state": state}, receive, send)
        assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == sent
        assert state["cache"].closed

    asyncio.run(live())

    assert [False] == seen
