"""Invariant tested: where gevent or eventlet has patched the process, greenlets sleep and their hub
does not: handlers run, waits end in time, nothing freezes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from workers import Command

import shmcache
from shmcache import states

GEVENT = """
from gevent import monkey
monkey.patch_all()
import gevent
spawn, sleep = gevent.spawn, gevent.sleep
"""
EVENTLET = """
import eventlet
eventlet.monkey_patch()
spawn, sleep = eventlet.spawn, eventlet.sleep
"""
BODY = """
import sys, threading
import shmcache

ticks = 0

def tick():
    global ticks
    while True:
        sleep(0.001)
        ticks += 1

spawn(tick)
cache = shmcache.attach(sys.argv[1])
delivered = threading.Event()
names = []

def on_add(obj, initial):
    names.append(obj["metadata"]["name"])
    if len(names) == 2:
        delivered.set()

registration = cache["pods"].add_handler(on_add)
cache.start()
assert registration.wait_synced(60)
before = ticks
assert not cache.wait(cache.latest, 0.1)
assert ticks > before, "the hub stood still"
print("waiting", flush=True)
assert delivered.wait(60)
assert ["a", "b"] == names

ended = []
def waiter():
    try:
        cache.wait(cache.latest)
    except shmcache.ClosedError:
        ended.append(True)
spawn(waiter)
spawn(waiter)
sleep(0.01)
assert registration.remove(wait=True, timeout=60)
cache.close()
while len(ended) < 2:
    sleep(0.001)
print("done", flush=True)
"""


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "p", "uid": name, "resourceVersion": "1"}}


@pytest.mark.slow
@pytest.mark.parametrize("patching", [GEVENT, EVENTLET], ids=["gevent", "eventlet"])
def test_patched_processes_wait_and_run_handlers(name: str, patching: str) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.apply("pods", [pod("a")])
        writer.set_state("pods", states.SYNCED)
        with Command(
            [sys.executable, "-W", "ignore", "-c", patching + BODY, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert "waiting" == process.stdout.readline().strip(), process.communicate()[1]
                writer.apply("pods", [pod("b")])
                output, errors = process.communicate(timeout=60)
                assert (0, "done\n") == (process.returncode, output), errors
            finally:
                process.kill()
