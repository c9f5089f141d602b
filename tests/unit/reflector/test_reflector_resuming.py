"""Invariant tested: a reflector that knows where an earlier life ended resumes there, without a
list, as long as the server remembers; and says that it is synced only once the server has spoken.

The cases are those of client-go's RetryWatcher, a watch that resumes; where it gives up, we list.
"""

from __future__ import annotations

import random

import pytest
from reflecting import Script, bookmark, item, lists, names, pod, source_with, watches

from shmcache import states
from shmcache.reflector.events import Apply, Await, Report, Sleep, Watch
from shmcache.reflector.machine import ReflectorSettings
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import Driver, FakeSource, statuses


def resumed(source: FakeSource, version: str) -> Driver:
    """A reflector whose cache already holds what this server has, at this version."""
    return Driver(
        source, ReflectorSettings(), random.Random(5), resume=version, content=dict(source.objects)
    )


def test_it_goes_on_at_the_version_without_a_list() -> None:
    source = source_with("a")
    driver = resumed(source, "10")
    source.create(pod("b"))
    driver.settle()

    assert [] == lists(driver)
    assert ["10"] == watches(driver)
    assert ["a", "b"] == names(driver)
    assert states.SYNCED == driver.state


def test_an_earlier_life_is_synced_again_as_soon_as_the_server_answers() -> None:
    """G23: not before, as its state may be hours old; and without waiting for a bookmark."""
    source = source_with("a")
    source.refuse(statuses.refused(), times=100)
    driver = resumed(source, "10")
    driver.run(59.0)
    assert states.RETRYING == driver.state
    assert [] == driver.contacts

    source.forgive()
    driver.run(3.0)

    assert states.SYNCED == driver.state
    assert ["10"] == watches(driver)
    assert driver.clock() - 3.0 <= driver.contacts[-1]


@pytest.mark.parametrize("version", ["", "0"])
def test_without_a_version_it_begins_from_nothing(version: str) -> None:
    """RetryWatcher refuses ""/"0"; here there is a list to begin with."""
    made = Script(resume=version, use_watch_list=True)

    watch = made.first[-1]
    assert isinstance(watch, Watch)
    assert watch.options.send_initial_events


@pytest.mark.parametrize(
    "failure",
    [
        statuses.hung_up(),
        statuses.refused(),
        statuses.throttled(),
        statuses.http(503, "ServiceUnavailable", retry_after=1),
        SourceFailure(FailureKind.SILENT, "no byte"),
    ],
    ids=str,
)
def test_a_passing_failure_is_retried_at_the_same_version(failure: SourceFailure) -> None:
    """RetryWatcher: recovers from a watch error, a timeout, an empty watch, 5xx with a delay."""
    source = source_with("a")
    source.refuse(failure, on="watch", times=3)
    driver = resumed(source, "10")

    driver.run(60.0)

    assert ["10"] * 4 == watches(driver)
    assert [] == lists(driver)


@pytest.mark.parametrize(
    "failure",
    [
        statuses.expired(),
        statuses.http(403, "Forbidden"),
        statuses.http(401, "Unauthorized"),
        statuses.http(418, "Teapot"),
    ],
    ids=str,
)
@pytest.mark.parametrize("inside", [True, False])
def test_a_lasting_failure_starts_a_new_pass_after_the_backoff(
    failure: SourceFailure, *, inside: bool
) -> None:
    """RetryWatcher: Gone, Forbidden, Unauthorized, unexpected codes; inside or before."""
    made = Script(resume="10", use_watch_list=True)
    if inside:
        made.opened()
        actions = made.received(statuses.as_event(failure))
    else:
        actions = made.failed(failure)

    assert isinstance(actions[-1], Sleep | Await)
    asked = made.waited(actions)[-1]
    assert isinstance(asked, Watch)
    assert asked.options.send_initial_events
    assert "10" == asked.options.resource_version


def test_an_unreadable_error_inside_begins_a_new_pass() -> None:
    """RetryWatcher: unexpected object types in an ERROR event."""
    made = Script(resume="10")
    made.opened()

    error = item("ERROR", "a", 11)
    assert isinstance(made.received(error)[-1], Sleep)
    assert "10" == made.machine.version


@pytest.mark.parametrize("closes", [1, 2, 4])
@pytest.mark.parametrize("gap", [1, 10])
def test_it_survives_closes_without_losing_or_repeating_an_event(closes: int, gap: int) -> None:
    """RetryWatcher: survives 1, 2, 4 closes; also where versions are not consecutive."""
    source = source_with("a")
    driver = resumed(source, "10")
    created = []
    for n in range(closes):
        source.touch(gap)
        created.append(source.create(pod(f"b-{n}")))
        driver.run(2.0)
        source.watches[0].close()
        driver.run(2.0)

    assert [] == lists(driver)
    assert ["10", *created] == watches(driver)
    assert created == [each.version for batch in driver.applied for each in batch]


def test_known_events_at_the_start_of_a_stream_are_skipped() -> None:
    """RetryWatcher: skips versions up to the last one; nothing older replaces a newer object."""
    made = Script(resume="10")
    made.opened()

    actions = made.received(
        item("MODIFIED", "a", 9), item("MODIFIED", "a", 10), item("MODIFIED", "a", 11)
    )

    assert [Apply([item("MODIFIED", "a", 11)], "11")] == [
        action for action in actions if isinstance(action, Apply)
    ]
    assert 2 == made.machine.counts.skipped


def test_bookmarks_move_the_version_and_are_not_passed_on() -> None:
    """RetryWatcher: bookmarks are swallowed, their versions used."""
    made = Script(resume="10")
    made.opened()
    assert "15" in [getattr(action, "version", "") for action in made.received(bookmark(15))]

    watch = made.later(300).closed()[-1]

    assert isinstance(watch, Watch)
    assert "15" == watch.options.resource_version


def test_watches_follow_each_other_by_a_second_at_least() -> None:
    """RetryWatcher: minimal restart delay."""
    source = source_with("a")
    driver = resumed(source, "10")
    for n in range(20):
        source.create(pod(f"b-{n}"))
        driver.settle()
        for watch in list(source.watches):
            watch.close()
        driver.run(0.25)

    assert len(watches(driver)) <= 20 * 0.25 + 2


def test_it_may_be_resumed_at_a_version_that_is_too_old() -> None:
    source = source_with("a")
    driver = resumed(source, "3")

    driver.run(5.0)

    assert ["a"] == names(driver)
    assert states.SYNCED == driver.state
    assert Report(states.SYNCED) == driver.reports[-1]
    assert 1 == driver.replaces
