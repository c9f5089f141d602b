"""Labels of invariants and guarantees: where each is defined, and where it is cited.

    python tests/style/labels.py       labels with several definitions, citations without any

A definition is a line of a comment, docstring or page that begins with the label and goes on with
its sentence: `P3  the floor only rises`. Every other place in prose is a citation. A file may be
named with it ("P3 of reader.c"), and is then the one that defines it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from english import ROOT, files, prose_of

_LABEL = r"[A-Z]{1,12}[0-9]{1,3}"
_SENTENCE = r"""[ ]+(?!(?:of|in|and|to|or|is|are|says)\b)[\w"'`(/*-]"""
_DEFINED = re.compile(rf"^(?:[*\s]|//)*(?:\*\*)?({_LABEL})(?:\*\*)?{_SENTENCE}", re.MULTILINE)
_CITED = re.compile(
    rf"(?<![\w/.-])({_LABEL})(?![\w-])(?: (?:of|in) `?([\w/]+\.(?:py|c|h|pml|md))\b)?"
)
_RANGE = re.compile(rf"\b({_LABEL})(?:\.\.| to )({_LABEL})((?: (?:of|in) [\w/]+\.\w+)?)")
OTHERS = {"C11", "X11", "T201"}
"""Names of other things: a language, a window system, a rule of ruff."""


class Citation(NamedTuple):
    file: str
    line: int
    label: str
    of: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.label}" + (f" of {self.of}" if self.of else "")


class Labels(NamedTuple):
    defined: dict[str, list[str]]
    """For each label the files that define it."""
    cited: list[Citation]

    @property
    def doubles(self) -> set[str]:
        return {label for label, homes in self.defined.items() if len(homes) > 1}

    @property
    def dangling(self) -> list[Citation]:
        prefixes = {_prefix(label) for label in self.defined}
        return [each for each in self.cited if self._leads_nowhere(each, prefixes)]

    def _leads_nowhere(self, each: Citation, prefixes: set[str]) -> bool:
        if each.label in OTHERS:
            return False
        homes = self.defined.get(each.label, [])
        if each.of:
            return not any(f"/{home}".endswith(f"/{each.of}") for home in homes)
        return not homes and _prefix(each.label) in prefixes


def _prefix(label: str) -> str:
    return label.rstrip("0123456789")


def read(texts: dict[str, str]) -> Labels:
    defined: defaultdict[str, list[str]] = defaultdict(list)
    cited: list[Citation] = []
    for file, text in texts.items():
        for line, prose in prose_of(file, text):
            for found in _DEFINED.finditer(prose):
                defined[found[1]].append(file)
            cited += _citations(file, line, prose)
    return Labels(dict(defined), cited)


def _citations(file: str, line: int, prose: str) -> Iterator[Citation]:
    # a file named after a range is meant for both of its ends
    whole = _RANGE.sub(lambda found: f"{found[1]}{found[3]} to {found[2]}{found[3]}", prose)
    for found in _CITED.finditer(whole):
        at = line + whole.count("\n", 0, found.start())
        yield Citation(file, at, found[1], found[2] or "")


def labels() -> Labels:
    return read({file: (ROOT / file).read_text() for file in files(".txt")})


if __name__ == "__main__":
    now = labels()
    for label in sorted(now.doubles):
        print(f"{label}: {', '.join(now.defined[label])}")
    print(*now.dangling, sep="\n")
    sys.exit(bool(now.doubles or now.dangling))
