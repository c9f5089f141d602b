"""A raw process-shared sem_t per sleeper, in C: the limit for waking a process."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).with_name("wake.c")


@dataclasses.dataclass(frozen=True, slots=True)
class Wakes:
    """Nanoseconds: from the post until a sleeper runs, and the poster's cost of a round."""

    took: list[int]
    cost: list[int]


@contextlib.contextmanager
def compiled() -> Iterator[Path]:
    """The program of wake.c, in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-wake-") as directory:
        program = Path(directory) / "wake"
        subprocess.run(
            ["cc", "-std=c11", "-O2", "-pthread", "-o", program, SOURCE], check=True
        )  # fmt: skip
        yield program


def wake(program: Path, sleepers: int, rounds: int, gap_us: int) -> Wakes:
    found = subprocess.run(
        [program, str(sleepers), str(rounds), str(gap_us)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    *took, cost = ([int(value) for value in line.split()] for line in found.stdout.splitlines())
    return Wakes([value for line in took for value in line], cost)
