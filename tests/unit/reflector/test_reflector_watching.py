"""Invariant tested: a watch keeps the cache equal to the server, resumes where it ended, and each
way in which it can end leads on: to the next watch, or to a list, never to a loop or to silence.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from reflecting import (
    Script,
    bookmark,
    item,
    listing,
    lists,
    names,
    pod,
    source_with,
    streams,
    watches,
)

from shmcache import states
from shmcache.protocol.items import Item
from shmcache.reflector.events import (
    Action,
    Advance,
    Answering,
    Apply,
    Await,
    Hangup,
    List,
    Log,
    Probe,
    Probed,
    Report,
    Sleep,
    Started,
    Watch,
)
from shmcache.reflector.machine import Reflector, ReflectorSettings
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import Driver, FakeSource, statuses

SILENT = SourceFailure(FailureKind.SILENT, "no byte for 90 s")
INTERNAL = statuses.http(500, "InternalError", "etcdserver: no leader")


def watching(**settings: Any) -> Script:
    """A machine whose list gave version 10 and whose watch is open."""
    made = Script(**settings)
    made.listed("10")
    made.opened()
    return made


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


def lists_next(made: Script, actions: list[Action]) -> bool:
    """Whether after the wait that these actions end with it lists, not watches."""
    assert isinstance(actions[-1], Sleep | Await)
    asked = made.waited(actions)[-1]
    assert isinstance(asked, List | Watch)
    return isinstance(asked, List)


# ---- events -------------------------------------------------------------------------------------


def test_changes_are_applied_in_their_order_at_the_last_ones_version() -> None:
    """client-go: WatchHandler."""
    items = [item("ADDED", "a", 11), item("MODIFIED", "a", 12), item("DELETED", "b", 13)]

    assert [Apply(items, "13")] == watching().received(*items)


def test_lists_and_watches_follow_the_changes_at_the_server() -> None:
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


def test_a_bookmark_is_not_an_object_and_may_repeat_the_version() -> None:
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


def test_versions_that_are_not_numbers_are_taken_in_order() -> None:
    made = Script()
    made.listed("abc")
    made.opened()

    assert [Apply([item("ADDED", "a", "aaa")], "aaa")] == made.received(item("ADDED", "a", "aaa"))


@pytest.mark.parametrize("listed_at", ["", "0"])
def test_objects_that_come_in_no_order_do_not_move_the_version(listed_at: str) -> None:
    """R-RF-10: a watch without a version begins with the present objects."""
    made = Script()
    made.listed(listed_at)
    made.opened()

    first = made.received(item("ADDED", "a", 30), item("ADDED", "b", 20))
    assert [Apply([item("ADDED", "a", 30), item("ADDED", "b", 20)], listed_at)] == [
        action for action in first if isinstance(action, Apply)
    ]
    assert [Apply([item("MODIFIED", "a", 31)], "31")] == made.received(item("MODIFIED", "a", 31))
    assert [Apply([item("ADDED", "c", 32)], "32")] == made.received(item("ADDED", "c", 32))


def test_a_watch_without_a_version_is_followed_by_a_list() -> None:
    """Objects deleted between two such watches would stay for ever."""
    made = Script()
    made.listed("")
    made.opened()
    made.received(item("ADDED", "a", 30))

    assert lists_next(made, made.later(100).closed())


# ---- skipped events ------------------------------------------------------------------------------


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
def test_an_item_of_another_kind_is_skipped_and_logged_once(wrong: Item) -> None:
    """R-RF-12; client-go: IsUnsupportedTableObject: the watch goes on, the version stays."""
    made = watching(kind="Pod", api_version="v1")

    assert [Log] == kinds(made.received(wrong))
    assert [] == made.received(wrong)
    assert "10" == made.machine.version
    assert 2 == made.machine.counts.skipped
    assert [Apply] == kinds(made.received(item("MODIFIED", "a", 12)))


@pytest.mark.parametrize("kind", ["Table", "Anything"])
def test_a_users_own_kind_may_be_called_anything(kind: str) -> None:
    """R-RF-12: only the Tables of meta.k8s.io are not objects."""
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


# ---- the request ---------------------------------------------------------------------------------


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
        made.step(Started("10"), 0.0)
        watch = made.step(Answering("10"), 0.0)[-1]
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


@pytest.mark.parametrize("broken", [False, True])
def test_where_relays_come_and_go_a_few_very_short_watches_are_repeated(broken: bool) -> None:
    """R-RF-09, with short_watches: whether a relay closes a watch as it ends, or is killed."""
    made = watching(short_watches=2)

    def ended() -> list[Action]:
        made.later(0.5)
        return made.failed(statuses.hung_up()) if broken else made.closed()

    for _ in range(2):
        assert not lists_next(made, ended())
        made.opened()
    assert lists_next(made, ended())


def test_a_short_watch_with_known_events_only_brought_nothing() -> None:
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
    assert isinstance(made.waited(actions)[0], Watch)


# ---- how it ends: it is refused ------------------------------------------------------------------


@pytest.mark.parametrize("failure", [statuses.throttled(), statuses.refused()], ids=str)
def test_no_list_is_made_because_a_watch_was_put_off(failure: SourceFailure) -> None:
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


def test_a_throttled_watch_waits_as_long_as_the_server_asked() -> None:
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
        (statuses.http(500, "InternalError"), False),  # a probe comes first
        (statuses.http(503, "ServiceUnavailable"), False),
        (statuses.reset(), False),
        (statuses.http(503, "ServiceUnavailable", retry_after=5), False),  # R-HT-01
        (statuses.hung_up(), False),  # R-HT-03
        (SILENT, False),
    ],
    ids=str,
)
def test_other_refusals_of_a_watch_lead_to_a_list_unless_they_pass(
    failure: SourceFailure, *, relists: bool
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
def test_an_error_in_the_stream_ends_it(failure: SourceFailure, *, relists: bool) -> None:
    """R-RF-08: events before it count, events after it do not (R-AS-21)."""
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
    """client-go: ReplacesStoreOnUnsafeDelete: ERROR StorageReadError, which object is unknown."""
    source = source_with("a", "b")
    driver = listing(source)
    source.delete("prod/a", announced=False)
    source.watches[0].end_with(statuses.http(500, "StorageReadError"))

    driver.run(5.0)

    assert ["b"] == names(driver)


# ---- how it ends: it breaks ----------------------------------------------------------------------


@pytest.mark.parametrize("failure", [statuses.reset(), statuses.hung_up(), SILENT], ids=str)
def test_a_watch_that_breaks_goes_on_where_it_was_after_the_backoff(failure: SourceFailure) -> None:
    made = watching()
    made.received(item("ADDED", "a", 11))

    actions = made.later(5).failed(failure)

    assert [Report, Await][failure is SILENT :] == kinds(actions)
    assert not lists_next(made, actions)


def test_a_watch_that_breaks_at_once_without_anything_new_is_listed() -> None:
    made = watching()

    assert lists_next(made, made.later(0.5).failed(statuses.reset()))


def test_an_invalid_line_ends_the_watch_and_lists_after_the_backoff() -> None:
    """R-HT-05: not the process; and what stood before it counts."""
    source = source_with("a")
    driver = listing(source)
    source.create(pod("b"))
    source.watches[0].babble()

    driver.run(5.0)

    assert ["0", "11"] == lists(driver)
    assert ["a", "b"] == names(driver)
    assert states.SYNCED == driver.state


def test_a_half_open_connection_is_detected_and_its_missed_events_are_read() -> None:
    """R-HT-04: proven outages of six and of twenty-two hours elsewhere."""
    source = source_with("a")
    driver = listing(source)
    driver.run(61.0)
    source.watches[0].kill()
    source.create(pod("b"))

    assert driver.run_until(lambda: names(driver) == ["a", "b"], 95.0)
    assert ["0"] == lists(driver)


def test_a_quiet_watch_lives_on_its_bookmarks() -> None:
    source = source_with("a")
    driver = listing(source)

    driver.run(3600.0)

    assert ["0"] == lists(driver)
    assert states.SYNCED == driver.state
    assert len(watches(driver)) <= 3600 / 300 + 1
    assert [] == driver.sleeps


def test_a_server_without_bookmarks_stays_synced_for_one_request_a_minute() -> None:
    """No bookmarks of events, nor of anything under --watch-cache=false: contact all the same."""
    source = source_with("a")
    source.bookmarks = False
    driver = listing(source)

    driver.run(7200.0)

    assert len(driver.requests) + len(driver.probes) <= 7200 / 60
    assert ["0"] == lists(driver)
    assert [states.LISTING, states.SYNCED] == [report.state for report in driver.reports]
    assert all(b - a <= 91.0 for a, b in itertools.pairwise([*driver.contacts, driver.clock()]))
    assert 7200 / 100 / 10 <= len(driver.probes)  # a restore is found out without a reconnect

    source.bookmarks = True
    driver.run(200.0)
    assert 300 <= (driver.requests[-1].options.timeout_seconds or 0)
    assert 90.0 == driver.requests[-1].silence


def test_a_restore_under_a_server_without_bookmarks_is_found_by_a_probe() -> None:
    """Its watches go on from a version of the future, and are silent."""
    source = source_with("a", "b")
    source.bookmarks = False
    driver = listing(source)
    driver.run(300.0)
    ours = driver.machine.version
    source.version = int(ours) - 1
    del source.objects["prod/b"]
    del source.history[-1]

    assert driver.run_until(lambda: driver.machine.counts.rewinds == 1, 10 * 90.0)
    assert ["a"] == names(driver)


def test_a_future_version_is_found_out_although_its_watch_is_silent_for_ever() -> None:
    """R-AS-06 (#107457)."""
    source = source_with("a", "b")
    driver = Driver(source, ReflectorSettings(), random.Random(1), resume="500")

    assert driver.run_until(lambda: driver.machine.counts.rewinds == 1, 0.0)
    assert [] == watches(driver)
    assert [""] == streams(driver)
    assert source.objects == driver.content
    assert states.SYNCED == driver.state


def test_an_event_older_than_the_one_before_it_is_not_believed() -> None:
    """As after a restore under an open watch: a list shows the truth."""
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


# ---- visible state -------------------------------------------------------------------------------


def test_an_accepted_watch_is_contact_because_a_probe_comes_before_it() -> None:
    """CONTACT2: never a frozen cache that calls itself synced."""
    made = watching()
    actions = made.later(5).failed(statuses.reset())
    assert Report(states.RETRYING, "watch: connection reset by peer") == actions[0]
    assert [Probe] == kinds(made.later(200).step(Answering(None)))
    before = list(made.contacts)
    assert [Watch] == kinds(made.step(Probed("10")))
    assert before == made.contacts

    assert [Report(states.SYNCED)] == made.opened()
    assert [*before, made.now] == made.contacts


def test_a_probe_that_fails_is_sent_again_and_nothing_else_is() -> None:
    made = watching()
    made.later(5).failed(statuses.reset())
    contacts = list(made.contacts)
    actions: list[Action] = []
    for failure in (statuses.refused(), statuses.http(503, "Unavailable"), statuses.throttled(1)):
        assert [Probe] == kinds(made.step(Answering(None)))
        actions = made.failed(failure)
        assert isinstance(actions[-1], Await)

    assert contacts == made.contacts
    assert [Watch] == kinds(made.waited(actions))


def test_a_server_before_our_version_is_listed_from_nothing_in_one_request() -> None:
    """CONTACT4: restored, or wiped."""
    made = Script(resume="11", use_watch_list=True)
    made.opened()
    made.later(5).failed(statuses.reset())

    asked = made.step(Answering("9"))[-1]

    assert isinstance(asked, Watch)
    assert asked.options.send_initial_events
    assert "" == asked.options.resource_version


def test_a_first_event_that_is_an_error_does_not_report_synced() -> None:
    made = Script(resume="10")
    made.opened()

    actions = made.received(statuses.as_event(statuses.expired()))

    assert states.SYNCED not in [each.state for each in actions if isinstance(each, Report)]


def test_a_state_is_reported_once() -> None:
    source = source_with("a")
    driver = listing(source)
    for _ in range(5):
        source.touch()
        driver.run(300.0)

    assert all(before != after for before, after in itertools.pairwise(driver.reports))
    assert [states.LISTING, states.SYNCED] == [report.state for report in driver.reports]


def test_the_driver_of_a_server_that_never_answers_right_stays_within_the_backoff() -> None:
    """The whole of this file in one number: requests in an hour, whatever fails."""
    for failure, each in [
        (statuses.reset(), 2.0),
        (statuses.throttled(1), 30.0),
        (statuses.http(500), 2.0),
        (statuses.expired(), 30.0),
    ]:
        source = FakeSource()
        source.refuse(failure, times=10_000)
        driver = listing(source)
        driver.run(3600.0)
        requests = len(driver.requests) + len(driver.probes)
        assert requests <= (1 if driver.probes else 2) * (6 + 3600 / each), failure
