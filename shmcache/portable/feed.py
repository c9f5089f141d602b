"""The changes of a portable cache for one consumer, which may be slow.

WINDOW1  A consumer receives the content of one state, then each change in order (PORT2).
WINDOW2  Changes wait in a window of bounded length (`ring_slots`, as in shared memory). A consumer
    that falls behind it lapses: it receives the difference between the state that it knows and
    the latest one, in the order of keys, with a Tombstone for each lost state (G13).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Self

from shmcache.handlers.tombstone import Tombstone
from shmcache.portable.missing import lacking
from shmcache.portable.objects import View
from shmcache.portable.store import PrivateChange, PrivateStore, PrivateTable
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reader.sharding import uid_of


class PrivateWanted:
    """The objects that a list or registration is about."""

    def __init__(
        self,
        namespace: str | None = None,
        labels: LabelSelector | Mapping[str, str] | str | None = None,
        fields: FieldSelector | str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        if shard is not None:
            lacking("a shard")
        if namespace is not None and not isinstance(namespace, str):
            raise TypeError(f"namespace must be a str or None, not {namespace!r}")
        self._prefix = f"{namespace}/" if namespace else ""
        if isinstance(labels, str):
            labels = LabelSelector.parse(labels)
        elif isinstance(labels, Mapping):
            labels = LabelSelector.of(labels)
        self._labels = labels
        self._fields = FieldSelector.parse(fields) if isinstance(fields, str) else fields

    def selects(self, key: str, obj: View) -> bool:
        """Whether an object is among them."""
        return (
            key.startswith(self._prefix)
            and (self._labels is None or self._labels.matches(obj))
            and (self._fields is None or self._fields.matches(obj))
        )

    def seen(self, change: PrivateChange) -> Iterator[PrivateChange]:
        """A change as somebody sees it who knows these objects only.

        An object that begins to match is added, one that ceases to match deleted; one whose UID
        has changed is another object.
        """
        old, new = (
            one if isinstance(one, View) and self.selects(change.key, one) else None
            for one in (change.old, change.new)  # the writer knows both
        )
        if old is None and new is None:
            return
        if old is not None and new is not None and uid_of(old) != uid_of(new):
            end = PrivateChange(change.key, old, None)
            end.unknown = True  # it was not seen (G18)
            yield end
            yield PrivateChange(change.key, None, new)
            return
        part = PrivateChange(change.key, old, new)
        part.unknown = change.unknown and new is None
        yield part


class PrivateFeed:
    """The changes of a resource for one consumer, from one state on. A context manager."""

    def __init__(
        self,
        store: PrivateStore,
        resource: str,
        wanted: PrivateWanted,
        *,
        changes_only: bool = False,
    ) -> None:
        self._store, self._resource, self._wanted = store, resource, wanted
        self._window: deque[PrivateChange | None] = deque()
        self._missing: Iterator[PrivateChange] | None = None
        self._lapsed = self._nudged = self._closed = self._content_ended = False
        self.delivered: dict[str, View] = {}
        """Its objects, as the consumer knows them."""
        self.whole = changes_only
        """Whether the consumer has received the whole first content."""
        self.lapses = 0
        self.nudges = False
        """Whether a state without changes ends a take(), too."""
        self.signal: Callable[[], object] | None = None
        """Called after each change, in the writer's thread."""
        with store.changed:
            self.table = store.state.tables[resource]
            if changes_only:
                found = self.table.objects.items()
                self.delivered = {key: obj for key, obj in found if wanted.selects(key, obj)}
            else:
                self._begin(self.table)
            store.listeners.append(self._hear)

    # ---- the writer's side -----------------------------------------------------------------------

    def _hear(self, resource: str, changes: list[PrivateChange]) -> None:
        if resource != self._resource:
            return
        self._nudged = self._nudged or not changes
        for change in changes if not self._lapsed else ():
            self._window.extend(self._wanted.seen(change))
        if not (self.whole or self._content_ended or self._lapsed):
            self._end_content(self._store.state.tables[resource])
        if len(self._window) > self._store.window:
            self._lapse()
        if self.signal is not None:
            self.signal()

    def _end_content(self, table: PrivateTable) -> None:
        """Everything in the window so far is the first content."""
        if table.has_content:
            self._window.append(None)
            self._content_ended = True

    def _lapse(self) -> None:
        """WINDOW2: the window goes, and so does the rest of an earlier difference."""
        self._window.clear()
        self._missing, self._lapsed, self._content_ended = None, True, False

    # ---- the consumer's side ---------------------------------------------------------------------

    def take(self, timeout: float | None = None) -> PrivateChange | None:
        """The next change; None after `timeout` seconds, or if the feed was closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._store.changed:
            while not self._closed:
                change = self._next()
                if change is not None:
                    return change
                if self.nudges and self._nudged:
                    self._nudged = False
                    return None
                left = None if deadline is None else deadline - time.monotonic()
                if (left is not None and left <= 0) or not self._store.changed.wait(left):
                    return self._next()
        return None

    def _next(self) -> PrivateChange | None:
        if self._lapsed:
            self._lapsed = False
            self.lapses += 1
            self._begin(self._store.state.tables[self._resource])
        while self._missing is not None or self._window:
            if self._missing is None:
                change = self._window.popleft()
                self.whole = self.whole or change is None
            else:
                change = next(self._missing, None)
                if change is None:
                    self._missing = None
            if change is not None:
                return self._noted(change)
            self._nudged = True  # the consumer may look whether it is `whole`
        return None

    def _noted(self, change: PrivateChange) -> PrivateChange:
        if change.new is None:
            self.delivered.pop(change.key, None)
        else:
            self.delivered[change.key] = change.new
        change.initial = change.old is None and not self.whole
        return change

    def _begin(self, table: PrivateTable) -> None:
        """Goes on with what is missing of a state: all of it, or a difference."""
        self._missing = self._difference(table)
        if not self.whole:
            self._end_content(table)

    def _difference(self, table: PrivateTable) -> Iterator[PrivateChange]:
        keys = table.order()
        if self.delivered:
            keys = sorted({*self.delivered, *keys}, key=str.encode)
        for key in keys:
            old, new = self.delivered.get(key), table.objects.get(key)
            if new is not None and not self._wanted.selects(key, new):
                new = None
            if old is new or old == new:
                continue
            yield from replaced(key, old, new)

    def close(self) -> None:
        """No more changes; take() returns None. Idempotent."""
        with self._store.changed:
            self._closed = True
            if self._hear in self._store.listeners:
                self._store.listeners.remove(self._hear)
            self._store.changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replaced(key: str, old: View | None, new: View | None) -> Iterator[PrivateChange]:
    """The changes between two states of an object of which the states between are lost."""
    if old is not None:
        uid = uid_of(old)
        if new is not None and uid == uid_of(new):
            yield PrivateChange(key, Tombstone(key, uid, None), new)
            return
        version = old.get("metadata", {}).get("resourceVersion")
        end = PrivateChange(key, Tombstone(key, uid, version), None)
        end.unknown = True
        yield end
    if new is not None:
        yield PrivateChange(key, None, new)
