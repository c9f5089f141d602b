"""Invariant tested: the table is the machine. It names steps that exist, each event has one answer
in each phase or is refused, and stopping ends whatever is under way exactly once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from operator import attrgetter

import pytest

from shmcache import states
from shmcache.protocol.items import ListMeta
from shmcache.reflector.events import (
    Action,
    Answering,
    Await,
    BeginReplace,
    CancelReplace,
    Closed,
    Contact,
    Doubted,
    Elapsed,
    Event,
    Failed,
    FinishReplace,
    Hangup,
    List,
    Listed,
    Opened,
    Probe,
    Probed,
    Received,
    Rejected,
    Report,
    Sleep,
    Started,
    Stop,
    Watch,
)
from shmcache.reflector.machine import TABLE, Phase, Reflector, ReflectorSettings, UnexpectedEvent
from shmcache.source.base import FailureKind, SourceFailure

REFUSED = Failed(SourceFailure(FailureKind.REFUSED, "connection refused"))
CANCELLED = Failed(SourceFailure(FailureKind.CANCELLED, "we end"))
LISTED = Listed(ListMeta("10", "", None, "PodList", "v1"))
EVENTS: list[Event] = [
    Started(), LISTED, Opened(), Received([]), Closed(), REFUSED, Elapsed(), Rejected("full"),
    Answering("10"), Answering(None), Probed("10"), Doubted("another history"),
]  # fmt: skip


def machine(*, use_watch_list: bool = False) -> Reflector:
    return Reflector(ReflectorSettings(use_watch_list=use_watch_list), random.Random(1))


def listing() -> Reflector:
    made = machine()
    made.step(Started(), 0.0)
    return made


def streaming() -> Reflector:
    made = machine(use_watch_list=True)
    made.step(Started(), 0.0)
    return made


def watching() -> Reflector:
    made = listing()
    made.step(LISTED, 0.0)
    return made


def waiting() -> Reflector:
    made = listing()
    made.step(REFUSED, 0.0)
    return made


def probing() -> Reflector:
    made = waiting()
    made.step(Answering(None), 0.0)
    return made


IN: dict[Phase, Callable[[], Reflector]] = {
    Phase.IDLE: machine,
    Phase.LISTING: listing,
    Phase.STREAMING: streaming,
    Phase.WATCHING: watching,
    Phase.WAITING: waiting,
    Phase.PROBING: probing,
}


def under_way(actions: list[Action]) -> list[Action]:
    return [
        action for action in actions if isinstance(action, List | Watch | Sleep | Await | Probe)
    ]


def test_each_step_of_the_table_exists_and_each_phase_has_a_row() -> None:
    assert set(Phase) == set(TABLE)
    for row in TABLE.values():
        for name in row.values():
            assert callable(attrgetter(name)(Reflector()))


@pytest.mark.parametrize("phase", IN)
def test_the_helpers_of_this_file_reach_their_phase(phase: Phase) -> None:
    assert phase is IN[phase]().phase


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("phase", IN)
def test_an_event_has_one_answer_or_is_refused(phase: Phase, event: Event) -> None:
    made = IN[phase]()

    if type(event) not in TABLE[phase]:
        with pytest.raises(UnexpectedEvent, match=phase.value):
            made.step(event, 1.0)
        assert phase is made.phase
        return
    actions = made.step(event, 1.0)
    stays_open = isinstance(event, Opened | Received)
    assert (0 if stays_open else 1) == len(under_way(actions))
    assert stays_open or actions[-1] is under_way(actions)[0]


@pytest.mark.parametrize(
    ("phase", "ended"),
    [
        (Phase.IDLE, []),
        (Phase.LISTING, [CancelReplace()]),
        (Phase.STREAMING, [Hangup(), CancelReplace()]),
        (Phase.WATCHING, [Hangup()]),
        (Phase.WAITING, []),
        (Phase.PROBING, []),
    ],
)
def test_stop_ends_open_requests_once_and_nothing_follows(
    phase: Phase, ended: list[Action]
) -> None:
    """client-go: RunUntil, StopWatch, WatchStoppedBefore/After, HandleWatchResultChanClosed..."""
    made = IN[phase]()

    assert ended == made.step(Stop(), 1.0)
    assert Phase.STOPPED is made.phase
    for event in [*EVENTS, Stop()]:
        assert [] == made.step(event, 2.0)


@pytest.mark.parametrize("phase", [Phase.LISTING, Phase.STREAMING, Phase.WATCHING, Phase.PROBING])
def test_a_request_that_we_cancelled_is_not_a_failure(phase: Phase) -> None:
    made = IN[phase]()

    actions = made.step(CANCELLED, 1.0)

    assert [CancelReplace()] * (phase in {Phase.LISTING, Phase.STREAMING}) == actions
    assert Phase.STOPPED is made.phase
    assert (phase is Phase.PROBING) == made.counts.failures  # the refusal before the probe


def test_a_list_is_staged_then_shown_at_its_version_and_watched_from_there() -> None:
    made = machine()

    first = made.step(Started(), 0.0)
    second = made.step(LISTED, 0.5)

    assert [Report, BeginReplace, List] == [type(action) for action in first]
    assert [FinishReplace("10"), Contact(), Report(states.SYNCED)] == second[:3]
    watch = second[3]
    assert isinstance(watch, Watch)
    assert "10" == watch.options.resource_version
    assert watch.options.allow_bookmarks
