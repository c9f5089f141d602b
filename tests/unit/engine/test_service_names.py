"""Invariant tested: one place in the order of servers has all addresses of a name, which come and
go (SERVERS8). Over HTTP at addresses of this machine, with a resolver of our own."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import trustme

from shmcache.engine.names import ServiceName, plain
from shmcache.engine.upstreams import RESOLVE_SECONDS, Upstreams
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection, Client
from shmcache.source.config import ServerSettings
from shmcache.testing import ApiServer, ManualClock

LAST = "http://last"


class Resolver:
    """The addresses of one name; None: it fails."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] | None = addresses
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append((host, port))
        if self.addresses is None:
            raise socket.gaierror(socket.EAI_AGAIN, "again")
        return [(0, 0, 0, "", (one, port)) for one in self.addresses]


def upstreams(resolver: Resolver, url: str) -> tuple[Upstreams, ManualClock]:
    clock = ManualClock()
    clock.advance(1000.0)
    name = ServiceName(ServerSettings(url=url), resolver)
    servers = [
        ApiConnection(lambda one=one: ServerAccess(url=one))  # type: ignore[misc]
        for one in (url, LAST)
    ]
    found = Upstreams(servers, names={0: name}, clock=clock, rng=random.Random(1))
    return found, clock


def names(found: Upstreams) -> set[str]:
    return {one.name for one in found.all}


def test_each_address_is_an_upstream_at_the_rank_of_the_name() -> None:
    resolver = Resolver("10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1")
    found, _ = upstreams(resolver, "http://relays.test:81")
    found.resolve()

    expected = {"http://10.0.0.1:81", "http://10.0.0.2:81", "http://[fd00::1]:81"}
    assert names(found) == expected | {LAST}
    assert [one.number for one in found.all] == [0, 0, 0, 1]
    assert resolver.asked == [("relays.test", 81)]
    assert {one.server.access().server_name for one in found.all} == {"relays.test", None}


def test_addresses_are_asked_for_after_a_failure_and_after_a_while() -> None:
    resolver = Resolver("10.0.0.1")
    found, clock = upstreams(resolver, "http://relays.test")
    found.resolve()
    found.resolve()
    assert len(resolver.asked) == 1
    resolver.addresses = ("10.0.0.1", "10.0.0.2")
    found.failed(found.choose())
    found.resolve()
    assert found.choose().name == "http://10.0.0.2:80"

    resolver.addresses = ("10.0.0.3",)
    clock.advance(RESOLVE_SECONDS + 1)
    found.resolve()
    assert names(found) == {"http://10.0.0.3:80", LAST}


def test_a_resolver_that_fails_changes_nothing() -> None:
    resolver = Resolver("10.0.0.1")
    found, clock = upstreams(resolver, "http://relays.test")
    found.resolve()
    for addresses in (None, ()):
        resolver.addresses = addresses
        clock.advance(RESOLVE_SECONDS + 1)
        found.resolve()
        assert names(found) == {"http://10.0.0.1:80", LAST}


def test_a_name_that_nobody_knows_yet_is_an_upstream_itself() -> None:
    resolver = Resolver()
    resolver.addresses = None
    found, _ = upstreams(resolver, "http://relays.test:81")
    found.resolve()

    assert found.choose().name == "http://relays.test:81"


def test_a_name_that_no_resolver_takes_is_an_upstream_itself() -> None:
    """Python refuses a part of more than 63 letters before it asks anybody."""
    url = f"http://{'a' * 64}.test:81"
    server = ApiConnection(lambda: ServerAccess(url=url))
    found = Upstreams([server], names={0: ServiceName(ServerSettings(url=url))})
    found.resolve()

    assert found.choose().name == url


def test_credentials_that_cannot_be_read_now_change_nothing(tmp_path: Path) -> None:
    """Their file is being written."""
    file, authority = tmp_path / "ca.crt", trustme.CA().cert_pem
    authority.write_to_path(str(file))
    settings = ServerSettings(url="https://relays.test", ca_file=str(file))
    resolver = Resolver("10.0.0.1")
    name = ServiceName(settings, resolver)
    clock = ManualClock()
    found = Upstreams([ApiConnection(settings.load)], names={0: name}, clock=clock)
    found.resolve()
    assert names(found) == {"https://10.0.0.1:443"}
    file.write_text("half of a certificate")
    resolver.addresses = ("10.0.0.2",)
    clock.advance(RESOLVE_SECONDS + 1)
    found.resolve()
    assert names(found) == {"https://10.0.0.1:443"}

    authority.write_to_path(str(file))
    clock.advance(RESOLVE_SECONDS + 1)
    found.resolve()
    assert names(found) == {"https://10.0.0.2:443"}


def test_an_address_keeps_the_path_of_the_url() -> None:
    found, _ = upstreams(Resolver("10.0.0.1"), "http://relays.test:81/k8s/clusters/c-1/")
    found.resolve()

    assert found.choose().name == "http://10.0.0.1:81/k8s/clusters/c-1"


def test_an_address_is_asked_over_the_network() -> None:
    with ApiServer(seed=1) as server:
        name = ServiceName(
            ServerSettings(url=f"http://relays.test:{server.port}"), Resolver("127.0.0.1")
        )
        (connection,) = name.connections()
        client = Client(connection)
        try:
            assert client.status_of("/readyz", silence=30.0) == 200
        finally:
            client.close()


def test_the_prefix_is_not_part_of_the_url() -> None:
    assert plain("dns+https://relays:8443") == "https://relays:8443" == plain("https://relays:8443")
