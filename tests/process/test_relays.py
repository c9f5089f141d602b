"""Invariant tested: caches that follow relays see each change once while relays are killed, stopped
and restarted, without a list at the API server. `make relays` runs for longer."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import relays
from conftest import SEED

import shmcache
from shmcache.testing import ApiServer

PATIENCE = 60.0


def until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_two_tiers_in_a_short_storm(name: str, tmp_path: Path) -> None:
    words = ["--seconds", "8", "--leaves", "2", "--simulated", "20", "--write-pause", "0.01"]
    relays.run(relays.options_of([*words, "--seed", str(SEED)]), name=name, folder=tmp_path)


@contextlib.contextmanager
def relay(name: str, log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        command = [sys.executable, "-m", "shmcache", "relay", "pods", "--cache", name, *flags]
        process = subprocess.Popen(command, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def address(log: Path) -> tuple[str, int]:
    def logged() -> re.Match[str] | None:
        return re.search(r"serving cache \S+ at http://([^:]+):(\d+)", log.read_text())

    found = until(logged)
    return found[1], int(found[2])


def get(at: tuple[str, int], path: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(*at, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_a_relay_is_one_process_group_that_fills_and_serves_a_cache(
    name: str, tmp_path: Path
) -> None:
    """One command; a child that is killed is started again; SIGTERM ends all of them in order."""
    log = tmp_path / "log"
    with ApiServer(seed=1) as server:
        server.create("pods", {"metadata": {"name": "a", "namespace": "prod"}})
        flags = ["--server", server.url, "--listen", "127.0.0.1:0", "-p", "2"]
        with relay(name, log, *flags) as process:
            at = address(log)
            until(lambda: get(at, "/readyz")[0] == 200)
            assert b'"name":"a"' in get(at, "/api/v1/pods")[1]
            children = psutil.Process(process.pid).children()
            assert len(children) == 3
            assert {os.getpgid(child.pid) for child in children} == {process.pid}
            for child in children:
                child.kill()
            until(lambda: len(psutil.Process(process.pid).children()) == 3)
            server.create("pods", {"metadata": {"name": "b", "namespace": "prod"}})
            until(lambda: b'"name":"b"' in get(at, "/api/v1/pods")[1])
            assert server.requests["list", "pods"] <= 4  # probes and proofs of the new reflector

            process.terminate()
            assert process.wait(PATIENCE) == 0
            until(lambda: not relays.has_members(process.pid))


@pytest.mark.parametrize(
    ("flags", "status", "text"),
    [
        (["--listen", "0.0.0.0:0", "--server", "http://127.0.0.1:1"], 78, "other machines"),
        (["--listen", "nowhere", "--server", "http://127.0.0.1:1"], 2, "--listen must be"),
        (["--server", "http://127.0.0.1:1", "--server", "http://127.0.0.1:1"], 78, "repeat"),
        (["--replay", "run.jsonl"], 2, "unknown option --replay"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    name: str, flags: list[str], status: int, text: str
) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "shmcache", "relay", "pods", "--cache", name, *flags],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert (found.returncode, text in found.stderr) == (status, True), found.stderr


def show(command: str, *flags: str, name: str) -> str:
    """The standard output of a command about a cache."""
    return subprocess.run(
        [sys.executable, "-m", "shmcache", command, *flags, "--cache", name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout


def test_the_upstream_in_use_is_in_status_metrics_and_top(name: str) -> None:
    with ApiServer(seed=1) as server, ApiServer(seed=2) as other:
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name,
                   "--server", server.url, "--server", other.url]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                with shmcache.attach(name, timeout=PATIENCE) as cache:
                    assert cache["pods"].wait_synced(PATIENCE)
                    until(lambda: cache["pods"].status.upstream == server.url)
                top, metrics = show("top", "--once", name=name), show("metrics", name=name)
            finally:
                process.terminate()
                process.wait(PATIENCE)
    assert f"pods: from {server.url}" in top
    assert f'shmcache_resource_upstream{{cache="{name}"' in metrics
    assert f'upstream="{server.url}"' in metrics
