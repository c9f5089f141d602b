"""All watches of a server process: one descriptor wakes for all, and each resource is read once.

    bell ▸ channels ▸ slices, other clients have their turn between two ▸ watches

A channel lives as long as somebody watches its resource: an unused server follows nothing.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING

from shmcache.protocol import failures, watching
from shmcache.serve.read.consistency import ANYTHING
from shmcache.serve.watch.channel import Channel
from shmcache.serve.watch.encoding import UNSHOWN
from shmcache.serve.watch.watcher import Watcher

if TYPE_CHECKING:
    from shmcache.protocol.options import ListOptions
    from shmcache.serve.auth.permit import Permit
    from shmcache.serve.catalogue import Served
    from shmcache.serve.http.loop import Timer
    from shmcache.serve.read.consistency import Currency
    from shmcache.serve.server import Server
    from shmcache.serve.watch.encoding import WatchForm, Wrap
    from shmcache.serve.watch.selection import WatchSelection
    from shmcache.serve.watch.watcher import Out

logger = logging.getLogger(__name__)

JITTER = 0.1
"""The most that a bookmark is sent early, so that not all watches get theirs at once."""
LOOK_SECONDS = 1.0
"""How often the freshness of watched resources is checked."""


class WatchHub:
    """Opens watches, keeps their time, ends them. Used only in the loop's thread."""

    def __init__(self, server: Server, *, bookmark_seconds: float) -> None:
        self.count = 0
        self.opened = 0
        self._server = server
        self._bookmark_seconds = bookmark_seconds
        self._channels: dict[str, tuple[Served, Channel]] = {}
        self._turns: set[str] = set()
        self._looking: Timer | None = None
        """The next look, as long as anything is watched."""
        self._luck = random.Random()
        server.on_drain[self.end] = None

    def open(
        self,
        served: Served,
        selection: WatchSelection,
        form: WatchForm,
        asked: ListOptions,
        *,
        permit: Permit,
        current: Currency = ANYTHING,
    ) -> Opening:
        """Prepares a watch: begin() it after its head was written, or drop() it.

        `current`: the state that it begins with has to show this (SERVE5).
        """
        return Opening(self, served, selection, form, asked, permit=permit, current=current)

    def channel(self, served: Served) -> Channel:
        """The channel of a resource; a new one starts at the latest state of the cache.

        A Failure (429) where the cache does not hold the resource as `served`.
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
        channel = Channel(server.cache, served.name, served.kind, separate=own)
        if channel.declaration != served.declaration:
            raise failures.not_listed()
        if not self._channels:
            server.bell.add(self._rung)
            self._look_later()
        self._channels[served.name] = served, channel
        return channel

    def joined(self) -> None:
        """Adds a watch."""
        self.count += 1
        self.opened += 1

    def left(self, channel: Channel) -> None:
        """Removes a watch."""
        self.count -= 1
        self.rest(channel)

    def rest(self, channel: Channel) -> None:
        """Drops a channel that has no watches."""
        if channel.watchers or self._channels.get(channel.resource, (None, None))[1] is not channel:
            return
        del self._channels[channel.resource]
        if not self._channels:
            self._server.bell.remove(self._rung)
            self._look_no_more()

    def catch_up(self) -> None:
        """Delivers everything that was published, now."""
        for name, (_, channel) in list(self._channels.items()):
            while channel.drain():
                pass
            channel.call_waiting()
            self._turns.discard(name)

    def send_bookmarks(self) -> None:
        """Sends a bookmark to each watch that requested them, before it is due."""
        self.catch_up()
        for _, channel in list(self._channels.values()):
            for watcher in list(channel.watchers):
                if watcher.bookmarks:
                    watcher.bookmark()

    def end(self) -> None:
        """Ends all watches cleanly: their clients reconnect elsewhere."""
        for _, channel in list(self._channels.values()):
            for watcher in list(channel.watchers):
                watcher.finish()

    # ---- publications ----------------------------------------------------------------------------

    def _rung(self) -> None:
        for name in list(self._channels):
            if name not in self._turns:
                self._turn(name)

    def _turn(self, name: str) -> None:
        """Delivers a slice of one resource; the next one after the others had their turn."""
        self._turns.discard(name)
        found = self._channels.get(name)
        if found is None:
            return
        channel = found[1]
        try:
            more = channel.drain()
        except Exception as error:
            if not isinstance(error, KeyError):  # the next instance has no such resource
                logger.exception("serve: the watches of %s end", name)
            channel.expire()
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
        """Ends watches of a resource that is too stale to be shown."""
        self._look_later()
        for served, channel in list(self._channels.values()):
            channel.fills.tidy()
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
        """The time at which the next one is due."""
        every = self._bookmark_seconds * (1 - JITTER * self._luck.random())
        return watching.next_bookmark(now, end, every)


class Opening:
    """A watch between its request and its first bytes, and then its clock."""

    __slots__ = ("_asked", "_bookmark", "_current", "_end", "_permit", "_timer", "_watches",
                 "channel", "least", "watcher")  # fmt: skip

    def __init__(
        self,
        watches: WatchHub,
        served: Served,
        selection: WatchSelection,
        form: WatchForm,
        asked: ListOptions,
        *,
        permit: Permit,
        current: Currency,
    ) -> None:
        self._watches = watches
        self._current = current
        self._permit = permit
        self._asked = asked
        self._timer: Timer | None = None
        self.least = 0
        """The version that the client has reached (relays.py)."""
        self.channel = watches.channel(served)
        self.watcher = Watcher(self.channel, selection, form)

    def begin(self, out: Out, wrap: Wrap, refused: failures.Failure | None) -> Watcher:
        """Starts the watch; a refusal at this point is reported in the stream (R-AS-04)."""
        watches, server = self._watches, self._watches._server  # noqa: SLF001
        asked, now = self._asked, server.loop.now
        self._end = now + watches.lifetime(asked)
        self._bookmark = watches.next_bookmark(now, self._end) if asked.allow_bookmarks else None
        watcher = self.watcher
        watcher.open(out, wrap, server.loop.call_soon)
        watcher.bookmarks = asked.allow_bookmarks
        watcher.on_end = self._ended
        watches.joined()
        try:
            if refused is not None:
                raise refused
            watcher.begin(watching.beginning(asked), self._current, least=self.least)
        except failures.Failure as failure:
            watcher.fail(failure)
        except Exception:
            logger.exception("serve: a watch cannot begin")
            watcher.fail(failures.internal_error(UNSHOWN))
        else:
            self._tick_later()
            if not watcher.ended:
                self._permit.begin(watcher)
        return watcher

    def drop(self) -> None:
        """Drops the watch: its client has gone."""
        self._permit.leave()
        self._watches.rest(self.channel)

    def _ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._permit.leave()
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
            self.watcher.bookmark()
        self._tick_later()
