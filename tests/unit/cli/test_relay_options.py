"""Invariant tested: a relay serves the cache that it keeps, whatever other caches are there."""

from __future__ import annotations

import pytest

import shmcache
from shmcache.cli.arguments import Parser
from shmcache.cli.commands import relay
from shmcache.cli.commands import run as reflector
from shmcache.engine import config


@pytest.mark.parametrize("given", [[], ["--cache", "relayed"]])
def test_other_caches_do_not_matter(
    name: str, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHMCACHE_NAME", raising=False)
    parser = Parser("relay", relay.HELP)
    relay.add_arguments(parser)
    options = parser.parse_intermixed_args(["pods", *given])
    with shmcache.Writer(f"{name}-a", ["pods"]), shmcache.Writer(f"{name}-b", ["pods"]):
        wanted = config.of_process(None, reflector.flags_of(relay._of_run(options)))
        assert relay._served(options, wanted).name == (options.cache or "shmcache")
