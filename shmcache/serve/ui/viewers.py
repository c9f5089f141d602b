"""Everybody who has the page open: one stream of server-sent events each, fed together.

VIEW1  Nothing runs while nobody looks: the timers, the bell and the thread end with the last
    viewer.
VIEW2  A viewer that does not take its bytes receives fewer of them: changes and pictures that
    would have to wait for it are left out and counted. No viewer delays another one, or costs more
    memory than `backlog_bytes`.
VIEW3  A viewer sees resources that its user may list, and no others. Where reviews decide, they
    decide again every RECHECK_SECONDS; a revoked token ends the stream (PERMIT2). Workers, queues
    and controllers are shown to users who may list everything that is cached.
VIEW4  A change is shown within TICK_SECONDS of its publication, one write for many changes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.protocol import failures, framing
from shmcache.reader.listing import label_selector
from shmcache.serve.auth.permit import RECHECK_SECONDS, Permit
from shmcache.serve.auth.threads import Workers
from shmcache.serve.http.loop import Task
from shmcache.serve.http.weights import weight_of_selectors
from shmcache.serve.ui.changes import Changes, LiveChanges
from shmcache.serve.ui.pictures import Pictures
from shmcache.serve.ui.rights import prefix, sees_all, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmcache._hot import Delta
    from shmcache.reader.selectors import LabelSelector
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.loop import Timer
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.server import Server

logger = logging.getLogger(__name__)

PICTURE_SECONDS = 1.0
TICK_SECONDS = 0.04
ROWS = 24
"""Changes that one write shows at most: the newest; 600 a second are more than anybody reads."""
STREAM = b"text/event-stream"
HEADERS = b"X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\n"
_KINDS = {"ADDED": "A", "MODIFIED": "M", "DELETED": "D"}

Visible = frozenset[str] | None
"""The resources that a user may list; None: nobody reviews that."""


class Filter(NamedTuple):
    """The part of the changes that a viewer wants to see."""

    resource: str = ""
    text: str = ""
    labels: LabelSelector | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Filter:
        """Of a request; InvalidSelector for invalid labels."""
        labels = label_selector(query.get("labels") or None)
        return cls(query.get("resource", ""), query.get("q", "").lower(), labels)

    def shows(self, resource: str, delta: Delta) -> bool:
        """Whether a change belongs to it; a change of the labels shows in both selections."""
        if self.resource and resource != self.resource:
            return False
        if self.text and self.text not in (delta.key or "").lower():
            return False
        if self.labels is None:
            return True
        sides = (delta.old, delta.new)
        return any(one is not None and self.labels.matches(one) for one in sides)


EVERYTHING = Filter()


class Viewer:
    """One open page."""

    def __init__(
        self, viewers: Viewers, connection: Connection, request: HttpRequest, seen: Visible
    ) -> None:
        self.visible = seen
        self.wanted = Filter.read(request.query)
        request.weight = weight_of_selectors(self.wanted.labels)
        self._viewers = viewers
        self._connection = connection
        self._request = request
        self._skipped = 0
        self._timer: Timer | None = None
        self._task: Task | None = None
        self._permit = Permit(viewers.server, request, connection)

    def begin(self) -> None:
        """Takes the connection over."""
        connection, server = self._connection, self._viewers.server
        self._request.headers = server.access.proof(self._request.headers)
        connection.forget_headers()
        try:
            connection.weigh()
        except failures.Failure:
            self._permit.leave()
            raise
        connection.begin(media=STREAM, headers=HEADERS)
        if not connection.alive:
            self._permit.leave()
            return
        connection.on_lost = self.gone
        self._viewers.enter(self)
        self._permit.begin(self)
        self._review_later()

    def send(self, event: str, data: bytes) -> None:
        """One event, unless too much waits for the client already."""
        if not self._connection.choked:
            self._connection.chunk(b"event: %b\ndata: %b\n\n" % (event.encode(), data))

    def show(self, batch: LiveChanges, usual: bytes) -> None:
        """The changes that it wants to see. `usual`: all of them, encoded."""
        if self._connection.choked:
            self._skipped += len(batch.deltas) + batch.skipped
            return
        if self.visible is None and self.wanted == EVERYTHING and not self._skipped:
            self.send("changes", usual)
            return
        seen = self.visible
        whole = sees_all(seen, self._viewers.server.cache.resources)
        rows = [
            (resource, delta)
            for resource, delta in batch.deltas
            if (seen is None or resource in seen) and self.wanted.shows(resource, delta)
        ]
        skipped = (batch.skipped if whole else 0) + self._skipped
        self._skipped = 0
        if rows or skipped:
            self.send("changes", _encoded(LiveChanges(rows, skipped)))

    # ---- its end -------------------------------------------------------------------------------

    def gone(self) -> None:
        """The connection has ended. Idempotent."""
        self._permit.leave()
        self._viewers.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def finish(self) -> None:
        """Ends the stream in order: the server drains, or another user needs its admission."""
        self.gone()
        if self._connection.alive:
            self._connection.on_lost = None
            self._connection.finish()

    def fail(self, error: failures.Failure) -> None:
        """Ends the stream: its user may not look any more."""
        self.send("refused", framing.encode({"code": error.code, "message": str(error)}))
        self.finish()

    # ---- its rights (VIEW3) --------------------------------------------------------------------

    def _review_later(self) -> None:
        server = self._viewers.server
        if server.access.reviewed and self._connection.alive:
            self._timer = server.loop.call_later(RECHECK_SECONDS, self._review)

    def _review(self) -> None:
        self._task = Task(visible(self._viewers.server, self._request), self._reviewed)
        self._task.step()

    def _reviewed(self, found: Visible, error: BaseException | None) -> None:
        self._task = None
        if error is None:
            self.visible = found
        else:  # a review that fails is not a permission (ACCESS3)
            logger.warning("ui: cannot check the rights of a viewer: %s", error)
            self.visible = frozenset()
        self._review_later()


class Viewers:
    """All of them. For the loop's thread."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._all: dict[Viewer, None] = {}
        self._changes: Changes | None = None
        self._pictures = Pictures(server.cache)
        self._threads = Workers(server.loop, 1)
        self._ticking = False
        self._picturing = False

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, viewer: Viewer) -> None:
        """A page was opened."""
        self._all[viewer] = None
        self.server.on_drain[viewer.finish] = None
        if self._changes is None:
            self._changes = Changes(self.server.cache)
            self.server.bell.add(self._ring)
        self._picture()

    def leave(self, viewer: Viewer) -> None:
        """A page was closed. Idempotent."""
        self._all.pop(viewer, None)
        self.server.on_drain.pop(viewer.finish, None)
        if not self._all and self._changes is not None:
            self._changes = None
            self.server.bell.remove(self._ring)

    def close(self) -> None:
        """The server ends."""
        self._threads.close()

    # ---- changes -------------------------------------------------------------------------------

    def _ring(self) -> None:
        if not self._ticking:
            self._ticking = True
            self.server.later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self._changes is None:
            return
        batch = self._changes.look()
        if batch.deltas or batch.skipped:
            usual = _encoded(batch)
            for viewer in list(self._all):
                viewer.show(batch, usual)

    # ---- pictures ------------------------------------------------------------------------------

    def _picture(self) -> None:
        if self._all and not self._picturing:
            self._picturing = True
            self._threads.run(self._pictures.take, self._pictured)

    def _pictured(self, found: dict[str, Any] | None, error: BaseException | None) -> None:
        if error is not None:
            logger.warning("ui: no picture of the cache: %s", error)
            found = {"error": str(error) or type(error).__name__}
        assert found is not None
        self._name_paths(found)
        texts: dict[Visible, bytes] = {}
        for viewer in list(self._all):
            if viewer.visible not in texts:
                texts[viewer.visible] = framing.encode(_part(found, viewer.visible))
            viewer.send("picture", texts[viewer.visible])
        self.server.later(PICTURE_SECONDS, self._picture_again)

    def _picture_again(self) -> None:
        self._picturing = False
        self._picture()

    def _name_paths(self, found: dict[str, Any]) -> None:
        kinds = {one.name: one.kind for one in self.server.catalogue.all()}
        for row in found.get("resources", ()):
            kind = kinds.get(row["name"])
            row["kind"] = kind.kind if kind else ""
            row["namespaced"] = kind.namespaced if kind else True
            row["path"] = f"{prefix(kind)}/{kind.resource}" if kind else ""


def _part(found: dict[str, Any], seen: Visible) -> dict[str, Any]:
    """The part of a picture that a user may see (VIEW3)."""
    if seen is None or "resources" not in found:
        return found
    if sees_all(seen, (row["name"] for row in found["resources"])):
        return found
    rows = [row for row in found["resources"] if row["name"] in seen]
    hidden = {"workers": [], "queues": {}, "controllers": {}, "partial": True}
    return {**found, **hidden, "resources": rows}


def _encoded(batch: LiveChanges) -> bytes:
    shown = batch.deltas[-ROWS:]
    rows = [
        [one.number, _KINDS.get(one.kind, "?"), resource, one.key, one.version]
        for resource, one in shown
    ]
    return framing.encode({"rows": rows, "skipped": batch.skipped + len(batch.deltas) - len(shown)})
