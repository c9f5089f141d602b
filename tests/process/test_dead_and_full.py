"""Invariant tested: where the reflector died, or a tmpfs is full, commands warn or end as after
mistakes (test_mistakes.py): one sentence on standard error, with the documented status, and with a
command that helps when it is copied.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from test_mistakes import DEAD, LATER, NO_SERVER, OK, PATIENCE, ROOT, check_sentences
from workers import Command

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

pytestmark = pytest.mark.slow

POD = {"metadata": {"name": "web-0", "namespace": "default"}}
SHMCACHE = [sys.executable, "-m", "shmcache"]


class Ends(NamedTuple):
    """A command line, its status, and a part of what it prints."""

    words: str
    status: int
    text: str


# ---- a reflector that died -----------------------------------------------------------------------

DIE = """
import json, os, shmcache, sys
writer = shmcache.Writer(sys.argv[1], [shmcache.Resource("pods", {"node": "spec.nodeName"})])
writer.put("pods", "default/web-0", json.loads(sys.argv[2]))
os._exit(0)
"""


@pytest.fixture
def dead(name: str) -> Iterator[str]:
    """A cache whose writer was killed."""
    subprocess.run([sys.executable, "-c", DIE, name, json.dumps(POD)], cwd=ROOT, check=True)
    yield name
    Place(name).unlink()


def advice(name: str) -> str:
    return f"start it with `shmcache run pods --cache {name} --index pods:node=spec.nodeName`"


WARNED = "cache {name!r} has no writer, its data is old; {advice}"
ENDING = [
    Ends("get pods", OK, WARNED),
    Ends("get pods -o yaml", OK, WARNED),
    Ends("top --once", OK, WARNED),
    Ends("top --once -o json", OK, WARNED),
    Ends("inspect", OK, WARNED),
    Ends("verify", NO_SERVER, WARNED),
    Ends("metrics", LATER, "cache {name!r} is down: its writer has ended; {advice}"),
]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHMCACHE, *words],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("ends", ENDING, ids=lambda ends: ends.words)
def test_a_command_at_a_dead_reflector_names_the_command_that_starts_it(
    dead: str, ends: Ends
) -> None:
    done = run(*ends.words.split(), "--cache", dead)

    assert ends.status == done.returncode, done
    assert ends.text.format(name=dead, advice=advice(dead)) in done.stderr
    assert 1 == len(done.stderr.splitlines())
    assert done.stdout
    check_sentences(done.stderr)


@pytest.mark.parametrize(
    "words", ["watch pods", "serve --listen 127.0.0.1:0 -p 2", "ui --listen 127.0.0.1:0"]
)
def test_a_command_that_goes_on_warns_of_a_dead_reflector_once(dead: str, words: str) -> None:
    command = [*SHMCACHE, *words.split(), "--cache", dead]
    with Command(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        impatience = threading.Timer(PATIENCE, process.kill)
        impatience.start()
        found = next((line for line in lines if "has no writer" in line), "")
        impatience.cancel()
        process.terminate()
        assert "has no writer" not in "".join(lines)
        process.wait(PATIENCE)

    assert WARNED.format(name=dead, advice=advice(dead)) in found
    check_sentences(found)


def test_a_watch_whose_reflector_dies_warns_of_it(name: str) -> None:
    holding = DIE.replace("os._exit(0)", "sys.stdin.read(); os._exit(0)")
    writer = [sys.executable, "-c", holding, name, json.dumps(POD)]
    watch = [*SHMCACHE, "watch", "pods", "--cache", name]
    with (
        Command(writer, cwd=ROOT, stdin=subprocess.PIPE) as dying,
        shmcache.attach(name, timeout=PATIENCE),
        Command(watch, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it,
    ):
        assert it.stdout is not None
        assert it.stderr is not None
        assert it.stdout.readline().startswith("EVENT")
        dying.communicate(timeout=PATIENCE)
        impatience = threading.Timer(PATIENCE, it.kill)
        impatience.start()
        found = it.stderr.readline()
        impatience.cancel()
        it.terminate()
    Place(name).unlink()

    assert f"shmcache: warning: {WARNED.format(name=name, advice=advice(name))}\n" == found


def test_the_command_of_the_warning_starts_the_reflector(dead: str) -> None:
    found = re.search(r"`shmcache (run [^`]*)`", run("get", "pods", "--cache", dead).stderr)
    assert found is not None
    with ApiServer(seed=1) as server:
        server.create("pods", POD)
        command = [*SHMCACHE, *shlex.split(found[1]), "--server", server.url, "--no-keep"]
        with Command(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            with shmcache.attach(dead, timeout=PATIENCE) as cache:
                assert cache["pods"].wait_for(server.version, PATIENCE)
                assert ["default/web-0"] == [*cache["pods"]]
            assert "" == run("get", "pods", "--cache", dead).stderr
            process.terminate()
            assert 0 == process.wait(PATIENCE)


# ---- a full tmpfs --------------------------------------------------------------------------------

MOUNT = 'mount -t tmpfs -o size=6m shmcache-test /dev/shm && exec "$@"'
SCENE = """
import json, os, re, subprocess, sys, shmcache

def ended(words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    return [done.returncode, done.stdout, done.stderr]

commands, again, pod = json.loads(sys.argv[1])
with shmcache.Writer("living", ["pods"]) as writer:
    writer.put("pods", "default/web-0", pod)
    try:
        with open("/dev/shm/filler", "wb", buffering=0) as file:
            while file.write(bytes(65536)):
                pass
    except OSError:
        pass
    found = [ended([sys.executable, "-m", "shmcache", *words]) for words in commands]
    advice = re.search("`(mount [^`]*)`", found[-1][2])[1]
    found.append(ended(["sh", "-c", advice]))
    process = subprocess.Popen([sys.executable, "-m", "shmcache", *again],
                               stderr=subprocess.DEVNULL)
    try:
        shmcache.attach("other", timeout=60).close()
        process.terminate()
        found.append([process.wait(60), "", ""])
    finally:
        process.kill()
print(json.dumps(found))
"""
FULL = " is full: 0 B of 6 MiB free"
AT_FULL = [
    Ends("get pods --cache living", OK, ""),
    Ends("top --once --cache living", OK, ""),
    Ends("inspect --cache living", OK, ""),
    Ends("metrics --cache living", OK, ""),
    Ends("verify --cache living", NO_SERVER, ""),
    Ends("demo --seconds 1s --pods 10 --workers 1", LATER, FULL),
    Ends(f"bench pods --server {DEAD}", LATER, FULL),
    Ends(f"run pods --cache other --server {DEAD}", LATER, FULL),
]


def test_commands_at_a_full_tmpfs_work_or_name_the_command_that_makes_room() -> None:
    own = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    tried = subprocess.run(
        [*own, "sh", "-c", MOUNT, "sh", "true"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"mounting is not permitted: {tried.stderr.decode().strip()}")
    again = f"run pods --cache other --no-keep --server {DEAD}".split()
    asked = [[one.words.split() for one in AT_FULL], again, POD]
    done = subprocess.run(
        [*own, "sh", "-c", MOUNT, "sh", sys.executable, "-c", SCENE, json.dumps(asked)],
        cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE, check=False,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)

    *ends, enlarged, started = json.loads(done.stdout)
    for expected, (status, out, err) in zip(AT_FULL, ends, strict=True):
        assert expected.status == status, (expected, out, err)
        assert expected.text in err, (expected, err)
        assert bool(expected.text) == len(err.splitlines()), (expected, err)
        check_sentences(err)
    assert [[0, "", ""]] * 2 == [enlarged, started]
