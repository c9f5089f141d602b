"""Which of several servers is asked next (SERVERS1, SERVERS4, SERVERS5)."""

from __future__ import annotations

import random
import threading

import pytest

from shmcache.engine import upstreams as module
from shmcache.engine.upstreams import HOLD_SECONDS, LAG_SECONDS, Candidate, Upstreams, label_of
from shmcache.protocol.relays import (
    LAG_HEADER,
    VERSION_HEADER,
    WORST_LAG,
    RelayStatement,
    stated,
)
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ManualClock


def upstreams(count: int = 3) -> tuple[Upstreams, ManualClock]:
    clock = ManualClock()
    clock.advance(1000.0)
    servers = [
        ApiConnection(lambda url=f"http://s{number}": ServerAccess(url=url))  # type: ignore[misc]
        for number in range(count)
    ]
    return Upstreams(servers, clock=clock, rng=random.Random(1)), clock


@pytest.mark.parametrize("lag", ["nan", "inf", "-inf", "1e300", "abc", "", "-0.5"])
def test_an_answer_with_any_lag_is_that_of_a_relay(lag: str) -> None:
    """RELAYED1: what makes no sense is the worst lag, and a finite one."""
    found = stated({LAG_HEADER: lag, VERSION_HEADER: "7"})

    assert found == RelayStatement("7", 0.0 if lag.startswith("-") else WORST_LAG)


def order(found: Upstreams) -> list[int]:
    """The upstreams as they would be chosen, each after those before it failed this request."""
    chosen: list[Candidate] = []
    for _ in found.all:
        chosen.append(found.choose(chosen))
    return [one.number for one in chosen]


def relay(found: Upstreams, number: int, lag: float) -> None:
    found.answered(found.all[number], {LAG_HEADER: str(lag), VERSION_HEADER: "7"})


def test_the_order_of_the_configuration_is_the_preference() -> None:
    found, _ = upstreams()

    assert order(found) == [0, 1, 2]


def test_an_upstream_that_failed_comes_last_for_a_while() -> None:
    found, clock = upstreams()
    found.failed(found.all[0])

    assert order(found) == [1, 2, 0]
    assert found.is_another(found.all[0])
    clock.advance(2.0)
    assert order(found) == [0, 1, 2]


def test_failures_in_a_row_make_the_while_longer() -> None:
    found, clock = upstreams(1)
    pauses = []
    for _ in range(8):
        found.failed(found.all[0])
        pauses.append(found.all[0].failed_until - clock())
        clock.advance(pauses[-1] + 0.01)

    assert pauses[0] < pauses[3] < pauses[-1] <= 15.0 * 1.5


def test_failures_at_the_same_time_count_once() -> None:
    """Every feed of a process loses a server that dies."""
    found, _ = upstreams()
    for _ in range(20):
        found.failed(found.all[0])

    assert found.all[0].failed_until - found.now() <= 0.5 * 1.5


def test_when_all_have_failed_the_one_that_may_be_asked_soonest_is_next() -> None:
    found, clock = upstreams()
    for number in (2, 0, 1):
        found.failed(found.all[number])
        clock.advance(0.1)

    assert not any(found.is_another(one) for one in found.all)
    assert found.choose() is min(found.all, key=lambda one: one.failed_until)


def test_a_relay_with_a_large_lag_is_passed_over() -> None:
    """By its difference to the freshest of those that can be asked."""
    found, _ = upstreams()
    relay(found, 0, LAG_SECONDS + 1)
    assert order(found) == [1, 2, 0]
    relay(found, 1, 5.0)
    found.failed(found.all[2])
    assert found.choose() is found.all[0]
    relay(found, 0, LAG_SECONDS - 1)
    assert found.choose() is found.all[0]


def test_after_a_rewind_relays_wait() -> None:
    found, clock = upstreams()
    relay(found, 0, 1.0)
    relay(found, 1, 1.0)
    found.rewound()

    assert found.choose() is found.all[2]
    clock.advance(HOLD_SECONDS + 1)
    assert found.choose() is found.all[0]


def test_the_origin_is_the_same_for_each_order() -> None:
    urls = ["http://b", "http://a", "http://c"]

    def of(*names: str) -> str:
        return Upstreams([ApiConnection(lambda url=u: ServerAccess(url=url)) for u in names]).origin  # type: ignore[misc]

    assert of(*urls) == of(*reversed(urls)) != of(*urls[:2])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@relay:8443/x", "https://relay:8443/x"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_names_of_upstreams_have_no_credentials(url: str, shown: str) -> None:
    assert label_of(url) == shown


def test_limits_leave_room_for_a_quiet_second_tier() -> None:
    """A bookmark a minute, in each of two tiers."""
    assert 2 * 60.0 <= module.LAG_SECONDS
    assert module.REWIND_SECONDS > module.LAG_SECONDS


def server_at(url: str) -> ApiConnection:
    return ApiConnection(lambda: ServerAccess(url=url))


PATIENCE = 30.0


def leased() -> tuple[Upstreams, ManualClock]:
    """Two servers, and Leases of which nothing is known yet."""
    clock = ManualClock()
    clock.advance(1000.0)
    servers = [server_at(f"http://s{number}") for number in range(2)]
    return Upstreams(servers, patience=PATIENCE, clock=clock, rng=random.Random(1)), clock


def usable(found: Upstreams, *without: Candidate) -> list[str]:
    return [one.name for one in found.all if found.is_usable(one, without)]


def test_servers_wait_for_holders_but_not_for_ever() -> None:
    """SERVERS7."""
    found, clock = leased()
    assert usable(found) == []
    found.stand([server_at("http://holder")], leads=False)
    assert usable(found) == ["http://holder"]
    clock.advance(PATIENCE - 1)
    found.answered(found.all[0], {})  # it is there
    clock.advance(PATIENCE - 1)
    found.failed(found.all[0])
    assert usable(found) == []
    assert found.waits_for_holders
    clock.advance(2.0)
    assert usable(found) == ["http://holder", "http://s0", "http://s1"]


def test_a_holder_asks_the_servers_and_nobody_else() -> None:
    found, _ = leased()
    found.stand([], leads=True)

    assert usable(found) == ["http://s0", "http://s1"]
    assert not found.waits_for_holders


def test_where_all_holders_refuse_a_request_it_goes_to_the_servers() -> None:
    """SERVERS7; and requests that no relay can answer go there at once."""
    found, _ = leased()
    found.stand([server_at("http://a"), server_at("http://b")], leads=False)
    first, second, *_ = found.all

    assert usable(found, first) == [second.name]
    assert usable(found, first, second) == ["http://s0", "http://s1"]
    assert found.choose([first, second], direct=True).name == "http://s0"
    found.stand([], leads=False)
    assert found.choose(direct=True).name == "http://s0"
    assert not found.is_usable(found.choose())


def test_a_wait_ends_with_the_holder_or_with_the_source() -> None:
    found, _ = leased()
    assert not found.wait([], lambda: True)
    later = threading.Timer(0.05, found.stand, ([server_at("http://a")],), {"leads": False})
    later.start()

    assert found.wait([], lambda: False)
    later.join()


def test_a_holder_that_stays_keeps_what_is_known_of_it() -> None:
    found, _ = leased()
    found.stand([server_at("http://a")], leads=False)
    (before, *_rest) = found.all
    found.failed(before)
    found.stand([server_at("http://a"), server_at("http://b")], leads=False)

    assert before in found.all
    assert found.choose().name == "http://b"
    assert {one.number for one in found.all} == {module.HOLDERS, 0, 1}
