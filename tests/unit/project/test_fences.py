"""Invariant tested: an exchange is a full fence on each processor, also on those with weak ones.

x86 cannot show it, since its locked instructions are full fences. So atomics.h is compiled for
aarch64 without LSE, where an exchange is a pair of exclusive instructions, and the instructions are
read. The mutant NO_EXCHANGE_FENCE shows that the reading finds a missing fence.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RELAXED = {"shmc_rise"}
"""Exchanges of words of one process: no other word depends on them."""
FOREIGN = """#include <stddef.h>
#define static_assert _Static_assert
void *memcpy(void *, const void *, size_t);
"""
"""All that atomics.h needs of a C library for another processor."""

pytestmark = pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang: apt install")


def functions(folder: Path, *flags: str) -> dict[str, list[str]]:
    """The instructions of each function of atomics.h on aarch64."""
    (folder / "string.h").write_text(FOREIGN)
    target = ["--target=aarch64-linux-gnu", "-march=armv8-a", "-mno-outline-atomics"]
    alone = ["-ffreestanding", "-nostdlibinc", f"-I{folder}", f"-I{ROOT / 'csrc'}"]
    command = [
        "clang",
        "-std=c11",
        "-O2",
        "-S",
        "-Dinline=__attribute__((used))",
        *target,
        *alone,
        *flags,
    ]
    done = subprocess.run(
        [*command, "-x", "c", str(ROOT / "csrc/atomics.h"), "-o", "-"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, list[str]] = {}
    body: list[str] = []
    for line in done.stdout.splitlines():
        code = line.partition("//")[0].strip()
        if begun := re.match(r"(shmc_\w+):", code):
            body = found[begun[1]] = []
        elif code and (code.startswith(".LBB") or not code.startswith(".")):
            body.append(code)
    return found


def without_fence(bodies: dict[str, list[str]]) -> set[str]:
    """The functions with an exclusive store from which a way leads out without a full fence."""
    return {
        name
        for name, body in bodies.items()
        if any(re.match(r"stl?xr\b", code) for code in body)
        and not all(is_fenced(body[:at]) for at, code in enumerate(body) if code == "ret")
    }


def is_fenced(before: list[str]) -> bool:
    """Whether the straight code before a return has a full fence."""
    for code in reversed(before):
        if re.match(r"dmb\s+ish$", code):
            return True
        if code.endswith(":") or re.match(r"(b|b\.\w+|cbn?z|tbn?z|stl?xr|ldax?r)\b", code):
            return False
    return False


def test_each_exchange_ends_with_a_full_fence(tmp_path: Path) -> None:
    bodies = functions(tmp_path)

    assert {"shmc_exchange", "shmc_exchange32", "shmc_cas", "shmc_fetch_add"} <= bodies.keys()
    assert without_fence(bodies) == RELAXED


def test_a_missing_fence_is_found(tmp_path: Path) -> None:
    found = without_fence(functions(tmp_path, "-DSHMC_MUTANT_NO_EXCHANGE_FENCE"))

    assert {"shmc_exchange", "shmc_exchange32", "shmc_cas", "shmc_fetch_add"} <= found


def test_other_files_make_no_exchanges_in_shared_memory() -> None:
    """So that no fence is forgotten elsewhere. Words of process.c are its process's own, and all
    their accesses sequentially consistent."""
    made = re.compile(r"\batomic_(exchange|fetch|compare)|__atomic_(exchange|fetch|\w+_fetch|comp)"
                      r"|__sync_")  # fmt: skip
    places = {
        path.name for path in (ROOT / "csrc").rglob("*.[ch]") if made.search(path.read_text())
    }
    assert places == {"atomics.h", "process.c"}
    assert "_explicit" not in (ROOT / "csrc/memory/process.c").read_text()
