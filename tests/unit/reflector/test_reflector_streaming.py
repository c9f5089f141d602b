"""Invariant tested: a watch-list shows nothing until the server marks it as complete, then all at
once; and a server that never does so is listed instead, soon and for good.
"""

from __future__ import annotations

from typing import Any

import pytest
from reflecting import (
    Script,
    bookmark,
    item,
    lists,
    names,
    pod,
    source_with,
    streaming,
    streams,
    watches,
)

from shmcache import states
from shmcache.reflector.events import (
    Action,
    Apply,
    BeginReplace,
    CancelReplace,
    Elapsed,
    FinishReplace,
    Hangup,
    List,
    Log,
    Report,
    Sleep,
    Stage,
    Watch,
)
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import statuses

SILENT = SourceFailure(FailureKind.SILENT, "no byte for 90 s")


def opened(**settings: Any) -> Script:
    made = Script(use_watch_list=True, **settings)
    made.opened()
    return made


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


# ---- how it goes ---------------------------------------------------------------------------------


def test_it_asks_for_initial_events_not_older_than_nothing() -> None:
    """R-RF-13."""
    made = Script(use_watch_list=True)

    assert [Report, BeginReplace, Watch] == kinds(made.first)
    watch = made.first[-1]
    assert isinstance(watch, Watch)
    assert watch.options.send_initial_events
    assert "NotOlderThan" == watch.options.resource_version_match
    assert watch.options.allow_bookmarks
    assert "" == watch.options.resource_version


def test_nothing_is_shown_before_the_end_bookmark() -> None:
    """client-go: WatchList: not synced before the bookmark."""
    source = source_with("a")
    source.end_bookmark = False
    driver = streaming(source)
    driver.run(20.0)

    assert {} == driver.content
    assert 0 == driver.replaces
    assert states.LISTING == driver.state


def test_everything_is_shown_at_the_end_bookmark_and_the_stream_goes_on_as_the_watch() -> None:
    """client-go: WatchList: synced after the bookmark; 1 request in all."""
    source = source_with("a", "b")
    driver = streaming(source)
    driver.settle()

    assert ["a", "b"] == names(driver)
    assert "10" == driver.version
    assert states.SYNCED == driver.state
    source.create(pod("c"))
    driver.run(60.0)
    assert ["a", "b", "c"] == names(driver)
    assert 1 == len(driver.requests)
    assert 1 == driver.replaces


def test_changes_before_the_bookmark_are_staged_in_their_order() -> None:
    """R-RF-13; client-go: updates and deletes applied before the bookmark; no ghosts."""
    made = opened()
    items = [item("ADDED", "a", 5), item("MODIFIED", "a", 11), item("DELETED", "a", 12)]

    assert [Stage(items)] == made.received(*items)


def test_one_batch_may_hold_the_end_and_what_follows_it() -> None:
    made = opened()

    actions = made.received(
        item("ADDED", "a", 5), bookmark(10, "true"), item("MODIFIED", "a", 11), bookmark(12)
    )

    assert [
        Stage([item("ADDED", "a", 5)]),
        FinishReplace("10"),
        Report(states.SYNCED),
        Apply([item("MODIFIED", "a", 11)], "12"),
    ] == actions


@pytest.mark.parametrize("annotation", ["True", "1", "false", "", True, None])
def test_only_the_text_true_ends_the_beginning(annotation: object) -> None:
    """R-RF-13; client-go: only annotation value "true" counts."""
    made = opened()

    assert [] == made.received(bookmark(10, annotation))
    assert [FinishReplace, Report] == kinds(made.received(bookmark(10, "true")))


def test_the_version_is_the_bookmarks_alone() -> None:
    """client-go: WatchListResourceVersion: objects come in no order of theirs."""
    made = opened()
    made.received(item("ADDED", "a", 90), item("ADDED", "b", 20))
    assert "" == made.machine.version

    made.received(bookmark(100, "true"))

    assert "100" == made.machine.version


def test_an_end_bookmark_that_comes_again_is_a_bookmark() -> None:
    made = opened()
    made.received(bookmark(10, "true"))

    assert [] == made.received(bookmark(10, "true"))


def test_a_stream_from_before_our_version_is_a_rewind() -> None:
    source = source_with("a", "b")
    driver = streaming(source)
    driver.run(5.0)
    source.restore(9)

    driver.run(300.0)

    assert 1 == driver.machine.counts.rewinds
    assert ["a"] == names(driver)
    assert "9" == driver.version


# ---- servers without watch-lists -----------------------------------------------------------------


def test_where_it_is_not_wanted_it_lists() -> None:
    """client-go: WatchList: gate off uses LIST."""
    driver = streaming(source_with("a"), use_watch_list=False)

    assert [] == streams(driver)
    assert ["0"] == lists(driver)


def test_a_server_without_it_is_listed_at_once_and_never_asked_again() -> None:
    """R-AS-05; client-go: WatchList: server without streaming falls back."""
    source = source_with("a")
    source.watch_list = False
    driver = streaming(source)
    source.watches[0].end_with(statuses.expired())
    driver.run_until(lambda: driver.replaces == 2)

    assert [""] == streams(driver)
    assert ["0", "10"] == lists(driver)
    assert driver.requests[0].time == driver.requests[1].time
    assert any("lists instead" in log.message for log in driver.logs)


@pytest.mark.parametrize(
    ("failure", "for_good"),
    [
        (statuses.http(422, "Invalid"), True),
        (statuses.http(400, "BadRequest"), True),
        (statuses.http(405, "MethodNotAllowed"), True),
        (statuses.http(403, "Forbidden"), False),
        (statuses.http(404, "NotFound"), False),
        (statuses.http(500, "InternalError"), False),
        (SILENT, False),
    ],
    ids=str,
)
def test_any_other_refusal_is_followed_by_a_list_in_the_same_pass(
    failure: SourceFailure, *, for_good: bool
) -> None:
    """R-RF-14; client-go: WatchList: any error other than Invalid falls back."""
    made = Script(use_watch_list=True)

    actions = made.failed(failure)

    assert isinstance(actions[-1], List)
    assert for_good == (Log in kinds(actions))
    made.listed("10")
    made.failed(statuses.expired())
    assert for_good == isinstance(made.step(Elapsed())[-1], List)


def test_an_error_inside_is_followed_by_a_list_in_the_same_pass() -> None:
    """A storage that cannot stream reports it inside: 200, then ERROR 500."""
    made = opened()

    actions = made.received(statuses.as_event(statuses.http(500, "InternalError", "cannot")))

    assert [Hangup, BeginReplace, List] == kinds(actions)


# ---- how it fails: later -------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [statuses.throttled(2), statuses.refused()], ids=str)
def test_it_is_tried_again_when_it_was_put_off(failure: SourceFailure) -> None:
    """R-RF-14; client-go: WatchList: 429 retried."""
    source = source_with("a")
    source.refuse(failure, times=2)
    driver = streaming(source)

    driver.run(60.0)

    assert 3 == len(streams(driver)) + sum(failure.code == 0 for _ in driver.probes[1:])
    assert [] == lists(driver)
    assert 2 == len(driver.sleeps)
    assert ["a"] == names(driver)


@pytest.mark.parametrize(
    ("failure", "why"),
    [(statuses.throttled(2), "Too many requests"), (None, "it was closed before it was complete")],
    ids=["throttled", "closed"],
)
def test_its_state_tells_why_it_is_tried_again(failure: SourceFailure | None, why: str) -> None:
    made = opened()
    made.received(item("ADDED", "a", 5))

    actions = made.later(3).closed() if failure is None else made.failed(failure)

    (report,) = (action for action in actions if isinstance(action, Report))
    assert report.reason.startswith(f"watch-list: {why}")


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("failure", [statuses.expired(), statuses.too_large(30, 20)], ids=str)
def test_a_version_that_the_server_does_not_have_is_followed_by_any(
    failure: SourceFailure, *, inside: bool
) -> None:
    """R-RF-14: at once, once."""
    made = opened()
    made.received(bookmark(30, "true"))
    made.later(5).received(statuses.as_event(statuses.expired()))
    asked = made.step(Elapsed())[-1]
    assert isinstance(asked, Watch)
    assert "30" == asked.options.resource_version

    if inside:
        made.opened()
        actions = made.received(statuses.as_event(failure))
    else:
        actions = made.failed(failure)
    assert isinstance(actions[-1], Watch)
    assert "" == actions[-1].options.resource_version
    assert isinstance(made.failed(failure)[-1], Sleep)


def test_one_that_was_closed_early_is_streamed_again_after_the_backoff() -> None:
    """R-RF-14; client-go: watcher stopped before sync; there without any wait: a hot loop."""
    made = opened()
    made.received(item("ADDED", "a", 5))

    actions = made.later(3).closed()

    assert [CancelReplace, Report, Sleep] == kinds(actions)
    assert [BeginReplace, Watch] == kinds(made.step(Elapsed()))


def test_one_that_is_always_closed_early_is_listed_from_the_third_on() -> None:
    """R-RF-14: no endless requests to a proxy that closes after one event."""
    made = opened()
    for _ in range(2):
        made.received(item("ADDED", "a", 5))
        made.later(3).closed()
        made.step(Elapsed())
        made.opened()
    actions = made.later(3).closed()

    assert Log in kinds(actions)
    assert isinstance(made.step(Elapsed())[-1], List)


def test_one_that_always_breaks_is_listed_once_and_then_tried_again() -> None:
    """A bad network proves nothing about the server."""
    made = opened()
    asked = []
    for _ in range(3):
        assert Log not in kinds(made.failed(statuses.reset()))
        asked.append(type(made.step(Elapsed())[-1]))
    assert [Watch, Watch, List] == asked
    made.listed("10")
    made.failed(statuses.expired())

    assert isinstance(made.step(Elapsed())[-1], Watch)


def test_one_that_ends_after_it_was_complete_is_followed_by_a_watch() -> None:
    """client-go: WatchList: stopped after sync leads to a plain watch."""
    source = source_with("a")
    driver = streaming(source)

    driver.run(700.0)

    assert 1 == len(streams(driver))
    assert ["10"] == watches(driver)[:1]


def test_one_that_expires_after_it_was_complete_begins_a_new_pass() -> None:
    """client-go: WatchList: expired established watcher returns an error."""
    source = source_with("a")
    driver = streaming(source)
    driver.settle()
    source.create(pod("b"))
    source.watches[0].end_with(statuses.expired())

    driver.run(5.0)

    assert ["", "10"] == streams(driver)
    assert ["a", "b"] == names(driver)


# ---- streams that never complete -----------------------------------------------------------------


def test_one_that_falls_silent_without_its_end_is_listed_instead_for_good() -> None:
    """R-RF-16: eight projects hung for ever."""
    source = source_with("a")
    source.end_bookmark = source.bookmarks = False
    driver = streaming(source)

    assert driver.run_until(lambda: driver.state == states.SYNCED, 91.0)
    assert ["a"] == names(driver)
    assert ["0"] == lists(driver)
    source.watches[0].end_with(statuses.expired())
    driver.run_until(lambda: driver.replaces == 2)
    assert [""] == streams(driver)


def test_one_that_goes_on_talking_without_its_end_is_listed_instead_for_good() -> None:
    """R-RF-16: a busy resource is never silent."""
    source = source_with("a")
    source.end_bookmark = False
    driver = streaming(source)
    for n in range(50):
        driver.run(1.0)
        source.update(pod("a", spec=n))

    assert ["0"] == lists(driver)
    assert source.objects.keys() == driver.content.keys()
    assert driver.requests[1].time - driver.requests[0].time <= 32
    assert any("lists instead" in log.message for log in driver.logs)


def test_new_objects_do_not_count_as_initial_once_something_else_came() -> None:
    """They would put the end off for ever where objects come all the time, as events do."""
    made = opened()
    made.received(item("ADDED", "a", 5), item("MODIFIED", "a", 11))
    for n in range(3):
        assert [Stage] == kinds(made.later(10).received(item("ADDED", f"b-{n}", 12 + n)))

    assert List in kinds(made.later(1).received(item("ADDED", "c", 30)))


def test_one_that_is_slow_may_take_its_time() -> None:
    """R-RF-15: objects come, so it goes on; when its time is over the next one gets twice that."""
    made = opened()
    lasting = _lasting(made.first)
    while made.now < lasting - 25:
        assert [Stage] == kinds(made.later(20).received(item("ADDED", f"a-{made.now}", 5)))
    made.now = lasting
    actions = made.closed()

    assert isinstance(actions[-1], Sleep)
    assert 600 <= _lasting(made.step(Elapsed())) < 1200


def test_the_first_objects_may_be_late() -> None:
    """A batch that comes after the deadline is progress, not the end."""
    made = opened()

    assert [Stage] == kinds(made.later(80).received(item("ADDED", "a", 5)))
    assert [] == made.later(20).received()


def test_bytes_alone_are_no_progress() -> None:
    made = opened()

    assert [] == made.later(29).received()
    assert [Hangup, Log, BeginReplace, List] == kinds(made.later(2).received())


def _lasting(actions: list[Action]) -> int:
    watch = actions[-1]
    assert isinstance(watch, Watch)
    assert watch.options.timeout_seconds is not None
    return watch.options.timeout_seconds
