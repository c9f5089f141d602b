"""Driver: carries out what a reflector wants, on a FakeSource, a dict and a ManualClock.

The work of the engine's threads, sockets and shared memory happens here one step after the other,
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

from shmcache import states
from shmcache.engine.gate import Gate, Waiter
from shmcache.protocol.items import Item
from shmcache.protocol.options import ListOptions
from shmcache.reflector import events
from shmcache.reflector.events import Action, Event
from shmcache.reflector.machine import Reflector, ReflectorSettings
from shmcache.reflector.retrying import is_refusal
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
    """Runs one machine. Its public attributes are for tests to read."""

    def __init__(
        self,
        source: FakeSource,
        settings: ReflectorSettings | None = None,
        rng: Random | None = None,
        *,
        resume: str | None = None,
        content: dict[str, bytes] | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`gate` is shared by the drivers of one server; without one this driver is alone."""
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
        """Of waits for the server, too, their least length."""
        self.probes: list[float] = []
        """When probes were sent."""
        self.contacts: list[float] = []
        self.reports: list[events.Report] = []
        self.logs: list[events.Log] = []
        self.versions: list[str] = []
        """Each version of the cache, in order."""
        self.applied: list[list[Item]] = []
        """Each generation that a watch brought."""
        self.replaces = 0
        self._staged: dict[str, bytes] | None = None
        self._watch: FakeWatch | None = None
        self._due: float | None = None
        self._gate = gate or Gate(self.clock, Random(0))
        self._waiter: Waiter | None = None
        self._cause = ""
        self._step(events.Started(resume))

    # ---- time ------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Lets so many seconds pass, with everything that happens in them."""
        self.run_until(lambda: False, seconds)

    def run_until(self, true: Callable[[], bool], seconds: float = 3600.0) -> bool:
        """The same, but ends as soon as it is `true`; whether it became so."""
        end = self.clock() + seconds
        while not true():
            if self.due():
                continue
            now = self.clock()
            if now >= end:
                return true()
            due = self.next_time()
            if due <= now:
                raise AssertionError("something was due, and did not happen")
            self.clock.advance(min(due, end) - now)
        return True

    def settle(self) -> None:
        """Everything that happens at this very moment."""
        while self.due():
            pass

    def stop(self) -> None:
        """Ends the machine."""
        self._step(events.Stop())

    def next_time(self) -> float:
        """When something is due, unless something else happens before."""
        if self._watch is not None:
            return self._watch.next_time()
        if self._waiter is not None:
            return self._gate.due(self._waiter)
        return self._due if self._due is not None else float("inf")

    def due(self) -> bool:
        """Lets one event happen that is due now; whether there was one."""
        if self._due is not None and self.clock() >= self._due:
            self._due = None
            self._step(events.Elapsed())
            return True
        turn = None if self._waiter is None else self._gate.ask(self._waiter)
        if turn is not None:
            self._waiter = None
            self._step(events.Answering(turn.version))
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
            case events.Await(seconds, cause, again):
                self.sleeps.append(seconds)
                self._cause = cause
                self._waiter = self._gate.join(cause, seconds, again=again)
            case events.Probe(options):
                return self._probe(options)
            case events.Contact():
                self.contacts.append(self.clock())
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
        asks = isinstance(
            action, events.List | events.Watch | events.Sleep | events.Await | events.Probe
        )
        if asks and (self._watch, self._due, self._waiter) != (None, None, None):
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

    def _probe(self, options: ListOptions) -> Event:
        began = self.clock()
        self.probes.append(began)
        try:
            version = self.source.probe(options)
        except SourceFailed as failed:
            self._gate.failed(self._cause, alone=is_refusal(failed.failure))
            return events.Failed(failed.failure)
        self._gate.answered(self._cause, began, version)
        return events.Probed(version)

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
