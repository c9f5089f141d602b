"""Invariant tested: a watch keeps the cache equal to the server, resumes where it ended, and each
way in which it can end leads on: to the next watch, or to a list, never to a loop or to silence.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from reflecting import Script, bookmark, item, listing, lists, names, pod, source_with, watches

from shmcache import states
from shmcache.events import (
    Action,
    Advance,
    Apply,
    Elapsed,
    Hangup,
    List,
    Log,
    Report,
    Sleep,
    Started,
    Watch,
)
from shmcache.protocol.items import Item
from shmcache.reflector import Reflector, ReflectorSettings
from shmcache.source.base import Failure, FailureKind
from shmcache.testing import Driver, FakeSource, statuses

SILENT = Failure(FailureKind.SILENT, "no byte for 90 s")
INTERNAL = statuses.http(500, "InternalError", "etcdserver: no leader")


def watching(**settings: Any) -> Script:
    """A machine whose list gave version 10 and whose watch is open."""
    made = Script(**settings)
    made.listed("10")
    made.opened()
    return made


def after_wait(made: Script) -> list[Action]:
    return made.machine.step(Elapsed(), made.now)


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


def lists_next(made: Script, actions: list[Action]) -> bool:
    """Whether after the wait that these actions end with it lists, not watches."""
    assert isinstance(actions[-1], Sleep)
    asked = after_wait(made)[-1]
    assert isinstance(asked, List | Watch)
    return isinstance(asked, List)


# ---- what is brought -----------------------------------------------------------------------------


def test_changes_are_applied_in_their_order_at_the_last_ones_version() -> None:
    """client-go: WatchHandler."""
    items = [item("ADDED", "a", 11), item("MODIFIED", "a", 12), item("DELETED", "b", 13)]

    assert [Apply(items, "13")] == watching().received(*items)


def test_lists_and_watches_follow_what_happens_at_the_server() -> None:
    """client-go: ListAndWatch."""
    source = source_with("a", "b")
    driver = listing(source)
    source.create(pod("c"))
    source.update(pod("a", spec=1))
    source.delete("prod/b")
    driver.settle()

    assert source.objects == driver.content
    assert "13" == driver.version
    assert [["ADDED", "MODIFIED", "DELETED"]] == [[i.type for i in b] for b in driver.applied]


def test_the_version_follows_each_kind_of_event() -> None:
    """R-RF-24; client-go: ReflectorResourceVersionUpdate: 10, 20, 30, 40."""
    made = watching()
    told = [
        made.received(each)
        for each in [
            item("ADDED", "a", 20), item("MODIFIED", "a", 30), item("DELETED", "a", 40),
            bookmark(50),
        ]
    ]  # fmt: skip

    assert ["20", "30", "40"] == [a.version for (a,) in told[:3] if isinstance(a, Apply)]
    assert [Advance("50")] == told[3]


def test_a_bookmark_is_no_object_and_may_say_what_is_known() -> None:
    """R-RF-11."""
    made = watching()

    assert [Apply([item("ADDED", "a", 11)], "12")] == made.received(
        item("ADDED", "a", 11), bookmark(12)
    )
    assert [] == made.received(bookmark(12))
    assert [] == made.received()


def test_versions_are_longer_than_any_integer() -> None:
    """R-ST-09."""
    made = Script()
    made.listed(str(2**200))
    made.opened()

    assert [Advance(str(2**200 + 1))] == made.received(bookmark(2**200 + 1))


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    made = Script()
    made.listed("abc")
    made.opened()

    assert [Apply([item("ADDED", "a", "aaa")], "aaa")] == made.received(item("ADDED", "a", "aaa"))


@pytest.mark.parametrize("listed_at", ["", "0"])
def test_objects_that_come_in_no_order_do_not_move_the_version(listed_at: str) -> None:
    """R-RF-10: a watch from nowhere begins with what is there."""
    made = Script()
    made.listed(listed_at)
    made.opened()

    first = made.received(item("ADDED", "a", 30), item("ADDED", "b", 20))
    assert [Apply([item("ADDED", "a", 30), item("ADDED", "b", 20)], listed_at)] == [
        action for action in first if isinstance(action, Apply)
    ]
    assert [Apply([item("MODIFIED", "a", 31)], "31")] == made.received(item("MODIFIED", "a", 31))
    assert [Apply([item("ADDED", "c", 32)], "32")] == made.received(item("ADDED", "c", 32))


def test_from_nowhere_there_is_no_way_to_go_on_but_to_list() -> None:
    """What was deleted between two such watches would stay for ever."""
    made = Script()
    made.listed("")
    made.opened()
    made.received(item("ADDED", "a", 30))

    assert lists_next(made, made.later(100).closed())


# ---- what is skipped -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        item("MODIFIED", "a", 11, of="Node"),
        item("MODIFIED", "a", 11, api_version="v2"),
        item("MODIFIED", "a", 11, of="Table", api_version="meta.k8s.io/v1"),
        item("MODIFIED", "a", 11, of="Table", api_version="meta.k8s.io/v1beta1"),
        item("ADDED", "", 11),
    ],
    ids=["kind", "version", "table", "old table", "nameless"],
)
def test_what_is_of_another_kind_is_skipped_and_told_once(wrong: Item) -> None:
    """R-RF-12; client-go: IsUnsupportedTableObject: the watch goes on, the version stays."""
    made = watching(kind="Pod", api_version="v1")

    assert [Log] == kinds(made.received(wrong))
    assert [] == made.received(wrong)
    assert "10" == made.machine.version
    assert 2 == made.machine.counts.skipped
    assert [Apply] == kinds(made.received(item("MODIFIED", "a", 12)))


@pytest.mark.parametrize("kind", ["Table", "Anything"])
def test_a_users_own_kind_may_be_called_anything(kind: str) -> None:
    """R-RF-12: only the Tables of meta.k8s.io are none."""
    own = item("ADDED", "a", 11, of=kind, api_version="example.com/v1")

    assert [Apply] == kinds(watching().received(own))


def test_an_event_of_unknown_type_moves_the_version_and_nothing_else() -> None:
    """R-RF-12."""
    made = watching()

    assert [Log, Advance] == kinds(made.received(item("RENAMED", "a", 11)))
    assert [Advance("12")] == made.received(item("RENAMED", "a", 12))


def test_complaints_do_not_grow_without_bound() -> None:
    made = watching()

    told = [made.received(item(f"TYPE-{n}", "a", 11 + n)) for n in range(300)]

    assert 100 == sum(Log in kinds(actions) for actions in told)


# ---- how it is asked for -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wished", "least", "most"), [(300, 300, 600), (60, 300, 600), (1800, 1800, 3600)]
)
def test_a_watch_lasts_five_to_ten_minutes_or_as_much_longer(
    wished: float, least: int, most: int
) -> None:
    """R-RF-06; client-go: WatchTimeout."""
    settings = ReflectorSettings(use_watch_list=False, watch_seconds=wished)
    seen = set()
    for seed in range(300):
        made = Reflector(settings, random.Random(seed))
        watch = made.step(Started("10"), 0.0)[-1]
        assert isinstance(watch, Watch)
        assert watch.options.allow_bookmarks
        assert watch.options.send_initial_events is None
        seen.add(watch.options.timeout_seconds or 0)

    assert least <= min(seen) < least * 1.05
    assert most * 0.95 < max(seen) < most


def test_a_connection_is_dead_when_a_bookmark_is_half_a_period_late() -> None:
    """R-HT-04."""
    driver = listing(source_with("a"))

    assert [90.0] == [request.silence for request in driver.requests if request.options.watch]


def test_the_selectors_are_in_every_request() -> None:
    made = Script(label_selector="app=a", field_selector="spec.nodeName=n")

    asked = [*made.first, *made.listed("10", "next"), *made.listed("10")]
    requests = [action for action in asked if isinstance(action, List | Watch)]
    assert 3 == len(requests)
    for request in requests:
        assert "app=a" == request.options.label_selector
        assert "spec.nodeName=n" == request.options.field_selector


# ---- how it ends: by itself ----------------------------------------------------------------------


def test_a_watch_that_ends_cleanly_is_followed_at_once_where_it_ended() -> None:
    """R-RF-09."""
    made = watching()
    made.received(item("ADDED", "a", 11))

    actions = made.later(300).closed()

    assert [Watch] == kinds(actions)
    assert isinstance(actions[0], Watch)
    assert "11" == actions[0].options.resource_version


def test_a_very_short_watch_that_brought_nothing_is_a_failure() -> None:
    """R-RF-09: a proxy that closes each watch must not be asked in a loop."""
    made = watching()

    actions = made.later(0.9).closed()

    assert [Report, Sleep] == kinds(actions)
    assert lists_next(made, actions)


def test_a_short_watch_that_says_only_what_is_known_brought_nothing() -> None:
    """Stricter than client-go, for which any event makes a watch a good one."""
    made = watching()
    made.received(bookmark(10))

    assert lists_next(made, made.later(0.9).closed())


def test_a_short_watch_that_brought_something_goes_on_but_not_faster_than_each_second() -> None:
    """A server cuts slow readers cleanly, and may close after each event."""
    made = watching()
    made.received(item("ADDED", "a", 11))

    actions = made.later(0.25).closed()

    assert [Sleep(0.75)] == actions
    assert isinstance(after_wait(made)[0], Watch)


# ---- how it ends: it is refused ------------------------------------------------------------------


@pytest.mark.parametrize("failure", [statuses.throttled(), statuses.refused()], ids=str)
def test_no_list_is_made_because_a_watch_was_put_off(failure: Failure) -> None:
    """R-RF-07; client-go: NoRelistOnTooManyRequests: 1 list, 5 watches."""
    source = source_with("a")
    source.refuse(failure, on="watch", times=4)
    driver = listing(source)

    driver.run(100.0)

    assert ["0"] == lists(driver)
    assert ["10"] * 5 == watches(driver)
    assert 4 == len(driver.sleeps)
    assert states.SYNCED == driver.state


def test_two_that_were_put_off_are_two_waits() -> None:
    """R-RF-07; client-go: BackoffOnTooManyRequests."""
    source = source_with("a")
    source.refuse(statuses.throttled(None), on="watch", times=2)
    driver = listing(source)

    driver.run(60.0)

    assert ["0"] == lists(driver)
    assert 2 == len(driver.sleeps)
    assert 0.8 <= driver.sleeps[0] < 1.6 <= driver.sleeps[1] < 3.2


def test_a_throttled_watch_waits_as_long_as_it_was_told() -> None:
    """R-AS-07."""
    made = Script()
    made.listed("10")

    assert Sleep(29) == made.failed(statuses.throttled(29))[-1]


@pytest.mark.parametrize(
    ("failure", "relists"),
    [
        (statuses.expired(), True),  # R-KR-04: HTTP 410 at the same version would be a loop
        (statuses.http(403, "Forbidden"), True),
        (statuses.http(401, "Unauthorized"), True),
        (statuses.http(404, "NotFound"), True),
        (statuses.http(500, "InternalError"), True),
        (statuses.http(503, "ServiceUnavailable"), True),
        (statuses.reset(), True),
        (statuses.http(503, "ServiceUnavailable", retry_after=5), False),  # R-HT-01
        (statuses.hung_up(), False),  # R-HT-03
        (SILENT, False),
    ],
    ids=str,
)
def test_what_else_refuses_a_watch_leads_to_a_list_unless_it_said_when(
    failure: Failure, *, relists: bool
) -> None:
    """R-RF-07."""
    made = Script()
    made.listed("10")

    assert relists == lists_next(made, made.failed(failure))


def test_a_server_that_always_hangs_up_is_listed_after_ten_watches() -> None:
    """R-HT-01, R-HT-03."""
    made = Script()
    made.listed("10")
    watches_asked = 0
    while not lists_next(made, made.failed(statuses.hung_up())):
        watches_asked += 1

    assert 10 == watches_asked


# ---- how it ends: an ERROR event -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "relists"),
    [
        (statuses.expired(), True),
        (statuses.http(410, "Gone"), True),
        (statuses.throttled(), False),
        (INTERNAL, True),
        (statuses.http(504, "Timeout"), True),
        (statuses.http(500, "StorageReadError"), True),
    ],
    ids=str,
)
def test_an_error_in_the_stream_ends_it(failure: Failure, *, relists: bool) -> None:
    """R-RF-08: what came before counts, what comes after does not (R-AS-21)."""
    made = watching()

    actions = made.received(
        item("ADDED", "a", 11), statuses.as_event(failure), item("ADDED", "b", 12)
    )

    assert Apply([item("ADDED", "a", 11)], "11") == actions[0]
    assert [Apply, Hangup, Report, Sleep] == kinds(actions)
    assert relists == lists_next(made, actions)


def test_after_too_old_the_list_is_at_our_version_and_after_the_backoff() -> None:
    """R-RF-01, R-RF-08: at least 0.8 s, also though nothing failed."""
    source = source_with("a")
    driver = listing(source)
    source.forget()
    source.create(pod("b"))
    source.forget()

    driver.run(30.0)

    assert ["0", "10"] == lists(driver)
    assert driver.sleeps
    assert min(driver.sleeps) >= 0.8
    assert ["a", "b"] == names(driver)


def test_an_error_without_a_readable_status_is_an_error() -> None:
    made = watching()
    broken = Item("ERROR", "", None, None, None, None, b"oops")

    assert lists_next(made, made.received(broken))


@pytest.mark.parametrize(
    ("window", "each", "retried"),
    [(0.0, 1.0, 0), (30.0, 1.0, 31), (30.0, 60.0, 40)],
    ids=["off", "until the window is over", "each after a quiet minute"],
)
def test_internal_errors_are_retried_within_their_window(
    window: float, each: float, retried: int
) -> None:
    """R-RF-08; client-go: RetryInternalError, RetryWithDeadline; here with the backoff between."""
    made = watching(internal_error_retry=window)
    watched = 0
    for _ in range(40):
        actions = made.received(statuses.as_event(INTERNAL))
        if lists_next(made, actions):
            break
        watched += 1
        made.later(each)
        made.opened()

    assert retried == watched


def test_a_corrupt_object_is_gone_after_the_list_and_the_others_stay() -> None:
    """client-go: ReplacesStoreOnUnsafeDelete: ERROR StorageReadError, nothing says which."""
    source = source_with("a", "b")
    driver = listing(source)
    source.delete("prod/a", announced=False)
    source.watches[0].end_with(statuses.http(500, "StorageReadError"))

    driver.run(5.0)

    assert ["b"] == names(driver)


# ---- how it ends: it breaks ----------------------------------------------------------------------


@pytest.mark.parametrize("failure", [statuses.reset(), statuses.hung_up(), SILENT], ids=str)
def test_a_watch_that_breaks_goes_on_where_it_was_after_the_backoff(failure: Failure) -> None:
    made = watching()
    made.received(item("ADDED", "a", 11))

    actions = made.later(5).failed(failure)

    assert [Report, Sleep] == kinds(actions)
    assert not lists_next(made, actions)


def test_a_watch_that_breaks_at_once_without_anything_new_is_listed() -> None:
    made = watching()

    assert lists_next(made, made.later(0.5).failed(statuses.reset()))


def test_a_line_that_is_no_event_ends_the_watch_and_lists_after_the_backoff() -> None:
    """R-HT-05: not the process; and what stood before it counts."""
    source = source_with("a")
    driver = listing(source)
    source.create(pod("b"))
    source.watches[0].babble()

    driver.run(5.0)

    assert ["0", "11"] == lists(driver)
    assert ["a", "b"] == names(driver)
    assert states.SYNCED == driver.state


def test_a_half_open_connection_is_found_and_what_it_hid_is_brought() -> None:
    """R-HT-04: proven outages of six and of twenty-two hours elsewhere."""
    source = source_with("a")
    driver = listing(source)
    driver.run(61.0)
    source.watches[0].kill()
    source.create(pod("b"))

    assert driver.run_until(lambda: names(driver) == ["a", "b"], 95.0)
    assert ["0"] == lists(driver)


def test_silence_is_no_death_where_there_are_bookmarks() -> None:
    source = source_with("a")
    driver = listing(source)

    driver.run(3600.0)

    assert ["0"] == lists(driver)
    assert states.SYNCED == driver.state
    assert len(watches(driver)) <= 3600 / 300 + 1
    assert [] == driver.sleeps


def test_a_server_without_bookmarks_is_listed_ever_more_rarely() -> None:
    """It may have lost our version, or only have nothing to say: a list tells."""
    source = source_with("a")
    source.bookmarks = False
    driver = listing(source)

    driver.run(7200.0)
    early = len(lists(driver))
    driver.run(7200.0)

    assert 2 <= early <= 16
    assert len(lists(driver)) - early <= 7200 / 300
    source.bookmarks = True
    driver.run(1500.0)
    assert 90.0 == driver.requests[-1].silence


def test_a_future_version_is_found_out_although_its_watch_is_silent_for_ever() -> None:
    """R-AS-06 (#107457)."""
    source = source_with("a", "b")
    driver = Driver(source, ReflectorSettings(), random.Random(1), resume="500")

    assert states.RETRYING == driver.state
    assert driver.run_until(lambda: driver.machine.counts.rewinds == 1, 120.0)
    assert source.objects == driver.content
    assert states.SYNCED == driver.state


def test_an_event_from_before_what_the_stream_said_is_not_believed() -> None:
    """As after a restore under an open watch: a list tells what is true."""
    made = watching()
    made.received(item("ADDED", "a", 20))

    actions = made.received(item("ADDED", "b", 21), item("ADDED", "c", 15))

    assert [Apply, Hangup, Report, Sleep] == kinds(actions)
    assert Apply([item("ADDED", "b", 21)], "21") == actions[0]
    assert lists_next(made, actions)


def test_an_event_that_was_lost_is_made_good_by_the_next_list() -> None:
    """client-go: ListAndWatchWithErrors: the cache is the server's last known state."""
    source = source_with("a", "b")
    driver = listing(source)
    source.create(pod("c"), announced=False)
    source.delete("prod/a", announced=False)
    driver.run(10.0)
    assert ["a", "b"] == names(driver)

    source.forget()
    driver.run_until(lambda: driver.replaces == 2)

    assert source.objects == driver.content


# ---- what is shown -------------------------------------------------------------------------------


def test_an_open_connection_is_word_enough_only_while_the_last_word_is_fresh() -> None:
    """Never a frozen cache that says it is synced."""
    made = watching()
    made.later(5).failed(statuses.reset())
    after_wait(made)
    assert [Report(states.SYNCED)] == made.opened()

    made.later(5).failed(statuses.reset())
    after_wait(made.later(200))
    assert [] == made.opened()
    assert [Report(states.SYNCED), Advance("11")] == sorted(
        made.received(bookmark(11)), key=lambda action: isinstance(action, Advance)
    )


def test_a_first_event_that_is_an_error_does_not_say_synced() -> None:
    made = Script(resume="10")
    made.opened()

    actions = made.received(statuses.as_event(statuses.expired()))

    assert states.SYNCED not in [each.state for each in actions if isinstance(each, Report)]


def test_what_is_shown_is_said_once() -> None:
    source = source_with("a")
    driver = listing(source)
    for _ in range(5):
        source.touch()
        driver.run(300.0)

    assert all(before != after for before, after in itertools.pairwise(driver.reports))
    assert [states.LISTING, states.SYNCED] == [report.state for report in driver.reports]


def test_the_driver_of_a_server_that_never_answers_right_stays_within_the_backoff() -> None:
    """The whole of this file in one number: requests in an hour, whatever fails."""
    for failure in [
        statuses.reset(),
        statuses.throttled(1),
        statuses.http(500),
        statuses.expired(),
    ]:
        source = FakeSource()
        source.refuse(failure, times=10_000)
        driver = listing(source)
        driver.run(3600.0)
        assert len(driver.requests) <= 2 * (6 + 3600 / 30), failure
