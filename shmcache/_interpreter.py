"""Refuses an interpreter that the extensions are not made for.

Imported before them: otherwise the error would be "No module named _hot".
"""

from __future__ import annotations

import sys

if "t" in getattr(sys, "abiflags", ""):  # Windows has no such flags
    raise ImportError(
        "shmcache needs a CPython with the GIL, and this is a free-threaded build: "
        "run it with python3.x, not with python3.xt"
    )
