"""Invariant tested: the demo ends on request in every way, leaves nothing behind, and its numbers
agree with each other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from etcds import needs_etcd
from workers import Command, eventually, stop_child

from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK = ["--pods", "200", "--rate", "500", "--workers", "2"]


def start(seconds: float, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "shmcache", "demo", *QUICK, "--seconds", str(seconds), *more]
    return Command(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def left_behind(pid: int) -> list[str]:
    return SharedMemory().names(f"{PREFIX}demo-{pid}")


@pytest.mark.slow
@pytest.mark.parametrize("source", [(), ("--etcd",)])
def test_the_demo_ends_by_itself(source: tuple[str, ...]) -> None:
    if source:
        needs_etcd()
    demo = start(3, *source)

    out, err = demo.communicate(timeout=60)

    assert (0, "") == (demo.returncode, err)
    assert "200 pods" in out
    assert "nothing was left behind" in out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["1"], ["2"])]
    changes = re.findall(r"pods, ([\d,]+) changes", out)[-1]
    assert "0" != changes
    assert [changes, changes] == [row[2] for row in rows[-2:]]
    assert re.search(r"synced, heard \d+\.\d s ago", out)
    assert "lag  " in out
    assert [] == left_behind(demo.pid)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_ends_on_a_signal(number: signal.Signals) -> None:
    with start(60) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()  # it is under way

        demo.send_signal(number)
        _, err = demo.communicate(timeout=60)

        assert (0, "") == (demo.returncode, err)
        assert [] == left_behind(demo.pid)


@pytest.mark.slow
def test_the_demo_ends_on_a_signal_to_all_its_processes() -> None:
    """As timeout(1) sends it. The others are faster."""
    with start(60) as demo:
        assert demo.stdout is not None
        while "worker" not in demo.stdout.readline():
            pass
        stop_child(demo.pid)
        for child in psutil.Process(demo.pid).children():
            child.terminate()
        eventually(lambda: not left_behind(demo.pid), "the reflector does not end")
        demo.send_signal(signal.SIGTERM)
        demo.send_signal(signal.SIGCONT)
        out, err = demo.communicate(timeout=60)

        assert (0, "") == (demo.returncode, err)
        assert "nothing was left behind" in out


@pytest.mark.slow
def test_the_workers_of_a_killed_demo_end() -> None:
    with start(60) as demo:
        assert demo.stdout is not None
        while not demo.stdout.readline().startswith("worker"):
            pass
        workers = [int(demo.stdout.readline().split()[1]) for _ in range(2)]

        demo.kill()
        demo.wait()

        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}/exe").exists() for pid in workers):
            assert time.monotonic() < deadline, "a worker outlived the demo"
            time.sleep(0.05)
    for file in left_behind(demo.pid):
        SharedMemory().unlink(file)


@pytest.mark.slow
def test_the_next_demo_cleans_up_after_one_that_was_killed_with_all_its_processes() -> None:
    command = [sys.executable, "-m", "shmcache", "demo", *QUICK, "--seconds", "60"]
    with Command(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        while not demo.stdout.readline().startswith("worker"):
            pass
        os.killpg(demo.pid, signal.SIGKILL)
        demo.wait()
    assert [] != left_behind(demo.pid)

    with start(1) as after:
        _, err = after.communicate(timeout=60)

    assert (0, "") == (after.returncode, err)
    assert [] == left_behind(demo.pid)
    assert not list(Path(tempfile.gettempdir()).glob(f"shmcache-demo-{demo.pid}-*"))
