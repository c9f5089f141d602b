"""Invariant tested: whatever a Lease names as its holder, the relay goes on (SERVERS7)."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from shmcache.engine.config import Configuration
from shmcache.engine.following import Following
from shmcache.engine.plans import Plan
from shmcache.engine.service import reach
from shmcache.engine.upstreams import Upstreams
from shmcache.lease.holders import HolderView

OURS, GOOD = "http://ours:1", "http://good:1"


@pytest.mark.parametrize(
    "holder",
    ["", "relay-0_3f2a", "//a", "ftp://a", "http://", "http://[", "http://a:x", "http://a:99999",
     "http://a:0", "http://a b", "http://a\n2026 ERROR"],
)  # fmt: skip
def test_a_relay_passes_over_a_holder_without_a_url(holder: str) -> None:
    configuration = Configuration(
        plans=(Plan(name="pods"),), server=("http://last:1",), lease="relays", advertise=OURS
    )
    servers = reach(configuration)
    upstreams = Upstreams(servers, patience=30.0)
    with ExitStack() as stack:
        stack.callback(upstreams.close)
        following = Following(configuration, servers[-1], upstreams)
        following._stand(HolderView(False, (holder, GOOD)))

        assert [one.name for one in upstreams.all] == [GOOD, "http://last:1"]
