"""A checker of histories: whether operations of many clients at once could have been one after the
other (linearizability), as Wing and Gong found it, with the memory of Lowe and of Porcupine.

An operation has a time of call and a time of return. A history is linearizable if each operation
can be given a moment between the two so that all of them, in the order of these moments, do what
a single register does. Keys are independent, so each key is checked alone; a list is checked as a
read of each of its keys, and by `check_lists` as one state.

The search takes operations in any order that their times allow, and undoes a choice that leads
nowhere. It remembers (set of operations taken, state), so that no such place is searched twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

Value = str | None
"""The version of an object; None: there is no such object."""


class Op(NamedTuple):
    """One operation on one key. A write whose outcome nobody knows returns at infinity."""

    call: float
    ret: float
    kind: str
    """"read" or "write"."""
    value: Value
    """The version that was read or written."""
    client: int = 0


class _Event:
    """A call or a return, in a list linked both ways, from which operations can be lifted."""

    __slots__ = ("after", "before", "match", "number", "op")

    def __init__(self, op: Op | None, number: int, match: _Event | None) -> None:
        self.op = op
        """None: this is a return."""
        self.number = number
        self.match = match
        self.before: _Event | None = None
        self.after: _Event | None = None


def _linked(ops: Sequence[Op]) -> _Event:
    """The head of the list of all calls and returns in the order of time, calls first."""
    moments: list[tuple[float, int, _Event]] = []
    for number, op in enumerate(ops):
        if op.ret < op.call:
            raise ValueError(f"an operation ends before it begins: {op}")
        back = _Event(None, number, None)
        moments.append((op.call, 0, _Event(op, number, back)))
        moments.append((op.ret, 1, back))
    moments.sort(key=lambda one: one[:2])
    head = last = _Event(None, -1, None)
    for _, _, event in moments:
        last.after, event.before = event, last
        last = event
    return head


def _unlink(event: _Event) -> None:
    assert event.before is not None
    event.before.after = event.after
    if event.after is not None:
        event.after.before = event.before


def _relink(event: _Event) -> None:
    assert event.before is not None
    event.before.after = event
    if event.after is not None:
        event.after.before = event


def linearizable(ops: Sequence[Op], initial: Value = None) -> bool:
    """Whether the operations on one key can have been one after the other."""
    head = _linked(ops)
    state, taken = initial, 0
    seen: set[tuple[int, Value]] = set()
    undo: list[tuple[_Event, Value]] = []
    event = head.after
    while head.after is not None:
        assert event is not None
        if event.op is not None:
            possible = event.op.kind == "write" or event.op.value == state
            after = event.op.value if event.op.kind == "write" else state
            place = (taken | 1 << event.number, after)
            if possible and place not in seen:
                seen.add(place)
                undo.append((event, state))
                taken, state = place
                _unlink(event)
                assert event.match is not None
                _unlink(event.match)
                event = head.after
            else:
                event = event.after
            continue
        if not undo:
            return False  # an operation has returned that nothing explains
        event, state = undo.pop()
        taken &= ~(1 << event.number)
        assert event.match is not None
        _relink(event.match)
        _relink(event)
        event = event.after
    return True


def check_register(ops: Iterable[Op], initial: Value = None) -> list[Op]:
    """The operations of the first part of a history that nothing explains; nothing if all is well.

    A long history is cut where no operation is under way: there the state is known to be the value
    of one of the last writes, and every value that it may have is tried.
    """
    states: set[Value] = {initial}
    for part in _quiet_parts(sorted(ops, key=lambda op: (op.call, op.ret))):
        states = {
            last
            for last in _last_values(part, states)
            if any(_ends_with(part, state, last) for state in states)
        }
        if not states:
            return part
    return []


def _ends_with(part: list[Op], initial: Value, last: Value) -> bool:
    """Whether the part can be explained so that the register has this value after it."""
    end = max(op.ret if op.ret != float("inf") else op.call for op in part)
    return linearizable([*part, Op(end + 1, end + 2, "read", last)], initial)


def _last_values(part: list[Op], states: set[Value]) -> set[Value]:
    return {op.value for op in part if op.kind == "write"} | states


def _quiet_parts(ops: list[Op]) -> Iterable[list[Op]]:
    part: list[Op] = []
    until = float("-inf")
    for op in ops:
        if part and op.call > until:
            yield part
            part = []
        part.append(op)
        until = max(until, op.ret)
    if part:
        yield part


# ---- versions ------------------------------------------------------------------------------------


class ReadState(NamedTuple):
    """A read of many keys at once: versions by key."""

    call: float
    ret: float
    versions: dict[str, str]
    client: int = 0


class Written(NamedTuple):
    """One change at the server, with the version that it made (the order of all changes)."""

    call: float
    ret: float
    key: str
    version: int
    deleted: bool = False


class ServerLog:
    """The states of the server: one after each write, in the order of versions.

    A state in the middle costs what a part of the log between two checkpoints costs, so that as
    many reads as there are writes are checked in a time that is in proportion to both.
    """

    CHECKPOINT = 64

    def __init__(self, writes: Iterable[Written]) -> None:
        self.ordered = sorted(writes, key=lambda one: one.version)
        self._versions = [one.version for one in self.ordered]
        self._begun = _highest((one.call, one.version) for one in self.ordered)
        self._ended = _highest((one.ret, one.version) for one in self.ordered)
        self._kept: list[dict[str, str]] = []
        state: dict[str, str] = {}
        for number, one in enumerate(self.ordered):
            if number % self.CHECKPOINT == 0:
                self._kept.append(dict(state))
            _apply(state, one)

    def begun_by(self, moment: float) -> int:
        """The highest version of the writes that were called by then; 0: none was."""
        calls, highest = self._begun
        found = bisect_right(calls, moment)
        return highest[found - 1] if found else 0

    def ended_before(self, moment: float) -> int:
        """The highest version of the writes that had returned before; 0: none had."""
        returns, highest = self._ended
        found = bisect_left(returns, moment)
        return highest[found - 1] if found else 0

    def states(self, first: int, last: int) -> Iterator[dict[str, str]]:
        """The state at the first version, and after each write up to the last; not to be kept."""
        place = bisect_right(self._versions, first)
        start = max(min(place // self.CHECKPOINT, len(self._kept) - 1), 0)
        state = dict(self._kept[start]) if self._kept else {}
        for one in self.ordered[start * self.CHECKPOINT : place]:
            _apply(state, one)
        yield state
        for one in self.ordered[place : bisect_right(self._versions, last)]:
            _apply(state, one)
            yield state


def _apply(state: dict[str, str], one: Written) -> None:
    if one.deleted:
        state.pop(one.key, None)
    else:
        state[one.key] = str(one.version)


def _highest(moments: Iterable[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """The moments in their order, and the highest version up to each."""
    ordered = sorted(moments)
    return [at for at, _ in ordered], list(accumulate((one for _, one in ordered), max))


def check_lists(writes: Sequence[Written], lists: Iterable[ReadState]) -> list[str]:
    """The faults of the lists: a state that never existed, or was over before the call, or began
    after the return. Versions order all writes, so this needs no search.
    """
    log, wrong = ServerLog(writes), []
    for read in lists:
        must, may = log.ended_before(read.call), log.begun_by(read.ret)
        if read.versions in log.states(must, may):
            continue
        found = _states(log.ordered, read.versions)
        if found:
            wrong.append(f"a state of {found}, not of [{must}, {may}]: {read}")
        else:
            wrong.append(f"no state of the server: {read}")
    return wrong


def check_past(writes: Sequence[Written], past: Iterable[tuple[int, dict[str, str]]]) -> list[str]:
    """The states at a version that are not those of the log."""
    log = ServerLog(writes)
    return [
        f"at {version}: {found}, not {state}"
        for version, found in past
        for state in log.states(version, version)
        if found != state
    ]


def _states(ordered: Sequence[Written], versions: dict[str, str]) -> list[tuple[int, float]]:
    """The versions [begin, end) during which the server had just these objects."""
    different = len(versions)
    """Keys whose object at this point is not the one that was read."""
    now: dict[str, str | None] = {}
    found: list[tuple[int, float]] = []
    begin = 0
    if not different:
        found.append((0, float("inf")))
    for one in ordered:
        wanted = versions.get(one.key)
        before = now.get(one.key)
        after = None if one.deleted else str(one.version)
        now[one.key] = after
        was_same = different == 0
        different += (after != wanted) - (before != wanted)
        if was_same and found and found[-1][1] == float("inf"):
            found[-1] = (found[-1][0], one.version)
        if different == 0:
            begin = one.version
            found.append((begin, float("inf")))
    return found


class Monotonic:
    """Checks the reads of one client as they happen, and keeps none but the last of each key."""

    def __init__(self, client: int) -> None:
        self._client = client
        self._last: dict[str, int] = {}
        self.wrong: list[str] = []

    def saw(self, at: float, key: str, version: int) -> None:
        """A read showed this; it is wrong if it is older than one before it."""
        last = self._last.get(key, 0)
        if version < last:
            self.wrong.append(f"client {self._client} saw {key} at {version} after {last} ({at})")
        else:
            self._last[key] = version
