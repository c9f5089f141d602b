"""The changes of one resource, read once for all watches of the process.

    ring ▸ slice of deltas ▸ in order? ▸ Told ▸ selections ▸ lines ▸ one write for each watch
             │ a list, a mark, lapped, out of order
             └▸ difference to the root that was told last ▸ Told ▸ ...

Invariants
    F1  every live watch was told exactly what it selects of the content at `position`. What follows
        it is told to all of them together, and a watch that lags joins them when it stands there.
    F2  what is told rises strictly in versions (of each namespace, where namespaces have watches of
        their own). So a client that holds the version of the last event it saw, and resumes behind
        it, misses nothing and sees nothing twice.
    F3  where the ring does not tell each change as it happened (the record says that it was broken
        since, or it was overwritten), the difference of two states is told, and a new history
        begins: a client that is cut in the middle holds a version inside the gap, which is too
        old. Where even that cannot be told in order, all watches end with 410.
        So they do where the resource is declared otherwise than before, or is none any more: what
        such a difference leaves out is not deleted.
    F4  a slice is written when all its lines are made: what cannot be read any more is told to
        nobody in part.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from shmcache.errors import Lapped, StaleObjectError
from shmcache.protocol import failures
from shmcache.serve import lanes
from shmcache.serve.catalogue import declaration
from shmcache.serve.watch_history import History
from shmcache.serve.watch_selection import Index
from shmcache.serve.watch_told import Told, difference, ends_gap, number_of, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache._hot import Reader, Root
    from shmcache.protocol.kinds import Kind
    from shmcache.reader import Cache
    from shmcache.serve.watch_forms import Form, Wrap
    from shmcache.serve.watch_selection import Selection
    from shmcache.serve.watch_stream import Watcher

UNKNOWN = 1 << 256
"""The floor of a lane of which nobody knows how far it is: nothing can be resumed."""
SLICE = 64
"""Deltas told in one turn, and written as one."""
PAST = 4096
KEPT_BYTES = 4 << 20
"""Lines made for watches that lag: several of them often stand at the same place."""


class Group:
    """Live watches to which the same bytes go."""

    __slots__ = ("form", "lines", "members", "wrap")

    def __init__(self, form: Form, wrap: Wrap) -> None:
        self.form = form
        self.wrap = wrap
        self.members: dict[Watcher, None] = {}
        self.lines: list[bytes] = []


class Channel:
    """Follows one resource as long as it is watched. Used in the loop's thread alone."""

    def __init__(self, cache: Cache, resource: str, kind: Kind, *, own: bool = False) -> None:
        """`own`: each namespace has a watch of its own behind it, with versions of its own."""
        self.resource = resource
        self.kind = kind
        self.lanes = own
        self.watchers: dict[Watcher, None] = {}
        """All of them, in whatever phase."""
        self.waiting: dict[Watcher, None] = {}
        """Those that stand here and cannot be live yet: called when something was published."""
        self._cache = cache
        self._groups: dict[Selection, dict[tuple[str, Wrap], Group]] = {}
        self._index = Index()
        self._kept: OrderedDict[tuple[int, str, str], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._enter()

    # ---- where it stands -----------------------------------------------------------------------

    def _enter(self) -> None:
        """Stands at the latest state. KeyError where the cache has no such resource (any more)."""
        self.reader: Reader
        self.reader, self.number = self._cache.locate(self.resource)
        root = self.reader.root()
        record = root.record(self.number)
        self._stand(root, record)
        self._begin_history()
        if not self.lanes and self.latest >= 0:
            self._histories[""] = self._past(root, record)

    def _stand(self, root: Root, record: dict[str, Any]) -> None:
        self.root = root
        """The state that was told last; it stays readable."""
        self.position = root.head
        self.version: str = record["version"] or "0"
        self._breaks: int = record["breaks"]
        self.declaration = declaration(record)
        """What the resource is in `root`."""
        self._lanes = lanes.versions(record) if self.lanes else {}
        self.latest = number_of(record["version"])
        """The version of `root` as a number; -1: versions mean nothing here."""
        self._target: tuple[Root, dict[str, Any]] | None = None

    def _begin_history(self) -> None:
        self._begun = {lane: number_of(version) for lane, version in self._lanes.items()}
        self._floor = self.latest
        self._histories: dict[str, History] = {}
        self._last: dict[str, int] = {}
        """What was told last, of each lane."""
        self._kept.clear()
        self._kept_bytes = 0

    def _past(self, root: Root, record: dict[str, Any]) -> History:
        """What the window tells of the time before us: W1 to W3 of it."""
        position, before = max(root.tail, record["unbroken"]), number_of(record["listed"])
        whole = root.tail <= record["unbroken"] and before >= 0
        history = History(before if whole else self.latest)
        try:
            while position < root.head:
                deltas, position = root.take(position, PAST, (self.number,))
                for delta in deltas:
                    number = number_of(delta.version)
                    if not whole:  # what left the window was before the first that is there
                        whole, before = True, number - 1
                        history.floor = before
                    if number <= before:
                        return History(self.latest)
                    history.mark(before, delta.number)
                    before = number
        except (Lapped, StaleObjectError):
            return History(self.latest)
        return history if before <= self.latest else History(self.latest)

    def _lane(self, namespace: str) -> str:
        return namespace if self.lanes else ""

    def _history(self, lane: str) -> History:
        found = self._histories.get(lane)
        if found is None:  # nothing was told of it since this history began
            floor = self._begun.get(lane, UNKNOWN) if self.lanes else self._floor
            found = self._histories[lane] = History(floor)
        return found

    def locate(self, selection: Selection, version: int) -> int:
        """Where a watch from this version begins; a Failure (410) if it is too old."""
        lane = self._lane(selection.namespace)
        if self._latest_of(lane) < 0:
            raise failures.too_old(version, 0)
        latest = self.reached(selection)
        tail = self.reader.root().tail
        return self._history(lane).locate(version, latest, tail, self.position)

    def reached(self, selection: Selection) -> int:
        """Up to which version a live watch was told everything."""
        lane = self._lane(selection.namespace)
        return max(self._latest_of(lane), self._last.get(lane, -1))

    def _latest_of(self, lane: str) -> int:
        """The version of `root`, in this lane."""
        if not self.lanes:
            return self.latest
        return number_of(self._lanes.get(lane))

    def mark(self, selection: Selection) -> str:
        """The version of a bookmark."""
        reached = self.reached(selection)
        return self.version if reached == self.latest or reached < 0 else str(reached)

    # ---- watches -------------------------------------------------------------------------------

    def join(self, watcher: Watcher) -> None:
        """It is live: told whatever is told from now on."""
        selection, form, wrap = watcher.selection, watcher.form, watcher.wrap
        groups = self._groups.get(selection)
        if groups is None:
            groups = self._groups[selection] = {}
            self._index.add(selection)
        group = groups.get((form.key, wrap))
        if group is None:
            group = groups[form.key, wrap] = Group(form, wrap)
        group.members[watcher] = None

    def leave(self, watcher: Watcher) -> None:
        """It lags, or has ended."""
        selection, place = watcher.selection, (watcher.form.key, watcher.wrap)
        groups = self._groups[selection]
        members = groups[place].members
        del members[watcher]
        if not members:
            del groups[place]
        if not groups:
            del self._groups[selection]
            self._index.remove(selection)

    # ---- what happened -------------------------------------------------------------------------

    def drain(self) -> bool:
        """Tells a slice of what was published; whether there is more of it."""
        if self._cache.reader is not self.reader:
            self._move()
            return False
        if self._target is None and not self._aim():
            return False
        assert self._target is not None
        root, record = self._target
        try:
            deltas, position = root.take(self.position, SLICE, (self.number,))
            changes = list(told(deltas))
            if not self._in_order(changes):
                self._bridge()
                return False
            self._tell(changes, position)
        except (Lapped, StaleObjectError):
            self._bridge()
            return False
        if position < root.head:
            return True
        self._stand(root, record)
        return True

    def _aim(self) -> bool:
        """Looks for a newer state to go to; False where there is nothing to be told."""
        root = self.reader.root()
        if root.generation == self.root.generation:
            return False
        record = root.record(self.number)
        if record["breaks"] != self._breaks or declaration(record) != self.declaration:
            self._bridge()
            return False
        if root.head == self.position:
            self._stand(root, record)
            return False
        self._target = (root, record)
        return True

    def _in_order(self, changes: list[Told]) -> bool:
        """F2; and marks where they begin."""
        if self.latest < 0:
            return True
        last = dict(self._last)
        for change in changes:
            lane = self._lane(change.namespace)
            before = max(self._latest_of(lane), last.get(lane, -1))
            if change.number <= before:
                return False
            self._history(lane).mark(before, change.position)
            last[lane] = change.number
        return True

    def _tell(self, changes: list[Told], position: int) -> None:
        groups = self._fill(changes)
        for change in changes:
            lane = self._lane(change.namespace)
            self._last[lane] = max(self._last.get(lane, -1), change.number)
        self.position = position
        self._write(groups)

    @staticmethod
    def _write(groups: list[Group]) -> None:
        for group in groups:
            data = group.wrap(group.lines)
            group.lines = []
            for watcher in list(group.members):
                watcher.deliver(data)

    def _fill(self, changes: list[Told]) -> list[Group]:
        """The groups that are told something, with their lines (F4)."""
        filled: dict[Group, None] = {}
        try:
            for change in changes:
                old, new = change.old, change.new
                wanting = self._index.wanting(change.namespace, change.name, old, new)
                for selection in wanting:
                    event = selection.event(old, new)
                    if event is None:
                        continue
                    for group in self._groups[selection].values():
                        group.lines.append(change.line(event, group.form))
                        filled[group] = None
        except BaseException:
            for group in filled:
                group.lines = []
            raise
        return list(filled)

    # ---- where the ring does not tell it ---------------------------------------------------------

    def _bridge(self) -> None:
        """F3: from the state that was told last to the latest one."""
        root = self.reader.root()
        record = root.record(self.number)
        same = declaration(record) == self.declaration
        groups = self._between(root, number_of(record["version"])) if same else None
        ended = [one for one in self.watchers if groups is None or not one.live]
        self._stand(root, record)
        self._begin_history()
        for watcher in ended:
            watcher.expire(self._floor)
        self._write(groups or [])

    def _between(self, root: Root, upto: int) -> list[Group] | None:
        """Who is told what about the difference; None where it cannot be told."""
        if self.position != self.root.head or self.root.instance != root.instance:
            return None  # a part of what followed that state was told
        try:
            changes = difference(*root.diff(self.number, self.root), upto)
            return self._fill(changes) if self._can_tell(changes, upto) else None
        except StaleObjectError:
            return None

    def _can_tell(self, changes: list[Told], upto: int) -> bool:
        if self.latest < 0:
            return upto < 0
        if upto == self.latest and self.reached_all() <= upto:
            return not changes
        return upto > self.reached_all() and ends_gap(changes, upto)

    def call_waiting(self) -> None:
        """Lets those look that wait for a later version, or for their first event."""
        waiting, self.waiting = self.waiting, {}
        for watcher in waiting:
            watcher.pump()

    def reached_all(self) -> int:
        """The latest version that any watch was told."""
        return max(self.latest, *self._last.values(), -1)

    def _move(self) -> None:
        """Another instance: its positions and states cannot be compared with ours."""
        self.expire()
        self._enter()

    def expire(self) -> None:
        """Ends all watches: what follows is not of what they were told."""
        for watcher in list(self.watchers):
            watcher.expire(max(self.reached_all(), 0) + 1)

    # ---- for watches that lag --------------------------------------------------------------------

    def since(self, watcher: Watcher) -> Iterator[tuple[Told, str]]:
        """A slice of what a lagging watch has not been told, up to where all stand.

        Moves its position. Raises Lapped or StaleObjectError where that is gone.
        """
        root = self.root if self._target is None else self._target[0]
        deltas, position = root.take(watcher.position, SLICE, (self.number,))
        limit = self.position
        selection = watcher.selection
        for change in told(delta for delta in deltas if delta.number < limit):
            if not selection.covers(change.namespace, change.name):
                continue
            if change.number <= watcher.after and self.latest >= 0:
                continue
            event = selection.event(change.old, change.new)
            if event is not None:
                yield change, event
        watcher.position = min(position, limit)

    def line(self, change: Told, event: str, form: Form) -> bytes:
        """The line of an event for watches that lag; made once for several of them."""
        place = (change.position, event, form.key)
        line = self._kept.get(place)
        if line is None:
            line = self._kept[place] = change.line(event, form)
            self._kept_bytes += len(line)
            while self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        return line
