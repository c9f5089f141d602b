"""Peers' cases: client-go's reflector (tools/cache: reflector_test.go, reflector_watchlist_test.go,
delta_fifo_test.go, controller_test.go) and the watcher of kube-rs (watcher.rs, reflector/mod.rs),
by behaviour: what is requested, and what the cache holds. tests/unit/reflector has the details."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from reflecting import limits, listing, lists, names, pod, source_with, streaming, streams, watches

from shmcache import states
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import Driver, FakeSource, statuses

Make = Callable[..., Driver]
MADE = pytest.mark.parametrize("make", [listing, streaming], ids=["list", "watch-list"])
INTERNAL = statuses.http(500, "InternalError", "etcdserver: no leader")
INVALID = statuses.http(422, "Invalid", "sendInitialEvents is forbidden")


def equal(driver: Driver) -> bool:
    return driver.content == driver.source.objects and driver.state == states.SYNCED


def converge(driver: Driver) -> None:
    assert driver.run_until(lambda: equal(driver)), (driver.content, driver.state)


def started(make: Make, *objects: str) -> Driver:
    driver = make(source_with(*objects))
    converge(driver)
    return driver


# ---- client-go, reflector_test.go ----------------------------------------------------------------


@MADE
@pytest.mark.parametrize("when", ["before", "while listing", "while watching", "twice"])
def test_a_stop_ends_everything_and_nothing_follows(make: Make, when: str) -> None:
    """TestRunUntil, TestReflectorWatchStoppedBefore, TestReflectorWatchStoppedAfter,
    TestReflectorHandleWatchStoppedAfter, TestReflectorStopWatch."""
    source = source_with("a")
    if when == "while listing":
        source.refuse(INTERNAL, on="list")
        source.refuse(INTERNAL, on="watch")
    driver = make(source)
    if when != "before":
        driver.run(0.1)
    driver.stop()
    if when == "twice":
        driver.stop()
    requests = len(driver.requests)
    source.create(pod("b"))
    driver.run(3600.0)
    assert len(driver.requests) == requests
    assert "b" not in names(driver)


@MADE
@pytest.mark.parametrize("event", ["create", "update", "delete", "all"])
def test_each_kind_of_event_reaches_the_cache(make: Make, event: str) -> None:
    """TestReflectorWatchHandler; kube-rs: reflector_applied_should_add_object, …_update_object,
    reflector_deleted_should_remove_object."""
    driver = started(make, "a", "b")
    source = driver.source
    if event in {"create", "all"}:
        source.create(pod("c"))
    if event in {"update", "all"}:
        source.update(pod("b", spec={"x": 1}))
    if event in {"delete", "all"}:
        source.delete("prod/a")
    driver.run(1.0)
    assert equal(driver)
    assert len(driver.requests) == (2 if make is listing else 1)


@MADE
def test_objects_that_come_while_it_runs_are_there_in_their_order(make: Make) -> None:
    """TestReflectorListAndWatch."""
    driver = started(make)
    created = [driver.source.create(pod(f"p{number}")) for number in range(20)]
    driver.run(1.0)
    assert [one.version for batch in driver.applied for one in batch] == created
    assert equal(driver)


FAILURES: list[tuple[str, SourceFailure]] = [
    ("refused", statuses.refused()),
    ("reset", statuses.reset()),
    ("hung up", statuses.hung_up()),
    ("500", INTERNAL),
    ("503", statuses.http(503, "ServiceUnavailable", "no endpoints")),
    ("429", statuses.throttled(1)),
    ("401", statuses.http(401, "Unauthorized", "no token")),
    ("403", statuses.http(403, "Forbidden", "no role")),
    ("garbage", SourceFailure(FailureKind.GARBAGE, "not JSON")),
]


@MADE
@pytest.mark.parametrize("on", ["list", "watch"])
@pytest.mark.parametrize("failure", [pytest.param(row[1], id=row[0]) for row in FAILURES])
def test_after_each_failure_the_cache_is_the_servers_again(
    make: Make, on: str, failure: SourceFailure
) -> None:
    """TestReflectorListAndWatchWithErrors: a table of errors of LIST and of WATCH."""
    driver = started(make, "a", "b")
    for _ in range(3):
        driver.source.refuse(failure, on=on)
    driver.source.watches[-1].cut(statuses.reset())
    driver.source.create(pod("c"))
    converge(driver)
    assert names(driver) == ["a", "b", "c"]


@pytest.mark.parametrize("failures", [2, 5, 10])
def test_a_connection_that_fails_is_tried_with_a_growing_wait(failures: int) -> None:
    """TestReflectorListAndWatchInitConnBackoff; kube-rs: exponential_backoff_without_jitter."""
    source = source_with("a")
    source.refuse(statuses.refused(), times=failures + 1)
    driver = listing(source)
    converge(driver)
    waits = [after - before for before, after in pairwise(driver.probes)]
    assert len(waits) == failures
    assert waits[-1] > waits[0]
    assert len(lists(driver)) == 2


@pytest.mark.parametrize("times", [1, 3, 5])
def test_a_watch_that_is_put_off_waits_and_leads_to_no_list(times: int) -> None:
    """TestBackoffOnTooManyRequests, TestNoRelistOnTooManyRequests."""
    driver = started(listing, "a")
    driver.run(5.0)
    driver.source.refuse(statuses.throttled(1), on="watch", times=times)
    driver.source.watches[-1].close()
    driver.source.create(pod("b"))
    converge(driver)
    assert len(lists(driver)) == 1
    assert len(watches(driver)) == times + 2


@pytest.mark.parametrize("window", [0.0, 60.0], ids=["retries off", "retries on"])
def test_internal_errors_inside_a_watch_are_retried_within_a_window(window: float) -> None:
    """TestRetryInternalError: with MaxInternalErrorRetryDuration the watch is made again, without
    it a list."""
    driver = started(lambda source: listing(source, internal_error_retry=window), "a")
    driver.source.watches[-1].end_with(INTERNAL)
    driver.source.create(pod("b"))
    converge(driver)
    assert len(lists(driver)) == (1 if window else 2)


@pytest.mark.parametrize(("page_size", "pages"), [(1, 5), (2, 3), (4, 2), (5, 1), (500, 1)])
def test_a_list_comes_in_pages_of_the_size_that_is_set(page_size: int, pages: int) -> None:
    """TestReflectorWatchListPageSize, TestReflectorPaginatingNonConsistentReads…: of a server that
    pages, each with the limit; continued ones carry no version."""
    source = source_with(*"abcde")
    source.watch_cache = False
    driver = listing(source, page_size=page_size)
    converge(driver)
    assert names(driver) == list("abcde")
    assert lists(driver) == ["0", *["+"] * (pages - 1)]
    assert set(limits(driver)) == {page_size}


def test_a_list_that_the_watch_cache_answers_is_not_paged() -> None:
    """TestReflectorNotPaginatingNotConsistentReads: a relist at a version has no limit."""
    driver = started(lambda source: listing(source, page_size=2), *"abcde")
    driver.source.forget()
    driver.run_until(lambda: driver.replaces == 2)
    assert limits(driver)[-1] == 0


def test_a_relist_asks_for_nothing_older_than_was_seen() -> None:
    """TestReflectorResyncWithResourceVersion: no travel in time by a server that lags."""
    driver = started(listing, "a")
    driver.source.touch()
    driver.source.forget()
    driver.run_until(lambda: driver.replaces == 2)
    assert lists(driver) == ["0", "10"]


@pytest.mark.parametrize(
    "failure", [statuses.expired(), statuses.too_large(30, 20)], ids=["expired", "too large"]
)
def test_a_version_that_the_server_does_not_have_leads_to_the_most_recent(
    failure: SourceFailure,
) -> None:
    """TestReflectorExpiredExactResourceVersion, TestReflectorFullListIfTooLarge."""
    driver = started(listing, "a")
    driver.source.refuse(failure, on="list")
    driver.source.watches[-1].end_with(statuses.expired())
    driver.run_until(lambda: driver.replaces == 2)
    assert lists(driver)[-1] == ""
    converge(driver)


def test_a_page_whose_token_expired_leads_to_the_whole_list() -> None:
    """TestReflectorFullListIfExpired: without pages, and nothing is there twice."""
    source = source_with(*"abcde")
    source.watch_cache = False
    source.refuse(statuses.expired("the continue token is too old"), on="list", after=2)
    driver = listing(source, page_size=2)
    converge(driver)
    assert names(driver) == list("abcde")
    assert limits(driver) == [2, 2, 2, 0]


def test_the_version_follows_objects_and_bookmarks() -> None:
    """TestReflectorResourceVersionUpdate; client-go: LastSyncResourceVersion."""
    driver = started(listing, "a")
    driver.source.create(pod("b"))
    driver.run(1.0)
    assert driver.version == "11"
    driver.source.touch(9)
    driver.run(120.0)
    assert driver.version == "20"  # by a bookmark
    assert driver.versions == sorted(driver.versions, key=int)


def test_a_watch_asks_the_server_to_end_it_after_five_to_ten_minutes() -> None:
    """TestWatchTimeout: "no timeout", "small timeout not honored"."""
    driver = started(listing, "a")
    driver.run(4 * 3600.0)
    asked = [
        request.options.timeout_seconds or 0 for request in driver.requests if request.options.watch
    ]
    assert all(300 <= seconds <= 600 for seconds in asked)
    assert len(asked) > 20
    assert len(lists(driver)) == 1


def test_an_object_that_the_server_cannot_read_is_gone_after_the_next_list() -> None:
    """TestReflectorReplacesStoreOnUnsafeDelete: ERROR of reason StorageReadError."""
    driver = started(listing, "corrupt", "good")
    driver.source.delete("prod/corrupt", announced=False)
    driver.source.watches[-1].end_with(
        statuses.http(500, "StorageReadError", "corrupt object", causes=[("", "corrupt")])
    )
    converge(driver)
    assert names(driver) == ["good"]


# ---- client-go, reflector_watchlist_test.go ------------------------------------------------------


def test_a_watch_list_is_one_request() -> None:
    """TestWatchList: "prove that the reflector is synced after receiving a bookmark event"."""
    driver = started(streaming, "a", "b")
    assert (len(driver.requests), streams(driver), lists(driver)) == (1, [""], [])


def test_without_the_end_bookmark_nothing_is_shown() -> None:
    """ "the reflector won't be synced if the bookmark event has been received", without the
    annotation."""
    source = source_with("a")
    source.end_bookmark = False
    driver = streaming(source)
    driver.run(20.0)
    assert (driver.content, driver.replaces, driver.state) == ({}, 0, states.LISTING)


def test_turned_off_it_lists_and_watches() -> None:
    """ "the reflector uses the old LIST/WATCH semantics if the UseWatchList is turned off"."""
    driver = started(listing, "a")
    assert (streams(driver), lists(driver), watches(driver)) == ([], ["0"], ["10"])


def test_a_server_without_it_is_listed_and_not_asked_again() -> None:
    """ "the reflector can fall back to old LIST/WATCH semantics when a server doesn't …"."""
    source = source_with("a")
    source.refuse(INVALID, on="watch")
    driver = streaming(source)
    converge(driver)
    source.forget()
    driver.run_until(lambda: driver.replaces == 2)
    assert len(streams(driver)) == 1
    assert len(lists(driver)) == 2


@pytest.mark.parametrize("failure", [INTERNAL, statuses.http(403, "Forbidden", "no role")])
def test_any_other_refusal_is_followed_by_a_list(failure: SourceFailure) -> None:
    """ "returning any other error than apierrors.NewInvalid forces fallback"."""
    source = source_with("a")
    source.refuse(failure, on="watch")
    driver = streaming(source)
    converge(driver)
    assert len(lists(driver)) == 1


def test_a_watch_list_that_is_put_off_is_tried_again() -> None:
    """ "checks if the reflector retries 429"."""
    source = source_with("a")
    source.refuse(statuses.throttled(1), on="watch")
    driver = streaming(source)
    converge(driver)
    assert (len(streams(driver)), lists(driver)) == (2, [])


def test_one_that_ends_before_it_is_complete_is_made_again() -> None:
    """ "check if stopping a watcher before sync results in creating a new watch-list request"."""
    source = source_with("a")
    source.end_bookmark = False
    driver = streaming(source)
    driver.run(5.0)
    source.end_bookmark = True
    source.watches[-1].close()
    converge(driver)
    assert len(streams(driver)) == 2


def test_one_that_ends_after_it_was_complete_is_a_watch_that_ended() -> None:
    """ "stopping a watcher after synchronization results in creating a new watch request"."""
    driver = started(streaming, "a")
    driver.run(5.0)
    driver.source.watches[-1].close()
    driver.run(5.0)
    assert (streams(driver), watches(driver)) == ([""], ["10"])


def test_one_that_expires_after_it_was_complete_is_a_new_pass() -> None:
    """ "expiring an established watcher results in returning an error from the reflector"."""
    driver = started(streaming, "a")
    driver.source.create(pod("b"), announced=False)
    driver.source.watches[-1].end_with(statuses.expired())
    driver.run_until(lambda: driver.replaces == 2)
    assert names(driver) == ["a", "b"]


# ---- client-go, delta_fifo_test.go and controller_test.go; kube-rs, reflector/mod.rs -------------


@MADE
@pytest.mark.parametrize(
    ("left", "title"),
    [
        ("", "ReplaceMakesDeletions: everything"),
        ("a", "ReplaceMakesDeletions: some"),
        ("abc", "TestDeltaFIFO_ResyncNonExisting: nothing"),
    ],
)
def test_objects_deleted_while_nobody_watched_are_gone(make: Make, left: str, title: str) -> None:
    """TestDeltaFIFO_ReplaceMakesDeletions, TestDeltaFIFO_ResyncNonExisting; kube-rs:
    reflector_restarted_should_clear_objects."""
    assert title
    driver = started(make, *"abc")
    for name in set("abc") - set(left):
        driver.source.delete(f"prod/{name}", announced=False)
    driver.source.forget()
    driver.run_until(lambda: driver.replaces == 2)
    assert names(driver) == list(left)
    assert equal(driver)


@MADE
@pytest.mark.parametrize("objects", ["", "a"])
def test_a_resource_is_synced_after_its_first_list_however_small(make: Make, objects: str) -> None:
    """TestDeltaFIFO_HasSynced, TestDeltaFIFO_HasSyncedCorrectOnDeletion."""
    driver = make(source_with(*objects))
    converge(driver)
    assert driver.replaces == 1


@MADE
def test_an_object_is_there_once_however_often_it_comes(make: Make) -> None:
    """kube-rs: reflector_store_should_not_contain_duplicates; TestDeltaFIFO_detectLineJumpers."""
    driver = started(make, "a")
    for number in range(50):
        driver.source.update(pod("a", spec={"number": number}))
        if number % 10 == 0:
            driver.source.forget()
    converge(driver)
    assert names(driver) == ["a"]
    assert json.loads(driver.content["prod/a"])["spec"]["number"] == 49


@MADE
def test_a_restart_of_the_watch_in_a_storm_of_changes_loses_none(make: Make) -> None:
    """TestHammerController, TestUpdate, TestResetWatch."""
    driver = started(make)
    source: FakeSource = driver.source
    for turn in range(200):
        name = f"p{turn * 7 % 13}"
        if f"prod/{name}" not in source.objects:
            source.create(pod(name))
        elif turn % 3 == 0:
            source.delete(f"prod/{name}")
        else:
            source.update(pod(name, spec={"turn": turn}))
        driver.run(0.01)
        if turn % 25 == 0:
            for watch in list(source.watches):
                watch.close()
        if turn % 60 == 0:
            source.forget()
    converge(driver)


def test_the_requests_of_a_first_pass_say_which_way_it_is() -> None:
    """kube-rs: to_watch_params_initial_phase_with_streaming_list_sets_send_initial_events,
    …_resumed_phase_… does not, …_listwatch_mode_… does not."""

    def asked(driver: Driver) -> list[Any]:
        return [one.options.send_initial_events for one in driver.requests if one.options.watch]

    stream = started(streaming, "a")
    stream.run(5.0)
    stream.source.watches[-1].close()
    stream.run(5.0)
    assert asked(stream) == [True, None]
    assert asked(started(listing, "a")) == [None]


def test_a_connection_that_says_nothing_is_given_up() -> None:
    """kube-rs: idle_timeout_returns_none_on_dead_connection; what it missed is read."""
    driver = started(listing, "a")
    driver.source.watches[-1].kill()
    driver.source.create(pod("b"))
    driver.run(3600.0)
    assert names(driver) == ["a", "b"]
