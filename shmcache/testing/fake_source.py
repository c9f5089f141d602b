"""FakeSource: an API server of one resource, as a plain object.

It keeps objects and a history of their changes, and answers lists and watches from them by the
rules of a real server: one version for everything, pages of one moment, "too old" behind the
history, silence ahead of it, bookmarks every minute, watches that end when their time is over. A
test makes it fail: by refusing requests, losing events, forgetting its history, going back to a
backup, or by hurting the watches that are open (`watches`).

It needs no thread: page() and listen() answer at once, and time passes on the ManualClock. It is
also a Source (watch() blocks until there is something), so that a whole engine can run on it.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shmcache.protocol.items import LISTED, Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.source.base import FailureKind, ListStream, SourceFailed, SourceFailure
from shmcache.testing import statuses
from shmcache.testing.clock import ManualClock
from shmcache.testing.fake_watch import FakeWatch

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history. `announced`: whether watches see it."""

    version: int
    type: str
    key: str
    raw: bytes
    announced: bool


@dataclass(frozen=True, slots=True)
class FakePage:
    """A page of a list: a ListStream."""

    items: list[Item]
    meta: ListMeta

    def __iter__(self) -> Iterator[list[Item]]:
        yield self.items


class FakeSource:
    """See the module. `version` is the server's, of its last change."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        *,
        kind: str = "Pod",
        api_version: str = "v1",
        version: int = 10,
    ) -> None:
        self.clock = clock or ManualClock()
        self.kind = kind
        self.api_version = api_version
        self.version = version
        self.objects: dict[str, bytes] = {}
        """The JSON text of each object that there is, by key."""
        self.watches: list[FakeWatch] = []
        """Those that are open."""
        self.watch_list = True
        """Whether it knows sendInitialEvents; without, it answers 422."""
        self.end_bookmark = True
        """Whether a watch-list ever says that its initial objects were all."""
        self.bookmarks = True
        """Whether it sends bookmarks; without, a quiet watch is silent."""
        self.watch_cache = True
        """With one, it ignores the limit at version "0"; without, it never does."""
        self.behind = False
        self.speaks_for_all = True
        """Whether its watches say that more has arrived than was read."""
        self.batch = 1000
        """Items that a watch gives at once."""
        self.history: list[Change] = []
        """All changes of the objects, also those that watches do not see any more."""
        self._oldest = version  # a watch can begin here, not before
        self._tokens: dict[str, tuple[int, list[Item]]] = {}
        self._refusals: deque[tuple[str, SourceFailure | None]] = deque()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._cancelled = False
        self.clock.subscribe(self._wake)

    # ---- changes of the objects ------------------------------------------------------------------

    def create(self, obj: Object, *, announced: bool = True) -> str:
        """A new object; its version. Not `announced`: its event is lost, as through a bug."""
        return self._change("ADDED", obj, announced=announced)

    def update(self, obj: Object, *, announced: bool = True) -> str:
        """Another state of an object that there is; its version."""
        return self._change("MODIFIED", obj, announced=announced)

    def delete(self, key: str, *, announced: bool = True) -> str:
        """The object is gone; the version of that."""
        with self._changed:
            obj = json.loads(self.objects[key])
            obj["metadata"]["resourceVersion"] = str(self.version + 1)
            return self._record("DELETED", key, _text(obj), announced=announced)

    def touch(self, times: int = 1) -> None:
        """Other resources change: the version goes on, here nothing happens."""
        with self._changed:
            self.version += times
            self._changed.notify_all()

    def _change(self, kind: str, obj: Object, *, announced: bool) -> str:
        with self._changed:
            metadata = dict(obj.get("metadata") or {})
            key = _key(metadata)
            if (key in self.objects) != (kind == "MODIFIED"):
                raise KeyError(f"{key} {'does not exist' if kind == 'MODIFIED' else 'exists'}")
            version = str(self.version + 1)
            metadata.setdefault("uid", f"uid-{version}")
            metadata["resourceVersion"] = version
            head = {"kind": self.kind, "apiVersion": self.api_version}
            return self._record(
                kind, key, _text({**head, **obj, "metadata": metadata}), announced=announced
            )

    def _record(self, kind: str, key: str, raw: bytes, *, announced: bool) -> str:
        self.version += 1
        self.history.append(Change(self.version, kind, key, raw, announced))
        if kind == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = raw
        self._changed.notify_all()
        return str(self.version)

    # ---- events of the server --------------------------------------------------------------------

    def refuse(
        self, failure: SourceFailure, *, on: str = "any", times: int = 1, after: int = 0
    ) -> None:
        """The next requests fail: lists, watches (`on` "list" or "watch") or "any".

        `after`: so many of them are answered before.
        """
        with self._lock:
            self._refusals.extend([(on, None)] * after)
            self._refusals.extend([(on, failure)] * times)

    def forgive(self) -> None:
        """Forgets what is still to be refused."""
        with self._lock:
            self._refusals.clear()

    def forget(self) -> None:
        """The history is lost, as by a restart: what is older is too old, watches end."""
        with self._changed:
            self._oldest = self.version
            self._tokens.clear()
            for watch in self.watches:
                watch.close()
            self._changed.notify_all()

    def restore(self, version: int) -> None:
        """Goes back to the backup of that version, as etcd may; watches break, history is gone."""
        with self._changed:
            if version > self.version:
                raise ValueError("a backup is of the past")
            self.history = [change for change in self.history if change.version <= version]
            self.objects = {}
            for change in self.history:
                if change.type == "DELETED":
                    del self.objects[change.key]
                else:
                    self.objects[change.key] = change.raw
            self.version = version
            self.forget()
            for watch in self.watches:
                watch.cut(statuses.reset())

    # ---- requests --------------------------------------------------------------------------------

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[ListStream]:
        """One page, at once; of a Source."""
        with self._lock:
            self._refuse_if_due("list")
            made = self._continued(options) if options.continue_token else self._listed(options)
        yield made

    def _listed(self, options: ListOptions) -> FakePage:
        version = options.resource_version
        if version not in {"", "0"} and int(version) > self.version:
            raise SourceFailed(statuses.too_large(int(version), self.version))
        items = [self.item(LISTED, key, raw) for key, raw in sorted(self.objects.items())]
        limit = 0 if version == "0" and self.watch_cache else options.limit
        return self._page(self.version, items, limit)

    def _continued(self, options: ListOptions) -> FakePage:
        if options.resource_version:
            text = "specifying resource version is not allowed when using continue"
            raise SourceFailed(statuses.http(400, "BadRequest", text))
        if options.continue_token not in self._tokens:
            raise SourceFailed(statuses.expired("The provided continue parameter is too old"))
        version, items = self._tokens[options.continue_token]
        return self._page(version, items, options.limit)

    def _page(self, version: int, items: list[Item], limit: int) -> FakePage:
        rest = items[limit:] if limit else []
        token = f"{version}.{len(rest)}" if rest else ""
        if rest:
            self._tokens[token] = version, rest
        meta = ListMeta(
            str(version), token, len(rest) or None, f"{self.kind}List", self.api_version
        )
        return FakePage(items[:limit] if limit else items, meta)

    def probe(self, options: ListOptions) -> str:  # noqa: ARG002 - the version is everybody's
        """The server's version, at once; of a Source. Refused as a list is."""
        with self._lock:
            self._refuse_if_due("list")
            return str(self.version)

    def listen(self, options: ListOptions, silence: float = 3600.0) -> FakeWatch:
        """Opens a watch that never blocks."""
        with self._lock:
            self._refuse_if_due("watch")
            if options.send_initial_events is not None and not self.watch_list:
                text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate"
                raise SourceFailed(statuses.http(422, "Invalid", f"{text} is enabled"))
            made = FakeWatch(self, options, silence)
            self.watches.append(made)
            return made

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """A watch that blocks until something happens, here or on the clock; of a Source."""
        opened = self.listen(options, silence)
        try:
            yield self._follow(opened)
        finally:
            opened.hang_up()

    def _follow(self, opened: FakeWatch) -> Iterator[list[Item]]:
        while True:
            with self._changed:
                self._refuse_if_cancelled()
                items = opened.take()
                if not items and opened.ended:
                    return
                if not items:
                    self._changed.wait()
                    continue
            yield items

    def close(self) -> None:
        """Of a Source: there is no connection."""

    def interrupt(self) -> None:
        """Of a Source: its watches break."""
        with self._changed:
            for watch in list(self.watches):
                watch.cut(statuses.reset())

    def cancel(self) -> None:
        """Of a Source: nothing is answered any more."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    # ---- for its watches -------------------------------------------------------------------------

    def since(self, version: int) -> list[Change] | None:
        """The changes after it; None if it is older than the history (R-AS-09)."""
        if version < self._oldest:
            return None
        first = bisect_right(self.history, version, key=lambda change: change.version)
        return self.history[first:]

    def item(self, kind: str, key: str, raw: bytes) -> Item:
        """An object as an item of this type."""
        metadata = json.loads(raw)["metadata"]
        return Item(
            kind,
            key,
            metadata["resourceVersion"],
            metadata["uid"],
            self.kind,
            self.api_version,
            raw,
        )

    def bookmark(self, version: int, *, ends_initial: bool = False) -> Item:
        """BOOKMARK of that version."""
        metadata: Object = {"resourceVersion": str(version)}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.kind, "apiVersion": self.api_version, "metadata": metadata}
        return Item("BOOKMARK", "", str(version), None, self.kind, self.api_version, _text(obj))

    def _refuse_if_due(self, what: str) -> None:
        self._refuse_if_cancelled()
        for number, (on, failure) in enumerate(self._refusals):
            if on in {"any", what}:
                del self._refusals[number]
                if failure is None:
                    return
                raise SourceFailed(failure)

    def _refuse_if_cancelled(self) -> None:
        if self._cancelled:
            raise SourceFailed(SourceFailure(FailureKind.CANCELLED, "cancelled"))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _key(metadata: Object) -> str:
    namespace, name = metadata.get("namespace"), metadata["name"]
    return f"{namespace}/{name}" if namespace else str(name)


def _text(obj: Object) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()
