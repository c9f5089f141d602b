"""Invariant tested: a list never brings the cache back in time, costs the server no more than it
must, and whatever goes wrong with it is tried again by the backoff, never in a loop.
"""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from reflecting import Script, limits, listing, lists, names, pod, source_with, watches

from shmcache import states
from shmcache.protocol.status import ServerStatus
from shmcache.reflector.events import (
    Action,
    Await,
    BeginReplace,
    CancelReplace,
    Elapsed,
    FinishReplace,
    List,
    Log,
    Rejected,
    Report,
    Sleep,
    Watch,
)
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import statuses

TOO_LARGE = {
    "since 1.18.6": statuses.too_large(30, 20),
    "1.17.0 to 1.18.5": statuses.http(
        504, "Timeout", "Timeout", causes=[("", "Too large resource version")]
    ),
    "before 1.17": statuses.http(504, "Timeout", "Too large resource version: 30, current: 20"),
}


# ---- which version -------------------------------------------------------------------------------


def test_the_first_list_takes_any_state_and_the_watch_begins_at_the_lists_version() -> None:
    """R-RF-03, R-RF-06; client-go: ListAndWatch."""
    driver = listing(source_with("a", "b"))

    assert ["0"] == lists(driver)
    assert ["10"] == watches(driver)
    assert ["a", "b"] == names(driver)
    assert states.SYNCED == driver.state


def test_a_later_list_asks_for_no_older_state_than_we_have() -> None:
    """R-RF-03; client-go: ResyncWithResourceVersion: no time travel by a server that lags."""
    source = source_with("a")
    driver = listing(source)
    source.touch()
    source.forget()
    driver.run_until(lambda: driver.replaces == 2)

    assert ["0", "10"] == lists(driver)
    assert ["10", "11"] == watches(driver)


def test_an_expired_version_is_followed_at_once_by_the_most_recent_list() -> None:
    """R-RF-04; client-go: ExpiredExactResourceVersion."""
    source = source_with("a")
    driver = listing(source)
    source.refuse(statuses.expired(), on="watch")
    source.refuse(statuses.expired(), on="list")
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)

    assert ["0", "10", ""] == lists(driver)
    assert driver.requests[-3].time == driver.requests[-2].time


@pytest.mark.parametrize("spelling", TOO_LARGE)
def test_a_version_ahead_of_the_server_is_followed_at_once_by_the_most_recent_list(
    spelling: str,
) -> None:
    """R-RF-04; client-go: FullListIfTooLarge. In each of the three spellings."""
    source = source_with("a")
    driver = listing(source)
    source.refuse(TOO_LARGE[spelling], on="list")
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)

    assert ["0", "10", ""] == lists(driver)


@pytest.mark.parametrize("code", [400, 422])
def test_a_version_that_is_none_to_the_server_is_followed_by_the_most_recent_list(
    code: int,
) -> None:
    """Another server may have stated it: one of more than 64 bits, say."""
    source = source_with("a")
    driver = listing(source)
    source.refuse(statuses.http(code, "BadRequest", "value out of range"), on="list")
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)

    assert ["0", "10", ""] == lists(driver)


def test_at_once_is_once_then_the_backoff_and_still_the_most_recent() -> None:
    """R-RF-04: the flag stays until a list succeeds, and falls then."""
    source = source_with("a")
    driver = listing(source)
    source.refuse(statuses.expired(), on="list", times=4)
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)
    asked = [request.time for request in driver.requests if not request.options.watch]
    gaps = [later - earlier for earlier, later in pairwise(asked[1:])]

    assert ["0", "10", "", "", "", ""] == lists(driver)
    assert [True, False, True, False] == [gap == 0 for gap in gaps]
    source.watches[0].end_with(statuses.expired())
    driver.run_until(lambda: driver.replaces == 3)
    assert "10" == lists(driver)[-1]


def test_504_for_another_reason_is_not_a_version_ahead() -> None:
    made = Script()

    actions = made.failed(statuses.http(504, "Timeout", "request did not complete"))

    assert isinstance(actions[-1], Sleep | Await)


# ---- which pages ---------------------------------------------------------------------------------


def test_pages_are_walked_by_their_tokens_and_the_lists_version_is_that_of_the_first() -> None:
    """R-RF-05; client-go: WatchListPageSize. Continued pages carry no version."""
    source = source_with(*"abcdefghij")
    source.watch_cache = False
    driver = listing(source, page_size=4, page_always=True)

    assert ["0", "+", "+"] == lists(driver)
    assert [4, 4, 4] == limits(driver)
    assert {""} == {
        request.options.resource_version
        for request in driver.requests
        if request.options.continue_token
    }
    assert list("abcdefghij") == names(driver)
    assert 1 == driver.replaces


def test_a_page_at_another_version_does_not_change_the_lists() -> None:
    """R-RF-05: the watch must not miss changes between the first page and the last."""
    made = Script()
    made.listed("10", "next")

    actions = made.listed("15")

    assert FinishReplace("10") in actions
    assert isinstance(actions[-1], Watch)
    assert "10" == actions[-1].options.resource_version


@pytest.mark.parametrize(("version", "limit"), [("", 500), ("0", 500), ("10", 0)])
def test_only_lists_from_nowhere_have_a_limit(version: str, limit: int) -> None:
    """R-RF-05; client-go: NotPaginatingNotConsistentReads: at a version the cache can answer."""
    made = Script(resume="10" if version == "10" else None)
    if version == "10":
        made.failed(statuses.expired())
        made.later(5.0)
        actions = made.step(Elapsed())
    elif version == "":
        actions = made.failed(statuses.expired())
    else:
        actions = made.first

    asked = next(action for action in actions if isinstance(action, List))
    assert (version, limit) == (asked.options.resource_version, asked.options.limit)


def test_a_server_that_pages_at_zero_gets_paged_requests_for_ever() -> None:
    """R-RF-05; client-go: PaginatingNonConsistentReadsIfWatchCacheDisabled."""
    source = source_with(*"abcd")
    source.watch_cache = False
    driver = listing(source, page_size=3)
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)

    assert ["0", "+", "10", "+"] == lists(driver)
    assert [3, 3, 3, 3] == limits(driver)


def test_a_token_that_expired_is_followed_at_once_by_the_whole_list() -> None:
    """R-RF-05; client-go: FullListIfExpired: at the same version, without pages, staged again."""
    source = source_with(*"abcd")
    driver = listing(source, page_size=3, page_always=True)
    source.refuse(statuses.expired(), on="list", after=1)
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)

    assert ["0", "10", "+", "10"] == lists(driver)
    assert [3, 3, 3, 0] == limits(driver)
    assert list("abcd") == names(driver)


def test_items_staged_before_a_token_expired_are_dropped() -> None:
    made = Script()
    made.listed("10", "next")

    actions = made.failed(statuses.expired())

    assert [BeginReplace, List] == [type(action) for action in actions]


def test_a_pass_ends_also_if_everything_always_expires() -> None:
    """No hot loop: a token, the whole list, the most recent one, its token; then it sleeps."""
    made = Script()
    listings = 0
    actions: list[Action] = []
    while not isinstance(next(iter(actions[-1:]), None), Sleep | Await):
        made.listed("10", f"token-{listings}")
        actions = made.failed(statuses.expired())
        listings += 1

    assert 3 == listings


def test_a_page_that_leads_to_itself_ends_the_pass() -> None:
    made = Script()
    made.listed("10", "same")

    actions = made.listed("10", "same")

    assert CancelReplace() in actions
    assert isinstance(actions[-1], Sleep | Await)


# ---- failures ------------------------------------------------------------------------------------


def test_a_list_that_fails_waits_longer_each_time_and_shows_why() -> None:
    """R-RF-01, R-RF-02; client-go: ListAndWatchInitConnBackoff."""
    source = source_with("a")
    source.refuse(statuses.refused(), on="list", times=7)
    driver = listing(source)

    assert states.RETRYING == driver.state
    assert "connection refused" in driver.reason
    driver.run_until(lambda: driver.state == states.SYNCED)
    for least, slept in zip([0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0], driver.sleeps, strict=True):
        assert least <= slept < 1.5 * least
    assert 7 == len(driver.probes)
    assert ["0"] * 2 == lists(driver)


def test_a_list_that_fails_while_probes_are_answered_waits_longer_each_time() -> None:
    """R-RF-01: a server that is there, and cannot list this resource, is not asked more often."""
    made = Script()
    waits = []
    for _ in range(8):
        actions = made.failed(statuses.http(500, "InternalError"))
        assert isinstance(actions[-1], Await)
        waits.append(actions[-1].seconds)
        made.waited(actions)

    for least, waited in zip([0.8, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0], waits, strict=True):
        assert least <= waited < 2 * least


@pytest.mark.parametrize(
    "failure",
    [
        statuses.http(500, "InternalError"),
        statuses.http(401, "Unauthorized"),
        statuses.http(403, "Forbidden"),
        statuses.reset(),
        statuses.hung_up(),
        SourceFailure(FailureKind.SILENT, "no byte for 90 s"),
        SourceFailure(FailureKind.GARBAGE, "no list"),
    ],
    ids=lambda failure: failure.message,
)
def test_a_failed_list_is_dropped_and_started_again_after_the_backoff(
    failure: SourceFailure,
) -> None:
    made = Script()
    made.listed("10", "next")

    actions = made.failed(failure)

    assert CancelReplace() == actions[0]
    assert isinstance(actions[1], Report)
    assert states.RETRYING == actions[1].state
    assert failure.message in actions[1].reason
    assert isinstance(actions[2], Sleep | Await)
    assert 0.8 <= actions[2].seconds < 1.6


def test_a_resource_that_does_not_exist_is_shown_as_absent_and_found_when_it_comes() -> None:
    """R-SI-16: no hot loop, and no restart is needed."""
    source = source_with("a")
    source.refuse(
        statuses.http(404, "NotFound", "could not find the requested resource"), times=200
    )
    driver = listing(source)

    assert states.ABSENT == driver.state
    assert "could not find" in driver.reason
    driver.run(3600.0)
    assert states.ABSENT == driver.state
    assert 3600 / 60 - 1 <= len(driver.requests) <= 3600 / 30 + 6
    source.forgive()
    driver.run(61.0)
    assert states.SYNCED == driver.state


def test_the_same_page_is_requested_after_the_stated_delay() -> None:
    """R-HT-01: 429 and 5xx with Retry-After repeat one request; staged pages stay."""
    made = Script()
    first = made.listed("10", "next")[-1]

    for failure in [statuses.throttled(7), statuses.http(503, "x", retry_after=9)]:
        actions = made.failed(failure)
        assert CancelReplace() not in actions
        assert isinstance(actions[-1], Sleep | Await)
        assert (failure.retry_after or 0) <= actions[-1].seconds < 10
        assert [first] == made.step(Elapsed())


def test_the_body_may_state_the_delay_instead_of_the_header() -> None:
    """R-HT-01: details.retryAfterSeconds."""
    made = Script()
    status = ServerStatus(code=503, reason="ServiceUnavailable", retry_after=8)

    actions = made.failed(SourceFailure(FailureKind.HTTP, "not ready", status))

    assert isinstance(actions[-1], Sleep | Await)
    assert 8 == actions[-1].seconds


def test_a_server_cannot_put_us_off_for_ever() -> None:
    made = Script()

    actions = made.failed(statuses.throttled(86400))

    assert isinstance(actions[-1], Sleep | Await)
    assert 120 == actions[-1].seconds


def test_one_request_is_repeated_ten_times_then_the_pass_starts_again() -> None:
    """R-HT-01."""
    made = Script()
    made.listed("10", "next")
    for _ in range(10):
        made.failed(statuses.throttled(1))
        made.step(Elapsed())

    assert CancelReplace() in made.failed(statuses.throttled(1))
    assert BeginReplace() in made.step(Elapsed())


def test_a_list_of_tables_is_refused() -> None:
    """R-RF-12."""
    made = Script()

    actions = made.listed("10", kind="Table", api_version="meta.k8s.io/v1")

    assert CancelReplace() in actions
    assert isinstance(actions[-1], Sleep | Await)


# ---- rewinds -------------------------------------------------------------------------------------


def test_a_list_from_before_our_version_is_a_rewind() -> None:
    """R-AS-06: after an etcd restore the server's content of now is the truth."""
    source = source_with("a")
    driver = listing(source)
    source.create(pod("b"))
    driver.run(1.0)
    source.restore(10)

    driver.run(600.0)

    assert ["a"] == names(driver)
    assert "10" == driver.version
    assert 1 == driver.machine.counts.rewinds
    alarms = [log for log in driver.logs if "went back from version 11 to 10" in log.message]
    assert [logging.ERROR] == [log.level for log in alarms]
    source.create(pod("c"))
    driver.run(1.0)
    assert ["a", "c"] == names(driver)


def test_a_list_at_our_own_version_is_not_a_rewind() -> None:
    source = source_with("a")
    driver = listing(source)
    source.watches[0].end_with(statuses.expired())

    driver.run_until(lambda: driver.replaces == 2)

    assert 0 == driver.machine.counts.rewinds
    assert not any(isinstance(log, Log) for log in driver.logs)


def test_a_content_that_the_cache_rejects_is_listed_again() -> None:
    for made in [Script(), Script(resume="10")]:
        actions = made.machine.step(Rejected("arena full"), made.now)
        assert isinstance(actions[-1], Sleep | Await)
        assert any(isinstance(each, List) for each in made.step(Elapsed()))
