"""How the work of a parser grows with its input, in instructions.

Valgrind (callgrind) counts the instructions of a child process that reads inputs which double, from
SMALLEST until a call takes ENOUGH instructions. Other processes do not change these counts. From n
to 4n bytes the count may rise by four times as much as from n/4 to n: where a parser is quadratic
it rises by 16 times as much.

A module of parsers has PARSERS, each with a name, and REFUSALS, the errors of invalid inputs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

IS_HERE = shutil.which("valgrind") is not None
INSTALL = "valgrind counts the instructions, and is not here: apt-get install valgrind"
HERE = Path(__file__).resolve()
SMALLEST = 1 << 7
LARGEST = 1 << 20
ENOUGH = 4_000_000
"""Instructions of a call after which its input grows no more."""
WINDOW = 5
"""Sizes that are compared with each other: n/4, n/2, n, 2n, 4n."""
RISE = 1_000_000
"""Instructions below which the fixed parts of a call decide, not its input."""
GREATEST = 5.0
"""Of one rise to the one before."""
WARM = 10
"""Calls before the first one that counts: late imports, caches, bytecode that CPython adapts."""
PROCESSES = 2
DEADLINE = 1800.0
"""Seconds for all parsers of a module, on a slow and busy machine."""

Parser = Callable[[int], Callable[[], object]]
"""Makes an input of about so many bytes, and returns the call that reads it."""


def linear(costs: list[int]) -> bool:
    """Whether these costs, of inputs that double, grow as the inputs do.

    Sizes over which a cost falls are not compared: a limit refuses the larger input, or memory is
    copied in another way from there on.
    """
    windows = [costs[at : at + WINDOW] for at in range(len(costs) - WINDOW + 1)]
    return bool(windows) and not any(
        window == sorted(window)
        and window[4] - window[2] > max(RISE, GREATEST * (window[2] - window[0]))
        for window in windows
    )


def counts(module: str) -> dict[str, list[int]]:
    """Instructions of all parsers of a module, for inputs of 128, 256, 512 … bytes."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(pool.map(lambda part: _counted(module, part), range(PROCESSES)))
    return {name: costs for part in parts for name, costs in part.items()}


def _counted(module: str, part: int) -> dict[str, list[int]]:
    with tempfile.TemporaryDirectory() as place:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={place}/count"]
        command += ["--zero-before=sched_get_priority_min", "--dump-before=sched_get_priority_max"]
        command += [sys.executable, str(HERE), module, str(part), place]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, check=False, timeout=DEADLINE
            )
        except subprocess.TimeoutExpired as late:
            last = (late.stdout or b"").splitlines()[-1:]
            raise AssertionError(f"no end after {DEADLINE:g} s: {last} read too much") from late
        if ended.returncode:
            raise RuntimeError(ended.stderr.decode(errors="replace")[-3000:])
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        return dict(zip(lines[::2], lines[1::2], strict=True))


# ---- in the child --------------------------------------------------------------------------------


def _child(module: str, part: int, place: Path) -> None:
    found = importlib.import_module(module)
    gc.disable()  # its work depends on all other objects of the process
    for name, parser in list(found.PARSERS.items())[part::PROCESSES]:
        print(json.dumps(name), flush=True)  # noqa: T201 - for _counted()
        print(json.dumps(list(_costs(parser, found.REFUSALS, place))), flush=True)  # noqa: T201


def _costs(parser: Parser, refusals: tuple[type[Exception], ...], place: Path) -> Iterator[int]:
    size, costs = SMALLEST, [0]
    for _ in range(WARM):
        _cost(parser(size), refusals, place)
    while size <= LARGEST and not _known(costs[-WINDOW:]):
        # the lesser of two calls: the first one may fill a cache, whatever its input
        costs.append(min(_cost(parser(size), refusals, place) for _ in range(2)))
        yield costs[-1]
        size *= 2


def _known(last: list[int]) -> bool:
    """A cost that falls shows a limit; larger inputs must then be measured, too."""
    if last[-1] > 100 * ENOUGH:
        return True
    return len(last) == WINDOW and last[-1] > ENOUGH and last == sorted(last) and last[0] > 0


def _cost(call: Callable[[], object], refusals: tuple[type[Exception], ...], place: Path) -> int:
    """Instructions of one call; callgrind knows its begin and its end by two functions of libc."""
    os.sched_get_priority_min(0)
    try:
        call()
    except refusals:
        pass
    os.sched_get_priority_max(0)
    (dump,) = place.glob("count.*")
    with dump.open() as lines:
        summary = next(line for line in lines if line.startswith("summary:"))
    dump.unlink()
    return int(summary.split()[1])


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
