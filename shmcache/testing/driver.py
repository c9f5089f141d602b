"""Driver: carries out what a reflector wants, on a FakeSource, a dict and a ManualClock.

What the engine does with threads, sockets and shared memory happens here one step after the other,
so that hours of list, watch and failure take milliseconds and always go the same way:

    driver = Driver(source)
    source.create({"metadata": {"name": "a"}})
    driver.run(60.0)                    # a minute passes
    assert driver.content == source.objects
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from shmcache import events, states
from shmcache.events import Action, Event
from shmcache.protocol.items import Item
from shmcache.protocol.options import ListOptions
from shmcache.reflector import Reflector, ReflectorSettings
from shmcache.source.base import SourceFailed
from shmcache.testing.fake_source import FakeSource
from shmcache.testing.fake_watch import FakeWatch


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was made, and when."""

    time: float
    options: ListOptions
    silence: float | None = None


class Driver:
    """Runs one machine. What is public is for looking at."""

    def __init__(
        self,
        source: FakeSource,
        settings: ReflectorSettings | None = None,
        rng: Random | None = None,
        *,
        resume: str | None = None,
        content: dict[str, bytes] | None = None,
    ) -> None:
        self.source = source
        self.clock = source.clock
        self.machine = Reflector(settings, rng or Random(0))
        self.content: dict[str, bytes] = dict(content or {})
        """The cache: JSON texts by key."""
        self.version = resume or ""
        self.state = states.ABSENT
        self.reason = ""
        self.requests: list[Request] = []
        self.sleeps: list[float] = []
        self.reports: list[events.Report] = []
        self.logs: list[events.Log] = []
        self.versions: list[str] = []
        """Each version that the cache was told, in order."""
        self.applied: list[list[Item]] = []
        """Each generation that a watch brought."""
        self.replaces = 0
        self._staged: dict[str, bytes] | None = None
        self._watch: FakeWatch | None = None
        self._due: float | None = None
        self._step(events.Started(resume))

    # ---- time ------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Lets so many seconds pass, with everything that happens in them."""
        self.run_until(lambda: False, seconds)

    def run_until(self, true: Callable[[], bool], seconds: float = 3600.0) -> bool:
        """The same, but ends as soon as it is `true`; whether it became so."""
        end = self.clock() + seconds
        while not true():
            if self._event():
                continue
            now = self.clock()
            if now >= end:
                return true()
            due = self._next_time()
            if due <= now:
                raise AssertionError("something was due, and did not happen")
            self.clock.advance(min(due, end) - now)
        return True

    def settle(self) -> None:
        """Everything that happens at this very moment."""
        while self._event():
            pass

    def stop(self) -> None:
        """Ends the machine."""
        self._step(events.Stop())

    def _next_time(self) -> float:
        if self._watch is not None:
            return self._watch.next_time()
        return self._due if self._due is not None else float("inf")

    def _event(self) -> bool:
        """One event that is due now, if there is one."""
        if self._due is not None and self.clock() >= self._due:
            self._due = None
            self._step(events.Elapsed())
            return True
        watch = self._watch
        if watch is None:
            return False
        try:
            items = watch.take()
        except SourceFailed as failed:
            self._watch = None
            self._step(events.Failed(failed.failure))
            return True
        if watch.ended:
            self._watch = None
            self._step(events.Closed())
        elif items:
            self._step(events.Received(items))
        return watch.ended or bool(items)

    # ---- actions ---------------------------------------------------------------------------------

    def _step(self, event: Event | None) -> None:
        while event is not None:
            actions, event = self.machine.step(event, self.clock()), None
            for action in actions:
                self._check_alone(action)
                event = self._carry_out(action)

    def _carry_out(self, action: Action) -> Event | None:
        match action:
            case events.List(options):
                return self._list(options)
            case events.Watch(options, silence):
                return self._open(options, silence)
            case events.Sleep(seconds):
                self.sleeps.append(seconds)
                self._due = self.clock() + seconds
            case events.Hangup() if self._watch is not None:
                self._watch.hang_up()
                self._watch = None
            case events.Report(state, reason):
                self.state, self.reason = state, reason
                self.reports.append(action)
            case events.Log():
                self.logs.append(action)
            case _:
                self._store(action)
        return None

    def _check_alone(self, action: Action) -> None:
        """One thing is under way at a time."""
        asks = isinstance(action, events.List | events.Watch | events.Sleep)
        if asks and (self._watch is not None or self._due is not None):
            raise AssertionError(f"{action} while something else is under way")

    def _store(self, action: Action) -> None:
        match action:
            case events.BeginReplace():
                self._staged = {}
            case events.CancelReplace():
                self._staged = None
            case events.Stage(items):
                _put(self._staging(), items)
            case events.FinishReplace(version):
                self.content, self._staged = self._staging(), None
                self.replaces += 1
                self._move(version)
            case events.Apply(items, version):
                _put(self.content, items)
                self.applied.append(items)
                self._move(version)
            case events.Advance(version):
                self._move(version)
            case _:
                raise AssertionError(f"nothing to be done about {action}")

    def _staging(self) -> dict[str, bytes]:
        if self._staged is None:
            raise AssertionError("staged without BeginReplace")
        return self._staged

    def _move(self, version: str) -> None:
        self.version = version
        self.versions.append(version)

    def _list(self, options: ListOptions) -> Event:
        self.requests.append(Request(self.clock(), options))
        try:
            with self.source.page(options) as page:
                for items in page:
                    _put(self._staging(), items)
                return events.Listed(page.meta)
        except SourceFailed as failed:
            return events.Failed(failed.failure)

    def _open(self, options: ListOptions, silence: float) -> Event:
        self.requests.append(Request(self.clock(), options, silence))
        try:
            self._watch = self.source.listen(options, silence)
        except SourceFailed as failed:
            return events.Failed(failed.failure)
        return events.Opened()


def _put(content: dict[str, bytes], items: list[Item]) -> None:
    for item in items:
        if item.type == "DELETED":
            content.pop(item.key, None)
        else:
            content[item.key] = item.raw
