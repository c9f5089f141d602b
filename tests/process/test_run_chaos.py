"""Invariant tested: after random faults under writes the cache is the server's state, and requests
never came in a loop. (`make chaos` is the long run.)"""

from __future__ import annotations

import chaos
import pytest
from conftest import SEED


@pytest.mark.slow
def test_a_short_chaos_ends_in_the_state_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    chaos.main(["--seconds", "6", "--writes", "3000", "--every", "0.4", "--seed", str(SEED)])

    assert "equal after" in capsys.readouterr().out
