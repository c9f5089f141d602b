"""A sample of mutants of the Python side, each run against the tests that reach its line.

    python tests/campaigns/mutation.py --seed 7 --map build/mutation.map shmcache/protocol

Works on copies of the project, so that nothing here is ever broken. The map says which tests reach
a line; the most specific come first, and the first failure ends the run (mutation_runs.py). It has
to fail once more, alone, and to pass without the mutant.

Fates are appended to a file as they come, and a run leaves out mutants whose fate is known: a
stopped run goes on. A mutant that no test notices is printed and makes the status 1, unless
equivalent_mutants.txt lists it with the reason why it changes nothing. The seed and the names of
the mutants determine the sample, so that a change of one file leaves the sample of others as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mutation_map import TestMap
from mutation_runs import Killing, copies
from pymutants import Mutant, mutants

if TYPE_CHECKING:
    from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
FINAL = ("killed", "hangs", "equivalent")


def main(arguments: list[str] | None = None) -> int:
    """Prints survivors; 1 if there are any."""
    options = _options(arguments)
    source: Path = options.source.resolve()
    chosen = sample(options.paths, options.count, options.seed, source)
    fates = Fates(options.fates)
    known = equivalents()
    left = [
        one for one in chosen if one.name not in known and not fates.is_known(one, options.budget)
    ]
    print(f"{len(chosen)} mutants of {', '.join(options.paths)}, seed {options.seed}; "
          f"{len(left)} are to run", flush=True)  # fmt: skip
    if left:
        _run(left, fates, source, options)
        fates = Fates(options.fates)
    return _report(chosen, fates, known)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("paths", nargs="*", default=["shmcache"], help="files or folders")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--budget", type=float, default=20.0,
                        help="seconds of tests for each mutant, as the map knows them")  # fmt: skip
    parser.add_argument("--map", nargs="+", type=Path, required=True, help="of mutation_map.py")
    parser.add_argument("--source", type=Path, default=ROOT, help="the copy that the map describes")
    parser.add_argument("--fates", type=Path, default=ROOT / "build" / "mutant-fates.jsonl")
    return parser.parse_args(arguments)


def shown(mutant: Mutant) -> str:
    """One line for people."""
    return f"{mutant.path}:{mutant.line} {mutant.rule}: {mutant.before} -> {mutant.after}"[:160]


def sample(paths: list[str], count: int, seed: int, source: Path = ROOT) -> list[Mutant]:
    """So many mutants of these files, one of each name; the seed determines them."""
    files = [file for path in paths for file in sorted((source / path).rglob("*.py"))]
    files += [source / path for path in paths if path.endswith(".py")]
    found: dict[bytes, Mutant] = {}
    for file in files:
        name = str(file.relative_to(source))
        for mutant in mutants(name, file.read_text(encoding="utf-8")):
            order = hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()
            found.setdefault(order, mutant)
    return [found[order] for order in sorted(found)[:count]]


def equivalents() -> set[str]:
    """Names of mutants that change nothing; each is followed by its reason, indented."""
    if not EQUIVALENT.exists():
        return set()
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and line[0] not in "# "}


class Fates:
    """Known fates of mutants, by their names."""

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found = [json.loads(line) for line in lines]
        self._known = {one["name"]: one for one in found}

    def is_known(self, mutant: Mutant, budget: float) -> bool:
        """Whether another run with this budget would tell nothing more."""
        one = self._known.get(mutant.name)
        return one is not None and (one["fate"] in FINAL or one["budget"] >= budget)

    def of(self, mutant: Mutant) -> str:
        """One word; "" for a mutant that did not run."""
        return str(self._known.get(mutant.name, {}).get("fate", ""))

    def note(self, mutant: Mutant, fate: str, budget: float, by: str) -> None:
        """Several processes may do so."""
        one = {"name": mutant.name, "fate": fate, "budget": budget, "by": by, "line": mutant.line}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")


def _run(left: list[Mutant], fates: Fates, source: Path, options: argparse.Namespace) -> None:
    """Workers take numbers of mutants out of a pipe."""
    tests = TestMap(*options.map)
    options.fates.parent.mkdir(exist_ok=True)
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="mutants-") as room:
        rooms = copies(source, Path(room), options.workers)
        children = []
        for each in rooms:
            child = os.fork()
            if child == 0:
                os.close(writer)
                _worker(Killing(each, tests, options.budget), left, fates, reader)
            children.append(child)
        os.write(writer, b"".join(number.to_bytes(4, "big") for number in range(len(left))))
        os.close(writer)
        for child in children:
            os.waitpid(child, 0)
    os.close(reader)


def _worker(killing: Killing, left: list[Mutant], fates: Fates, numbers: int) -> NoReturn:
    status = 1
    try:
        killing.begin()
        while number := os.read(numbers, 4):
            mutant = left[int.from_bytes(number, "big")]
            begun = time.monotonic()
            fate, by = killing.fate(mutant)
            fates.note(mutant, fate, killing.budget, by)
            seconds = time.monotonic() - begun
            print(f"{fate:10} {seconds:5.1f} s  {shown(mutant)}", flush=True)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(status)


def _report(chosen: list[Mutant], fates: Fates, known: set[str]) -> int:
    ways = {one.name: "equivalent" if one.name in known else fates.of(one) for one in chosen}
    counts = Counter(ways.values())
    died = counts["killed"] + counts["hangs"]
    lives = [one for one in chosen if ways[one.name] not in FINAL]
    print(f"{died} killed ({counts['hangs']} of them hang), "
          f"{died / max(1, died + len(lives)):.1%} of those that may change behaviour; "
          f"{counts['equivalent']} equivalent; {len(lives)} live:")  # fmt: skip
    for mutant in lives:
        print(f"  {ways[mutant.name] or 'did not run'}: {shown(mutant)}")
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
