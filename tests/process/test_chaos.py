"""Invariant tested: whatever network, server and machine do to a reflector, readers are told all of
it in order, and once it is calm the cache is the server's state. `make chaos` runs for longer."""

from __future__ import annotations

from pathlib import Path

import chaos
import pytest
from conftest import SEED

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [7, SEED])
def test_a_short_storm(seed: int, name: str, tmp_path: Path) -> None:
    chaos.run(9.0, 3_000, seed, name=name, log=str(tmp_path / "reflector.log"))
