"""Figures that do not depend on a machine's mood: bytes per object, and instructions per operation.

Bytes are the writer's own accounts of 2,000 pods of the corpus. Instructions are counted by
valgrind (callgrind) in a whole interpreter that fills a cache and then does one operation many
times, less the same without; Python's hashes are fixed. Both repeat to about one percent.

    python -m benchmarks.stable            compares with benchmarks/baseline.json; 1 if 10 % worse
    python -m benchmarks.stable --record   makes today's figures the baseline

Instructions depend on compiler and interpreter: they are compared with those of the same ones; a
message reports that the baseline has none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
PODS = 2_000
FILL = 100
TIMES = 200
WORSE = 1.10
CLOSER = {"add, get, done": 1.03}
"""Bounds of figures with one of their own: its baseline is that of commit b95aafe."""
OPERATIONS = {  # and how often in a process: the small ones more often, above the noise
    "get and field": 20_000,
    "delta taken and read": 20_000,
    "add, get, done": 20_000,
    "to_dict": TIMES,
    "status-only update": TIMES,
    "update": TIMES,
}
INSTALL = "apt-get install valgrind"

Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="as the new baseline")
    parser.add_argument("--operation", choices=["nothing", *OPERATIONS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.operation:
        _operate(options.operation)
        return 0
    if not shutil.which("valgrind"):
        print(f"valgrind counts the instructions, and is not here: {INSTALL}", file=sys.stderr)
        return 1
    found = {"bytes": _bytes(), f"instructions, {_toolchain()}": _instructions()}
    before: dict[str, Figures] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    worse = _compared(found, before)
    if options.record:
        BASELINE.write_text(json.dumps({**before, **found}, indent=1) + "\n")
        return 0
    return 1 if worse else 0


def _compared(found: dict[str, Figures], before: dict[str, Figures]) -> list[str]:
    """Prints every figure next to its baseline; returns the names of those that got worse."""
    worse = []
    for what, figures in found.items():
        if what not in before:
            print(f"no baseline for {what}: nothing to compare with")
        for name, value in figures.items():
            old = before.get(what, {}).get(name)
            change = f"{value / old:7.1%} of {old:,.0f}" if old else ""
            print(f"{what.partition(',')[0]:14}{name:28}{value:12,.0f}  {change}")
            if old and value > old * CLOSER.get(name, WORSE):
                worse.append(name)
    for name in worse:
        print(f"WORSE than {CLOSER.get(name, WORSE):.0%} of the baseline: {name}")
    return worse


def _toolchain() -> str:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    version = subprocess.run(
        [compiler, "-dumpfullversion"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"gcc {version}, CPython {platform.python_version()}, {platform.machine()}"


# ---- bytes ---------------------------------------------------------------------------------------


def _bytes() -> Figures:
    from benchmarks.scenes.shared import Corpus, directory, fill, open_writer

    with directory() as name, open_writer(name) as writer:
        fill(writer, Corpus("pods", PODS).objects())
        stats = writer.stats()
    return {
        "of values, per pod": stats["value_bytes"] / PODS,
        "of trees, per pod": stats["tree_bytes"] / PODS,
        "of private tables, per pod": stats["private_bytes"] / PODS,
    }


# ---- instructions --------------------------------------------------------------------------------


def _instructions() -> Figures:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_ran, ("nothing", *OPERATIONS)))  # compiles the modules, which is not counted
        nothing, *counts = pool.map(_counted, ("nothing", *OPERATIONS))
    return {
        each: (count - nothing) / times
        for (each, times), count in zip(OPERATIONS.items(), counts, strict=True)
    }


def _counted(operation: str) -> int:
    """Instructions of a process that does this operation as often as OPERATIONS says."""
    said = _ran(operation, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    counted = re.search(r"Collected : (\d+)", said)
    if not counted:
        raise RuntimeError(f"{operation}: {said[-2000:]}")
    return int(counted[1])


def _ran(operation: str, *under: str) -> str:
    """The standard error of such a process."""
    command = [*under, sys.executable, "-m", "benchmarks.stable", "--operation", operation]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    answer = subprocess.run(
        command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False
    )
    if answer.returncode:
        raise RuntimeError(f"{operation}: {answer.stderr[-2000:]}")
    return answer.stderr


def _operate(operation: str) -> None:
    """In the child: everything is prepared for all operations, so that it cancels out."""
    import shmcache
    from benchmarks.scenes import objects
    from benchmarks.scenes.shared import INDICES, RESOURCE, directory, fill

    pods = list(objects.pods(FILL))
    chosen = [pods[n * 7 % FILL] for n in range(TIMES)]
    changes = {
        "status-only update": [objects.status_update(pod, n) for n, pod in enumerate(chosen)],
        "update": [objects.update(pod, n) for n, pod in enumerate(chosen)],
    }
    resource = shmcache.Resource(RESOURCE, indices=INDICES)
    with directory() as name, shmcache.Writer(name, [resource], arena_max="256MiB") as writer:
        fill(writer, pods)
        with shmcache.attach(name) as cache, cache.queue("stable") as queue:
            cursor = cache.follow(start=cache.snapshot().head - FILL)
            keys = [f"prod/web-{number:07d}" for number in range(FILL)]
            _work(
                queue, keys, 1 if operation != "add, get, done" else OPERATIONS[operation] // FILL
            )
            _do(operation, writer, cache[RESOURCE], cursor, chosen, changes)


def _work(queue: Any, keys: list[str], rounds: int) -> None:
    for _ in range(rounds):
        for key in keys:
            queue.add(key)
            queue.get()
            queue.done(key)


def _do(
    operation: str,
    writer: Any,
    pods: Any,
    cursor: Any,
    chosen: list[dict[str, Any]],
    changes: dict[str, list[dict[str, Any]]],
) -> None:
    from benchmarks.scenes.objects import key_of, version_of
    from benchmarks.scenes.shared import RESOURCE

    keys = [key_of(pod) for pod in chosen]
    rounds = range(OPERATIONS.get(operation, 0) // TIMES)
    if operation == "get and field":
        for _ in rounds:
            for key in keys:
                pods[key]["spec"]["nodeName"]
    elif operation == "to_dict":
        for key in keys:
            pods[key].to_dict()
    elif operation == "delta taken and read":
        start = cursor.position
        for _ in range(OPERATIONS[operation] // FILL):
            cursor.position = start
            for delta in cursor.take(FILL):
                delta.new["spec"]["nodeName"]
    for key, changed in zip(keys, changes.get(operation, ()), strict=False):
        writer.put(RESOURCE, key, changed, version_of(changed))


if __name__ == "__main__":
    sys.exit(main())
