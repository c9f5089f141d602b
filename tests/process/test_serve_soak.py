"""Watches of `shmcache serve` show each change once, whichever process is killed meanwhile (G25,
G26)."""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

import pytest
from serve_soak import Soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_every_client_ends_with_the_servers_content(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    sys.stderr.write(f"SEED={seed}\n")
    soak = Soak(seed, watches=40, seconds=6.0, rate=100.0, pause=0.8)
    soak.run(tmp_path)

    assert soak.kills >= 3, "nothing was killed: this proves nothing"
    assert soak.counts.cut > 0, "no watch was cut: this proves nothing"
    assert soak.counts.events > 1000
