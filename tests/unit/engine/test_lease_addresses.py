"""Invariant tested: whatever a Lease names as its holder, the relay goes on (SERVERS7)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from shmcache.engine.config import Configuration
from shmcache.engine.following import Following
from shmcache.engine.plans import Plan
from shmcache.engine.service import reach
from shmcache.engine.upstreams import Upstreams
from shmcache.lease.holders import HolderView

OURS, GOOD, SAFE = "http://ours:1", "http://good:1", "https://safe:1"


def followed(configuration: Configuration, *holders: str) -> list[str]:
    """The upstreams of a relay that follows these holders, in its order."""
    servers = reach(configuration)
    upstreams = Upstreams(servers, patience=30.0)
    with ExitStack() as stack:
        stack.callback(upstreams.close)
        following = Following(configuration, servers[-1], upstreams)
        following._stand(HolderView(False, holders))
        return [one.name for one in upstreams.all]


@pytest.mark.parametrize(
    "holder",
    ["", "relay-0_3f2a", "//a", "ftp://a", "http://", "http://[", "http://a:x", "http://a:99999",
     "http://a:0", "http://a b", "http://a\n2026 ERROR"],
)  # fmt: skip
def test_a_relay_passes_over_a_holder_without_a_url(holder: str) -> None:
    configuration = Configuration(
        plans=(Plan(name="pods"),), server=("http://last:1",), lease="relays", advertise=OURS
    )
    assert followed(configuration, holder, GOOD) == [GOOD, "http://last:1"]


def test_a_token_goes_only_to_holders_with_tls(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    configuration = Configuration(
        plans=(Plan(name="pods"),), server=("https://last:1",), server_token_file=str(token),
        lease="relays", advertise=OURS,
    )  # fmt: skip
    assert followed(configuration, GOOD, SAFE) == [SAFE, "https://last:1"]
