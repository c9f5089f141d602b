"""Invariant tested: `shmcache run --etcd` as a command: it checks, refuses and caches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from etcds import WIDGETS, server, widget
from workers import Command

import shmcache
from shmcache.testing.etcd import EtcdServer


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    yield from server()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shmcache", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def test_validate_reads_one_key_of_each_prefix(etcd: EtcdServer) -> None:
    revision = etcd.put(f"{WIDGETS}ns/a", widget("a"))

    found = run("--etcd", etcd.endpoints, f"widgets={WIDGETS}", "--validate")

    assert (found.returncode, found.stderr) == (0, "")
    assert f"{WIDGETS} at revision {revision}" in found.stdout


def test_the_extra_has_every_package_that_is_needed(etcd: EtcdServer) -> None:
    """`pip install 'shmcache[etcd]'` alone: the packages of other extras are missing."""
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    names = {re.split(r"[^\w-]", each)[0] for part in extras.values() for each in part}
    ours = {re.split(r"[^\w-]", each)[0] for each in extras["etcd"]}
    modules = [{"PyYAML": "yaml"}.get(name, name) for name in sorted(names - ours - {"shmcache"})]
    code = (
        "import sys\n"
        f"sys.modules |= dict.fromkeys({[name.replace('-', '_') for name in modules]})\n"
        "from shmcache.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, "run", "--etcd", etcd.endpoints, f"w={WIDGETS}", "--validate"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "yaml" in modules
    assert "urllib3" not in modules


def test_validate_says_that_nobody_listens() -> None:
    found = run("--etcd", "http://127.0.0.1:1", f"widgets={WIDGETS}", "--validate")

    assert found.returncode == 69
    assert "127.0.0.1:1" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--etcd", "http://a:1", "widgets"], "needs the prefix of its keys"),
        ([f"widgets={WIDGETS}"], "name its endpoints with --etcd"),
        (["--etcd", "http://a:1", f"a={WIDGETS}", f"b={WIDGETS}x/"], "keys in common"),
        (["--etcd", "http://a:1", "a=/b/{other}"], "pattern of etcd keys"),
        (["--etcd", "http://a:1", f"a={WIDGETS}", "-n", "prod"], "--namespace is for API servers"),
        (["--etcd", "http://a:1", f"a={WIDGETS}", "--metadata-only"], "metadata_only is for API"),
        (["--etcd", "http://a:1", "a=/registry/secrets/"], "allow_secrets"),
        (["--etcd", "http://a:1", "a=/registry/"], "allow_secrets"),
        (
            ["--etcd", "http://a:1", "--etcd-user=u", "--etcd-password-file=/no", f"a={WIDGETS}"],
            "/no",
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(arguments: list[str], why: str) -> None:
    found = run(*arguments)

    assert found.returncode == 78
    assert why in found.stderr


def test_the_command_caches_a_prefix(etcd: EtcdServer, name: str) -> None:
    etcd.put(f"{WIDGETS}ns/a", widget("a", x=1))
    command = [sys.executable, "-m", "shmcache", "run", "--etcd", etcd.endpoints]
    command += [f"widgets={WIDGETS}", "--cache", name, "--no-keep"]
    with Command(command, stderr=subprocess.PIPE) as process:
        with shmcache.attach(name, timeout=20) as cache:
            assert cache["widgets"].wait_synced(20)
            assert cache["widgets"]["ns/a"]["spec"]["x"] == 1
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == 0
