"""Invariant tested: what a real server said comes out, byte for byte, as its recorder saw it (G20).

Every trace of a GET is played by a dumb server. The sidecar has the expected result; nothing
here reads the body a second time.
"""

from __future__ import annotations

import pytest
from client import Outcome, Trace, load_traces, source_of
from wire import Wire

from shmcache.protocol.items import GARBAGE, Item
from shmcache.protocol.status import ServerStatus
from shmcache.source import body
from shmcache.source.base import FailureKind

TRACES = load_traces()
TABLES = {"f-watchlist-table", "j-watch-table-pods"}  # we never request them
LISTS = [trace for trace in TRACES if trace.status == 200 and "items" in trace.summary]
WATCHES = [
    trace
    for trace in TRACES
    if trace.status == 200
    and trace.is_watch
    and trace.name not in TABLES
    and (trace.header("Content-Type") or "").startswith("application/json")
    and ("events" in trace.summary or trace.sidecar["response"]["body_bytes"] == 0)
]
ERRORS = [trace for trace in TRACES if trace.status != 200]
REST = [trace for trace in TRACES if trace not in LISTS + WATCHES + ERRORS]
SMALL = [trace for trace in LISTS + WATCHES + ERRORS if len(trace.answer) <= 3000]
CUT = [trace for trace in SMALL if len(trace.answer) <= 600]


def named(trace: Trace) -> str:
    return trace.name


def played(trace: Trace) -> Outcome:
    with Wire(trace.answer) as wire:
        return trace.asked(source_of(wire.url, trace.resource))


def as_summary(item: Item) -> list[object]:
    """An item as sidecars describe events."""
    if item.type == "ERROR":
        status = ServerStatus.parse(0, item.raw)
        return ["ERROR", status.code, status.reason, status.message]
    return [item.type, item.kind, item.key, item.version]


def as_key(event: list[object]) -> list[object]:
    """A sidecar's event with our key: it writes "/name" where there is no namespace."""
    kind, what, key, version, *_ = event
    return [kind, what, key.lstrip("/") if isinstance(key, str) else key, version]


def check(trace: Trace, outcome: Outcome) -> None:
    if trace in LISTS:
        check_list(trace, outcome)
    elif trace in WATCHES:
        check_watch(trace, outcome)
    else:
        check_error(trace, outcome)


def check_list(trace: Trace, outcome: Outcome) -> None:
    meta = trace.summary["metadata"]
    assert outcome.failure is None
    assert outcome.meta is not None
    assert trace.summary["items"] == len(outcome.items)
    assert trace.summary["kind"] == outcome.meta.kind
    assert meta["resourceVersion"] == outcome.meta.version
    assert meta.get("continue", "") == outcome.meta.continue_token
    assert meta.get("remainingItemCount") == outcome.meta.remaining
    for item in outcome.items:
        assert item.type == "LISTED"
        assert all((item.key, item.version, item.uid, item.kind, item.api_version))
        assert item.raw.startswith(b"{")


def check_watch(trace: Trace, outcome: Outcome) -> None:
    expected = [as_key(event) for event in trace.summary.get("events", ())]
    assert expected == [as_summary(item) for item in outcome.items]
    if trace.sidecar["response"]["framing_complete"]:
        assert outcome.failure is None
    else:
        assert outcome.failure is not None
        assert outcome.failure.kind is FailureKind.ENDED


def check_error(trace: Trace, outcome: Outcome) -> None:
    failure = outcome.failure
    assert failure is not None
    assert not outcome.opened
    assert (FailureKind.HTTP, trace.status) == (
        failure.kind,
        failure.status and failure.status.code,
    )
    assert failure.status is not None
    if trace.summary.get("kind") == "Status":
        assert trace.summary["reason"] == failure.status.reason
        assert trace.summary["message"] == failure.status.message
    wait = trace.header("Retry-After")
    details = trace.summary.get("details", {}).get("retryAfterSeconds")
    assert (float(wait) if wait else details) == failure.retry_after


def test_the_traces_are_there() -> None:
    assert (29, 46, 38) == (len(LISTS), len(WATCHES), len(ERRORS))
    assert {"d-watch-as-get-name", "j-protobuf-list", "x-list-cut-midway"} <= set(map(named, REST))


@pytest.mark.parametrize("trace", LISTS + WATCHES + ERRORS, ids=named)
def test_an_answer_comes_out_as_it_was_recorded(trace: Trace) -> None:
    check(trace, played(trace))


@pytest.mark.parametrize("trace", SMALL, ids=named)
def test_an_answer_read_byte_by_byte_is_the_same(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "PIECE", 1)

    check(trace, played(trace))


@pytest.mark.slow
@pytest.mark.parametrize("trace", CUT, ids=named)
def test_an_answer_cut_at_any_byte_never_ends_cleanly_nor_adds_anything(
    trace: Trace,
) -> None:
    answer = trace.answer
    whole = played(trace).items
    ends = range(len(answer) - 1)
    with Wire(*[lambda sock, end=end: sock.sendall(answer[:end]) for end in ends]) as wire:
        for _ in ends:
            outcome = trace.asked(source_of(wire.url, trace.resource))
            assert ended_early(trace, outcome)
            assert whole[: len(outcome.items)] == outcome.items


def ended_early(trace: Trace, outcome: Outcome) -> bool:
    """A code that did come is not less true because nothing follows it."""
    failure = outcome.failure
    assert failure is not None
    if failure.kind is FailureKind.HTTP and failure.status is not None:
        return failure.status.code == trace.status != 200
    return failure.kind is FailureKind.ENDED


def test_a_list_cut_midway_gave_whole_items_until_there() -> None:
    (trace,) = [trace for trace in REST if trace.name == "x-list-cut-midway"]

    outcome = played(trace)

    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.ENDED
    assert outcome.meta is None
    assert len(outcome.items) > 3
    assert all(item.raw.endswith(b"}") and item.version for item in outcome.items)


def test_an_object_in_place_of_a_watch_is_garbage() -> None:
    (trace,) = [trace for trace in REST if trace.name == "d-watch-as-get-name"]

    assert [GARBAGE] == [item.type for item in played(trace).items]


def test_unrequested_tables_are_recognized() -> None:
    (trace,) = [trace for trace in REST if trace.name == "f-watchlist-table"]

    assert {"Table"} == {item.kind for item in played(trace).items if item.type == "ADDED"}


@pytest.mark.parametrize(
    "trace",
    [trace for trace in REST if trace.name not in {"x-list-cut-midway", *TABLES}],
    ids=named,
)
def test_answers_that_are_neither_lists_nor_watches_are_garbage(trace: Trace) -> None:
    outcome = played(trace)

    if outcome.failure is None:
        assert [GARBAGE] == [item.type for item in outcome.items]
    else:
        assert outcome.failure.kind is FailureKind.GARBAGE
