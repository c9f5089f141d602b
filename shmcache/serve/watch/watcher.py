"""One watch: from a state or a version on to the latest change, at the pace of its client.

INITIAL   objects of one state, page by page, as long as the client takes them
LAGGING   on its way along the ring, slice by slice
LIVE      at the position of the channel: receives the same bytes as the others
ENDED

WATCHER1  while its client is choked, it lags: it receives nothing, and costs a position in the ring
    and no memory. A piece has PAGE events and about ENOUGH bytes at most. A watch whose position is
    overwritten ends cleanly, as the real server ends slow watches (R-AS-10): its client resumes at
    the version it has.
WATCHER2  between INITIAL and LAGGING, LAGGING and LIVE nothing is skipped or delivered twice: the
    position in the ring is that of the state that was shown, and the watch is live when its
    position is the channel's.
WATCHER3  only live watches send bookmarks: everything that the version covers was delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from shmcache.errors import Lapped, StaleObjectError
from shmcache.protocol import failures, watching
from shmcache.reader import listing
from shmcache.serve.read.consistency import ANYTHING, Currency
from shmcache.serve.watch import encoding as watch_forms
from shmcache.serve.watch.fills import FirstPage

if TYPE_CHECKING:
    from shmcache._hot import Root, View
    from shmcache.serve.watch.channel import Channel
    from shmcache.serve.watch.encoding import WatchForm, Wrap
    from shmcache.serve.watch.fills import Fill
    from shmcache.serve.watch.selection import WatchSelection

logger = logging.getLogger(__name__)

CallSoon = Callable[[Callable[[], object]], object]

PAGE = 64
"""Initial events made at a time."""
ENOUGH = 160 << 10
"""Bytes of a piece, after which no further event is added."""

INITIAL, LAGGING, LIVE, ENDED = range(4)


class Out(Protocol):
    """The destination of a watch's bytes: a connection."""

    @property
    def backlog(self) -> int:
        """Bytes that wait for the client."""

    @property
    def choked(self) -> bool:
        """Whether the backlog is too large to write more."""

    def room(self, then: Callable[[], object], /) -> bool:
        """Whether a piece may be made; if not, `then` is called when it may."""

    def send(self, data: bytes, /) -> None:
        """Writes bytes as they are; may find that the client has gone."""

    def finish(self) -> None:
        """The answer is complete; sends the backlog."""


class Watcher:
    """A watch that was accepted."""

    __slots__ = (
        "_after_key",
        "_end_bookmark",
        "_end_version",
        "_fill",
        "_initial",
        "_next",
        "after",
        "bookmarks",
        "channel",
        "form",
        "on_end",
        "out",
        "phase",
        "position",
        "selection",
        "sent",
        "shown",
        "wrap",
    )  # fmt: skip

    def __init__(self, channel: Channel, selection: WatchSelection, form: WatchForm) -> None:
        self.channel = channel
        self.selection = selection
        self.form = form
        self.phase = LAGGING
        self.position = 0
        self.after = -1
        """Only objects of a later version are shown."""
        self.bookmarks = False
        """Whether the client requested them."""
        self.shown = False
        """Whether an event was shown: a table's columns come only with the first."""
        self.sent = 0
        """In bytes."""
        self.on_end: Callable[[], object] = _nothing
        self._initial: Root | None = None
        self._fill: Fill | None = None
        self._after_key: str | None = None
        self._end_bookmark = False
        self._end_version = "0"

    @property
    def live(self) -> bool:
        """Whether it is at the position of the channel."""
        return self.phase == LIVE

    @property
    def ended(self) -> bool:
        """Whether it delivers nothing more."""
        return self.phase == ENDED

    # ---- beginnings ------------------------------------------------------------------------------

    def open(self, out: Out, wrap: Wrap, call_soon: CallSoon) -> None:
        """The destination and the form of its bytes; and how to go on in a later turn."""
        self.out = out
        self.wrap = wrap
        self._next = call_soon
        self.channel.watchers[self] = None

    def begin(
        self, beginning: watching.Beginning, current: Currency = ANYTHING, *, least: int = 0
    ) -> None:
        """Goes on from a version. A Failure (410) if that is too old; then nothing was sent.

        A Failure (503) if the state that it would begin with is not `current` (SERVE5). Where that
        demands nothing, the first objects may be those of a moment ago, but not before version
        `least` (FILL1).
        """
        channel = self.channel
        while channel.drain():
            pass
        if self.ended:
            return  # the resource is another one now
        current.headers(channel.root)
        self.position = channel.position
        if beginning.initial:
            self.phase = INITIAL
            least = max(least, beginning.fresh)
            fill = self._fill = channel.fill(
                self.selection, least=least, shared=current is ANYTHING
            )
            self._initial, self._end_version, self.position = fill.root, fill.version, fill.position
            self._end_bookmark = beginning.end_bookmark
        elif beginning.after is not None:
            self.after = beginning.after
            self.position = channel.locate(self.selection, beginning.after)
        self.pump()

    # ---- at the client's pace --------------------------------------------------------------------

    def pump(self) -> None:
        """Goes on as far as it can now: called when the client has taken the backlog."""
        if self.phase in {LIVE, ENDED} or self.out.backlog:
            return
        behind = self.phase == INITIAL or self.position != self.channel.position
        if behind and not self.out.room(self.pump):
            return
        try:
            if self.phase == INITIAL:
                self._page()
            else:
                self._catch_up()
        except (Lapped, StaleObjectError):
            self._overtaken()
        except Exception:  # CHANNEL5: an object that this form cannot show
            logger.exception("serve: the events of a watch")
            self.fail(failures.internal_error(watch_forms.UNSHOWN))

    def _again(self) -> None:
        """Goes on in the next turn, after the others had theirs."""
        if not self.out.backlog:
            self._next(self.pump)

    def _page(self) -> None:
        """The next initial events; then the bookmark after the last one."""
        fills, fill = self.channel.fills, self._fill
        assert fill is not None
        key = (self.selection, self.form.key, self.wrap, self._end_bookmark, self._after_key,
                 self.shown)  # fmt: skip
        page = fills.page(fill, key)
        if page is None:
            page = self._make_page()
            fills.keep(fill, key, page)
        self._after_key, self.shown = page.after, page.shown
        if page.done:
            self._initial = self._fill = None
            self.phase = LAGGING
        if page.data and self.phase != ENDED:
            self.sent += len(page.data)
            self.out.send(page.data)
        self._again()

    def _make_page(self) -> FirstPage:
        root = self._initial
        assert root is not None
        found = self._objects(root)
        wanted, all_of_it = self.selection, not self.selection.fields.sifts
        lines, size, done = [], 0, len(found) < PAGE
        for key, obj in found:
            if size >= ENOUGH:
                done = False
                break
            self._after_key = key
            if all_of_it or wanted.matches(obj):
                lines.append(self._first(watching.ADDED, obj))
                size += len(lines[-1])
        if done and self._end_bookmark:
            lines.append(self.form.bookmark(self._end_version, end=True, first=not self.shown))
            self.shown = True
        data = self.wrap(lines) if lines else b""
        return FirstPage(data, self._after_key, done, self.shown)

    def _objects(self, root: Root) -> list[tuple[str, View]]:
        """The next page of the selected objects, in the order of the keys."""
        selection, number = self.selection, self.channel.number
        if selection.name:  # one look-up for each namespace that it can be in
            key = f"{selection.namespace}/{selection.name}" if selection.namespace else None
            if key is not None or not self.form.kind.namespaced:
                found = root.get(number, key or selection.name)
                return [(key or selection.name, found)] if selection.matches(found) else []
        wanted = listing.selection(
            selection.namespace or None,
            selection.labels or None,
            selection.fields or None,
            selection.shard,
        )
        return root.scan(
            number, prefix=wanted.prefix, after=self._after_key, limit=PAGE, where=wanted.where
        )

    def _first(self, event: str, obj: View) -> bytes:
        first, self.shown = not self.shown, True
        return self.form.line(event, obj, None, first=first)

    def _catch_up(self) -> None:
        channel = self.channel
        if self.position == channel.position and self._may_join():
            self.phase = LIVE
            channel.join(self)
            return
        if self.position == channel.position:
            channel.waiting[self] = None
            return
        lines, size, last = [], 0, -1
        for change, event in channel.since(self):
            if size >= ENOUGH and change.position != last:
                self.position = change.position  # it goes on there
                break
            last = change.position
            if self.shown:
                lines.append(channel.line(change, event, self.form))
            else:
                self.shown = True
                lines.append(change.line(event, self.form, first=True))
            size += len(lines[-1])
        self._send(lines)
        self._again()

    def _may_join(self) -> bool:
        """Whether it wants the same bytes as the other watches."""
        if self.form.is_table and not self.shown:
            return False
        return self._is_reached() or self.channel.latest < 0

    def _is_reached(self) -> bool:
        return self.after <= self.channel.reached(self.selection)

    def deliver(self, data: bytes) -> None:
        """Called by the channel, which has moved past it."""
        if self.phase != LIVE:
            return
        self.sent += len(data)
        self.out.send(data)
        if self.phase == LIVE and self.out.backlog and self.out.choked:
            self.channel.leave(self)
            self.phase = LAGGING
            self.position = self.channel.position

    def _send(self, lines: list[bytes]) -> None:
        if lines and self.phase != ENDED:
            data = self.wrap(lines)
            self.sent += len(data)
            self.out.send(data)

    # ---- bookmarks and ends ----------------------------------------------------------------------

    def bookmark(self) -> None:
        """Sends a bookmark if everything that it covers was delivered (WATCHER3)."""
        waits = self.position == self.channel.position and self.phase == LAGGING
        if self.out.backlog or not (self.live or (waits and self._is_reached())):
            return
        if self.channel.latest >= 0:
            version = self.channel.bookmark_version(self.selection)
            line = self.form.bookmark(version, first=not self.shown)
            self.shown = True
            self._send([line])
            self.pump()

    def fail(self, failure: failures.Failure) -> None:
        """Sends an ERROR, and nothing after it."""
        self._send([watch_forms.error(failure.status)])
        self.finish()

    def expire(self, oldest: int) -> None:
        """Later changes cannot be delivered: 410, or a clean end if the client lags anyhow."""
        if self.phase == LAGGING:
            self.finish()
        else:
            self.fail(failures.too_old(max(self.channel.reached(self.selection), 0), oldest))

    def _overtaken(self) -> None:
        """The writer reused its position in the ring (WATCHER1); half a state is worth nothing."""
        self.channel.reader.count_cut()
        if self.phase == INITIAL:
            self.fail(failures.expired(failures.WATCH_TOO_OLD))
        else:
            self.finish()

    def finish(self) -> None:
        """Ends the watch cleanly."""
        if self.gone():
            self.out.finish()

    def gone(self) -> bool:
        """The client has gone; returns whether that is new."""
        if self.phase == ENDED:
            return False
        if self.phase == LIVE:
            self.channel.leave(self)
        self.phase = ENDED
        self._initial = self._fill = None
        self.channel.watchers.pop(self, None)
        self.channel.waiting.pop(self, None)
        self.on_end()
        return True


def _nothing() -> None:
    return None
