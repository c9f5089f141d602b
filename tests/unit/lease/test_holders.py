"""Invariants tested: of several machines, some hold a Lease each, and all know where those are
(HOLDERS1 to HOLDERS3). Over HTTP, with the API server for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from workers import eventually

from shmcache.lease.holders import Holders, HolderView
from shmcache.lease.settings import LeaseSettings
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

LEASES = "leases.coordination.k8s.io"
CALM = LeaseSettings("relays", duration=60.0, renew_deadline=40.0, retry_period=0.1)
URLS = ["http://a:1", "http://b:1", "http://c:1"]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


def machine(server: ApiServer, url: str, count: int = 1) -> tuple[Holders, list[HolderView]]:
    seen: list[HolderView] = []
    connection = ApiConnection(lambda: ServerAccess(url=server.url))
    return Holders(CALM, url, count, connection, seen.append, rng=Random(url)), seen


def holder(server: ApiServer, lease: str = "relays") -> str:
    found = server.get(LEASES, lease, "default")["spec"]["holderIdentity"]
    assert isinstance(found, str)
    return found


def test_one_holds_and_the_others_know_its_address(server: ApiServer) -> None:
    (first, seen), (second, others) = (machine(server, url) for url in URLS[:2])
    for _ in range(2):
        first.round()
        second.round()

    assert seen == [HolderView(True, ())]
    assert others == [HolderView(False, (URLS[0],))]
    first.stop()
    assert holder(server) == ""
    second.round()
    assert others[-1] == HolderView(True, ())
    second.stop()


def test_leases_are_in_the_namespace_of_the_settings_or_of_the_credentials(
    server: ApiServer,
) -> None:
    connection = ApiConnection(lambda: ServerAccess(url=server.url, namespace="ours"))
    for given, expected in (("theirs", "theirs"), ("", "ours")):
        server.create("namespaces", {"metadata": {"name": expected}})
        settings = replace(CALM, namespace=given)
        one = Holders(settings, URLS[0], 1, connection, lambda _: None)
        one.round()
        found = server.get(LEASES, "relays", expected)["spec"]["holderIdentity"]
        assert (URLS[0], f"Lease {expected}/relays") == (found, one.title)
        one.stop()


def test_a_machine_holds_one_of_several(server: ApiServer) -> None:
    """HOLDERS1: the third one gets none of two."""
    found = [machine(server, url, 2) for url in URLS]
    for _ in range(3):
        for one, _seen in found:
            one.round()

    names = {holder(server, "relays"), holder(server, "relays-2")}
    assert len(names) == 2
    for url, (_, seen) in zip(URLS, found, strict=True):
        assert seen[-1].holds == (url in names)
        assert set(seen[-1].others) == names - {url}
    for one, _seen in found:
        one.stop()


def test_a_machine_that_is_named_twice_gives_one_back(server: ApiServer) -> None:
    """HOLDERS1: the answer to a write was lost."""
    one, seen = machine(server, URLS[0], 2)
    for name in ("relays", "relays-2"):
        spec = {"holderIdentity": URLS[0], "leaseDurationSeconds": 60}
        server.create(LEASES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    for _ in range(2):
        one.round()

    names = sorted((holder(server, "relays"), holder(server, "relays-2")))
    assert names == ["", URLS[0]]
    assert seen[-1] == HolderView(True, ())
    one.stop()


def test_without_the_server_a_holder_holds_on(server: ApiServer) -> None:
    """HOLDERS2: also when its term is over, by its own clock."""
    hasty = LeaseSettings("relays", duration=1.0, renew_deadline=0.3, retry_period=0.1)
    seen: list[HolderView] = []
    connection = ApiConnection(lambda: ServerAccess(url=server.url), connect_timeout=0.2)
    one = Holders(hasty, URLS[0], 1, connection, seen.append)
    one.round()
    server.go_down()
    (candidacy,) = one._candidacies
    eventually(lambda: (one.round(), not candidacy.election.leads)[1], "the term goes on")

    assert seen == [HolderView(True, ())]
    server.come_back()
    other, others = machine(server, URLS[1])
    one.round()
    other.round()
    assert (seen, others) == ([HolderView(True, ())], [HolderView(False, (URLS[0],))])
    one.stop()
    other.stop()


def test_a_holder_that_starts_again_holds_at_once(server: ApiServer) -> None:
    """HOLDERS3."""
    machine(server, URLS[0])[0].round()
    again, seen = machine(server, URLS[0])
    again.round()

    assert seen == [HolderView(True, ())]
    assert server.get(LEASES, "relays", "default")["spec"]["leaseTransitions"] == 0
    again.stop()


def test_stop_wakes_the_thread_and_releases(server: ApiServer) -> None:
    one, seen = machine(server, URLS[0])
    one.start()
    eventually(lambda: seen == [HolderView(True, ())], "nobody holds")
    one.wake()
    one.stop()
    one.stop()
    assert holder(server) == ""
