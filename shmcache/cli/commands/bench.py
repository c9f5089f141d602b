"""`shmcache bench`: what a cache costs and saves here, with a cluster's objects or made-up ones."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

import shmcache
from shmcache.cli.arguments import at_least

HELP = "Measures what a cache costs and saves on this machine, with your objects or generated pods."

EPILOG = """\
Without a resource, bench generates pods. With resources, the rest of the command line is that of
`shmcache run`: --kubeconfig, --context, --server, -n, -l, --replay FILE, ... The benchmark starts a
reflector of its own in a new directory under /dev/shm and removes it afterwards; running caches are
not touched. The comparison is a process without a shared cache: a dict of dicts, filled by orjson.
For the reflector all memory counts, Python and its modules included; for workers only the memory
beyond those.

  shmcache bench                                   generated pods
  shmcache bench --workers 16 pods nodes -n prod   objects of your cluster
  shmcache run pods --record pods.rec              record until ctrl-C, and then
  shmcache bench pods --replay pods.rec            measure without a cluster

Exit status: 0 measured, 2 command line, 75 not synced in time, 78 no such resource; otherwise that
of `shmcache run`.
"""
REST = "what"
"""The argument that takes the rest of the command line, options of run included."""
MEMORY = "/dev/shm"  # noqa: S108
SYNC_S = 600.0
MEASURE = [sys.executable, "-m", "shmcache.cli.bench.measure"]

Found = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of bench come before the first resource."""
    parser.epilog = EPILOG
    parser.usage = "shmcache bench [OPTIONS] [RESOURCE ... [OPTIONS OF RUN]]"
    parser.add_argument(
        "--workers",
        type=at_least(1),
        default=8,
        metavar="N",
        help="number of worker processes to compare for (default: 8)",
    )
    parser.add_argument(
        "--count",
        type=at_least(1),
        default=10_000,
        metavar="N",
        help="number of generated pods (default: 10000)",
    )
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON instead of tables")
    parser.add_argument(
        REST,
        nargs=argparse.REMAINDER,
        metavar="RESOURCE",
        help="resources and further options, as for `shmcache run`",
    )


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    if options.workers < 1 or options.count < 1:
        print("shmcache bench: --workers and --count are at least 1", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)
    directory = tempfile.mkdtemp(prefix="shmcache-bench-", dir=MEMORY)
    try:
        return _measured(options, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _leave(_signal: int, _frame: object) -> None:
    """Takes the reflector and its memory along."""
    sys.exit(128 + signal.SIGTERM)


def _measured(options: argparse.Namespace, directory: str) -> int:
    if options.what:
        command = [sys.executable, "-m", "shmcache", "run", "--cache", directory]
        command += ["--log-level", "error", *options.what]
    else:
        command = [*MEASURE, "fill", directory, str(options.count)]
    filler = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        status = _await(filler, directory)
        if status is not None:
            return status
        found = {**_asked("sizes", directory), "filler": _asked("memory", str(filler.pid))}
        found["worker"], found["dicts"] = _asked("read", directory), _asked("decode", directory)
    finally:
        filler.terminate()
        filler.wait()
    found["workers"] = options.workers
    if options.output:
        print(json.dumps(found, indent=2))
    else:
        show(found, sys.stdout)
    return 0


def _await(filler: subprocess.Popen[bytes], directory: str) -> int | None:
    """Until all is synced; the filler's exit status if that comes first."""
    deadline = time.monotonic() + SYNC_S
    while filler.poll() is None:
        try:
            with shmcache.attach(directory, timeout=0.2) as cache:
                if all(cache[name].wait_synced(0.2) for name in cache):
                    return None
                if absent := [name for name in cache if _is_absent(cache[name].status)]:
                    print(f"shmcache bench: the server has no {', '.join(absent)}", file=sys.stderr)
                    return 78
        except shmcache.SegmentNotFound:
            pass  # not yet there
        if time.monotonic() > deadline:
            print(f"shmcache bench: not synced within {SYNC_S:.0f} s", file=sys.stderr)
            return 75
    return filler.returncode or 1


def _is_absent(status: Any) -> bool:
    """The server was asked, and has no such resource."""
    return bool(status.state == "absent" and status.reason)


def _asked(what: str, argument: str) -> Found:
    """A measurement in a process of its own, which has imported nothing else."""
    command = [*MEASURE, what, argument]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Found = json.loads(answer.stdout)
    return found


# ---- output --------------------------------------------------------------------------------------


def show(found: Found, out: IO[str]) -> None:
    """The objects, the memory with as many workers, and what reading costs."""
    for name, each in found["resources"].items():
        print(
            f"{name:28} {each['objects']:>9,} objects {_size(each['json']):>11} of JSON", file=out
        )
    workers, worker, dicts = found["workers"], found["worker"], found["dicts"]
    shared = found["segments"] + found["filler"]["private"] + workers * worker["private"]
    print(f"\n{'memory':28} {'shmcache':>14} {'a dict in each':>16}", file=out)
    for label, ours, peer in (
        ("shared, once", found["segments"], 0),
        ("reflector, all of it", found["filler"]["private"], 0),
        ("each worker", worker["private"], dicts["private"]),
        (f"all with {workers} workers", shared, workers * dicts["private"]),
    ):
        print(f"{label:28} {_size(ours):>14} {_size(peer) if peer else '':>16}", file=out)
    print(f"{'connections, first lists':28} {1:>14} {workers:>16}", file=out)
    print(f"\n{'in a worker':28}", file=out)
    for label, key, unit in (
        ("until it has all objects", "ready_s", 1e3),
        ("get, and a field of it", "field_ns", 1e-3),
        ("a full garbage collection", "collect_s", 1e3),
    ):
        kind = "ms" if unit == 1e3 else "µs"
        ours, peer = worker[key] * unit, dicts[key] * unit
        print(f"{label:28} {ours:>11.3g} {kind} {peer:>13.3g} {kind}", file=out)
    saved = 1 - shared / (workers * dicts["private"]) if dicts["private"] else 0.0
    what = f"{saved:.0%} of the memory" if saved >= 0.005 else "no memory"
    print(f"\nWith {workers} workers: {what} saved.", file=out)


def _size(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):,.0f} KiB"
