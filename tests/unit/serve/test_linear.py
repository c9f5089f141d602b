"""Work is linear in bytes for every parser that the bytes of serve's clients reach."""

from __future__ import annotations

import json

import growing
import pytest

pytestmark = pytest.mark.skipif(not growing.IS_HERE, reason=growing.INSTALL)


def test_work_grows_as_the_input_does() -> None:
    found = growing.counts("parsers_serve")

    steep = {name: costs for name, costs in found.items() if not growing.linear(costs)}
    assert not steep, json.dumps(steep)


def test_the_measure_tells_linear_parsers_from_others() -> None:
    found = growing.counts("parsers_known")

    linear = {name for name, costs in found.items() if growing.linear(costs)}
    assert linear == {"linear", "linear, up to a limit", "constant"}
