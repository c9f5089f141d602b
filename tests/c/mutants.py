"""Invariant tested: each planted bug of mutants.txt turns the test that is named with it red.

A line of the table is `MUTANT test [VARIANT]`; the core and the test are compiled again with
-DSHMC_MUTANT_<MUTANT>. Races need luck, so a mutant may survive a few tries, but not all of them:
each try of a stress test is twice as long as the one before, a minute in all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = Path(__file__).resolve().parent / "mutants.txt"
HEADERS = [each for each in (ROOT / "csrc").rglob("*.h") if each.name != "mutants.h"]
TRIES = 5


def table() -> list[tuple[str, str, str]]:
    rows = []
    for line in TABLE.read_text().splitlines() if TABLE.exists() else []:
        words = line.partition("#")[0].split()
        if words:
            mutant, test, variant = (*words, "plain")[:3]
            rows.append((mutant, test, variant))
    return rows


def make(variant: str, out: str, test: str, *more: str) -> None:
    jobs = f"-j{os.cpu_count()}"
    command = ["make", "-s", jobs, f"VARIANT={variant}", f"OUT={out}", *more, f"{out}/{test}"]
    subprocess.run(command, cwd=ROOT, check=True)


def borrow_objects(mutant: str, plain: str, out: str) -> None:
    """Those of the build without a bug whose source does not know it: as a rule all but one."""
    for kind, sources in (("core", "csrc"), ("shared", "tests/c/support")):
        (ROOT / out / kind).mkdir(parents=True)
        for made in (ROOT / plain / kind).glob("*.o"):
            source = next((ROOT / sources).rglob(f"{made.stem}.c"), None)
            if source is not None and not names(source, mutant):  # none: of an older build
                os.link(made, ROOT / out / kind / made.name)


def names(source: Path, mutant: str) -> bool:
    return mutant in source.read_text()


def compile_mutant(mutant: str, test: str, variant: str) -> Path:
    """The test's binary with the bug in it. A bug that does not compile proves nothing: raises."""
    plain, out = f"build/{variant}", f"build/mutant-{mutant}-{variant}"
    shutil.rmtree(ROOT / out, ignore_errors=True)
    if not any(names(header, mutant) for header in HEADERS):
        make(variant, plain, test)
        borrow_objects(mutant, plain, out)
    make(variant, out, test, f"DEFINES=-DSHMC_MUTANT_{mutant}")
    return ROOT / out / test


def caught(mutant: str, test: str, variant: str) -> int:
    """At which try the test failed; 0 if it never did."""
    binary = compile_mutant(mutant, test, variant)
    wrapper = ["setarch", "-R"] if variant == "tsan" else []
    for attempt in range(1, TRIES + 1):
        seconds = 1 << attempt
        longer = os.environ | {"STRESS_SECONDS": str(seconds)}
        command = [*wrapper, str(binary)]
        try:
            done = subprocess.run(  # noqa: PLW1510
                command, cwd=ROOT, env=longer, capture_output=True, timeout=60 + 4 * seconds
            )
        except subprocess.TimeoutExpired:
            return attempt  # a lost wake-up, for one, shows as a hang
        if done.returncode != 0:
            return attempt
    return 0


def main(chosen: list[str]) -> int:
    """The mutants of these names, or all."""
    rows = [row for row in table() if not chosen or row[0] in chosen]
    survived = 0
    for mutant, test, variant in rows:
        attempt = caught(mutant, test, variant)
        survived += attempt == 0
        verdict = f"caught at try {attempt}" if attempt else "SURVIVED"
        print(f"{mutant:32} {test:20} {variant:6} {verdict}", flush=True)  # noqa: T201
    print(f"{len(rows) - survived} passed, {survived} failed (mutants)")  # noqa: T201
    return 1 if survived or not rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
