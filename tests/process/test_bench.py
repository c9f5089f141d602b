"""`shmcache bench` measures made-up objects and those of a server, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from workers import eventually

from shmcache.testing import ApiServer

PATIENCE = 120
PLACE = "/dev/shm"  # noqa: S108


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shmcache", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def places() -> set[str]:
    return {name for name in os.listdir(PLACE) if name.startswith("shmcache-bench-")}


def found(*arguments: str) -> dict[str, Any]:
    before = places()
    answer = bench("-o", "json", *arguments)
    assert answer.returncode == 0, answer.stderr
    eventually(lambda: places() <= before, "something is left")  # others measure and go, too
    parsed: dict[str, Any] = json.loads(answer.stdout)
    return parsed


def test_made_up_pods_take_less_than_dicts() -> None:
    answer = found("--count", "2000", "--workers", "3")
    assert answer["workers"] == 3
    assert answer["resources"]["pods"]["objects"] == 2000
    assert answer["resources"]["pods"]["json"] > 2000 * 500
    assert 0 < answer["worker"]["private"] < answer["dicts"]["private"] / 10
    assert answer["segments"] > 0
    assert answer["filler"]["private"] > 0


def test_the_objects_of_a_server_are_measured(tmp_path: Path) -> None:
    with ApiServer() as server:
        for number in range(30):
            name = f"c-{number}"
            server.create("configmaps", {"metadata": {"name": name, "namespace": "default"}})
        kubeconfig = server.kubeconfig(str(tmp_path / "kubeconfig"))
        answer = found("configmaps", "--kubeconfig", kubeconfig)
    assert answer["resources"]["configmaps"]["objects"] == 30


def test_the_table_shows_the_savings() -> None:
    answer = bench("--count", "500", "--workers", "4")
    assert answer.returncode == 0, answer.stderr
    assert "all with 4 workers" in answer.stdout
    assert "With 4 workers: " in answer.stdout
    assert "memory saved." in answer.stdout


def test_errors_of_run_carry_its_own_name() -> None:
    answer = bench("pods", "--kubeconfig", "/does/not/exist")
    assert answer.returncode == 78
    assert "/does/not/exist" in answer.stderr


def test_bench_does_not_wait_for_a_missing_resource() -> None:
    before = places()
    with ApiServer() as server:
        answer = bench("podz", "--server", server.url)
    assert answer.returncode == 78
    assert "the server has no podz" in answer.stderr
    eventually(lambda: places() <= before, "something is left")


def test_zero_workers_are_refused() -> None:
    answer = bench("--workers", "0")
    assert answer.returncode == 2
    assert "at least 1" in answer.stderr
