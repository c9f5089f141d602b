"""ReplaySource: a recording as a source, at full speed, at a rate, or as it was.

Questions are answered in the order they were recorded in. Where the reflector asks another one than
the recorded client did, it gets an answer that a server could give and that leads it to the
recorded one: 422 to a watch-list where a list was recorded, 410 to a watch where one was, and an
empty list where a watch was. At the end a watch stays open and silent until it is time to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from shmcache._hot import Frames
from shmcache.protocol.items import GARBAGE, Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.protocol.status import ServerStatus
from shmcache.source.base import FailureKind, ListStream, SourceFailed, SourceFailure
from shmcache.source.failures import cancelled, ended_early
from shmcache.source.tape import EVENT, HEADS, Record, Tape

BATCH = 512
"""Events that are given at once at full speed, at most."""
BEFORE_ALL = ListMeta("1", "", None, None, None)
"""Of the empty list before a recorded watch."""
WHAT = "replay"


class ReplaySource:
    """A source.base.Source of a recording (RecordedSource's, or plain watch events)."""

    def __init__(
        self,
        path: str,
        *,
        speed: float | None = None,
        rate: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`speed` 1.0 is as recorded, 2.0 twice as fast; `rate` is events per second.

        `wait` waits for the seconds it is given and says whether the source was cancelled by then.
        """
        if speed is not None and rate is not None:
            raise ValueError("speed or rate, not both")
        self._tape = Tape(path)
        self._cancelled = threading.Event()
        self._pace = _Pace(speed, rate, clock, wait or self._cancelled.wait)
        self.behind = False
        self.speaks_for_all = True
        self.ended = threading.Event()
        """All that was recorded has been given."""

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[ListStream]:  # noqa: ARG002 - as recorded
        """The list that was recorded next."""
        head = self._head()
        if head is None:
            message = f"{WHAT}: the recording has no more lists"
            raise SourceFailed(SourceFailure(FailureKind.NETWORK, message))
        page = _Page(self._batches, BEFORE_ALL if head.what != "list" else None)
        if head.what == "list":
            self._ask()
            try:
                yield page
            finally:
                self._tape.skip()
        else:
            yield page

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """The watch that was recorded next; silent at the end of the recording."""
        head = self._head()
        if head is not None and head.what == "list":
            raise _leading_to_list(options)
        if head is not None and head.what == "watch":
            self._ask()
        try:
            yield self._events(options, silence)
        finally:
            self._tape.skip()

    def probe(self, options: ListOptions) -> str:  # noqa: ARG002 - recordings have no probes
        """Unknown: what was recorded goes on."""
        if self._cancelled.is_set():
            raise cancelled(WHAT)
        return ""

    def close(self) -> None:
        """There is no connection."""

    def interrupt(self) -> None:
        """There is no connection, and no server that could disprove what was recorded."""

    def cancel(self) -> None:
        """Makes what is under way fail as CANCELLED, and all that comes later. From any thread."""
        self._cancelled.set()

    def _head(self) -> Record | None:
        if self._cancelled.is_set():
            raise cancelled(WHAT)
        return self._tape.head

    def _ask(self) -> None:
        """Takes a question; raises if it was refused at once."""
        self._tape.take()
        head = self._tape.head
        if head is not None and head.what == "refused":
            self._tape.take()
            self._wait_for(head)
            failure = _failure(head)
            if failure.kind is FailureKind.CANCELLED:  # nobody has cancelled this question
                failure = SourceFailure(FailureKind.NETWORK, f"{WHAT}: the recorder was stopped")
            raise SourceFailed(failure)

    def _wait_for(self, record: Record) -> None:
        if self._cancelled.is_set() or self._pace.until(record):
            raise cancelled(WHAT)

    def _events(self, options: ListOptions, silence: float) -> Iterator[list[Item]]:
        end = yield from self._batches()
        if end is not None:
            return
        self.ended.set()
        if self._pace.wait(min(silence, options.timeout_seconds or silence)):
            raise cancelled(WHAT)

    def _batches(self) -> Any:
        """Lists of items until the answer ends; returns the record that ended it, None at the end.

        SourceFailed where it was recorded, and where the recording ends in the middle of an answer.
        """
        frames = Frames()
        while (head := self._tape.head) is not None and head.what not in HEADS:
            self._wait_for(head)
            self._tape.take()
            if head.what == EVENT:
                lines = [cast("bytes", head.value), *self._due()]
                yield frames.feed(b"".join(lines))
            elif head.what == "garbage":
                yield [Item(GARBAGE, "", None, None, None, None, str(head.value).encode("latin-1"))]
            elif head.what == "failed":
                failure = _failure(head)
                if failure.kind is not FailureKind.CANCELLED:  # else the recorder was stopped
                    raise SourceFailed(failure)
            else:
                return head
        if self._tape.head is not None:
            raise ended_early(WHAT)
        return None

    def _due(self) -> Iterator[bytes]:
        """The lines of events that are due, up to a full batch."""
        for _ in range(BATCH - 1):
            head = self._tape.head
            if head is None or head.what != EVENT or not self._pace.is_due(head):
                return
            self._tape.take()
            yield cast("bytes", head.value)


class _Page:
    def __init__(self, batches: Callable[[], Any], meta: ListMeta | None) -> None:
        self._batches = batches
        self._meta = meta

    def __iter__(self) -> Iterator[list[Item]]:
        if self._meta is not None:
            return
        end = yield from self._batches()
        if end is None or end.what != "listed":
            raise ended_early(WHAT)
        self._meta = ListMeta(**end.value)

    @property
    def meta(self) -> ListMeta:
        if self._meta is None:
            raise RuntimeError("the list has not ended: its metadata is not known yet")
        return self._meta


class _Pace:
    """When a record's time has come: by its own time, by how many came before it, or always."""

    def __init__(
        self,
        speed: float | None,
        rate: float | None,
        clock: Callable[[], float],
        wait: Callable[[float], bool],
    ) -> None:
        self._speed = speed
        self._rate = rate
        self._clock = clock
        self.wait = wait
        self._start: float | None = None
        self._count = 0

    def _left(self, record: Record) -> float:
        """Seconds until it is due."""
        if self._start is None:
            self._start = self._clock()
        if self._speed is not None:
            due = record.time / self._speed
        elif self._rate is not None:
            due = self._count / self._rate
        else:
            return 0.0
        return self._start + due - self._clock()

    def until(self, record: Record) -> bool:
        """Waits; whether the source was cancelled meanwhile."""
        while (left := self._left(record)) > 0:
            if self.wait(left):
                return True
        self._count += record.what == EVENT
        return False

    def is_due(self, record: Record) -> bool:
        """Whether it is due; it counts as given then."""
        if self._left(record) > 0:
            return False
        self._count += 1
        return True


def _leading_to_list(options: ListOptions) -> SourceFailed:
    if options.send_initial_events:
        status = ServerStatus(
            code=422,
            reason="Invalid",
            message="sendInitialEvents: Forbidden: this recording has a list",
        )
    else:
        status = ServerStatus(
            code=410, reason="Expired", message="this recording goes on with a list"
        )
    return SourceFailed(SourceFailure(FailureKind.HTTP, f"{WHAT}: {status.message}", status))


def _failure(record: Record) -> SourceFailure:
    value: Any = record.value
    status = value.get("status")
    if status is not None:
        causes = tuple(tuple(cause) for cause in status.pop("causes"))
        status = ServerStatus(causes=causes, **status)
    return SourceFailure(
        FailureKind(value["kind"]), value["message"], status, value.get("retry_after")
    )
