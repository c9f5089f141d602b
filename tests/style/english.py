"""Finds places that a native reader would stumble over, in everything that people read.

    python -m tests.style.english                    every place
    python -m tests.style.english shmcache/serve     the places of one folder
    python -m tests.style.english --titles           commit titles
    python -m tests.style.english --settle           write fewer allowances (never more in all)

Read are: sentences of Markdown pages outside of code, docstrings, comments and strings of Python,
comments and strings of C, names of functions, classes and tests, and commit titles. The patterns
are a floor: a page can pass them and still be hard to read.

`allowances.txt` says how many places each folder still has. A folder may have fewer, never more,
and the sum only falls; `--settle` writes the file again, also when files have moved.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ALLOWANCES = Path(__file__).parent / "allowances.txt"
BASE = "b95aafe"
"""The last commit whose title is older than the rule."""
TITLE = 72
LANDED = {"8c9b5d9"}
"""Commits whose titles break the rule and were pushed before anybody saw it; history stays."""

_READ = {".py", ".pyi", ".c", ".h", ".md", ".pml"}
_FOLDERS = ("shmcache", "csrc", "tests", "benchmarks", "docs", "deploy", "examples", "release")
_NOT_READ = (
    "tests/conformance/traces/",
    "tests/fuzz/seeds/",
    "tests/style/",
    "benchmarks/results",
    "docs/api.md",  # made of docstrings, which are read
)

_NOUNS_OF_NUMBER = "longer|more|less|fewer|better|worse|earlier|later|slower|faster|different"
PATTERNS: dict[str, re.Pattern[str]] = {
    "begins with a headless who or what": re.compile(
        r"^(?:Who|who|What|what|Whoever|whoever|Whatever|whatever)\b(?!.*\?$)"
    ),
    "whether/if/since who": re.compile(r"\b(?:[Ww]hether|[Ii]f|[Ss]ince|[Uu]nless|[Uu]ntil) who\b"),
    "whoever": re.compile(r"\b[Ww]hoever\b"),
    "told": re.compile(r"\b[Tt]old\b"),
    "is said": re.compile(r"\b(?:is|are|was|were|be|been|being) said\b"),
    "says so/who/what": re.compile(r"\b(?:say|says|said) (?:so|who|what)\b"),
    "anew": re.compile(r"\b[Aa]new\b"),
    "is no X": re.compile(
        rf"(?<![Tt]here )\b(?:is|are|was|were) no (?!(?:{_NOUNS_OF_NUMBER})\b)[a-z]"
    ),
    "there is none": re.compile(r"\b(?:[Tt]here (?:is|are|was|were) none|is none|are none)\b"),
    "is asked for": re.compile(r"\b(?:is|are|was|were|be|been) asked for\b"),
    "stands": re.compile(r"\b[Ss]tands\b(?! (?:by|for|still)\b)"),
    "beside": re.compile(r"\b[Bb]eside\b"),
    "is wanted": re.compile(r"\b(?:is|are|was|were) wanted\b"),
    "is looked at, waited for": re.compile(
        r"\b(?:is|are|was|were|be|been) (?:looked (?:at|for)|waited for|gone on)\b"
    ),
    "he, his": re.compile(r"\b(?:[Hh]e|[Hh]is|[Hh]im)\b"),
    "in place of": re.compile(
        r"\b(?:[Ii]n (?:the )?place of|(?:take|takes|took|taken|taking) the place of)\b"
    ),
}
NAMES: dict[str, re.Pattern[str]] = {
    "begins with who or what": re.compile(
        r"^_?(?:test_)?(?:who|what)_|^_?(?:whoever|whatever)(?:_|$)|^_?W(?:ho|hat)[A-Z]"
    ),
    "told, said, anew": re.compile(r"(?:^|_)(?:told|said|anew|whoever)(?:_|$)|^_?Told"),
    "is no X": re.compile(r"_is_no_"),
}


class Place(NamedTuple):
    file: str
    line: int
    rule: str
    text: str

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file) or "."

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text[:110]}"


class Prose(NamedTuple):
    """Text that people read, and the line that it begins in."""

    line: int
    text: str


def files(*more: str) -> list[str]:
    """Every file that is read, by its path from the root; also those of more suffixes."""
    found = [*ROOT.glob("*.md"), ROOT / "setup.py"]
    for folder in _FOLDERS:
        found += (ROOT / folder).rglob("*")
    paths = (file.relative_to(ROOT).as_posix() for file in found if file.suffix in {*_READ, *more})
    return sorted(path for path in paths if not path.startswith(_NOT_READ))


def places(folder: str = "") -> Iterator[Place]:
    """Those below a folder, or of one file."""
    for file in files():
        if not folder or file == folder or file.startswith(folder.rstrip("/") + "/"):
            yield from places_of(file, (ROOT / file).read_text())


def places_of(file: str, text: str) -> Iterator[Place]:
    for block in prose_of(file, text):
        yield from _of_prose(file, block)
    for name in names_of(file, text):
        for rule, pattern in NAMES.items():
            if pattern.search(name.text):
                yield Place(file, name.line, rule, name.text)


def prose_of(file: str, text: str) -> Iterator[Prose]:
    match Path(file).suffix:
        case ".md":
            return _markdown(text)
        case ".py" | ".pyi":
            return _python(text)
        case ".txt":
            return iter([Prose(1, text)])
        case _:
            return _c(text)


def names_of(file: str, text: str) -> Iterator[Prose]:
    match Path(file).suffix:
        case ".md":
            return iter(())
        case ".py" | ".pyi":
            return _names(text)
        case _:
            return _c_names(text)


def _of_prose(file: str, block: Prose) -> Iterator[Place]:
    for start, sentence in _sentences(block.text):
        line = block.line + block.text.count("\n", 0, start)
        plain = " ".join(re.sub(r"``?[^`]*``?", "`code`", sentence).split())
        for rule, pattern in PATTERNS.items():
            if pattern.search(plain):
                yield Place(file, line, rule, plain)


_LEAD = re.compile(r"(?:[-*+>#|\s]|\d+\.\s|\*\*|=>|\[[ x]\])*")
_END = re.compile(r"[.!?](?=[\s)\"*]*\s[\"(*`]*[A-Z`])|\n\s*\n|\n(?=\s*[-*+] )|\s\|\s|\n(?=\|)")


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each with where it begins; cells of tables and items of lists are sentences."""
    start = 0
    for end in [*(found.end() for found in _END.finditer(text)), len(text)]:
        lead = _LEAD.match(text, start, end)
        begin = lead.end() if lead else start
        if text[begin:end].strip():
            yield begin, text[begin:end].strip(" \n*|")
        start = end


_FENCE = re.compile(r"^```.*?^```$|<!--.*?-->", re.DOTALL | re.MULTILINE)


def _markdown(text: str) -> Iterator[Prose]:
    blank = _FENCE.sub(lambda found: re.sub(r"[^\n]", "", found[0]), text)
    line = 1
    for paragraph in re.split(r"(\n\s*\n|\n(?=#))", blank):
        if paragraph.strip():
            yield Prose(line, paragraph)
        line += paragraph.count("\n")


def _python(text: str) -> Iterator[Prose]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Prose(node.lineno, node.value)
    yield from _joined(_comments(text))


def _comments(text: str) -> Iterator[Prose]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(?:noqa|type:|fmt:|!)", token[1]):
            yield Prose(token.start[0], token.string.lstrip("# "))


def _joined(lines: Iterable[Prose]) -> Iterator[Prose]:
    """Comments on consecutive lines are one text."""
    held: list[Prose] = []
    for line in lines:
        if held and line.line != held[-1].line + 1:
            yield Prose(held[0].line, "\n".join(each.text for each in held))
            held = []
        held.append(line)
    if held:
        yield Prose(held[0].line, "\n".join(each.text for each in held))


def _names(text: str) -> Iterator[Prose]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield Prose(node.lineno, node.name)
            case ast.arg():
                yield Prose(node.lineno, node.arg)


_C_TEXT = re.compile(
    r"/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|\"(?P<string>(?:\\.|[^\"\\\n])*)\"|'(?:\\.|[^'\\])+'",
    re.DOTALL,
)
_STAR = re.compile(r"^[ \t]*\*?[ \t]?", re.MULTILINE)


def _c(text: str) -> Iterator[Prose]:
    for found in _C_TEXT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["block"] is not None:
            yield Prose(line, _STAR.sub("", found["block"]))
        elif " " in (words := found["line"] or found["string"] or ""):
            yield Prose(line, words)


def _c_names(text: str) -> Iterator[Prose]:
    """Each identifier once, where it comes first."""
    code = _C_TEXT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    seen: set[str] = set()
    for found in re.finditer(r"\b[a-z_]\w+", code):
        if found[0] not in seen:
            seen.add(found[0])
            yield Prose(code.count("\n", 0, found.start()) + 1, found[0])


# ---- commit titles -----------------------------------------------------------------------

_NO_VERB = set(
    # words that a title of the old style went on with
    re.findall(
        r"\w+",
        """a an the one each every all any both some no none not its it this that these those who
        what whoever whatever where when while if as is are was were be by for from in into of on
        to with without and or but more less also only nothing nobody somebody everybody""",
    )
)
_LIKE_PARTICIPLES = {"bring", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}


def faults_of_title(title: str) -> list[str]:
    """Why it is not `stage: imperative` in 72 characters; empty if it is."""
    if title.startswith("Merge branch "):  # git's own, also where a merge was rebased
        return []
    found = []
    if len(title) > TITLE:
        found.append(f"has {len(title)} characters, not at most {TITLE}")
    parts = re.match(r"([\w.,/ -]+): (\S+)(.*)$", title)
    if parts is None:
        return [*found, "is not `stage: imperative`"]
    verb = parts[2].strip("`").lower()
    third_person = verb.endswith("s") and not verb.endswith("ss")
    participle = verb.endswith(("ing", "ed")) and verb not in _LIKE_PARTICIPLES
    if verb in _NO_VERB or third_person or participle:
        found.append(f"does not go on with an imperative: {parts[2]}")
    text = parts[2] + parts[3]
    return found + [rule for rule, pattern in PATTERNS.items() if pattern.search(text)]


def history() -> Path | None:
    """Where git's history of this project is: here, or where .ci/run copied us from."""
    place = Path(os.environ.get("SHMCACHE_HISTORY") or ROOT)
    known = ["git", "-C", str(place), "cat-file", "-e", f"{BASE}^{{commit}}"]
    if not (place / ".git").exists():
        return None
    return None if subprocess.run(known, capture_output=True, check=False).returncode else place


def titles(place: Path) -> list[str]:
    """Of the commits since the rule, without merges, each after its hash."""
    log = ["git", "-C", str(place), "log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD"]
    return subprocess.run(log, capture_output=True, text=True, check=True).stdout.splitlines()


def bad_titles(lines: Iterable[str]) -> list[str]:
    split = (line.split(" ", 1) for line in lines)
    return [
        f"{commit} {title}: {fault}"
        for commit, title in split
        if commit[:7] not in LANDED
        for fault in faults_of_title(title)
    ]


# ---- allowances --------------------------------------------------------------------------


def allowances() -> dict[str, int]:
    lines = ALLOWANCES.read_text().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {folder: int(count) for folder, count in pairs}


def counts() -> Counter[str]:
    return Counter(place.folder for place in places())


def settle() -> str:
    """Writes what there is now, if that is not more than what was allowed in all."""
    now, allowed = counts(), sum(allowances().values())
    if now.total() > allowed:
        return f"{now.total()} places, {allowed} allowed: mend {now.total() - allowed} first"
    head = (
        "# Places of tests/style/english.py that are left in each folder; `--settle` writes this.\n"
    )
    lines = (f"{folder} {count}\n" for folder, count in sorted(now.items()))
    ALLOWANCES.write_text(head + "".join(lines))
    return f"{allowed} -> {now.total()} places"


def main(arguments: list[str]) -> int:
    if arguments == ["--settle"]:
        print(settle())
        return 0
    if arguments == ["--titles"]:
        place = history()
        found = bad_titles(titles(place)) if place else [f"no git history back to {BASE}"]
    else:
        found = [str(place) for folder in arguments or [""] for place in places(folder)]
    print(*found, f"{len(found)} places", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
