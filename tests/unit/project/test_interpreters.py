"""Invariant tested: an interpreter that the extensions are not made for is refused in words."""

from __future__ import annotations

import subprocess
import sys

FREE_THREADED = """
import sys
sys.abiflags = "t"
for name in ("shmcache", "shmcache.errors", "shmcache.testing"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
assert not [name for name in sys.modules if name.startswith("shmcache._")], "looked for extensions"
"""


def test_a_free_threaded_build_is_refused_at_the_import() -> None:
    """Its extensions are not there: without this, the words are "No module named _hot"."""
    found = subprocess.run(
        [sys.executable, "-c", FREE_THREADED], capture_output=True, text=True, check=False
    )
    lines = found.stdout.splitlines()
    assert found.returncode == 0, found.stderr
    assert len(lines) == 3
    assert all("needs a CPython with the GIL" in line for line in lines)
