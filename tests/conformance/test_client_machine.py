"""Invariant tested: the answers of a real server lead the reflector to the right next step.

Each trace goes the whole way: bytes, source, machine. The sidecar has the expected result.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

import pytest
from client import SILENCE, Trace, load_traces, source_of
from wire import Wire

from shmcache.reflector.events import (
    Action,
    Advance,
    Answering,
    Apply,
    Await,
    Closed,
    Event,
    Failed,
    FinishReplace,
    Hangup,
    List,
    Listed,
    Opened,
    Received,
    Sleep,
    Stage,
    Started,
    Watch,
)
from shmcache.reflector.machine import Reflector, ReflectorSettings
from shmcache.source.base import SourceFailed
from shmcache.source.kube import KubeSource

Wanted = TypeVar("Wanted")

BEFORE = "1"
"""A version before all that was recorded."""
TRACES = [
    trace
    for trace in load_traces()
    if "Table" not in str(trace.sidecar["request"].get("headers"))
    and (trace.header("Content-Type") or "").startswith(("application/json", "text/plain"))
]


class Drive:
    """Carries out one request of a machine against one answer; keeps all that it wants then."""

    def __init__(self, source: KubeSource, *, version: str | None, streams: bool) -> None:
        settings = ReflectorSettings(use_watch_list=streams, silence=SILENCE)
        self.machine = Reflector(settings, Random(1))
        self.staged = 0
        self.actions: list[Action] = []
        actions = self.machine.step(Started(version), 0.0)
        if isinstance(actions[-1], Await):  # the server is known to have the version
            actions = self.machine.step(Answering(version), 0.0)
        (request,) = [action for action in actions if isinstance(action, List | Watch)]
        if isinstance(request, List):
            self._list(source, request)
        else:
            self._watch(source, request)

    def of(self, *kinds: type[Wanted]) -> list[Wanted]:
        return [action for action in self.actions if isinstance(action, kinds)]

    def _step(self, event: Event) -> bool:
        """Whether the request goes on."""
        found = self.machine.step(event, 2.0)
        self.actions += found
        return not any(isinstance(action, Hangup) for action in found)

    def _list(self, source: KubeSource, request: List) -> None:
        try:
            with source.page(request.options) as page:
                for items in page:
                    self.staged += len(items)
            self._step(Listed(page.meta))
        except SourceFailed as failed:
            self._step(Failed(failed.failure))

    def _watch(self, source: KubeSource, request: Watch) -> None:
        try:
            with source.watch(request.options, silence=request.silence) as batches:
                self._step(Opened())
                for items in batches:
                    if not self._step(Received(items)):
                        return
            self._step(Closed())
        except SourceFailed as failed:
            self._step(Failed(failed.failure))


def driven(trace: Trace, *, version: str | None = None, streams: bool = False) -> Drive:
    with Wire(trace.answer) as wire:
        return Drive(source_of(wire.url, trace.resource), version=version, streams=streams)


def named(trace: Trace) -> str:
    return trace.name


def events_of(trace: Trace, *types: str) -> list[list[Any]]:
    return [event for event in trace.summary.get("events", ()) if event[0] in types]


def is_streamed(trace: Trace) -> bool:
    end = "k8s.io/initial-events-end=true"
    return any(event[4:] == [end] for event in events_of(trace, "BOOKMARK"))


LISTS = [trace for trace in TRACES if trace.status == 200 and "items" in trace.summary]
UNSERVED = [
    trace
    for trace in TRACES
    if trace.status == 410 or (trace.status == 504 and "Too large" in str(trace.summary))
]
FAILED_LISTS = [
    trace
    for trace in TRACES
    if trace.status != 200 and not trace.is_watch and trace not in UNSERVED
]
STREAMS = [trace for trace in TRACES if trace.is_watch and is_streamed(trace)]
WATCHES = [
    trace
    for trace in TRACES
    if events_of(trace, "ADDED", "MODIFIED", "DELETED")
    and "resourceVersion=" in trace.sidecar["request"]["path"]
    and not is_streamed(trace)
    and "sendInitialEvents" not in trace.sidecar["request"]["path"]
    and "resourceVersion=0" not in trace.sidecar["request"]["path"]
]
REFUSED = [trace for trace in TRACES if events_of(trace, "ERROR")]


def test_the_traces_are_there() -> None:
    groups = (LISTS, UNSERVED, FAILED_LISTS, STREAMS, WATCHES, REFUSED)
    assert (29, 8, 21, 12, 13, 7) == tuple(map(len, groups))


@pytest.mark.parametrize("trace", LISTS, ids=named)
def test_a_list_becomes_visible_and_is_watched_or_goes_on_with_its_next_page(trace: Trace) -> None:
    drive = driven(trace)

    meta = trace.summary["metadata"]
    assert trace.summary["items"] == drive.staged
    if "continue" in meta:
        assert [meta["continue"]] == [page.options.continue_token for page in drive.of(List)]
    else:
        assert [FinishReplace(meta["resourceVersion"])] == drive.of(FinishReplace)
        assert [meta["resourceVersion"]] == [
            watch.options.resource_version for watch in drive.of(Watch)
        ]


@pytest.mark.parametrize("trace", UNSERVED, ids=named)
def test_a_version_that_the_server_does_not_have_is_given_up_at_once(trace: Trace) -> None:
    drive = driven(trace)

    (page,) = drive.of(Sleep, Await, List, Watch)
    assert isinstance(page, List)
    assert ("", "") == (page.options.resource_version, page.options.continue_token)


@pytest.mark.parametrize("trace", FAILED_LISTS, ids=named)
def test_a_list_that_fails_is_tried_again_later_never_at_once(trace: Trace) -> None:
    drive = driven(trace)

    (sleep,) = drive.of(Sleep, Await, List, Watch)
    assert isinstance(sleep, Sleep | Await)
    assert sleep.seconds >= float(trace.header("Retry-After") or 0.01)
    assert not drive.of(FinishReplace, Apply)


@pytest.mark.parametrize("trace", STREAMS, ids=named)
def test_a_watch_list_becomes_visible_at_its_end_bookmark_and_goes_on(trace: Trace) -> None:
    drive = driven(trace, streams=True)

    all_events = trace.summary["events"]
    end = next(at for at, event in enumerate(all_events) if len(event) > 4)
    staged = [item for stage in drive.of(Stage) for item in stage.items]
    assert [event[2].lstrip("/") for event in all_events[:end]] == [item.key for item in staged]
    assert [FinishReplace(all_events[end][3])] == drive.of(FinishReplace)
    assert changes_of(all_events[end + 1 :]) == applied_by(drive)


@pytest.mark.parametrize("trace", WATCHES, ids=named)
def test_a_watch_becomes_visible_change_by_change_and_goes_on_where_it_ended(trace: Trace) -> None:
    drive = driven(trace, version=BEFORE)

    assert changes_of(trace.summary["events"]) == applied_by(drive)
    assert trace.summary["events"][-1][3] == drive.machine.version
    following = drive.of(Watch)
    assert [drive.machine.version] * len(following) == [
        watch.options.resource_version for watch in following
    ]
    assert 1 == len(following) + len(drive.of(Sleep, Await))


@pytest.mark.parametrize("trace", REFUSED, ids=named)
def test_an_error_in_the_stream_changes_nothing_that_is_visible(trace: Trace) -> None:
    drive = driven(trace, version=BEFORE)

    assert not drive.of(Apply, Advance, FinishReplace)
    assert drive.of(Sleep, Await, List, Watch)
    expired = events_of(trace, "ERROR")[0][1] == 410
    assert expired == (drive.machine.counts.expired == 1)


def changes_of(events: list[list[Any]]) -> list[tuple[str, str]]:
    return [
        (event[0], event[3]) for event in events if event[0] in {"ADDED", "MODIFIED", "DELETED"}
    ]


def applied_by(drive: Drive) -> list[tuple[str, str | None]]:
    return [(item.type, item.version) for apply in drive.of(Apply) for item in apply.items]
