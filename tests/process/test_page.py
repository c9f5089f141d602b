"""Invariant tested: `run --ui` serves the page in a child that comes back, and that ends with the
reflector, however that ends (PAGECHILD1)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import urllib3
from workers import PATIENCE, eventually

from shmcache.cli.arguments import Parser
from shmcache.cli.commands import run
from shmcache.engine import config
from shmcache.testing import ApiServer

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def reflector(name: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["run", "nodes", "--cache", name, "--no-keep"]
    environment = {**os.environ, "SHMCACHE_UI": "127.0.0.1:0"}
    with ApiServer(seed=1) as server, log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "shmcache", *words, "--server", server.url],
            stderr=file,
            env=environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE)


def pages(log: Path) -> list[str]:
    """The addresses of all pages that were served, from the log."""
    return re.findall(r"its page is (\S+)", log.read_text())


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


def gone(processes: list[psutil.Process]) -> None:
    left = psutil.wait_procs(processes, timeout=PATIENCE)[1]
    assert [] == left


def test_the_page_comes_back_and_ends_with_its_reflector(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with reflector(name, log) as process:
        eventually(lambda: len(pages(log)) == 1, "no page")
        assert b"shmcache" in urllib3.request("GET", pages(log)[0]).data

        before = family(process)
        for child in before:
            child.kill()
        gone(before)
        eventually(lambda: len(pages(log)) == 2, "the page does not come back")
        assert process.poll() is None
        assert 200 == urllib3.request("GET", pages(log)[1]).status

        after = family(process)
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(PATIENCE)
        gone(after)


def test_the_page_does_not_outlive_a_killed_reflector(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with reflector(name, log) as process:
        eventually(lambda: pages(log), "no page")
        children = family(process)
        assert children
        process.kill()
        process.wait(PATIENCE)
        gone(children)


def test_the_flag_means_the_address_of_the_command() -> None:
    parser = Parser("run", run.HELP)
    run.add_arguments(parser)
    options = parser.parse_intermixed_args(["--ui", "pods"])

    assert ["pods"] == options.resources
    assert "127.0.0.1:8002" == config.load(None, run.flags_of(options), {}).ui


def test_several_clusters_have_no_common_page() -> None:
    flags = {"contexts": ["a", "b"], "ui": ":1", "resources": {"pods": {}}}
    with pytest.raises(config.keys.ConfigurationError, match="--ui is for one cluster"):
        config.load(None, flags, {})
