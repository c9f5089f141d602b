"""Work is linear in bytes for every parser that bytes of strangers reach: of the API server and of
proxies before it, of etcd, definitions of custom resources, files, commands.

For the clients of serve see tests/unit/serve/test_linear.py.
"""

from __future__ import annotations

import json

import growing
import pytest

pytestmark = pytest.mark.skipif(not growing.IS_HERE, reason=growing.INSTALL)


@pytest.mark.parametrize("module", ["parsers_upstream", "parsers_local"])
def test_work_grows_as_the_input_does(module: str) -> None:
    found = growing.counts(module)

    steep = {name: costs for name, costs in found.items() if not growing.linear(costs)}
    assert not steep, json.dumps(steep)
