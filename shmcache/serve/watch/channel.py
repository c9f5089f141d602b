"""The changes of one resource, read once for all watches of the process.

    ring ▸ slice of deltas ▸ in order? ▸ WatchChange ▸ selections ▸ lines ▸ one write for each watch
             │ a list, a RELIST, lapped, out of order
             └▸ difference to the last delivered root ▸ WatchChange ▸ ...

Invariants
    CHANNEL1  every live watch has received exactly what it selects of the content at `position`.
        Later changes are delivered to all of them together, and a lagging watch joins them when it
        reaches that position.
    CHANNEL2  delivered versions rise strictly (within each namespace, where namespaces have
        watches of their own). So a client that holds the version of the last event it saw, and
        resumes after it, misses nothing and sees nothing twice.
    CHANNEL3  where the ring does not have each change as it happened (the record shows that it
        was broken since, or it was overwritten), watches receive the difference of two states, and
        a new history begins: a client that is cut in the middle holds a version inside the gap,
        which is too old here, and has seen all deletions, which come first, if another process
        goes on with it. If even that cannot be delivered in order, each change at a version that
        no watch has reached, all watches end with 410. They also do if the declaration of the
        resource changes or the resource is removed: objects missing from such a difference were
        not deleted.
    CHANNEL4  a slice is written when all its lines are made: if a part of it cannot be read any
        more, no watch receives any of it.
    CHANNEL5  an object that one form cannot show ends the watches of that form with an error. The
        channel goes on, and so do all others.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from shmcache.errors import Lapped, StaleObjectError
from shmcache.protocol import failures
from shmcache.protocol.versions import number_of
from shmcache.reader import namespace_versions
from shmcache.serve.catalogue import declaration
from shmcache.serve.watch.change import WatchChange, changes_of, difference, ends_gap
from shmcache.serve.watch.encoding import UNSHOWN
from shmcache.serve.watch.fills import Fill, Fills
from shmcache.serve.watch.history import History
from shmcache.serve.watch.selection import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache._hot import Reader, Record, Root
    from shmcache.protocol.kinds import Kind
    from shmcache.reader.cache import Cache
    from shmcache.serve.watch.encoding import WatchForm, Wrap
    from shmcache.serve.watch.selection import WatchSelection
    from shmcache.serve.watch.watcher import Watcher

logger = logging.getLogger(__name__)

UNKNOWN = 1 << 256
"""The floor of a part whose version is unknown: no watch can resume."""
SLICE = 64
"""Deltas delivered in one turn, and written as one."""
PAST = 4096
KEPT_BYTES = 4 << 20
"""Lines made for watches that lag: several of them are often at the same position."""


class Group:
    """Live watches that receive the same bytes."""

    __slots__ = ("failed", "form", "lines", "members", "wrap")

    def __init__(self, form: WatchForm, wrap: Wrap) -> None:
        self.form = form
        self.wrap = wrap
        self.members: dict[Watcher, None] = {}
        self.lines: list[bytes] = []
        self.failed = False
        """An event cannot be written in this form: its watches end with an error."""


class Channel:
    """Follows one resource as long as it is watched. Used only in the loop's thread."""

    def __init__(self, cache: Cache, resource: str, kind: Kind, *, separate: bool = False) -> None:
        """`separate`: each namespace is watched separately: a part, with versions of its own."""
        self.resource = resource
        self.kind = kind
        self.separate = separate
        self.watchers: dict[Watcher, None] = {}
        """All watches, in any phase."""
        self.waiting: dict[Watcher, None] = {}
        """Watches at this position that cannot be live yet: called after a publication."""
        self._cache = cache
        self._groups: dict[WatchSelection, dict[tuple[str, Wrap], Group]] = {}
        self._index = Index()
        self._kept: OrderedDict[tuple[int, str, str], bytes] = OrderedDict()
        self._kept_bytes = 0
        self.fills = Fills(time.monotonic)
        self._enter()

    # ---- its position --------------------------------------------------------------------------

    def _enter(self) -> None:
        """Starts at the latest state. KeyError if the cache has no such resource (any more)."""
        self.reader: Reader
        self.reader, self.number = self._cache.locate(self.resource)
        root = self.reader.root()
        record = root.record(self.number)
        self._stand(root, record)
        self._look_back(root, record)

    def _look_back(self, root: Root, record: Record) -> None:
        """Begins a history with what the window tells."""
        self._begin_history()
        if not self.separate and self.latest >= 0:
            self._histories[""] = self._past(root, record)

    def _go_to(self, root: Root, record: Record) -> None:
        """All changes up to this state were delivered.

        Of those before the resource had a version, none is in a history.
        """
        before = self.latest
        self._stand(root, record)
        if before < 0 <= self.latest:
            self._look_back(root, record)

    def _stand(self, root: Root, record: Record) -> None:
        self.root = root
        """The state that was delivered last; it stays readable."""
        self.position = root.head
        self.version: str = record["version"] or "0"
        self._breaks: int = record["breaks"]
        self.declaration = declaration(record)
        """The declaration of the resource in `root`."""
        self._versions = namespace_versions.versions(record) if self.separate else {}
        self.latest = number_of(record["version"])
        """The version of `root` as a number; -1: versions mean nothing here."""
        self._target: tuple[Root, Record] | None = None

    def _begin_history(self) -> None:
        self.fills.drop()  # FILL4
        self._begun = {part: number_of(version) for part, version in self._versions.items()}
        self._floor = self.latest
        self._histories: dict[str, History] = {}
        self._last: dict[str, int] = {}
        """The last delivered version of each part."""
        self._kept.clear()
        self._kept_bytes = 0

    def _past(self, root: Root, record: Record) -> History:
        """The history of the time before this channel, from the window: HISTORY1 to HISTORY3."""
        position, before = max(root.tail, record["unbroken"]), number_of(record["listed"])
        whole = root.tail <= record["unbroken"] and before >= 0
        history = History(before if whole else self.latest)
        try:
            while position < root.head:
                deltas, position = root.take(position, PAST, (self.number,))
                for delta in deltas:
                    number = number_of(delta.version)
                    if not whole:  # deltas that left the window precede the first in it
                        whole, before = True, number - 1
                        history.floor = before
                    if number <= before:
                        return History(self.latest)
                    history.note(before, delta.number)
                    before = number
        except (Lapped, StaleObjectError):
            return History(self.latest)
        return history if before <= self.latest else History(self.latest)

    def _part(self, namespace: str) -> str:
        return namespace if self.separate else ""

    def _history(self, part: str) -> History:
        found = self._histories.get(part)
        if found is None:  # nothing delivered since this history began
            floor = self._begun.get(part, UNKNOWN) if self.separate else self._floor
            found = self._histories[part] = History(floor)
        return found

    def locate(self, selection: WatchSelection, version: int) -> int:
        """The position where a watch from this version begins; a Failure (410) if it is too old."""
        part = self._part(selection.namespace)
        if self._latest_of(part) < 0:
            raise failures.too_old(version, 0)
        latest = self.reached(selection)
        tail = self.reader.root().tail
        return self._history(part).locate(version, latest, tail, self.position)

    def reached(self, selection: WatchSelection) -> int:
        """The version up to which a live watch has received everything."""
        return self._reached(self._part(selection.namespace))

    def _reached(self, part: str) -> int:
        return max(self._latest_of(part), self._last.get(part, -1))

    def _latest_of(self, part: str) -> int:
        """The version of `root`, in this part."""
        if not self.separate:
            return self.latest
        return number_of(self._versions.get(part))

    def bookmark_version(self, selection: WatchSelection) -> str:
        """The version of a bookmark."""
        reached = self.reached(selection)
        return self.version if reached == self.latest or reached < 0 else str(reached)

    # ---- watches -------------------------------------------------------------------------------

    def fill(self, selection: WatchSelection, *, least: int, shared: bool) -> Fill:
        """The state that a newcomer's first objects are of."""
        version, reached = self.bookmark_version(selection), self.reached(selection)
        shared = shared and not self.separate and self.latest >= 0
        return self.fills.fill(
            self.root, self.position, version, reached, least=least, shared=shared
        )

    def join(self, watcher: Watcher) -> None:
        """Makes the watch live: it receives every change from now on."""
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
        """Removes a watch that lags or has ended."""
        selection, key = watcher.selection, (watcher.form.key, watcher.wrap)
        groups = self._groups[selection]
        members = groups[key].members
        del members[watcher]
        if not members:
            del groups[key]
        if not groups:
            del self._groups[selection]
            self._index.remove(selection)

    # ---- changes -------------------------------------------------------------------------------

    def drain(self) -> bool:
        """Delivers a slice of the published changes; returns whether more are left."""
        if self._cache.reader is not self.reader:
            self._move()
            return False
        if self._target is None and not self._aim():
            return False
        assert self._target is not None
        root, record = self._target
        try:
            deltas, position = root.take(self.position, SLICE, (self.number,))
            changes = list(changes_of(deltas))
            if not self._in_order(changes):
                self._bridge()
                return False
            self._tell(changes, position)
        except (Lapped, StaleObjectError):
            self._bridge()
            return False
        if position < root.head:
            return True
        self._go_to(root, record)
        return True

    def _aim(self) -> bool:
        """Looks for a newer state to go to; False if there is nothing to deliver."""
        root = self.reader.root()
        if root.generation == self.root.generation:
            return False
        record = root.record(self.number)
        if record["breaks"] != self._breaks or declaration(record) != self.declaration:
            self._bridge()
            return False
        if root.head == self.position:
            self._go_to(root, record)
            return False
        self._target = (root, record)
        return True

    def _in_order(self, changes: list[WatchChange]) -> bool:
        """Checks CHANNEL2, and notes where the changes begin."""
        if self.latest < 0:
            return True
        last = dict(self._last)
        for change in changes:
            part = self._part(change.namespace)
            before = max(self._latest_of(part), last.get(part, -1))
            if change.number <= before:
                return False
            self._history(part).note(before, change.position)
            last[part] = change.number
        return True

    def _tell(self, changes: list[WatchChange], position: int) -> None:
        groups = self._fill(changes)
        for change in changes:
            part = self._part(change.namespace)
            self._last[part] = max(self._last.get(part, -1), change.number)
        self.position = position
        self._write(groups)

    @staticmethod
    def _write(groups: list[Group]) -> None:
        for group in groups:
            data = group.wrap(group.lines) if group.lines else b""
            group.lines = []
            for watcher in list(group.members):
                if data:
                    watcher.deliver(data)
                if group.failed:
                    watcher.fail(failures.internal_error(UNSHOWN))

    def _fill(self, changes: list[WatchChange]) -> list[Group]:
        """The groups that receive something, with their lines (CHANNEL4)."""
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
                        self._add_line(group, change, event)
                        filled[group] = None
        except BaseException:
            for group in filled:
                group.lines = []
            raise
        return list(filled)

    @staticmethod
    def _add_line(group: Group, change: WatchChange, event: str) -> None:
        """CHANNEL5: an error of its form is its own."""
        if group.failed:
            return
        try:
            group.lines.append(change.line(event, group.form))
        except (Lapped, StaleObjectError):
            raise
        except Exception:
            logger.exception("serve: an event of %s/%s", change.namespace, change.name)
            group.failed = True

    # ---- where the ring does not tell it ---------------------------------------------------------

    def _bridge(self) -> None:
        """CHANNEL3: from the state that was delivered last to the latest one."""
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
        """The groups to which the difference goes; None if it cannot be delivered."""
        if self.position != self.root.head or self.root.instance != root.instance:
            return None  # some changes after that state were delivered
        try:
            found = root.diff(self.number, self.root)
            changes = difference(*found, lambda namespace: self._reached(self._part(namespace)))
            return self._fill(changes) if self._can_tell(changes, upto) else None
        except StaleObjectError:
            return None

    def _can_tell(self, changes: list[WatchChange], upto: int) -> bool:
        if self.latest < 0:
            return upto < 0
        if upto == self.latest and self.reached_all() <= upto:
            return not changes
        if any(one.number <= self._reached(self._part(one.namespace)) for one in changes):
            return False  # a client at that version skips it as a repetition
        return upto > self.reached_all() and ends_gap(changes, upto)

    def call_waiting(self) -> None:
        """Wakes the watches that wait for a later version, or for their first event."""
        waiting, self.waiting = self.waiting, {}
        for watcher in waiting:
            watcher.pump()

    def reached_all(self) -> int:
        """The latest version that any watch has received."""
        return max(self.latest, *self._last.values(), -1)

    def _move(self) -> None:
        """Another instance: its positions and states cannot be compared with ours."""
        self.expire()
        self._enter()

    def expire(self) -> None:
        """Ends all watches: later changes do not follow from what they received."""
        for watcher in list(self.watchers):
            watcher.expire(max(self.reached_all(), 0) + 1)

    # ---- for watches that lag --------------------------------------------------------------------

    def since(self, watcher: Watcher) -> Iterator[tuple[WatchChange, str]]:
        """A slice of the changes that a lagging watch has missed, up to the channel's position.

        Moves its position. Raises Lapped or StaleObjectError where that is gone.
        """
        root = self.root if self._target is None else self._target[0]
        deltas, position = root.take(watcher.position, SLICE, (self.number,))
        limit = self.position
        selection = watcher.selection
        for change in changes_of(delta for delta in deltas if delta.number < limit):
            if not selection.covers(change.namespace, change.name):
                continue
            if change.number <= watcher.after and self.latest >= 0:
                continue
            event = selection.event(change.old, change.new)
            if event is not None:
                yield change, event
        watcher.position = min(position, limit)

    def line(self, change: WatchChange, event: str, form: WatchForm) -> bytes:
        """The line of an event for watches that lag; made once for several of them."""
        key = (change.position, event, form.key)
        line = self._kept.get(key)
        if line is None:
            line = self._kept[key] = change.line(event, form)
            self._kept_bytes += len(line)
            while self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        return line
