"""How much later does a change reach a handler when a relay is between it and the API server?

    API server ▸ run ▸ handler
               ▸ relay ▸ run ▸ handler

Each of them is a process of its own, as its command starts it; both handlers run at the same time,
and note the moment of each change. The server writes at even distances, and the staleness that the
relay adds is the difference of the two moments of the same change.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, show_s
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory
from shmcache.testing import ApiServer

PODS = 1_000
A_SECOND = 1_000
SECONDS, FEWER_S = 30, 3
SETTLED_S = 2.0
P50_MS, P99_MS = 1.0, 20.0
SYNC_S = 60.0


def run(quick: bool) -> list[Row]:
    seconds = FEWER_S if quick else SECONDS
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Children(_serve, [()]))
        (url,) = server.receive()
        relay, port = stack.enter_context(directory()), _free_port()
        near, far = stack.enter_context(directory()), stack.enter_context(directory())
        stack.enter_context(_command("relay", relay, url, "--listen", f"127.0.0.1:{port}"))
        _await(relay)
        stack.enter_context(_command("run", near, url))
        stack.enter_context(_command("run", far, f"http://127.0.0.1:{port}"))
        handlers = stack.enter_context(Children(_handle, [(near,), (far,)]))
        handlers.receive()
        server.send(seconds)
        ((written, took),) = server.receive()
        time.sleep(SETTLED_S)
        handlers.send("end")
        direct, relayed = handlers.receive()
    changed = direct.keys() & relayed.keys()
    if len(changed) != written:
        raise AssertionError(f"{len(changed)} of {written} changes reached both handlers")
    added = sorted((relayed[version] - direct[version]) / 1e6 for version in changed)
    p50, p99 = (added[int(len(added) * part)] for part in (0.5, 0.99))
    return [
        Row(
            question=f"staleness that a relay adds, at {written / took:,.0f} changes/s, {name}",
            ours=show_s(found / 1e3),
            peer="",
            ratio=found / limit,
            must=f"≤ {limit:g} ms",
            met=found <= limit,
            note=f"{written:,} changes, at most {added[-1]:.1f} ms",
        )
        for name, found, limit in (("p50", p50, P50_MS), ("p99", p99, P99_MS))
    ]


@contextlib.contextmanager
def _command(name: str, cache: str, url: str, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", "shmcache", name, RESOURCE, "--server", url]
    command += ["--cache", cache, "--log-level", "error", *arguments]
    process = subprocess.Popen(command, cwd=harness.ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _await(cache: str) -> None:
    with shmcache.attach(cache, timeout=SYNC_S) as attached:
        if not attached[RESOURCE].wait_synced(SYNC_S):
            raise TimeoutError(f"{cache} is not synced after {SYNC_S:g} s")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# ---- the API server, and the handlers ------------------------------------------------------------


def _serve(pipe: Pipe) -> None:
    with ApiServer(seed=1) as server:
        pods = [{"metadata": {"name": f"pod-{n}", "namespace": "default"}} for n in range(PODS)]
        for pod in pods:
            server.load(RESOURCE, pod)
        pipe.answer(server.url)
        count = pipe.next() * A_SECOND
        begun = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, begun + number / A_SECOND - time.monotonic()))
            metadata = {**pods[number % PODS]["metadata"], "labels": {"n": str(number)}}
            server.load(RESOURCE, {"metadata": metadata})
        pipe.answer((count, time.monotonic() - begun))
        pipe.next()


def _handle(pipe: Pipe, cache: str) -> None:
    moments: dict[str, int] = {}

    def note(_old: Any, new: Any) -> None:
        moments[new["metadata"]["resourceVersion"]] = time.monotonic_ns()

    with shmcache.attach(cache, timeout=SYNC_S) as attached:
        registration = attached[RESOURCE].add_handler(on_update=note)
        attached.start()
        if not registration.wait_synced(SYNC_S):
            raise TimeoutError(f"{cache} is not synced after {SYNC_S:g} s")
        pipe.ready()
    pipe.answer(moments)


if __name__ == "__main__":
    harness.main(__doc__, run)
