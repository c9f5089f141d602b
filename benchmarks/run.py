"""All questions, one after the other, each in a process of its own.

    python -m benchmarks.run                 everything, in full
    python -m benchmarks.run reads wake      these two; all other tables stay as they are
    python -m benchmarks.run --quick         everything smaller, in some four minutes

The answers are merged into benchmarks/results.json after each question, and the tables and pictures
of benchmarks/README.md are made from that file at the end (`python -m benchmarks.tables` does only
this). A question that fails, or that is stopped because it takes far longer than it may, says so in
its table, keeps the answer it had, and stops nothing else. A quick answer never replaces a full one
unless --replace says so; with --out everything is written elsewhere, from nothing. With --baseline
ratios are compared with those of an earlier results.json: 1 if one is 10 % worse.
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
from collections.abc import Iterator
from pathlib import Path

from benchmarks import harness, objects, tables
from benchmarks.tables import Answer, Results

QUESTIONS = {
    # name: seconds that a quick answer and a full one may take on two idle cores
    "footprint": (40, 540),
    "reads": (10, 90),
    "writes": (6, 90),
    "kinds": (5, 40),
    "indexing": (5, 60),
    "events": (6, 60),
    "memory": (10, 120),
    "stopped": (6, 120),
    "creep": (5, 180),
    "pauses": (5, 30),
    "wake": (10, 90),
    "ring": (20, 120),
    "contention": (5, 30),
    "framing": (3, 30),
    "selecting": (8, 60),
    "reflector": (20, 240),
    "handlers": (5, 60),
    "queue": (6, 60),
    "controllers": (5, 90),
    "serve": (6, 60),
    "serve_watch": (6, 90),
    "web": (10, 120),
    "commands": (8, 180),
    "takeover": (8, 180),
    "growth": (12, 120),
    "defence": (10, 60),  # and half a minute for its build, the first time
}
OVERDUE = 4
"""Times the seconds it may take: then a question is stopped; a busy machine is slow, not stuck."""
UNWIND_S = 20.0
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
    try:
        with _corpora():
            for question in asked:
                started = time.monotonic()
                answer = _ask(question, quick=options.quick)
                took[question] = time.monotonic() - started
                if "failed" in answer:
                    failed.append(question)
                if not kept.merge(question, answer, replace=options.replace):
                    print(f"{question}: the table of a full run stays (--replace)")
    finally:
        print(_times(took, quick=options.quick))
        kept.write()
    worse = _worse(kept.results, baseline)
    print("\n".join([*worse, *(f"failed: {question}" for question in failed)]))
    return 1 if failed or worse else 0


def _leave(_signal: int, _frame: object) -> None:
    """The question that is asked goes, too, and what was answered is kept."""
    sys.exit(128 + signal.SIGTERM)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="QUESTION", choices=[[], *QUESTIONS],
                        help=f"all, or some of {', '.join(QUESTIONS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="smaller: some four minutes")
    parser.add_argument("--replace", action="store_true", help="full answers by quick ones, too")
    parser.add_argument("--out", metavar="DIRECTORY", type=Path, help="write there, not here")
    parser.add_argument("--traces", metavar="DIRECTORY", help="where the recorded pages are")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="an earlier results.json")
    return parser.parse_args()


@contextlib.contextmanager
def _corpora() -> Iterator[None]:
    """Objects that one question has made are read by the next one."""
    with tempfile.TemporaryDirectory(prefix="bench-corpora-") as place:
        os.environ[objects.KEPT] = place
        yield


def _ask(question: str, *, quick: bool) -> Answer:
    """The question's answer; with `failed` in it, and no rows, if there is none."""
    print(f"\n== {question}", flush=True)
    started = time.monotonic()
    may = QUESTIONS[question][0 if quick else 1]
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        found = Path(place) / "answer.json"
        command = [sys.executable, "-m", f"benchmarks.{question}", "--json", str(found)]
        reason = _ran([*command, "--quick"] if quick else command, may * OVERDUE)
        if not reason:
            answer: Answer = json.loads(found.read_text())
            print(f"{question}: {answer['seconds']:.1f} s of {may}", flush=True)
            return answer
    print(f"{question}: {reason}", flush=True)
    return {
        "failed": reason,
        "machine": harness.machine(),
        "quick": quick,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": round(time.monotonic() - started, 1),
        "rows": [],
    }


def _ran(command: list[str], seconds: float) -> str:
    """Runs a question, and what it starts, to its end; why there is no answer, or "".

    What fails says so on the terminal; the last line of that is the reason.
    """
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=harness.ROOT, stderr=said, start_new_session=True)
        try:
            status = process.wait(seconds)
            reason = f"ended with {status}"
        except subprocess.TimeoutExpired:
            status, reason = 1, f"stopped after {seconds:.0f} s"
        finally:
            _end(process)
        said.seek(0)
        text = said.read().strip()
    print(text, file=sys.stderr, flush=True)
    if status == 0:
        return ""
    return f"{reason}: {text.splitlines()[-1]}" if text and "ended" in reason else reason


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks it first, so that it takes its files along; then nothing of its session is left."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(UNWIND_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _times(took: dict[str, float], *, quick: bool) -> str:
    lines = [f"\n{'question':14}{'took':>9}{'may take':>10}"]
    for question, seconds in took.items():
        may = QUESTIONS[question][0 if quick else 1]
        late = "  over" if seconds > may else ""
        lines.append(f"{question:14}{seconds:>7.1f} s{may:>8} s{late}")
    allowed = sum(QUESTIONS[question][0 if quick else 1] for question in took)
    return "\n".join([*lines, f"{'all':14}{sum(took.values()):>7.1f} s{allowed:>8} s"])


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
