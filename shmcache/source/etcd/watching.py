"""WatchStream: an open watch at one member: its answers, its requests for progress, its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc

from shmcache._hot import EtcdAnswers
from shmcache.errors import SourceError
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.etcd import messages
from shmcache.source.etcd.answers import WatchAnswer
from shmcache.source.etcd.connection import EtcdConnection, Metadata
from shmcache.source.etcd.failures import expired, failed
from shmcache.source.etcd.http2 import CallFailed, Http2Call, garbled
from shmcache.source.etcd.members import Member
from shmcache.source.line import Line

REQUIRE_LEADER = (("hasleader", "true"),)
PROGRESS = messages.WatchRequest(
    progress_request=messages.WatchProgressRequest()
).SerializeToString()


class WatchStream:
    """Used by one thread, apart from cancel() and interrupt()."""

    def __init__(
        self, connection: EtcdConnection, what: str, prefixes: list[tuple[bytes, str | None]]
    ) -> None:
        """Nothing is sent before open()."""
        self._connection = connection
        self._what = what
        self._reader = EtcdAnswers(prefixes)
        self._line = Line()
        self._token: Metadata = ()
        self._member: Member | None = None
        self._call: Http2Call | None = None

    @property
    def member(self) -> Member:
        """The member that has the watch."""
        assert self._member is not None, "the watch is not open"
        return self._member

    def open(self, create: Any) -> None:
        """Asks a member for the watch. SourceFailed."""
        self._member = self._connection.member()
        try:
            self._token = self._connection.token(self._member)
            self._call = Http2Call(
                self._connection.access, self._member.endpoint, messages.WATCH.path,
                (*REQUIRE_LEADER, *self._token), self._line,
            )  # fmt: skip
            self._call.send(create.SerializeToString())
        except grpc.RpcError as error:  # of the token, or CallFailed
            raise self._broken(error) from error
        except SourceError as error:
            raise SourceFailed(SourceFailure(FailureKind.NETWORK, f"etcd: {error}")) from error

    def answers(
        self, *, progress: float, silence: float
    ) -> Iterator[list[tuple[WatchAnswer, int]]]:
        """The answers of each read, with their bytes; the end is always a SourceFailed.

        Progress is requested every `progress` seconds; `silence`: so long without an answer.
        """
        assert self._call is not None, "the watch is not open"
        progress = min(progress, silence / 4)
        heard = time.monotonic()
        due = heard + progress
        while True:
            now = time.monotonic()
            if now - heard > silence:
                self._connection.leave(self.member)
                raise SourceFailed(SourceFailure(FailureKind.SILENT, f"{self._what}: no answer"))
            found: list[tuple[WatchAnswer, int]] = []
            ended: CallFailed | None = None
            try:
                if now >= due:
                    due = now + progress
                    self._call.send(PROGRESS)
                came = self._call.receive(min(due, heard + silence) - now)
                found.extend((self._read(message), len(message)) for message in came)
            except CallFailed as error:
                ended = error
            if found:
                heard = time.monotonic()
                yield found
            if ended is not None:
                raise self._broken(ended) from ended

    def _read(self, message: bytes) -> WatchAnswer:
        try:
            answer = WatchAnswer._make(self._reader.read(message))
        except ValueError as error:
            raise garbled(str(error)) from error
        if answer.canceled:
            raise self._cancelled(answer)
        return answer

    def _cancelled(self, answer: WatchAnswer) -> SourceFailed:
        """The member ends the watch, and says why."""
        if answer.compact_revision:
            return expired(
                f"{self._what}: required revision has been compacted; revisions before "
                f"{answer.compact_revision} are gone"
            )
        failure = failed(answer.cancel_reason or "the watch was cancelled", self._what)
        if failure.failure.kind is FailureKind.ENDED:  # it lost its leader
            self._connection.leave(self.member)
        if failure.failure.code == 401:
            self._connection.forget(self._token)
        return failure

    def _broken(self, error: grpc.RpcError) -> SourceFailed:
        failure = self._connection.broken(error, self._what, self.member, self._token)
        if failure.failure.kind in {FailureKind.CANCELLED, FailureKind.ENDED}:
            self._connection.leave(self.member)
            message = str(failure)
            return SourceFailed(SourceFailure(FailureKind.ENDED, message))
        return failure

    def cancel(self) -> None:
        """Ends it for ever, from any thread."""
        self._line.cut()

    def interrupt(self) -> None:
        """Breaks its connection, from any thread."""
        self._line.interrupt()

    def close(self) -> None:
        """Ends it. Idempotent."""
        if self._call is not None:
            self._call.close()
