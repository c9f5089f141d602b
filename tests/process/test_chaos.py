"""Invariant tested: whatever the network, the server and the machine do to a reflector, readers see
every change in order, and after the storm the cache equals the server's state. `make chaos` runs
for longer."""

from __future__ import annotations

from pathlib import Path

import chaos
import pytest
from conftest import SEED

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [7, SEED])
def test_a_short_storm(seed: int, name: str, tmp_path: Path) -> None:
    chaos.run(9.0, 3_000, seed, name=name, log=str(tmp_path / "reflector.log"))
