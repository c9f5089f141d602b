"""All questions, one after the other, each in a process of its own.

    python -m benchmarks.run                 everything, in full
    python -m benchmarks.run reads wake      these two; all other tables stay as they are
    python -m benchmarks.run --quick         everything smaller, in two minutes

The answers are merged into benchmarks/results.json after each question, and the tables and pictures
of benchmarks/README.md are made from that file at the end (`python -m benchmarks.report.tables`
does only that). A question that fails, or that runs far over its time and is stopped, is marked in
its table, keeps its earlier answer, and does not stop the others. A quick answer never replaces a
full one unless --replace is given; with --out everything is written elsewhere. A quick run asks two
questions at a time if neither is about time between processes. With --baseline ratios are compared
with those of an earlier results.json: status 1 if one is 10 % worse.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

from benchmarks import harness
from benchmarks.report import tables
from benchmarks.report.tables import Answer, Results
from benchmarks.scenes import objects

QUESTIONS = {
    # name: seconds that a quick answer and a full one may take on two idle cores
    "footprint": (40, 540),
    "reads": (10, 90),
    "writes": (6, 90),
    "kinds": (6, 40),
    "indexing": (5, 60),
    "events": (6, 60),
    "memory": (10, 120),
    "stopped": (3, 120),
    "creep": (3, 180),
    "pauses": (3, 30),
    "scribbling": (6, 600),
    "wake": (10, 90),
    "ring": (12, 120),
    "contention": (5, 30),
    "framing": (3, 30),
    "selecting": (8, 60),
    "reflector": (16, 240),
    "handlers": (8, 60),
    "queue": (7, 60),
    "queue_sizes": (20, 240),
    "controller_sizes": (60, 240),
    "idle": (60, 240),
    "controllers": (4, 90),
    "consistent": (30, 120),
    "proof": (30, 300),
    "recorder": (20, 300),
    "serve": (5, 60),
    "serve_watch": (5, 90),
    "fills": (20, 90),
    "tier": (15, 90),
    "outage": (40, 240),
    "thin": (10, 120),
    "ui": (15, 60),
    "models": (15, 90),
    "plugin": (10, 60),
    "etcd": (25, 240),
    "web": (10, 120),
    "commands": (7, 180),
    "demo": (8, 130),
    "takeover": (4, 180),
    "growth": (4, 120),
    "defence": (10, 60),  # and half a minute for its build, the first time
}
IN_PAIRS = (
    "footprint", "reads", "writes", "kinds", "indexing", "events", "memory", "stopped", "creep",
    "pauses", "framing", "selecting", "takeover", "growth", "defence",
)  # fmt: skip
"""A quick run asks these two at a time: they count bytes, or the CPU time of one thread."""
AT_ONCE = 2
OVERDUE = 4
"""Times the seconds it may take: then a question is stopped; a busy machine is slow, not stuck."""
PATIENCE_S = 120
"""At least so many: the start of ten processes takes long while eight others use the core."""
UNWIND_S = 20.0
LOOK_S = 0.1
WORSE = 1.10


def main() -> int:
    options = _options()
    if options.traces:
        os.environ["SHMCACHE_TRACES"] = options.traces
    baseline = json.loads(options.baseline.read_text()) if options.baseline else {}
    signal.signal(signal.SIGTERM, _leave)
    kept = tables.Kept(options.out)
    asked = list(dict.fromkeys(options.questions or QUESTIONS))
    took: dict[str, float] = {}
    failed = []
    began = time.monotonic()
    try:
        with _corpora(), contextlib.closing(_answers(asked, quick=options.quick)) as answers:
            for question, answer in answers:
                took[question] = answer["seconds"]
                if "failed" in answer:
                    failed.append(question)
                if not kept.merge(question, answer, replace=options.replace):
                    print(f"{question}: the table of a full run stays (--replace)")
    finally:
        print(_times(took, time.monotonic() - began, quick=options.quick))
        kept.write()
    worse = _worse(kept.results, baseline)
    print("\n".join([*worse, *(f"failed: {question}" for question in failed)]))
    return 1 if failed or worse else 0


def _leave(_signal: int, _frame: object) -> None:
    """Ends the current question, too, and keeps the answers so far."""
    sys.exit(128 + signal.SIGTERM)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="QUESTION", choices=[[], *QUESTIONS],
                        help=f"all, or some of {', '.join(QUESTIONS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="smaller: two minutes")
    parser.add_argument("--replace", action="store_true", help="full answers by quick ones, too")
    parser.add_argument("--out", metavar="DIRECTORY", type=Path, help="write there, not here")
    parser.add_argument("--traces", metavar="DIRECTORY", help="where the recorded pages are")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="an earlier results.json")
    return parser.parse_args()


@contextlib.contextmanager
def _corpora() -> Iterator[None]:
    """Later questions read objects that an earlier one has made."""
    with tempfile.TemporaryDirectory(prefix="bench-corpora-") as place:
        os.environ[objects.KEPT] = place
        yield


def _answers(asked: list[str], *, quick: bool) -> Generator[tuple[str, Answer]]:
    """Each question with its answer; a failed one has `failed` in it, and no rows."""
    waiting = sorted(asked, key=lambda question: question not in IN_PAIRS) if quick else asked
    running: list[Asked] = []
    try:
        while waiting or running:
            while waiting and _fits(waiting[0], running, quick=quick):
                running.append(Asked(waiting[0], quick=quick))
                waiting = waiting[1:]
            for each in [each for each in running if each.ran.ended()]:
                running.remove(each)
                yield each.question, each.answer()
            time.sleep(LOOK_S)
    finally:
        for each in running:
            each.ran.close()


def _fits(question: str, running: list[Asked], *, quick: bool) -> bool:
    """Whether it may be asked now, next to the running ones."""
    if not running or not quick:
        return not running
    fit = all(each in IN_PAIRS for each in (question, running[0].question))
    return fit and len(running) < AT_ONCE


class Asked:
    """A question, asked in a process of its own."""

    def __init__(self, question: str, *, quick: bool) -> None:
        print(f"{question} ...", flush=True)
        self.question = question
        self._quick = quick
        self._may = QUESTIONS[question][0 if quick else 1]
        self._place = tempfile.TemporaryDirectory(prefix="bench-")
        command = [sys.executable, "-m", f"benchmarks.questions.{question}", "--json", self._found]
        self.ran = Ran(
            [*command, "--quick"] if quick else command, max(self._may * OVERDUE, PATIENCE_S)
        )

    @property
    def _found(self) -> str:
        return f"{self._place.name}/answer.json"

    def answer(self) -> Answer:
        """Its answer at its end, or the reason why it has none."""
        reason = self.ran.close()
        if not reason and not Path(self._found).exists():
            reason = "ended without an answer"
        print(f"\n== {self.question}\n{self.ran.said}".rstrip(), flush=True)
        seconds = round(self.ran.seconds, 1)
        print(f"{self.question}: {reason or f'{seconds} s of {self._may}'}", flush=True)
        with self._place:
            if not reason:
                answer: Answer = json.loads(Path(self._found).read_text())
                return answer
        return {
            "failed": reason,
            "machine": harness.machine(),
            "quick": self._quick,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seconds": seconds,
            "rows": [],
        }


class Ran:
    """A process with a time limit; its output is shown when it has ended."""

    def __init__(self, command: list[str], seconds: float) -> None:
        self._allowed = seconds
        self._began = time.monotonic()
        self._files = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        out, errors = self._files
        self._process = subprocess.Popen(
            command,
            cwd=harness.ROOT,
            env=harness.environment(),
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        self.said = ""
        self.seconds = 0.0

    def ended(self) -> bool:
        late = time.monotonic() - self._began > self._allowed
        return late or self._process.poll() is not None

    def close(self) -> str:
        """Ends it and all that it started; returns the reason of a failure, or ""."""
        self.seconds = time.monotonic() - self._began
        status = self._process.poll()
        _end(self._process)
        self.said, errors = (_text(file) for file in self._files)
        if errors:
            print(errors, file=sys.stderr, flush=True)
        if status is None:
            return f"stopped after {self._allowed:.0f} s"
        if status == 0:
            return ""
        return ": ".join(filter(None, [f"ended with {status}", *errors.splitlines()[-1:]]))


def _text(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read().strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts it first, so that it removes its files; then nothing of its session is left."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(UNWIND_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _times(took: dict[str, float], wall: float, *, quick: bool) -> str:
    lines = [f"\n{'question':14}{'took':>9}{'may take':>10}"]
    for question, seconds in took.items():
        may = QUESTIONS[question][0 if quick else 1]
        late = "  over" if seconds > may else ""
        lines.append(f"{question:14}{seconds:>7.1f} s{may:>8} s{late}")
    return "\n".join([*lines, f"{'all':14}{wall:>7.1f} s"])


def _worse(results: Results, baseline: Results) -> list[str]:
    """A line for each row whose ratio is more than 10 % worse than the baseline's."""
    old = {
        row.question: row.ratio for answer in baseline.values() for row in tables.rows(answer)
    }  # fmt: skip
    lines = []
    for row in (row for answer in results.values() for row in tables.rows(answer)):
        before = old.get(row.question)
        if row.ratio and before and row.must:
            change = row.ratio / before if row.must.startswith("≤") else before / row.ratio
            if change > WORSE:
                lines.append(
                    f"worse: {row.question}: {harness.show(before)} became "
                    f"{harness.show(row.ratio)}"
                )
    return lines


if __name__ == "__main__":
    sys.exit(main())
