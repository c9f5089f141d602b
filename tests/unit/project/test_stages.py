"""Invariant tested: docs/stages.md lists every file; imports lead up its table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "shmcache"
PAGE = (ROOT / "docs" / "stages.md").read_text()
FACES = {"__init__.py", "__main__.py"}
"""Of the whole package: what they import is imported late, on request."""


def rows() -> list[list[str]]:
    table = PAGE.split("## Exceptions")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith("| stage")
    ]


def homes(column: int) -> dict[str, int]:
    """Each folder or file that the column names, with the number of its row."""
    cells = enumerate(row[column] for row in rows())
    return {name: number for number, cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def exceptions() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    section = PAGE.split("## Exceptions")[1].split("\n## ")[0]
    for line in section.splitlines():
        names = re.findall(r"`([\w/]+\.py)`", line)
        found |= {(names[0], other) for other in names[1:]}
    return found


def row_of(file: str, named: dict[str, int]) -> int | None:
    found = {row for name, row in named.items() if file == name or file.startswith(f"{name}/")}
    found |= {row for name, row in named.items() if name.endswith("/") and file.startswith(name)}
    assert len(found) <= 1, f"{file} has two rows"
    return found.pop() if found else None


def python_files() -> list[str]:
    files = (file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py"))
    return sorted(file for file in files if file not in FACES)


def imports(file: Path) -> Iterator[str]:
    """The modules of the package that a file imports when it runs, early or late."""
    nodes: list[ast.AST] = [ast.parse(file.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                for name in names:
                    whole = f"{module}.{name.name}"
                    yield whole if path_of(whole) else module


def path_of(module: str) -> str | None:
    """shmcache.memory.mapping to memory/mapping.py; None for what is not a file of ours."""
    inside = module.removeprefix("shmcache.").replace(".", "/")
    paths = (f"{inside}.py", f"{inside}/__init__.py")
    return next((path for path in paths if (PACKAGE / path).is_file()), None)


def test_every_file_has_a_row() -> None:
    c_files = [
        file.relative_to(ROOT / "csrc").as_posix()
        for kind in ("*.c", "*.h")
        for file in (ROOT / "csrc").rglob(kind)
    ]

    assert [] == [file for file in python_files() if row_of(file, homes(1)) is None]
    assert [] == [file for file in c_files if row_of(file, homes(2)) is None]


@pytest.mark.parametrize("column", [1, 2])
def test_every_name_in_the_table_exists(column: int) -> None:
    root = PACKAGE if column == 1 else ROOT / "csrc"
    assert [] == [name for name in homes(column) if not (root / name).exists()]


def test_every_test_in_the_table_exists() -> None:
    there = {file.name for file in (ROOT / "tests").rglob("*")}
    assert set() == set(homes(3)) - there - {name for name in homes(3) if name.startswith("make ")}


def test_imports_lead_up_or_are_exceptions() -> None:
    named = homes(1)
    down = {
        (file, target)
        for file in python_files()
        for module in imports(PACKAGE / file)
        if (target := path_of(module)) and target not in FACES
        if (row_of(target, named) or 0) > (row_of(file, named) or 0)
    }

    assert set() == down - exceptions()
    assert exceptions(), "the list is read"


def test_no_file_imports_itself_over_others() -> None:
    """Late imports count, too: a file can be understood with the files above it."""
    targets = {
        file: {
            target
            for module in imports(PACKAGE / file)
            if (target := path_of(module)) and target not in FACES and target != file
        }
        for file in python_files()
    }
    while free := [file for file, found in targets.items() if not found & targets.keys()]:
        for file in free:
            del targets[file]
    while tops := targets.keys() - set().union(*targets.values()):
        for file in tops:  # it leads to a cycle, and is not part of one
            del targets[file]
    assert {} == targets


def test_an_import_that_leads_down_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "if TYPE_CHECKING:\n    import shmcache.cli\n"
        "def f():\n    from shmcache.serve import routes\n    import shmcache.memory.mapping\n"
    )
    assert {"shmcache.serve.routes", "shmcache.memory.mapping"} == set(imports(file))
    assert "serve/routes.py" == path_of("shmcache.serve.routes")
