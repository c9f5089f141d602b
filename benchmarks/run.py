"""All questions, one after the other, each in a process of its own.

Writes benchmarks/results.json and, from it, the tables of benchmarks/README.md. With --baseline
it compares ratios with those of an earlier results.json and fails where one got 10 % worse.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness, pictures
from benchmarks.harness import Row

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
RESULTS = HERE / "results.json"
QUESTIONS = ("footprint", "reads", "writes", "indexing", "events", "memory", "stopped", "creep",
             "pauses", "wake", "ring", "contention", "framing", "selecting", "reflector",
             "handlers", "queue", "controllers", "serve", "serve_watch", "web", "commands",
             "takeover")  # fmt: skip
WORSE = 1.10
TIMEOUT_S = 1_800

Results = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="QUESTION", choices=[[], *QUESTIONS],
                        help=f"all, or some of {', '.join(QUESTIONS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="fewer rounds: some minutes")
    parser.add_argument("--traces", metavar="DIRECTORY", help="where the recorded pages are")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="an earlier results.json")
    options = parser.parse_args()
    baseline = json.loads(options.baseline.read_text()) if options.baseline else {}
    results: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = False
    for question in options.questions or QUESTIONS:
        answer = _ask(question, quick=options.quick, traces=options.traces)
        failed |= answer is None
        if answer is not None:
            results[question] = answer
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    README.write_text(_with_tables(README.read_text(), results))
    _draw(results)
    worse = _worse(results, baseline)
    print("\n".join(worse))
    return 1 if failed or worse else 0


def _ask(question: str, *, quick: bool, traces: str | None) -> Results | None:
    """The question's answer; None if it could not be asked, and then it says why itself."""
    print(f"\n{question}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        found = Path(place) / "answer.json"
        command = [sys.executable, "-m", f"benchmarks.{question}", "--json", str(found)]
        command += ["--quick"] if quick else []
        command += ["--traces", traces] if traces else []
        try:
            subprocess.run(command, cwd=HERE.parent, check=True, timeout=TIMEOUT_S)
        except subprocess.SubprocessError as error:
            print(f"{question}: {error}")
            return None
        answer: Results = json.loads(found.read_text())
        return answer


def _draw(results: Results) -> None:
    try:
        print("pictures: " + ", ".join(pictures.draw(results)))
    except ModuleNotFoundError as error:
        print(f"no pictures: {error.name} is not here (pip install -e '.[bench]')")


def _with_tables(text: str, results: Results) -> str:
    for question, answer in results.items():
        about = ", ".join(f"{name} {value}" for name, value in answer["machine"].items())
        how = "A quick run" if answer["quick"] else "A full run"
        table = f"{how} on {about}.\n\n{harness.table(_rows(answer))}"
        begin, end = f"<!-- {question} -->", f"<!-- end of {question} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    return text


def _rows(answer: Results) -> list[Row]:
    known = {field.name for field in dataclasses.fields(Row)}
    return [
        Row(**{key: value for key, value in row.items() if key in known}) for row in answer["rows"]
    ]


def _worse(results: Results, baseline: Results) -> list[str]:
    """A line for each row whose ratio is more than 10 % worse than the baseline's."""
    old = {
        row.question: row.ratio for answer in baseline.values() for row in _rows(answer)
    }  # fmt: skip
    lines = []
    for row in (row for answer in results.values() for row in _rows(answer)):
        before = old.get(row.question)
        if row.ratio and before and row.must:
            change = row.ratio / before if row.must.startswith("≤") else before / row.ratio
            if change > WORSE:
                lines.append(f"worse: {row.question}: {before:.3g} became {row.ratio:.3g}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
