# ruff: noqa: T201 -- a command prints
"""Model-check the protocols with spin.

A true model must be explored to the end without an error, every statement of it reached; a
mutant must break the invariant that is named with it. Prints one line per variant; exits 0 if
all of them came out as written here, 1 if any differs, 77 where a tool is missing.

Usage: run.py [WORD ...]    only variants whose model or name contains every WORD
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
JOBS = 2
MEMORY_LIMIT_MB = 800  # of one pan; JOBS of them stay below 2 GB
DEPTH_LIMIT_STEPS = 1_000_000
TIME_LIMIT_S = 300

WHOLE = "P1_value_is_whole"
KEPT = "P2_pin_is_kept"
ROOT = "P3_root_is_whole"
LOST = "W1_no_ring_is_lost"
LOST_WAKE = "W7_no_wake_is_lost"
TWO = "Q2_one_worker"
UNSEEN = "Q3_last_data_is_seen"
HOLED = "GROW2_a_slot_is_one_workers"
HOLE = "LEVEL1_no_entry_in_a_hole"
LOST_KEY = "LEVEL2_a_key_is_found"
OVERLAP = "LEASEMODEL1_one_leader"
OVER = "J2_no_ticket_is_slept_over"
BOTH = "SPREADMODEL1_one_worker"
IDLE = "SPREADMODEL2_works_again"


@dataclass(frozen=True, slots=True)
class Variant:
    """One run: a model, its switches, and the invariant it must break (none: a true model)."""

    model: str
    name: str
    flags: str
    breaks: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run; `differs` is the difference from the expected one."""

    verdict: str
    differs: str = ""
    states: int = 0
    depth: int = 0
    megabytes: float = 0.0
    seconds: float = 0.0
    output: str = ""


# The buffers of the true models are as deep as they ever get: -DNEVER_FULL makes pan prove it.
PIN = "-DDEPTH=7 -DNEVER_FULL"
WAKE = "-DDEPTH=4 -DNEVER_FULL"
TWO_WORDS = "-DINTERESTS=2 -DTWO_WORDS -DPUBLISHES=2"
LINGER = "-DDEPTH=3 -DNEVER_FULL"
ONE_TICKET = "-DTICKETS=1 -DSPIN=LAST -DRESERVE=FIRST"
PLAIN = "-DTHREADS=1 -DPLAIN_ANNOUNCE -DLITERAL"

VARIANTS = (
    Variant("pin", "1 reader", f"{PIN} -DGENERATIONS=6"),
    Variant("pin", "1 reader, 2 slots", f"{PIN} -DGENERATIONS=6 -DSLOTS=2"),
    Variant("pin", "1 reader, REVOKE", f"{PIN} -DGENERATIONS=5 -DREVOKE"),
    Variant("pin", "1 reader, KEEP", f"{PIN} -DGENERATIONS=5 -DKEEP"),
    Variant("pin", "1 reader, KEEP, 2 entries", f"{PIN} -DGENERATIONS=4 -DKEEP -DENTRIES=2"),
    Variant("pin", "1 reader, SHARE", f"{PIN} -DGENERATIONS=5 -DSHARE"),
    Variant("pin", "1 reader, all of them", f"{PIN} -DGENERATIONS=4 -DREVOKE -DKEEP -DSHARE"),
    Variant("pin", "1 reader, TAKEOVER", f"{PIN} -DGENERATIONS=4 -DTAKEOVER=2"),
    Variant("pin", "TAKEOVER, REVOKE", f"{PIN} -DGENERATIONS=4 -DTAKEOVER=1 -DREVOKE"),
    Variant("pin", "2 readers", f"{PIN} -DGENERATIONS=3 -DREADERS=2 -DBLOCKS=2"),
    Variant("pin", "2 readers, REVOKE", f"{PIN} -DGENERATIONS=3 -DREADERS=2 -DBLOCKS=2 -DREVOKE"),
    Variant(
        "pin",
        "floor alone, pins broken",
        "-DGENERATIONS=4 -DREVOKE -DNO_READER_FENCE -DNO_WRITER_FENCE -DNO_RECHECK",
    ),
    Variant(
        "pin",
        "control: no store buffers",
        "-DSEQUENTIAL -DNO_READER_FENCE -DNO_WRITER_FENCE -DKEEP -DGENERATIONS=5",
    ),
    Variant("pin", "NO_READER_FENCE", "-DNO_READER_FENCE", KEPT),
    Variant("pin", "NO_WRITER_FENCE", "-DNO_WRITER_FENCE", KEPT),
    Variant("pin", "NO_RECHECK", "-DNO_RECHECK", KEPT),
    Variant("pin", "KEEP_LATE", "-DKEEP -DKEEP_LATE", KEPT),
    Variant("pin", "SCAN_DOWN", "-DKEEP -DSCAN_DOWN", KEPT),
    Variant("pin", "NO_RETIRE_WAIT", "-DNO_RETIRE_WAIT", KEPT),
    Variant("pin", "RETIRE_EARLY", "-DRETIRE_EARLY", KEPT),
    Variant("pin", "BIRTH_LATE", "-DBIRTH_LATE", KEPT),
    Variant("pin", "PLACE_LATE", "-DPLACE_LATE", KEPT),
    Variant("pin", "NO_CEILING", "-DREADERS=2 -DNO_CEILING -DGENERATIONS=4", KEPT),
    Variant("pin", "NOT_OPEN", "-DSHARE -DNOT_OPEN", KEPT),
    Variant("pin", "FORGET_KEPT", "-DTAKEOVER=1 -DFORGET_KEPT -DGENERATIONS=4", KEPT),
    Variant("pin", "NO_INHERIT_WAIT", "-DTAKEOVER=1 -DNO_INHERIT_WAIT -DGENERATIONS=4", KEPT),
    Variant("pin", "NO_FLOOR_CHECK", "-DREVOKE -DNO_FLOOR_CHECK", WHOLE),
    Variant("pin", "FLOOR_LATE", "-DREVOKE -DFLOOR_LATE", WHOLE),
    Variant("pin", "LET_GO_LATE", "-DREVOKE -DLET_GO_LATE", WHOLE),
    Variant("pin", "BACK_AGAIN", "-DREVOKE -DBACK_AGAIN", WHOLE),
    Variant("pin", "PUBLISH_EARLY", "-DPUBLISH_EARLY", ROOT),
    Variant("pin", "SLOT_LIMIT=SLOTS", "-DREVOKE -DSLOT_LIMIT=SLOTS", ROOT),
    Variant("wake", "1 thread", f"{WAKE} -DTHREADS=1 -DPUBLISHES=4"),
    Variant("wake", "2 threads", f"{WAKE} -DPUBLISHES=4"),
    Variant("wake", "2 threads, INTERESTS=2", f"{WAKE} -DINTERESTS=2"),
    Variant("wake", "2 threads, TWO_WORDS", f"-DDEPTH=5 -DNEVER_FULL {TWO_WORDS}"),
    Variant("wake", "2 threads, SELF", f"{WAKE} -DPUBLISHES=1 -DSELF"),
    Variant("wake", "3 threads", f"{WAKE} -DTHREADS=3 -DPUBLISHES=1"),
    Variant("wake", "2 threads, LITERAL", f"{WAKE} -DLITERAL"),
    Variant("wake", "2 threads, TAKEOVER", f"{WAKE} -DTAKEOVER=2"),
    Variant("wake", "1 thread, ONE_VALUE", f"{WAKE} -DTHREADS=1 -DONE_VALUE"),
    Variant("wake", "spare: NO_READER_FENCE", f"{WAKE} -DINTERESTS=2 -DNO_READER_FENCE"),
    Variant("wake", "spare: INTEREST_LATE", f"{WAKE} -DINTEREST_LATE"),
    Variant("wake", "PLAIN", f"{WAKE} {PLAIN} -DPUBLISHES=3 -DSLEEPS=4"),
    Variant(
        "wake",
        "control: no store buffers",
        f"{PLAIN} -DSEQUENTIAL -DNO_READER_FENCE -DNO_WRITER_FENCE",
    ),
    Variant("wake", "PLAIN, NO_READER_FENCE", f"{PLAIN} -DNO_READER_FENCE", LOST),
    Variant("wake", "PLAIN, 2 threads", "-DPLAIN_ANNOUNCE -DLITERAL", LOST),
    Variant("wake", "INTEREST_LATE, no fence", "-DINTEREST_LATE -DNO_READER_FENCE", LOST),
    Variant("wake", "INTEREST_ALONE", "-DINTERESTS=2 -DINTEREST_ALONE", LOST),
    Variant("wake", "TWO_WORDS, ONE_WORD", f"{TWO_WORDS} -DONE_WORD", LOST),
    Variant("wake", "TWO_WORDS, no fence", f"{TWO_WORDS} -DNO_WRITER_FENCE", LOST),
    Variant("wake", "NO_WRITER_FENCE", "-DNO_WRITER_FENCE", LOST),
    Variant("wake", "NO_RECHECK", "-DNO_RECHECK", LOST),
    Variant("wake", "NO_ANNOUNCE", "-DNO_ANNOUNCE", LOST),
    Variant("wake", "LEAVE_ALWAYS", "-DLEAVE_ALWAYS", LOST),
    Variant("wake", "WAKE_FIRST", "-DWAKE_FIRST", LOST),
    Variant("wake", "NO_TAKEOVER_WAKE", "-DTAKEOVER=1 -DNO_TAKEOVER_WAKE", LOST),
    Variant("wake", "TAKEOVER_ON", "-DTAKEOVER=1 -DTAKEOVER_ON", LOST),
    Variant("wake", "QUIET", "-DQUIET", LOST),
    Variant("wake", "ONE_VALUE, 2 threads", "-DONE_VALUE", LOST),
    Variant("wake", "ONE_VALUE, no buffers", "-DONE_VALUE -DSEQUENTIAL", LOST),
    Variant("wake", "SELF_LATE", "-DTHREADS=1 -DSELF -DSELF_LATE", LOST_WAKE),
    Variant("queue", "2 workers", "-DNEVER_FULL -DDEPTH=4"),
    Variant("queue", "2 workers, FEED", "-DFEED -DNEVER_FULL -DDEPTH=6"),
    Variant("queue", "control: no store buffers", "-DSEQUENTIAL -DNO_ADD_FENCE"),
    Variant("queue", "NO_ADD_FENCE", "-DNO_ADD_FENCE", UNSEEN),
    Variant("queue", "LOAD_STORE", "-DLOAD_STORE", UNSEEN),
    Variant("queue", "EARLY_REAP", "-DEARLY_REAP", TWO),
    Variant("queue", "NO_GIVE_BACK", "-DNO_GIVE_BACK", UNSEEN),
    Variant("queue", "DROP_DIRTY", "-DDROP_DIRTY", UNSEEN),
    Variant("queue", "CURSOR_EARLY", "-DFEED -DCURSOR_EARLY", UNSEEN),
    Variant("grow", "2 workers", ""),
    Variant("grow", "NO_STEP_CHECK", "-DNO_STEP_CHECK", HOLED),
    Variant("grow", "NO_WORD_CHECK", "-DNO_WORD_CHECK", HOLED),
    Variant("grow", "NO_STEP_CLAIM", "-DNO_STEP_CLAIM", HOLED),
    Variant("grow", "NO_HEIR", "-DNO_HEIR", HOLED),
    Variant("levels", "2 workers", ""),
    Variant("levels", "2 workers, 3 turns", "-DTURNS=3"),
    Variant("levels", "NO_OPEN", "-DNO_OPEN", HOLE),
    Variant("levels", "NO_ALONE", "-DNO_ALONE", LOST_KEY),
    Variant("levels", "NO_NEED", "-DNO_NEED", LOST_KEY),
    Variant("levels", "NO_COUNT", "-DNO_COUNT", HOLE),
    Variant("linger", "2 adders, RESERVE", f"{LINGER} -DRESERVE=LAST"),
    Variant("linger", "1 adder, SPIN, RESERVE", f"{LINGER} {ONE_TICKET}"),
    Variant("linger", "1 adder, KILL", f"{LINGER} -DTICKETS=1 -DSPIN=FIRST -DRESERVE=FIRST -DKILL"),
    Variant(
        "linger",
        "control: no store buffers",
        f"{ONE_TICKET} -DSEQUENTIAL -DNO_ADDER_FENCE -DNO_COME_FENCE",
    ),
    Variant("linger", "NO_ADDER_FENCE", f"{ONE_TICKET} -DNO_ADDER_FENCE", OVER),
    Variant("linger", "NO_COME_FENCE", f"{ONE_TICKET} -DNO_COME_FENCE", OVER),
    Variant("linger", "COME_LATE", f"{ONE_TICKET} -DCOME_LATE", OVER),
    Variant("linger", "LOOK_FIRST", f"{ONE_TICKET} -DLOOK_FIRST", OVER),
    Variant("linger", "NO_WITHDRAWAL", f"{ONE_TICKET} -DNO_WITHDRAWAL", OVER),
    Variant("linger", "NO_PASS_ON", f"{ONE_TICKET} -DNO_PASS_ON", OVER),
    Variant("linger", "GO_AT_ONCE", f"{ONE_TICKET} -DGO_AT_ONCE", OVER),
    Variant("linger", "PROMISE_LATE", f"{ONE_TICKET} -DPROMISE_LATE", OVER),
    Variant("linger", "PROMISE_LAST", f"{ONE_TICKET} -DPROMISE_LAST", OVER),
    Variant("linger", "KEEP_PROMISE", "-DKEEP_PROMISE", OVER),
    Variant("linger", "NO_AGE", "-DKILL -DNO_AGE", OVER),
    Variant("linger", "NO_REAP", "-DKILL -DNO_REAP", OVER),
    Variant("lease", "2 members", ""),
    *(
        Variant("lease", name, f"-D{name}", OVERLAP)
        for name in (
            *("FROM_ANSWER", "FOREIGN_CLOCK", "NO_RESTART", "NO_VERSION", "EQUAL_RECORD"),
            *("RELEASE_FIRST", "LONG_TERM", "NO_CLOCK", "SUSPENDED"),
        )
    ),
    Variant("slots", "2 members, late writes", "-DLATE_WRITES -DOUTSIDER"),
    Variant("slots", "CALM", "-DCALM"),
    Variant("slots", "CALM, the first leaves", "-DCALM -DLEAVER=0 -DLEAVE=GONE"),
    Variant("slots", "CALM, the second leaves", "-DCALM -DLEAVER=1 -DLEAVE=RELEASED"),
    *(
        Variant("slots", name, f"-D{name}", BOTH)
        for name in (
            *("AFTER_TERM", "NO_RECHECK", "NOT_NAMED", "NO_JOIN", "NO_DRAIN", "TAKE_LIVING"),
            *("LATE", "NO_VERSION"),
        )
    ),
    Variant("slots", "NO_MISSED", "-DOUTSIDER -DNO_MISSED", BOTH),
    Variant("slots", "KEEP_MARK", "-DCALM -DLEAVER=1 -DLEAVE=RELEASED -DKEEP_MARK", IDLE),
    Variant("slots", "KEEP_DRAINING", "-DCALM -DKEEP_DRAINING", IDLE),
    Variant("wake", "NO_SELF_CHECK", "-DTHREADS=1 -DSELF -DNO_SELF_CHECK", LOST_WAKE),
)


def run(command: list[str], directory: Path) -> str:
    """Give what the command printed, on either stream; raise if it failed or took too long."""
    done = subprocess.run(
        command,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=TIME_LIMIT_S,
    )
    return done.stdout


def explore(variant: Variant, compiler: str) -> str:
    """Translate, compile and run one variant in a directory of its own; give pan's output."""
    with tempfile.TemporaryDirectory(prefix="shmcache-spin-") as name:
        directory = Path(name)
        for model in HERE.glob("*.pml"):
            shutil.copy(model, directory)
        preprocessor = f"-P{compiler} -E -x c"
        run(["spin", preprocessor, "-a", *variant.flags.split(), f"{variant.model}.pml"], directory)
        speed = "-O1" if variant.breaks is None else "-O0"  # mutants fail at once
        options = [speed, "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_LIMIT_MB}"]
        run([compiler, *options, "-o", "pan", "pan.c"], directory)
        return run(["./pan", f"-m{DEPTH_LIMIT_STEPS}", "-w21"], directory)


def number(pattern: str, output: str) -> float:
    """Give the number that pan printed at the pattern's group; 0 if it printed none."""
    found = re.search(pattern, output, re.MULTILINE)
    return float(found[1]) if found else 0.0


def dead_code(output: str) -> list[str]:
    """Statements that no run reached; Watch's are reached by a violation only."""
    dead: list[str] = []
    process = ""
    for line in output.splitlines():
        if line.startswith("unreached in proctype "):
            process = line.rsplit(maxsplit=1)[-1]
        elif process != "Watch" and re.match(r'\t\S+\.pml:\d+, state (?!.*"-end-")', line):
            dead.append(line.strip())
    return dead


def differs_as_true(output: str) -> str:
    """Why this is not a complete and clean exploration; empty if it is one."""
    if "errors: 0" not in output:
        return "an error was found"
    for sign in ("max search depth too small", "Search not completed", "MEMLIM bound"):
        if sign in output:
            return f"truncated: {sign}"
    if dead := dead_code(output):
        return f"never reached: {dead[0]}"
    return ""


def differs_as_mutant(output: str, breaks: str) -> str:
    """Why this is not the failure that the mutant must cause; empty if it is."""
    if f"assertion violated {breaks}" in output:
        return ""
    return f"{breaks} was not violated"


def judge(variant: Variant, output: str, seconds: float) -> Outcome:
    """Compare what pan printed with what the variant promises."""
    if variant.breaks is None:
        differs = differs_as_true(output)
        verdict = "holds"
    else:
        differs = differs_as_mutant(output, variant.breaks)
        verdict = f"breaks {variant.breaks}"
    return Outcome(
        verdict="DIFFERS" if differs else verdict,
        differs=differs,
        states=int(number(r"^ *([\d.e+]+) states, stored", output)),
        depth=int(number(r"depth reached (\d+)", output)),
        megabytes=number(r"^ *([\d.]+)\ttotal actual memory usage", output),
        seconds=seconds,
        output=output,
    )


def check(variant: Variant, compiler: str) -> Outcome:
    """Run one variant and judge it; a tool that fails is a difference too."""
    start = time.monotonic()
    try:
        output = explore(variant, compiler)
    except subprocess.CalledProcessError as error:
        return Outcome("DIFFERS", f"{error.cmd[0]} failed", output=error.stdout)
    except subprocess.TimeoutExpired as error:
        return Outcome("DIFFERS", f"{error.cmd[0]} took more than {TIME_LIMIT_S} s")
    return judge(variant, output, time.monotonic() - start)


def report(variant: Variant, outcome: Outcome) -> None:
    """Print the variant's line, and all that pan said where it differs."""
    print(
        f"{variant.model:6} {variant.name:26} {outcome.states:>9,} {outcome.depth:>7,} "
        f"{outcome.megabytes:>5.0f} {outcome.seconds:>8.1f}  {outcome.verdict}",
        flush=True,
    )
    if outcome.differs:
        print(f"      {outcome.differs} ({variant.flags})", flush=True)
        print("".join(f"      | {line}\n" for line in outcome.output.splitlines()), end="")


def main(words: list[str]) -> int:
    """Run the variants that contain all the words; give the exit status."""
    if shutil.which("spin") is None:
        print("skipped: spin is missing: apt-get install spin", file=sys.stderr)
        return SKIPPED
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("skipped: no C compiler (gcc or cc): apt-get install gcc", file=sys.stderr)
        return SKIPPED
    chosen = [v for v in VARIANTS if all(word in f"{v.model} {v.name}" for word in words)]
    if not chosen:
        print(f"no variant contains {' and '.join(words)}", file=sys.stderr)
        return 1

    start = time.monotonic()
    print("model  variant                       states   depth    MB  seconds  verdict")
    different = 0
    with ThreadPoolExecutor(JOBS) as pool:
        outcomes = pool.map(lambda variant: check(variant, compiler), chosen)
        for variant, outcome in zip(chosen, outcomes, strict=True):
            report(variant, outcome)
            different += bool(outcome.differs)
    took = time.monotonic() - start
    print(f"{len(chosen)} variants, {different} differ, {took:.0f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
