"""EtcdSource: several prefixes of one etcd cluster, listed at one revision and watched as one.

Lists are ranges of bounded size, all at the revision of the first. The watch is one watch over the
smallest range that holds all prefixes: etcd sends the events of one watch in order, and those of a
transaction together, so that a revision is whole when its last event has come. Several watches,
even on one stream, have no such order among each other.

    ETCDSRC1  items of one revision are in one list of items; no list ends inside a revision.
    ETCDSRC2  the versions that a watch reports rise; a bookmark never passes an event that is still
              to come (PROGRESS).
    ETCDSRC3  a history that is not the one we listed is expired, never continued: another cluster
              id, a revision or a raft term that went back (a snapshot was restored). A snapshot
              that was restored under the same names, and then written to beyond our version, shows
              by the last change that we know: at our version its key is not what we saw.
    PROGRESS  a member answers a progress request, since 3.4.25, 3.5.8 and 3.6, behind the events of
              its watch. Older ones may overtake them (etcd issue 15220): there the answer counts as
              contact and does not move the version. Notifications that etcd sends of its own accord
              are in order in every version.
"""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from shmcache.protocol.items import Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.protocol.status import ServerStatus
from shmcache.protocol.versions import is_version
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.etcd import messages
from shmcache.source.etcd.answers import RangeAnswer, WatchAnswer
from shmcache.source.etcd.connection import PATIENCE, SMALL_PATIENCE, EtcdConnection
from shmcache.source.etcd.failures import expired
from shmcache.source.etcd.fragments import Fragments
from shmcache.source.etcd.history import ClusterHistory
from shmcache.source.etcd.keys import EtcdResource, covering
from shmcache.source.etcd.objects import Objects
from shmcache.source.etcd.watching import WatchStream
from shmcache.source.failures import cancelled, garbage

logger = logging.getLogger(__name__)

LIST_SILENCE = 70.0
PROBE_SILENCE = 10.0
PROGRESS_SECONDS = 15.0
"""A progress request is sent so often: it is contact where nothing changes."""
PAGE_BYTES = 4 << 20
"""A page is made for about so many bytes of values."""
PAGE_KEYS = 2000


class EtcdPage:
    """A base.ListStream of one range. `meta` is known before its items."""

    def __init__(self, items: list[Item], meta: ListMeta) -> None:
        self._items = items
        self.meta = meta

    def __iter__(self) -> Iterator[list[Item]]:
        yield self._items


class EtcdSource:
    """A base.Source whose items name their resource as their `kind`."""

    def __init__(
        self,
        connection: EtcdConnection,
        resources: Sequence[EtcdResource],
        *,
        matches: Callable[[str, bytes], bool] | None = None,
        list_silence: float = LIST_SILENCE,
        progress: float = PROGRESS_SECONDS,
        history: ClusterHistory | None = None,
    ) -> None:
        """`matches` takes a resource and an object's text: whether to keep the object."""
        self._connection = connection
        self._resources = list(resources)
        self._objects = Objects(self._resources, matches)
        self._list_silence = list_silence
        self._progress = progress
        self._limit = PAGE_KEYS
        self._cancelled = False
        self._calls: set[Any] = set()
        self._watching: WatchStream | None = None
        self._lock = threading.Lock()
        self.history = history or ClusterHistory()
        self.last: tuple[bytes, int] | None = None
        """The last change that we know: its key, and the mod_revision, 0 of a deleted key."""
        self.behind = False
        self._early: list[tuple[WatchAnswer, int]] = []
        self.speaks_for_all = True

    @property
    def what(self) -> str:
        """The resources, for messages."""
        return "etcd " + ",".join(resource.name for resource in self._resources)

    # ---- lists -------------------------------------------------------------------------------

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[EtcdPage]:
        """A range of one prefix; continue tokens lead through all of them at one revision."""
        number, revision, start = _read_token(options.continue_token)
        if not options.continue_token and options.resource_version_match == "Exact":
            revision = int(options.resource_version)
        pattern = self._resources[number].pattern
        answer = self._range(number, start or pattern.prefix, revision, options.limit)
        first = not options.continue_token
        if first:
            self.history.listed(answer.header)
            self.last = None
        else:
            self.history.check(answer.header, self.what)
        revision = revision or answer.header.revision
        if answer.newest_revision > (self.last[1] if self.last else 0):
            self.last = answer.newest_key, answer.newest_revision
        if answer.more:
            token = _token(number, revision, answer.last_key + b"\0")
        elif number + 1 < len(self._resources):
            token = _token(number + 1, revision, b"")
        else:
            token = ""
        meta = ListMeta(str(revision), token, None, None, None)
        yield EtcdPage(self._objects.listed(number, answer.events), meta)

    def _range(self, number: int, key: bytes, revision: int, limit: int) -> RangeAnswer:
        """One answer; a shorter one if this one would be larger than a message may be."""
        method, end = self._objects.range_of(number), self._resources[number].pattern.end
        while True:
            wanted = min(self._limit, limit) if limit else self._limit
            request = messages.RangeRequest(key=key, range_end=end, revision=revision, limit=wanted)
            try:
                answer: RangeAnswer = self._call(method, request, self._list_silence)
            except SourceFailed as error:
                if "larger than max" not in str(error):
                    raise
                if wanted == 1:
                    raise garbage(self.what, f"the value after {key!r} is too large") from error
                self._limit = max(1, wanted // 8)
                continue
            if answer.more and not key <= answer.last_key < end:
                raise garbage(self.what, f"a page after {key!r} has no keys, and more are to come")
            self._adapt(answer, wanted)
            return answer

    def _adapt(self, answer: RangeAnswer, wanted: int) -> None:
        """Pages of about PAGE_BYTES; growing slowly, as the next values may be larger."""
        if answer.entries == wanted:
            fitting = PAGE_BYTES * wanted // max(answer.size, 1)
            self._limit = max(1, min(PAGE_KEYS, fitting, 2 * wanted))

    def probe(self, options: ListOptions) -> str:
        """The revision of the cluster, by a consistent read of no value."""
        del options
        return str(self._consistent(PROBE_SILENCE).revision)

    def _consistent(self, timeout: float) -> Any:
        """The header of a linearizable read: no member can answer it without the leader."""
        prefix = self._resources[0].pattern.prefix
        request = messages.RangeRequest(key=prefix, limit=1, keys_only=True)
        timeout = min(timeout, self._list_silence)
        return self._call(messages.RANGE, request, timeout, SMALL_PATIENCE).header

    def _call(
        self, method: messages.Method, request: Any, timeout: float, patience: float = PATIENCE
    ) -> Any:
        calls: list[Any] = []

        def pending(call: Any) -> None:
            with self._lock:
                calls.append(call)
                self._calls.add(call)
                cancel = self._cancelled
            if cancel:
                call.cancel()

        try:
            return self._connection.call(
                method, request, self.what, timeout=timeout, patience=patience, pending=pending
            )
        finally:
            with self._lock:
                self._calls.difference_update(calls)

    # ---- the watch -----------------------------------------------------------------------------

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """One watch over all prefixes; entered when a member has accepted it.

        A list comes first: without a version it is refused, as a watch-list is.
        """
        if options.send_initial_events or not is_version(options.resource_version):
            status = ServerStatus(code=422, reason="Invalid", message="etcd has no watch-lists")
            raise SourceFailed(SourceFailure(FailureKind.HTTP, status.message, status))
        self.behind = False
        version = int(options.resource_version)
        stream = WatchStream(self._connection, self.what, self._objects.prefixes())
        with self._lock:
            self._calls.add(stream)
            self._watching = stream
            cancel = self._cancelled
        if cancel:
            stream.cancel()
        try:
            answers = self._answers(stream, version, silence)
            self._created(answers, stream, version)
            yield self._events(
                answers, version, progress_moves=progress_is_ordered(stream.member.version)
            )
        finally:
            stream.close()
            with self._lock:
                self._calls.discard(stream)
                self._watching = None

    def _answers(
        self, stream: WatchStream, version: int, silence: float
    ) -> Iterator[list[tuple[WatchAnswer, int]]]:
        """The member's answers until the watch ends, which is always a SourceFailed."""
        try:
            stream.open(self._create(version))
            yield from stream.answers(progress=self._progress, silence=silence)
        except SourceFailed as error:
            if self._cancelled:
                raise cancelled(self.what) from error
            raise

    def _create(self, version: int) -> Any:
        key, end = covering([resource.pattern for resource in self._resources])
        return messages.WatchRequest(
            create_request=messages.WatchCreateRequest(
                key=key,
                range_end=end,
                start_revision=version + 1,
                progress_notify=True,
                fragment=True,
            )
        )

    def _created(
        self,
        answers: Iterator[list[tuple[WatchAnswer, int]]],
        stream: WatchStream,
        version: int,
    ) -> None:
        """The member's acceptance. A watch from the future would be silent for ever (ETCDSRC3).

        It is an answer of its own: events come only behind it, in a later revision of the watch.
        """
        answer = self._first(answers)
        if not self._connection.is_ours(stream.member, answer):
            why = f"{self.what}: {stream.member.endpoint} belongs to another cluster now"
            raise SourceFailed(SourceFailure(FailureKind.ENDED, why))
        self.history.check_member(answer, self.what)
        header = self._consistent(PROBE_SILENCE)
        self.history.check(header, self.what)
        if header.revision < version:
            raise expired(
                f"{self.what}: etcd is at revision {header.revision}, and was at {version}: a "
                "snapshot was restored"
            )

        self._refuse_another_past(version)

    def _refuse_another_past(self, version: int) -> None:
        """The last change that we know must be there at our version."""
        if self.last is None:
            return
        key, known = self.last
        request = messages.RangeRequest(key=key, revision=version, keys_only=True)
        answer = self._call(messages.RANGE, request, PROBE_SILENCE, SMALL_PATIENCE)
        found = answer.kvs[0].mod_revision if answer.kvs else 0
        if found != known:
            raise expired(
                f"{self.what}: at revision {version} etcd has {key!r} of revision {found}, and it "
                f"was {known}: a snapshot was restored"
            )

    def _first(self, answers: Iterator[list[tuple[WatchAnswer, int]]]) -> WatchAnswer:
        """The first answer; what one read brought with it is kept for _events()."""
        self._early = next(answers)
        return self._early.pop(0)[0]

    def _events(
        self,
        answers: Iterator[list[tuple[WatchAnswer, int]]],
        version: int,
        *,
        progress_moves: bool,
    ) -> Iterator[list[Item]]:
        """Whole revisions (ETCDSRC1), those of one read together; bookmarks for the rest."""
        fragments = Fragments(self.what)
        early, self._early = self._early, []
        for found in chain([early] if early else [], answers):
            items: list[Item] = []
            stored = version
            for answer, size in found:
                events, upto = fragments.whole(answer, size)
                if events:
                    items += self._objects.changed(events)
                if upto:
                    version = max(version, upto)
                    self._know(answer)
                elif not fragments and (progress_moves or answer.watch_id >= 0):
                    version = max(version, answer.revision)
                self.behind = answer.last_revision > 0 and answer.revision > version
            behind = not items or int(items[-1].version or 0) < version
            if behind and (version > stored or not fragments):
                items.append(_bookmark(version))
            yield items

    def _know(self, answer: WatchAnswer) -> None:
        """The last change; unknown where a revision has come in part."""
        if answer.fragment:
            self.last = None
        else:
            gone = answer.last_type == messages.DELETE
            self.last = answer.last_key, 0 if gone else answer.last_revision

    # ---- end -------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Makes the request under way fail as CANCELLED, and every later one. From any thread."""
        with self._lock:
            self._cancelled = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def interrupt(self) -> None:
        """Ends the open watch, as if its connection had broken. From any thread."""
        with self._lock:
            stream = self._watching
        if stream is not None:
            stream.interrupt()

    def close(self) -> None:
        """Nothing is kept between requests but the connection, which others use, too."""


def progress_is_ordered(version: str) -> bool:
    """Whether a member of this version sends progress behind the events (PROGRESS)."""
    try:
        found = tuple(int(part) for part in version.split("-", maxsplit=1)[0].split(".")[:3])
    except ValueError:
        return False
    return found >= (3, 5, 8) or (3, 4, 25) <= found < (3, 5)


def _bookmark(version: int) -> Item:
    return Item("BOOKMARK", "", str(version), None, None, None, b"{}")


def _token(number: int, revision: int, start: bytes) -> str:
    return f"{number}.{revision}.{base64.urlsafe_b64encode(start).decode()}"


def _read_token(token: str) -> tuple[int, int, bytes]:
    if not token:
        return 0, 0, b""
    number, revision, start = token.split(".")
    return int(number), int(revision), base64.urlsafe_b64decode(start)
