"""One watch: from what is there, or from a version, to what happens; at the pace of its client.

INITIAL   objects of one state, page by page, as long as the client takes them
LAGGING   on its way along the ring, slice by slice
LIVE      where everybody stands: told by the channel, the same bytes as others
ENDED

L1  it is told nothing while more than `limit` bytes wait for its client: it lags then, and
    costs its place in the ring and no memory. One whose place is overwritten ends cleanly, as
    the real server ends slow watches (R-AS-10): its client resumes at the version it has.
L2  between INITIAL and LAGGING, LAGGING and LIVE nothing is skipped or told twice: the place in
    the ring is that of the state that was shown, and it is live where its place is the channel's.
L3  bookmarks are sent by live watches alone: all is told then that the version covers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from shmcache import listing
from shmcache.errors import Lapped, StaleObjectError
from shmcache.protocol import failures, watching
from shmcache.serve import watch_forms

if TYPE_CHECKING:
    from shmcache._hot import Root, View
    from shmcache.serve.watch_channel import Channel
    from shmcache.serve.watch_forms import Form, Wrap
    from shmcache.serve.watch_selection import Selection

CallSoon = Callable[[Callable[[], object]], object]

PAGE = 64
"""Initial events made at a time."""

INITIAL, LAGGING, LIVE, ENDED = range(4)


class Out(Protocol):
    """Where a watch's bytes go: a connection."""

    @property
    def backlog(self) -> int:
        """Bytes that wait for the client."""

    def send(self, data: bytes, /) -> None:
        """Writes bytes as they are; may find that the client has gone."""

    def finish(self) -> None:
        """The answer is whole; what waits is sent."""


class Watcher:
    """A watch that was accepted."""

    __slots__ = (
        "_after_key",
        "_end_mark",
        "_initial",
        "_mark",
        "_next",
        "after",
        "bookmarks",
        "channel",
        "form",
        "limit",
        "on_end",
        "out",
        "phase",
        "position",
        "selection",
        "sent",
        "shown",
        "wrap",
    )  # fmt: skip

    def __init__(self, channel: Channel, selection: Selection, form: Form) -> None:
        self.channel = channel
        self.selection = selection
        self.form = form
        self.phase = LAGGING
        self.position = 0
        self.after = -1
        """Only what is of a later version is shown."""
        self.bookmarks = False
        """Whether they were asked for."""
        self.shown = False
        """Something was: a table's columns come with the first event alone."""
        self.sent = 0
        """Bytes."""
        self.on_end: Callable[[], object] = _nothing
        self._initial: Root | None = None
        self._after_key: str | None = None
        self._end_mark = False
        self._mark = "0"

    @property
    def live(self) -> bool:
        """Whether it stands where the channel stands."""
        return self.phase == LIVE

    @property
    def ended(self) -> bool:
        """Whether nothing more will be told."""
        return self.phase == ENDED

    # ---- beginnings ------------------------------------------------------------------------------

    def open(self, out: Out, wrap: Wrap, limit: int, call_soon: CallSoon) -> None:
        """Where its bytes go, as what, how many may wait; and how to go on in a later turn."""
        self.out = out
        self.wrap = wrap
        self.limit = limit
        self._next = call_soon
        self.channel.watchers[self] = None

    def begin(self, beginning: watching.Beginning) -> None:
        """Goes on from there. A Failure (410) where that is too old; nothing was sent then."""
        channel = self.channel
        while channel.drain():
            pass
        if self.ended:
            return  # the resource is another one now
        self.position = channel.position
        if beginning.initial:
            self.phase = INITIAL
            self._initial, self._mark = channel.root, channel.mark(self.selection)
            self._end_mark = beginning.end_mark
        elif beginning.after is not None:
            self.after = beginning.after
            self.position = channel.locate(self.selection, beginning.after)
        self.pump()

    # ---- at the client's pace --------------------------------------------------------------------

    def pump(self) -> None:
        """Goes on as far as it can now: called when the client has taken what there was."""
        if self.phase in {LIVE, ENDED} or self.out.backlog:
            return
        try:
            if self.phase == INITIAL:
                self._page()
            else:
                self._catch_up()
        except (Lapped, StaleObjectError):
            self._overtaken()

    def _again(self) -> None:
        """Goes on in the next turn: others have theirs."""
        if not self.out.backlog:
            self._next(self.pump)

    def _page(self) -> None:
        """The next initial events; then the mark behind the last one."""
        root = self._initial
        assert root is not None
        found = self._objects(root)
        wanted, all_of_it = self.selection, not self.selection.fields.sifts
        shown = [obj for _, obj in found if all_of_it or wanted.matches(obj)]
        lines = [self._first(watching.ADDED, obj) for obj in shown]
        done = len(found) < PAGE
        if found:
            self._after_key = found[-1][0]
        if done and self._end_mark:
            lines.append(self.form.mark(self._mark, end=True, first=not self.shown))
            self.shown = True
        if done:
            self._initial = None
            self.phase = LAGGING
        self._send(lines)
        self._again()

    def _objects(self, root: Root) -> list[tuple[str, View]]:
        """The next page of what is selected, in the order of the keys."""
        selection, number = self.selection, self.channel.number
        if selection.name:  # one look-up for each namespace that it can be in
            key = f"{selection.namespace}/{selection.name}" if selection.namespace else None
            if key is not None or not self.form.kind.namespaced:
                found = root.get(number, key or selection.name)
                return [(key or selection.name, found)] if selection.matches(found) else []
        wanted = listing.selection(
            selection.namespace or None, selection.labels or None, selection.fields or None, None
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
        lines = []
        for change, event in channel.since(self):
            if self.shown:
                lines.append(channel.line(change, event, self.form))
            else:
                self.shown = True
                lines.append(change.line(event, self.form, first=True))
        self._send(lines)
        self._again()

    def _may_join(self) -> bool:
        """Whether it wants what the others want, in the same bytes."""
        if self.form.is_table and not self.shown:
            return False
        return self._is_reached() or self.channel.latest < 0

    def _is_reached(self) -> bool:
        return self.after <= self.channel.reached(self.selection)

    def deliver(self, data: bytes) -> None:
        """Told by the channel, which stands behind it now."""
        if self.phase != LIVE:
            return
        self.sent += len(data)
        self.out.send(data)
        if self.phase == LIVE and self.out.backlog > self.limit:
            self.channel.leave(self)
            self.phase = LAGGING
            self.position = self.channel.position

    def _send(self, lines: list[bytes]) -> None:
        if lines and self.phase != ENDED:
            data = self.wrap(lines)
            self.sent += len(data)
            self.out.send(data)

    # ---- marks and ends --------------------------------------------------------------------------

    def mark(self) -> None:
        """A bookmark, if everything is told that it would cover (L3)."""
        waits = self.position == self.channel.position and self.phase == LAGGING
        if self.out.backlog or not (self.live or (waits and self._is_reached())):
            return
        if self.channel.latest >= 0:
            line = self.form.mark(self.channel.mark(self.selection), first=not self.shown)
            self.shown = True
            self._send([line])
            self.pump()

    def fail(self, failure: failures.Failure) -> None:
        """An ERROR, and nothing after it."""
        self._send([watch_forms.error(failure.status)])
        self.finish()

    def expire(self, oldest: int) -> None:
        """What follows cannot be told: 410, or a clean end where the client is behind anyhow."""
        if self.phase == LAGGING:
            self.finish()
        else:
            self.fail(failures.too_old(max(self.channel.reached(self.selection), 0), oldest))

    def _overtaken(self) -> None:
        """The writer has used its place again (L1); half of what is there is worth nothing."""
        if self.phase == INITIAL:
            self.fail(failures.expired(failures.WATCH_TOO_OLD))
        else:
            self.finish()

    def finish(self) -> None:
        """A clean end."""
        if self.gone():
            self.out.finish()

    def gone(self) -> bool:
        """There is no client any more; whether that is new."""
        if self.phase == ENDED:
            return False
        if self.phase == LIVE:
            self.channel.leave(self)
        self.phase = ENDED
        self._initial = None
        self.channel.watchers.pop(self, None)
        self.channel.waiting.pop(self, None)
        self.on_end()
        return True


def _nothing() -> None:
    return None
