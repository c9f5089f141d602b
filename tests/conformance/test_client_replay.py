"""Invariant tested: a recording of a source replays the same: items, ends, failures, and times."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from client import Outcome, Trace, list_of, load_traces, source_of, watch_of
from wire import Wire, answer, chunked

from shmcache.protocol.options import ListOptions
from shmcache.source.base import FailureKind
from shmcache.source.recording import RecordedSource, Recording
from shmcache.source.replay import ReplaySource

TRACES = [trace for trace in load_traces() if "events" in trace.summary or "items" in trace.summary]
EVENT = b'{"type":"%s","object":{"metadata":{"name":"%s","resourceVersion":"%d"}}}\n'


class Clock:
    """Time that passes only during waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False


def events(*names: str) -> bytes:
    return b"".join(EVENT % (b"ADDED", name.encode(), 5) for name in names)


def on_one_line(outcome: Outcome) -> tuple[object, ...]:
    """A recording keeps all but line ends between the parts of an object."""
    items = [(*item[:-1], item.raw.replace(b"\n", b" ")) for item in outcome.items]
    return items, outcome.meta, outcome.opened, outcome.failure


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_recorded_trace_comes_out_the_same(trace: Trace, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"recording{suffix}"
    recording = Recording(str(path))
    with Wire(trace.answer) as wire:
        source = RecordedSource(source_of(wire.url, trace.resource), recording)
        outcome = trace.asked(source)
    recording.close()

    assert on_one_line(outcome) == on_one_line(trace.asked(ReplaySource(str(path))))


def test_failures_come_again_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    recording = Recording(str(path))
    refused = answer(
        b'{"kind":"Status","code":410,"reason":"Expired","message":"old","details":'
        b'{"causes":[{"reason":"a","message":"b"}],"retryAfterSeconds":3}}',
        "410 Gone",
    )
    with Wire(refused, chunked(events("a"), end=False)) as wire:
        source = RecordedSource(source_of(wire.url), recording)
        first, second = watch_of(source), watch_of(source)
    recording.close()

    replay = ReplaySource(str(path))
    assert [first, second] == [watch_of(replay), watch_of(replay)]
    assert first.failure is not None
    assert first.failure.status is not None
    assert (("a", "b"),) == first.failure.status.causes
    assert second.failure is not None
    assert FailureKind.ENDED is second.failure.kind


def test_the_end_of_the_recorder_is_silence_and_cancels_no_request(tmp_path: Path) -> None:
    path, clock = tmp_path / "recording", Clock()
    recording = Recording(str(path))
    with Wire(chunked(events("a"), end=False), answer(b"", "500 Oh")) as wire:
        source = RecordedSource(source_of(wire.url), recording)
        first, second = watch_of(source), watch_of(source)
    recording.close()
    assert first.failure is not None
    assert second.failure is not None
    text = path.read_text()
    for failure in (first.failure, second.failure):  # as if it had been stopped then
        assert f'"kind":"{failure.kind.value}"' in text
        text = text.replace(f'"kind":"{failure.kind.value}"', '"kind":"cancelled"')
    path.write_text(text)
    whole = text.splitlines(keepends=True)
    path.write_text("".join(whole[:-2]))  # without the second question

    replay = ReplaySource(str(path), clock=clock, wait=clock.wait)
    again = watch_of(replay)

    assert first.items == again.items
    assert again.failure is None
    assert clock.waits[-1] > 0
    path.write_text("".join(whole[-2:]))
    refused = watch_of(ReplaySource(str(path))).failure
    assert refused is not None
    assert FailureKind.NETWORK is refused.kind


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_recording_cut_at_any_byte_has_whole_lines(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a write leaves its last byte for the next one."""
    path, write = tmp_path / f"recording{suffix}", os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) - 1 or 1]))
    recording = Recording(str(path))
    with Wire(chunked(*[events(name) for name in "abc"])) as wire:
        whole = watch_of(RecordedSource(source_of(wire.url), recording))
    written = path.read_bytes()  # without close(): as after a crash
    recording.close()
    counts = set()
    for end in range(2, len(written) + 1):
        path.write_bytes(written[:end])
        cut = watch_of(ReplaySource(str(path)), silence=0.001)
        assert whole.items[: len(cut.items)] == cut.items
        counts.add(len(cut.items))

    assert len(whole.items) == max(counts)


def test_a_recording_is_never_written_over_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    Recording(str(path)).close()

    assert 0o600 == os.stat(path).st_mode & 0o777
    with pytest.raises(FileExistsError):
        Recording(str(path))


def written(tmp_path: Path, *lines: bytes) -> str:
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


TIMED = [
    b'{"time":%s,"type":"ADDED","object":{"metadata":{"name":"%d"}}}' % (time, number)
    for number, time in enumerate((b"0.5", b"0.5", b"2.5"))
]


@pytest.mark.parametrize(("speed", "waits"), [(1.0, [0.5, 2.0]), (2.0, [0.25, 1.0])])
def test_events_come_when_they_came(speed: float, waits: list[float], tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(written(tmp_path, *TIMED), speed=speed, clock=clock, wait=clock.wait)
    with source.watch(ListOptions(watch=True), silence=30.0) as batches:
        found = [len(items) for items in batches]

    assert [2, 1] == found
    assert [*waits, 30.0] == clock.waits
    assert source.ended.is_set()


def test_events_come_at_a_rate(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(written(tmp_path, *TIMED), rate=4.0, clock=clock, wait=clock.wait)

    assert 3 == len(watch_of(source, silence=30.0).items)
    assert [0.25, 0.25, 30.0] == clock.waits


def test_at_full_speed_nothing_is_waited_for_but_the_end(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(written(tmp_path, *TIMED), clock=clock, wait=clock.wait)

    assert 3 == len(watch_of(source, silence=30.0).items)
    assert [30.0] == clock.waits


def test_plain_watch_events_in_gzip_are_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "events.gz"
    path.write_bytes(gzip.compress(events("a")) + gzip.compress(events("b")))
    source = ReplaySource(str(path), wait=lambda _: False)

    first = list_of(source)

    assert first.meta is not None
    assert (0, "1") == (len(first.items), first.meta.version)
    assert ["a", "b"] == [item.key for item in watch_of(source).items]


def test_a_question_that_was_not_recorded_leads_to_the_one_that_was(tmp_path: Path) -> None:
    meta = b'{"version":"7","continue_token":"","remaining":null,"kind":"L","api_version":"v1"}'
    path = written(tmp_path, b'{"time":0,"list":""}', b'{"time":1,"listed":%s}' % meta)
    source = ReplaySource(path)

    streaming = watch_of(source, ListOptions(watch=True, send_initial_events=True)).failure
    going_on = watch_of(source, ListOptions(watch=True, resource_version="3")).failure
    listed = list_of(source)

    assert [422, 410] == [
        failure and failure.status and failure.status.code for failure in (streaming, going_on)
    ]
    assert listed.meta is not None
    assert "7" == listed.meta.version


def test_a_replay_can_be_cancelled(tmp_path: Path) -> None:
    source = ReplaySource(written(tmp_path, *TIMED))
    with source.watch(ListOptions(watch=True), silence=30.0) as batches:
        assert 3 == len(next(batches))
        source.cancel()
        assert "cancelled" in str(outcome_of(batches))
    failure = watch_of(source).failure
    assert failure is not None
    assert failure.kind is FailureKind.CANCELLED


def outcome_of(batches: object) -> Exception:
    with pytest.raises(Exception, match="cancelled") as caught:
        list(batches)  # type: ignore[call-overload]
    return caught.value


@pytest.mark.parametrize("line", [b"[]", b"{", b'{"time":1}', b'{"time":1,"a":1,"b":2}'])
def test_a_line_that_is_not_a_record_is_named(line: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lines:2"):
        watch_of(ReplaySource(written(tmp_path, TIMED[0], line)))
