"""benchmarks/README.md and its pictures, from benchmarks/results.json: no figure is written by
hand.

    python -m benchmarks.report.tables        makes both again

A table is between `<!-- question -->` and `<!-- end of question -->`, below a line that names its
run. Two more are made from all of them: `missed`, every missed target, and `machines`, the machines
of the runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.report import pictures

HERE = Path(__file__).resolve().parents[1]
BRIEF = ("cpu", "cores", "memory", "kernel", "python", "commit")

Answer = dict[str, Any]
Results = dict[str, Answer]


class Kept:
    """The answers so far, in a file; with a directory of its own it begins empty."""

    def __init__(self, place: Path | None = None) -> None:
        self.place = place or HERE
        self.place.mkdir(parents=True, exist_ok=True)
        self.results = self._read()

    @property
    def _file(self) -> Path:
        return self.place / "results.json"

    def _read(self) -> Results:
        found: Results = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found

    def merge(self, question: str, answer: Answer, *, replace: bool) -> bool:
        """Adds one answer to the file's present ones, at once; False if an older one stays."""
        self.results = self._read()  # another run may have added some
        old = self.results.get(question, {})
        full = bool(old.get("rows")) and not old["quick"]
        taken = replace or not full or not answer["quick"]
        if "failed" in answer and old.get("rows"):
            about = {name: answer[name] for name in ("failed", "quick", "date", "machine")}
            self.results[question] = {**old, "failed": about}
        elif "failed" in answer:
            self.results[question] = {**answer, "failed": dict(answer)}
        elif taken:
            self.results[question] = answer
        text = json.dumps(self.results, indent=1, ensure_ascii=False) + "\n"
        temporary = self._file.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(self._file)
        return taken

    def write(self) -> None:
        """The README with its tables, and the pictures."""
        text = with_tables((HERE / "README.md").read_text(), self.results)
        (self.place / "README.md").write_text(text)
        try:
            drawn = pictures.draw(self.results, self.place / "pictures")
            print("pictures: " + ", ".join(drawn))
        except ModuleNotFoundError as error:
            print(f"no pictures: {error.name} is not here (pip install -e '.[bench]')")


def rows(answer: Answer) -> list[Row]:
    known = {field.name for field in dataclasses.fields(Row)}
    return [
        Row(**{key: value for key, value in row.items() if key in known}) for row in answer["rows"]
    ]


def with_tables(text: str, results: Results) -> str:
    """The text with everything between its marks made again."""
    made = {question: _answered(answer) for question, answer in results.items()}
    made |= {"missed": _missed(results), "machines": _machines(results)}
    lines, skipping = [], ""
    for line in text.splitlines():
        mark = line.removeprefix("<!-- ").removesuffix(" -->") if line.startswith("<!-- ") else ""
        if skipping and mark != f"end of {skipping}":
            continue
        lines.append(line)
        skipping = ""
        if mark and not mark.startswith("end of "):
            lines.append(made.get(mark, "Not asked in this run."))
            skipping = mark
    return "\n".join(lines) + "\n"


def _answered(answer: Answer) -> str:
    parts = []
    if answer.get("failed"):
        about = answer["failed"]
        how = "quick" if about["quick"] else "full"
        parts.append(
            f"**Failed** in a {how} run of {about['date']} at commit "
            f"{about['machine']['commit']}: {_plain(about['failed'])}"
        )
    if answer["rows"]:
        parts += [f"{_run(answer)}.", harness.table(rows(answer))]
    return "\n\n".join(parts)


def _run(answer: Answer) -> str:
    """The answer's run, in a line."""
    about = answer["machine"]
    parts = [
        f"{'A quick run' if answer['quick'] else 'A full run'} of commit {about['commit']}",
        answer.get("date", ""),
        f"{about['cores']} cores of {about['cpu']}",
        f"Python {about['python']}",
        f"took {answer['seconds']:.0f} s" if "seconds" in answer else "",
    ]
    if answer.get("load", 0) >= 1:
        parts.append(f"begun at a load of {answer['load']}: not a quiet machine")
    return ", ".join(filter(None, parts))


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _missed(results: Results) -> str:
    """Every missed target, of all tables."""
    found = [
        f"| [{question}](#{question}) | {row.question} | {row.ours} | {row.peer} "
        f"| {'' if row.ratio is None else harness.show(row.ratio)} | {row.must} |"
        for question, answer in results.items()
        for row in rows(answer)
        if row.met is False
    ]
    heads = ["| table | question | ours | peer | ratio | must reach |", "|---|---|---|---|---|---|"]
    return "\n".join([*heads, *found]) if found else "None."


def _machines(results: Results) -> str:
    """The machines of the runs: one paragraph for each with its versions."""
    runs: dict[str, list[str]] = {}
    for question, answer in results.items():
        about = answer["machine"]
        hardware = ", ".join(f"{name} {about[name]}" for name in BRIEF[:-1] if name in about)
        versions = ", ".join(
            f"{name} {version}"
            for name, version in about.items()
            if name not in BRIEF and version != "not installed"
        )
        runs.setdefault(f"{hardware}; {versions}", []).append(question)
    return "\n\n".join(f"{', '.join(names)}: {about}." for about, names in runs.items())


if __name__ == "__main__":
    Kept().write()
    sys.stdout.flush()
