"""Passes: the whole content of a resource, by a watch-list or by pages of lists.

The steps of two rows of the table of machine.py, LISTING and STREAMING. A pass that is complete
hands over to the watch, one that fails begins again after a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from shmcache.reflector.events import (
    Closed,
    Failed,
    Hangup,
    Listed,
    Received,
    Stage,
)
from shmcache.reflector.filtering import Sieve, Sifted, is_older, is_table
from shmcache.reflector.paging import INVALID, Pager
from shmcache.reflector.underway import Phase, Underway
from shmcache.source.base import FailureKind, SourceFailure

REFUSES_STREAMING = frozenset({400, 405, 406, 415, 422, 501})
"""HTTP codes that say: no watch-list here, and there will be none (R-AS-05)."""


class Passes:
    """The passes of one resource."""

    def __init__(
        self,
        way: Underway,
        sieve: Sieve,
        watch: Callable[[], None],
        received: Callable[[Received], None],
    ) -> None:
        """`watch` opens one; `received` goes on with a watch-list that is complete."""
        settings = way.settings
        self._way = way
        self._sieve = sieve
        self._watch = watch
        self._received = received
        self._pager = Pager(settings.page_size, page_always=settings.page_always)
        self._streams = settings.use_watch_list  # until this resource proves otherwise
        self._skip_stream = False  # for the next pass
        self._early = 0  # watch-lists in a row that ended early
        self._growing = True  # a watch-list still at its initial objects
        self._grown = 0.0

    def rewind(self) -> None:
        """CONTACT4: a pass, at whatever version the server is."""
        self._pager.refused = True
        self.begin()

    # ---- a pass: the whole content, by a watch-list or by pages ----------------------------------

    def begin(self) -> None:
        """A pass, by a watch-list if this resource has them."""
        if self._streams and not self._skip_stream:
            self._stream()
        else:
            self._list()

    def _stream(self) -> None:
        """R-RF-13: the objects as a watch, into the staging area; it goes on as the watch."""
        way = self._way
        way.counts.streams += 1
        way.restage()
        version = "" if self._pager.refused else way.version
        way.open_watch(Phase.STREAMING, version, send_initial_events=True, match="NotOlderThan")
        self._growing, self._grown = True, way.now

    def _list(self) -> None:
        way = self._way
        self._skip_stream = False
        way.counts.lists += 1
        way.restage()
        way.list(self._pager.begin(way.version))

    def listed(self, event: Listed) -> None:
        """A page has come."""
        way = self._way
        way.refused = False
        way.patience.renew()
        meta = event.meta
        if is_table(meta.kind, meta.api_version):
            text = (
                "the list is a Table: something between us and the server asks for the wrong form"
            )
            self._fail_pass(SourceFailure(FailureKind.GARBAGE, text))
            return
        try:
            more = self._pager.listed(meta)
        except ValueError as error:
            self._fail_pass(SourceFailure(FailureKind.GARBAGE, str(error)))
            return
        if more:
            way.list(more)
            return
        self._replaced(self._pager.version)
        self._watch()

    def list_failed(self, event: Failed) -> None:
        """A page has not come."""
        way = self._way
        failure = event.failure
        if way.cancelled(failure):
            return
        way.note(failure)
        instead = self._pager.instead(failure)
        if instead:
            way.restage()
            way.list(instead)
        elif way.patience.may_repeat(failure):
            way.trouble(f"list: {failure.message}", failure)
            options = self._pager.options
            way.wait(lambda: way.list(options), failure)
        else:
            self._fail_pass(failure)

    def _fail_pass(self, failure: SourceFailure) -> None:
        """R-RF-01, 02: whatever it was, the next pass comes after the backoff."""
        way = self._way
        way.drop_staging()
        way.trouble(f"list: {failure.message}", failure)
        way.patience.renew()
        way.wait(self.begin, failure)

    def _replaced(self, version: str) -> None:
        """All of the new content is staged: it becomes visible, also at an earlier version."""
        way = self._way
        if is_older(version, way.version):
            way.counts.rewinds += 1
            way.log(
                logging.ERROR,
                f"the server went back from version {way.version} to {version}, as after a "
                "restored backup: its content of now replaces everything",
            )
        way.position.reset(version)
        self._early, way.patience.stretch = 0, 1
        way.replace(version)

    # ---- a watch-list until it is complete -------------------------------------------------------

    def streamed(self, event: Received) -> None:
        """Items of a watch-list, or none for a while."""
        way = self._way
        if not event.items:
            self._check_growth()
            return
        way.heard = True
        found = self._sieve.initial(event.items)
        way.tell(found)
        if found.changes:
            way.do(Stage(found.changes))
        self._grow(found)
        if found.failure:
            way.do(Hangup())
            self._stream_broke(found.failure)
        elif found.ended_initial is not None:
            way.moved = True
            self._pager.refused = False
            self._replaced(found.ended_initial.version or "")
            way.phase = Phase.WATCHING
            if found.rest:
                self._received(Received(found.rest))
        else:
            self._check_growth()

    def _grow(self, found: Sifted) -> None:
        """Initial objects are all ADDED; once anything else comes, their end is due."""
        if any(item.type != "ADDED" for item in found.changes) or found.bookmarks:
            self._growing = False
        elif found.changes and self._growing:
            self._grown = self._way.now

    def _check_growth(self) -> None:
        """The deadline of R-RF-16: it talks, but will never say that this was all."""
        way = self._way
        waited = way.now - self._grown
        lasted = way.now - way.began
        if waited <= way.settings.end_bookmark_wait and lasted <= way.lasting:
            return
        way.do(Hangup())
        if waited <= way.settings.end_bookmark_wait:
            self._ended_early("is still not complete", clean=True)
        else:
            self._list_instead(f"no end of its objects for {waited:.0f} s", for_good=True)

    def stream_closed(self, _: Closed) -> None:
        """By the server, before it was complete."""
        self._ended_early("was closed", clean=True)

    def stream_failed(self, event: Failed) -> None:
        """At its request, or later."""
        if not self._way.cancelled(event.failure):
            self._stream_broke(event.failure)

    def _stream_broke(self, failure: SourceFailure) -> None:
        way = self._way
        way.note(failure)
        status, code = failure.status, failure.code
        elsewhere = failure.at_once or failure.kind is FailureKind.ELSEWHERE
        if failure.kind is FailureKind.REFUSED or code == 429 or elsewhere:
            self._retry_stream(failure)
        elif status and (status.is_expired or status.is_too_large):
            self._stream_refused(failure)
        elif failure.kind is FailureKind.SILENT:
            self._list_instead(failure.message, for_good=way.open)
        elif failure.kind in {FailureKind.NETWORK, FailureKind.ENDED, FailureKind.GARBAGE}:
            self._ended_early(f"broke: {failure.message}", clean=False, failure=failure)
        else:
            refuses = not way.open and code in REFUSES_STREAMING
            asked = "" if self._pager.refused else way.version
            unclear = code in INVALID and asked not in {"", "0"}  # it may refuse the version
            self._list_instead(failure.message, for_good=refuses and not unclear)

    def _stream_refused(self, failure: SourceFailure) -> None:
        """The server does not have our version: any will do; once at once, then with backoff."""
        at_once = not self._pager.refused and self._way.version != ""
        self._pager.refused = True
        if at_once:
            self._stream()
        else:
            self._retry_stream(failure)

    def _retry_stream(self, failure: SourceFailure | None, why: str = "") -> None:
        way = self._way
        way.drop_staging()
        text = why or (failure.message if failure else "")
        way.trouble(f"watch-list: {text}", failure)
        way.wait(self.begin, failure)

    def _ended_early(self, how: str, *, clean: bool, failure: SourceFailure | None = None) -> None:
        """Not complete. Always after the backoff (R-RF-14 of upstream may loop); not for ever."""
        way = self._way
        slow = way.now - self._grown <= way.settings.end_bookmark_wait
        if clean and slow and way.now - way.began >= way.lasting - 2 and way.patience.stretch < 4:
            way.patience.stretch *= 2  # it was growing all the time: it needs longer (R-RF-15)
        else:
            self._early += 1
        if self._early >= way.settings.early_ends:
            self._early = 0
            self._skip_stream = True
            if clean:
                self._stop_streaming(f"it {how} {way.settings.early_ends} times in a row")
        self._retry_stream(failure, f"it {how} before it was complete")

    def _list_instead(self, why: str, *, for_good: bool) -> None:
        """In the same pass. Remembered if it is in this server's, or proxy's, nature."""
        if for_good:
            self._stop_streaming(why)
        self._list()

    def _stop_streaming(self, why: str) -> None:
        self._streams = False
        self._way.log(logging.WARNING, f"lists instead of watch-lists from now on: {why}")
