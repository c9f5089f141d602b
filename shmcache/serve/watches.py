"""All watches of a server process: one descriptor wakes for all, and each resource is read once.

    bell ▸ channels ▸ slices, other clients have their turn between two ▸ watches

A channel lives as long as somebody watches its resource: an unused server follows nothing.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from shmcache.protocol import failures, watching
from shmcache.serve.watch_channel import Channel
from shmcache.serve.watch_stream import Watcher

if TYPE_CHECKING:
    from shmcache.protocol.options import ListOptions
    from shmcache.serve.catalogue import Served
    from shmcache.serve.loop import Timer
    from shmcache.serve.server import Server
    from shmcache.serve.watch_forms import Form, Wrap
    from shmcache.serve.watch_selection import Selection
    from shmcache.serve.watch_stream import Out

JITTER = 0.1
"""Bookmarks come so much earlier, at most: not those of all watches at once."""
LOOK_SECONDS = 1.0
"""How often it is asked whether what is watched is fresh enough to be shown."""


class Watches:
    """Opens watches, keeps their time, ends them. Used in the loop's thread alone."""

    def __init__(self, server: Server, *, bookmark_seconds: float) -> None:
        self.count = 0
        self.opened = 0
        self._server = server
        self._bookmark_seconds = bookmark_seconds
        self._channels: dict[str, tuple[Served, Channel]] = {}
        self._turns: set[str] = set()
        self._looking: Timer | None = None
        """The one look that is due, as long as anything is watched."""
        self._luck = random.Random()
        server.on_drain[self.end] = None

    def open(self, served: Served, selection: Selection, form: Form, asked: ListOptions) -> Opening:
        """What is to become a watch: begin() it when its head was written, or drop() it."""
        return Opening(self, served, selection, form, asked)

    def channel(self, served: Served) -> Channel:
        """The channel of a resource, which stands where the cache stands when it is new.

        A Failure (429) where the cache does not hold what is `served`, O1 of catalogue.py.
        """
        server = self._server
        server.catalogue.root(served)
        found = self._channels.get(served.name)
        if found is not None and found[0].declaration == served.declaration:
            return found[1]
        if found is not None:
            found[1].expire()  # it has not seen yet what became of it
            self.rest(found[1])
        own = len(served.scope.namespaces) > 1
        channel = Channel(server.cache, served.name, served.kind, own=own)
        if channel.declaration != served.declaration:
            raise failures.not_listed()
        if not self._channels:
            server.bell.add(self._rung)
            self._look_later()
        self._channels[served.name] = served, channel
        return channel

    def joined(self) -> None:
        """A watch more."""
        self.count += 1
        self.opened += 1

    def left(self, channel: Channel) -> None:
        """A watch less."""
        self.count -= 1
        self.rest(channel)

    def rest(self, channel: Channel) -> None:
        """Gives a channel up that nobody needs."""
        if channel.watchers or self._channels.get(channel.resource, (None, None))[1] is not channel:
            return
        del self._channels[channel.resource]
        if not self._channels:
            self._server.bell.remove(self._rung)
            self._look_no_more()

    def catch_up(self) -> None:
        """Tells everything that was published, now."""
        for name, (_, channel) in list(self._channels.items()):
            while channel.drain():
                pass
            channel.call_waiting()
            self._turns.discard(name)

    def send_bookmarks(self) -> None:
        """Bookmarks for all who asked for them, before they are due."""
        self.catch_up()
        for _, channel in list(self._channels.values()):
            for watcher in list(channel.watchers):
                if watcher.bookmarks:
                    watcher.mark()

    def end(self) -> None:
        """Ends all watches cleanly: their clients come again, elsewhere."""
        for _, channel in list(self._channels.values()):
            for watcher in list(channel.watchers):
                watcher.finish()

    # ---- what was published ----------------------------------------------------------------------

    def _rung(self) -> None:
        for name in list(self._channels):
            if name not in self._turns:
                self._turn(name)

    def _turn(self, name: str) -> None:
        """A slice of one resource; the next one when others had their turn."""
        self._turns.discard(name)
        found = self._channels.get(name)
        if found is None:
            return
        channel = found[1]
        try:
            more = channel.drain()
        except KeyError:  # the next instance has no such resource: its watches have ended
            self.rest(channel)
            return
        channel.call_waiting()
        if more:
            self._turns.add(name)
            self._server.loop.call_soon(partial(self._turn, name))

    # ---- freshness -------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._look_no_more()
        self._looking = self._server.loop.call_later(LOOK_SECONDS, self._look)

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _look(self) -> None:
        """A cache that is too old to be shown is not watched either."""
        self._look_later()
        for served, channel in list(self._channels.values()):
            try:
                self._server.standing.headers(served)
            except failures.Failure as failure:
                for watcher in list(channel.watchers):
                    watcher.fail(failure)

    # ---- time ------------------------------------------------------------------------------------

    def lifetime(self, asked: ListOptions) -> float:
        """How long a watch lasts."""
        return watching.lifetime(asked, self._luck)

    def next_bookmark(self, now: float, end: float) -> float:
        """When the next one is due."""
        every = self._bookmark_seconds * (1 - JITTER * self._luck.random())
        return watching.next_bookmark(now, end, every)


class Opening:
    """A watch between its request and its first bytes, and then its clock."""

    __slots__ = ("_asked", "_bookmark", "_end", "_timer", "_watches", "channel", "watcher")

    def __init__(
        self,
        watches: Watches,
        served: Served,
        selection: Selection,
        form: Form,
        asked: ListOptions,
    ) -> None:
        self._watches = watches
        self._asked = asked
        self._timer: Timer | None = None
        self.channel = watches.channel(served)
        self.watcher = Watcher(self.channel, selection, form)

    def begin(self, out: Out, wrap: Wrap, refused: failures.Failure | None) -> Watcher:
        """Goes on; what is refused now is told in the stream (R-AS-04)."""
        watches, server = self._watches, self._watches._server  # noqa: SLF001
        asked, now = self._asked, server.loop.now
        self._end = now + watches.lifetime(asked)
        self._bookmark = watches.next_bookmark(now, self._end) if asked.allow_bookmarks else None
        watcher = self.watcher
        watcher.open(out, wrap, server.limits.backlog_bytes, server.loop.call_soon)
        watcher.bookmarks = asked.allow_bookmarks
        watcher.on_end = self._ended
        watches.joined()
        try:
            if refused is not None:
                raise refused
            watcher.begin(watching.beginning(asked))
        except failures.Failure as failure:
            watcher.fail(failure)
        else:
            self._tick_later()
        return watcher

    def drop(self) -> None:
        """There is nobody any more to begin it for."""
        self._watches.rest(self.channel)

    def _ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watches.left(self.channel)

    def _tick_later(self) -> None:
        if self.watcher.ended:
            return
        loop = self._watches._server.loop  # noqa: SLF001
        due = self._end if self._bookmark is None else min(self._bookmark, self._end)
        self._timer = loop.call_later(max(due - loop.now, 0), self._tick)

    def _tick(self) -> None:
        watches = self._watches
        now = watches._server.loop.now  # noqa: SLF001
        if now >= self._end:
            self.watcher.finish()
            return
        if self._bookmark is not None and now >= self._bookmark:
            self._bookmark = watches.next_bookmark(now, self._end)
            self.watcher.mark()
        self._tick_later()
