"""Invariant tested: the extensions are hardened, and name no folder of their builder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shmcache import _core, _hot

FILES = [Path(str(module.__file__)) for module in (_core, _hot)]
ROOT = Path(__file__).resolve().parents[3]


def readelf(*arguments: str) -> str:
    done = subprocess.run(["readelf", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.split(".")[0])
def test_symbols_are_bound_at_the_start_and_read_only_then(file: Path) -> None:
    dynamic, headers = readelf("-d", str(file)), readelf("-lW", str(file))
    assert "BIND_NOW" in dynamic or "NOW" in dynamic
    assert "GNU_RELRO" in headers
    assert "RUNPATH" not in dynamic
    assert "RPATH" not in dynamic


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.split(".")[0])
def test_stacks_are_protected(file: Path) -> None:
    assert "__stack_chk_fail" in readelf("--dyn-syms", "-W", str(file))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.split(".")[0])
def test_no_path_of_the_builder_is_left(file: Path) -> None:
    assert str(ROOT).encode() not in file.read_bytes()


def test_a_subinterpreter_is_refused() -> None:
    code = (
        "import _xxsubinterpreters as s\n"
        "one = s.create()\n"
        "s.run_string(one, 'import sys; sys.path[:] = ' + repr(__import__('sys').path) + '''\n"
        "try:\n"
        "    import shmcache._hot\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "''')\n"
    )
    if sys.version_info >= (3, 13):
        code = code.replace("_xxsubinterpreters", "_interpreters")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    refused = "the main interpreter alone"
    if sys.version_info >= (3, 13):  # CPython itself refuses it
        refused = "does not support loading in subinterpreters"
    assert refused in done.stdout, done.stderr
