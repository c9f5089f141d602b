"""Recording: a source that writes down what another one says, for ReplaySource.

A recording is lines of JSON, each with the seconds since it began: `list` and `watch` when
something is asked, then events as a watch has them (listed items are of type LISTED), then `listed`
with a page's metadata, `closed` or `failed`. A path that ends with .gz is compressed. Lines are
written before anybody sees their items; after a crash the file has whole lines, apart from a last
one without its end, which a replay ignores.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from shmcache.protocol.items import GARBAGE, Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.source.base import ListStream, Source, SourceFailed, SourceFailure


class Recording:
    """The file being written. It must not exist before; only its owner can read it."""

    def __init__(self, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._packer = zlib.compressobj(6, zlib.DEFLATED, 31) if path.endswith(".gz") else None
        self._clock = clock
        self._start = clock()

    def note(self, what: str, value: object) -> None:
        """Anything but an event."""
        text = json.dumps({"time": self._now(), what: value}, separators=(",", ":"))
        self._write(text.encode() + b"\n")

    def events(self, items: list[Item]) -> None:
        """Items, at one time."""
        if items:
            front = b'{"time":%s,' % json.dumps(self._now()).encode()
            self._write(b"".join(front + _event(item) for item in items))

    def close(self) -> None:
        """Ends the file. Idempotent."""
        if self._file < 0:
            return
        if self._packer is not None:
            self._put(self._packer.flush())
        os.close(self._file)
        self._file = -1

    def _now(self) -> float:
        return round(self._clock() - self._start, 6)

    def _write(self, lines: bytes) -> None:
        if self._packer is not None:
            lines = self._packer.compress(lines) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self._put(lines)

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]


def _event(item: Item) -> bytes:
    if item.type == GARBAGE:
        text = item.raw.decode("latin-1")
        return b'"garbage":%s}\n' % json.dumps(text).encode()
    raw = item.raw.replace(b"\n", b" ")  # white space between values: in a string it is escaped
    return b'"type":%s,"object":%s}\n' % (json.dumps(item.type).encode(), raw)


def failure_as_json(failure: SourceFailure) -> dict[str, object]:
    """A failure as a recording has it."""
    return asdict(failure) | {"kind": failure.kind.value}


class RecordedSource:
    """A source.base.Source that does what another one does, and writes it down."""

    def __init__(self, source: Source, recording: Recording) -> None:
        self._source = source
        self._recording = recording

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[ListStream]:
        """As of the source that is recorded."""
        self._recording.note("list", options.query())
        request = self._source.page(options)
        with self._opening():
            stream = request.__enter__()
        try:
            yield _RecordedPage(stream, self._recording)
        finally:
            request.__exit__(None, None, None)

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """As of the source that is recorded."""
        self._recording.note("watch", options.query())
        request = self._source.watch(options, silence=silence)
        with self._opening():
            items = request.__enter__()
        try:
            yield _recorded(items, self._recording, end=lambda: ("closed", True))
        finally:
            request.__exit__(None, None, None)

    def probe(self, options: ListOptions) -> str:
        """As of the source that is recorded; a recording has no probes, as they bring no items."""
        return self._source.probe(options)

    @property
    def speaks_for_all(self) -> bool:
        """As of the source that is recorded."""
        return self._source.speaks_for_all

    @property
    def behind(self) -> bool:
        """As of the source that is recorded."""
        return self._source.behind

    def close(self) -> None:
        """As of the source that is recorded."""
        self._source.close()

    def interrupt(self) -> None:
        """As of the source that is recorded."""
        self._source.interrupt()

    def cancel(self) -> None:
        """As of the source that is recorded."""
        self._source.cancel()

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except SourceFailed as failed:
            self._recording.note("refused", failure_as_json(failed.failure))
            raise


class _RecordedPage:
    def __init__(self, stream: ListStream, recording: Recording) -> None:
        self._stream = stream
        self._recording = recording

    def __iter__(self) -> Iterator[list[Item]]:
        return _recorded(
            iter(self._stream), self._recording, end=lambda: ("listed", self.meta._asdict())
        )

    @property
    def meta(self) -> ListMeta:
        return self._stream.meta


def _recorded(
    batches: Iterator[list[Item]], recording: Recording, *, end: Callable[[], tuple[str, object]]
) -> Iterator[list[Item]]:
    try:
        for items in batches:
            recording.events(items)
            yield items
    except SourceFailed as failed:
        recording.note("failed", failure_as_json(failed.failure))
        raise
    recording.note(*end())
