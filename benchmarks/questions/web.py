"""A web service under gunicorn: what do its handlers, its new workers and its memory cost?

The handler reads three fields of 1 or of 1,000 pods. Without HTTP it is timed in one process, over
a cache and over dicts in turns. With HTTP, three gunicorns of 8 sync workers run at once, and
clients that do little else send requests to them in turns: one over the cache, one whose workers
each have all pods as dicts, decoded from the same JSON at their start (collector off, then frozen),
and one without pods, whose memory is subtracted. A new worker is measured from the master's fork to
the body of its first answer, with a request always waiting (max_requests=1).
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, at_least, at_most, show_bytes, show_ns
from benchmarks.scenes import shared
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import Corpus
from shmcache import states

WORKERS, PODS = 8, 10_000
CLIENTS = 4
PATIENCE_S = 120.0
FORK_MS = 50.0

APPLICATION = """
import itertools, os, time
import orjson

KIND = os.environ["BENCH_KIND"]
with open(os.environ["BENCH_BODIES"], "rb") as file:
    lines = file.read().splitlines() if KIND == "dicts" else ()
if KIND == "shared":
    from shmcache.integrations import attached
    pods = attached()["pods"]
else:
    import gc
    gc.disable()
    pods = {}
    for pod in map(orjson.loads, lines):
        pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = pod
    del lines
    gc.enable()
    gc.freeze()
keys = list(pods)
turn = itertools.count()

def application(environ, start_response):
    count = int(environ["PATH_INFO"][1:] or 0)
    first = next(turn) * 997 % max(1, len(keys) - count)
    found = []
    for key in keys[first:first + count]:
        pod = pods[key]
        found.append((pod["metadata"]["name"], pod["spec"]["nodeName"], pod["status"]["phase"]))
    body = orjson.dumps({"pods": found[:3], "count": len(found),
                         "since_fork": time.monotonic() - float(os.environ["BENCH_FORKED"])})
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
CONFIGURATION = """
import os, time
from shmcache.integrations.gunicorn import hooks

if os.environ["BENCH_KIND"] == "shared":
    globals().update(hooks(name=os.environ["SHMCACHE_NAME"], wait=1.0))

def pre_fork(server, worker):
    os.environ["BENCH_FORKED"] = str(time.monotonic())
"""


def run(quick: bool) -> list[Row]:
    pods = Corpus("pods", 1_000 if quick else PODS)
    rounds, seconds = (1, 0.5) if quick else (7, 2.0)
    with (
        shared.directory() as name,
        Children(_fill_and_stay, [(name, pods)]) as filled,
        tempfile.TemporaryDirectory(prefix="bench-web-") as place,
    ):
        filled.receive()
        return [
            *_handlers(name, pods, rounds),
            _new_worker(name, place, 5 if quick else 40),
            *_served(name, place, pods, rounds, seconds),
        ]


def _fill_and_stay(pipe: Pipe, name: str, corpus: Corpus) -> None:
    with shared.open_writer(name) as writer:
        shared.fill(writer, corpus.objects())
        writer.set_state(shared.RESOURCE, states.SYNCED)
        pipe.ready()


# ---- without HTTP --------------------------------------------------------------------------------


def _read(pods: Any, keys: Sequence[str]) -> list[tuple[str, str, str]]:
    return [
        (pod["metadata"]["name"], pod["spec"]["nodeName"], pod["status"]["phase"])
        for key in keys
        for pod in (pods[key],)
    ]


def _handlers(name: str, corpus: Corpus, rounds: int) -> list[Row]:
    bodies = corpus.bodies()
    dicts = {key: orjson.loads(body) for key, body in bodies.items()}
    keys = list(bodies)
    rows = []
    store = shared.SharedStore(name)
    for count, number in ((1, 2_000), (1_000, 20)):
        spans = [keys[at : at + count] for at in range(0, len(keys) - count + 1, count)]
        asked = list(itertools.islice(itertools.cycle(spans), number))
        assert _read(store.pods, asked[0]) == _read(dicts, asked[0])
        timings = harness.measure(
            {
                "ours": (_loop(store.pods), asked.copy),
                "dicts": (_loop(dicts), asked.copy),
            },
            number,
            rounds + 2,
        )
        ours, theirs = timings["ours"], timings["dicts"]
        rows.append(
            Row(
                question=f"a handler that reads 3 fields of {count:,}, {corpus}, without HTTP",
                ours=str(ours),
                peer=f"dicts {theirs}",
                **at_most(2, harness.ratio_of(ours, theirs)),
            )
        )
    store.close()
    return rows


def _loop(pods: Any) -> harness.Loop:
    def loop(asked: list[list[str]]) -> None:
        for keys in asked:
            _read(pods, keys)

    return loop


# ---- gunicorn ------------------------------------------------------------------------------------


class Served:
    """A gunicorn of one kind, on a unix socket."""

    def __init__(self, kind: str, name: str, place: str, *options: str) -> None:
        self.kind = kind
        self.path = f"{place}/{kind}.sock"
        Path(place, "web_application.py").write_text(APPLICATION)
        Path(place, "web_configuration.py").write_text(CONFIGURATION)
        command = [sys.executable, "-m", "gunicorn", "-c", "web_configuration.py"]
        command += ["--bind", f"unix:{self.path}", "--no-control-socket", "--timeout", "300"]
        self.log = open(f"{place}/{kind}.log", "w", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, *options, "web_application:application"],
            cwd=place,
            stdout=self.log,
            stderr=self.log,
            env={
                **os.environ,
                "PYTHONPATH": str(harness.ROOT),
                "BENCH_KIND": kind,
                "BENCH_BODIES": f"{place}/bodies",
                "SHMCACHE_NAME": name,
            },
        )

    def ask(self, count: int) -> Any:
        """Waits for one answer, and returns it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return json.loads(_ask(self.path, _request(count)).partition(b"\r\n\r\n")[2])
            except (OSError, ValueError, http.client.HTTPException) as error:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    log = Path(self.log.name).read_text()
                    raise RuntimeError(f"{self.kind} does not answer:\n{log}") from error
                time.sleep(0.05)

    def private(self) -> int:
        """The private memory of all workers, once each of them has answered."""
        import psutil

        workers = psutil.Process(self.process.pid).children()
        assert len(workers) == WORKERS, workers
        return sum(_private(worker.pid) for worker in workers)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        self.log.close()


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def _request(count: int) -> bytes:
    return f"GET /{count} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode()


def _ask(path: str, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        connection.sendall(request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def _serving(kind: str, name: str, place: str, *options: str) -> Iterator[Served]:
    served = Served(kind, name, place, *options)
    try:
        yield served
    finally:
        served.close()


def _new_worker(name: str, place: str, samples: int) -> Row:
    """Each answer is a worker's first one."""
    Path(place, "bodies").write_bytes(b"")
    options = ["--workers", "1", "--max-requests", "1"]
    found = {}
    for kind, count in (("none", 0), ("shared", 1)):
        with _serving(kind, name, place, *options) as served:
            served.ask(count)
            found[kind] = [served.ask(count)["since_fork"] * 1e9 for _ in range(samples)]
    middle, worst = statistics.median(found["shared"]), harness.percentile(found["shared"], 95)
    return Row(
        question="gunicorn: a new worker, from fork to its first answer from a full cache",
        ours=f"{show_ns(middle)}, p95 {show_ns(worst)}",
        peer=f"without pods {show_ns(statistics.median(found['none']))}",
        must=f"≤ {FORK_MS:g} ms",
        met=middle <= FORK_MS * 1e6,
    )


def _served(name: str, place: str, corpus: Corpus, rounds: int, seconds: float) -> list[Row]:
    bodies = corpus.bodies()
    Path(place, "bodies").write_bytes(b"\n".join(bodies.values()))
    options = ["--workers", str(WORKERS)]
    with contextlib.ExitStack() as stack:
        kinds = {
            kind: stack.enter_context(_serving(kind, name, place, *options))
            for kind in ("none", "shared", "dicts")
        }
        clients = stack.enter_context(Children(_client, [()] * CLIENTS))
        rows = []
        for served in kinds.values():
            served.ask(0)
        for count in (1, 1_000):
            for kind in ("shared", "dicts"):
                assert kinds[kind].ask(count)["count"] == count
                _rate(clients, kinds[kind].path, count, seconds)  # each worker has read
            pairs = [
                [_rate(clients, kinds[kind].path, count, seconds) for kind in ("shared", "dicts")]
                for _ in range(rounds)
            ]
            ours, theirs = (statistics.median(rates) for rates in zip(*pairs, strict=True))
            rows.append(
                Row(
                    question=f"requests/s, 3 fields of {count:,}, {corpus}, {WORKERS} workers",
                    ours=f"{ours:,.0f}",
                    peer=f"dicts {theirs:,.0f}",
                    **at_least(0.95, statistics.median(a / b for a, b in pairs)),
                )
            )
        _rate(clients, kinds["none"].path, 0, seconds)
        rows.append(_memory(name, corpus, kinds))
    return rows


def _memory(name: str, corpus: Corpus, kinds: dict[str, Served]) -> Row:
    plain = kinds["none"].private()
    files = sum(file.stat().st_blocks << 9 for file in Path(name).iterdir())
    ours = kinds["shared"].private() - plain + files
    theirs = kinds["dicts"].private() - plain
    return Row(
        question=f"added memory of {WORKERS} workers, {corpus}",
        ours=f"{show_bytes(ours)}, of which shared {show_bytes(files)}",
        peer=f"dicts {show_bytes(theirs)}",
        **(at_most(1 / 45, ours / theirs) if corpus.count == PODS else {"ratio": ours / theirs}),
        note="private memory beyond workers without pods, and the shared files once; "
        "the reflector's own process is in `memory`",
    )


def _rate(clients: Children, path: str, count: int, seconds: float) -> float:
    clients.send((path, count, seconds))
    return float(sum(clients.receive()) / seconds)


def _client(pipe: Pipe) -> None:
    while True:
        path, count, seconds = pipe.next()
        request, done = _request(count), 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = _ask(path, request)
            assert answer.startswith(b"HTTP/1.1 200"), answer
            done += 1
        pipe.answer(done)


if __name__ == "__main__":
    harness.main(__doc__, run)
