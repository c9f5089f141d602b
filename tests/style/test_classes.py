"""Invariant tested: a class name means one class in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from english import ROOT

KNOWN = Path(__file__).parent / "known_classes.txt"
"""Names that several classes still have; the list only shrinks."""


def homes(root: Path) -> dict[str, list[str]]:
    """For each class name the files that define a class of that name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file.relative_to(root).as_posix())
    return dict(found)


def doubles(root: Path) -> dict[str, list[str]]:
    return {name: files for name, files in homes(root).items() if len(files) > 1}


def test_no_class_name_is_defined_twice() -> None:
    known = {line.split(":")[0] for line in KNOWN.read_text().splitlines() if line[:1] != "#"}

    assert {} == {
        name: files for name, files in doubles(ROOT / "shmcache").items() if name not in known
    }


def test_a_second_class_of_a_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "one.py").write_text("class Watch:\n    pass\n")
    (tmp_path / "deep" / "two.py").write_text("class Watch:\n    pass\n\nclass Bell:\n    pass\n")

    assert {"Watch": ["deep/two.py", "one.py"]} == doubles(tmp_path)


if __name__ == "__main__":
    for name, files in sorted(doubles(ROOT / "shmcache").items()):
        print(f"{name}: {', '.join(files)}")
