"""Invariant tested: `make packages` finds each way in which a library is not hardened. A library is
made with the project's own flags, then with one of them withdrawn or reversed."""

from __future__ import annotations

import platform
import runpy
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("elftools", reason="needs pyelftools: pip install pyelftools")

from hardened import faults, of_library

ROOT = Path(__file__).resolve().parents[2]
BUILD: dict[str, Any] = runpy.run_path(str(ROOT / "shmcache" / "_build.py"))
SOURCE = """
#include <string.h>
#include <stdio.h>
__attribute__((visibility("default"))) int copied(const char *text, char *to);
int copied(const char *text, char *to)
{
    char room[64];
    strcpy(room, text);
    return sprintf(to, "%s %s", room, __FILE__);
}
"""
BROKEN = {
    "its functions are not bound at the start (-z now)": ["-Wl,-z,lazy"],
    "its tables stay writable (-z relro)": ["-Wl,-z,norelro"],
    "its stack is executable": ["-Wl,-z,execstack"],
    "its stack has no guard (-fstack-protector-strong)": ["-fno-stack-protector"],
    "its copies are not checked (_FORTIFY_SOURCE)": ["-U_FORTIFY_SOURCE"],
    "it is not stripped": ["-g"],
    "it has a RUNPATH": ["-Wl,-rpath,/opt/lib"],
    "it has no shadow stack (-z shstk)": ["-fcf-protection=none"],
}
"""The fault that each of these flags causes behind the project's own."""
IRREVERSIBLE = "-Wl,-z,shstk"
"""The linker has no flag against it: it is left out."""
if platform.machine() != "x86_64":
    del BROKEN["it has no shadow stack (-z shstk)"]


def library(folder: Path, *more: str) -> bytes:
    """Made and stripped as a wheel's are; the flags behind them count more."""
    source, made = folder / "copied.c", folder / "copied.so"
    source.write_text(SOURCE)
    mapped = f"-ffile-prefix-map={folder}=."
    flags = [*BUILD["COMPILE_ARGS"], *BUILD["LINK_ARGS"], mapped, "-fPIC", "-shared", *more]
    if "-fcf-protection=none" in more:
        flags = [flag for flag in flags if flag != IRREVERSIBLE]
    subprocess.run(["gcc", str(source), *flags, "-o", str(made)], check=True)
    if "-g" not in more:
        subprocess.run(["strip", str(made)], check=True)
    return made.read_bytes()


def test_the_flags_of_the_project_are_enough(tmp_path: Path) -> None:
    assert of_library(library(tmp_path)) == []


@pytest.mark.parametrize("fault", BROKEN)
def test_each_lost_flag_is_found(fault: str, tmp_path: Path) -> None:
    assert of_library(library(tmp_path, *BROKEN[fault])) == [fault]


def test_a_path_of_the_builder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    folder.mkdir()

    assert of_library(library(folder, f"-ffile-prefix-map={folder}={folder}")) == [
        f"it names {folder}/copied.c"
    ]


def test_a_wheel_without_libraries_is_a_fault(tmp_path: Path) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/__init__.py", "")
    assert faults(wheel) == ["a-1-py3-none-any.whl has no library"]
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("a/b.so", library(tmp_path, "-fno-stack-protector"))
    assert faults(wheel) == ["a/b.so: its stack has no guard (-fstack-protector-strong)"]
