"""EtcdConnection: the members of one etcd cluster, as everything in a process shares them.

MEMBER1  a read that a member does not answer goes to the next member, until its time is over; a
write only if no member can have seen it (failures.was_not_sent).
MEMBER2  a member that failed is left, and another one chosen (MEMBER5); its channel is never used
again (MEMBER3).
MEMBER4  a token that etcd refuses is renewed once for the call that met it. etcd refuses all
tokens whenever its users change. After a call that was late there is a new one, too: a member whose
history is shorter than the token's, as of a restored snapshot, waits for it until the call's end.
MEMBER7  an answer of another cluster than ours, by a member that was replaced behind an open
channel, is not taken: a read is repeated elsewhere, and a write is unknown.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import grpc

from shmcache.errors import SourceError
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.failures import (
    failed,
    failure_of,
    is_late,
    is_passing,
    needs_token,
    was_not_sent,
)
from shmcache.source.etcd.members import Choice, Member, Pause
from shmcache.source.etcd.messages import Method

logger = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a member has for a read while there are others to ask; twice as long each time."""
SMALL_PATIENCE = 0.5
"""The same for a read that takes etcd no work. A leader just elected may drop it, up to 3.4."""
CHOICE_SECONDS = 5.0
"""So long a call waits for a member that knows a leader."""
PAUSES = (0.05, 0.4)
"""Seconds between two questions for it, the first and the longest."""
Metadata = tuple[tuple[str, str], ...]
_ENDED = (grpc.RpcError, grpc.FutureCancelledError, concurrent.futures.CancelledError)


class EtcdStream:
    """An open stream of answers. Used by one thread, apart from cancel()."""

    def __init__(
        self, connection: EtcdConnection, what: str, member: Member, token: Metadata, call: Any
    ) -> None:
        self._connection = connection
        self.member = member
        self._what = what
        self._token = token
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise self._connection.broken(error, self._what, self.member, self._token) from error

    def leave(self) -> None:
        """The next call goes to another member, if there is one."""
        self._connection.leave(self.member)

    def forget(self) -> None:
        """The next call has a new token."""
        self._connection.forget(self._token)

    def cancel(self) -> None:
        """Ends it, from any thread."""
        self._call.cancel()


class EtcdConnection:
    """The members of a cluster. Thread-safe; channels open when they are first used."""

    def __init__(self, access: EtcdAccess) -> None:
        self.access = access
        self.cluster = 0
        """The id of the cluster that is ours (MEMBER6); 0: no member has answered yet."""
        self.term = 0
        """The raft term of the last answer."""
        self._lock = threading.Lock()
        self._member: Member | None = None
        self._token: str | None = None
        self._closed = False

    # ---- members ---------------------------------------------------------------------------

    def expect(self, cluster: int) -> None:
        """This cluster is ours, if none has answered yet; 0: any."""
        with self._lock:
            self.cluster = self.cluster or cluster

    def member(self, timeout: float | None = None) -> Member:
        """The member that answered last, or the one that is chosen now. SourceFailed."""
        longest = CHOICE_SECONDS if timeout is None else timeout
        found: Member = _finished(self._member_steps(time.monotonic() + longest))
        return found

    def _current(self) -> Member | None:
        with self._lock:
            if self._closed:
                raise SourceFailed(SourceFailure(FailureKind.CANCELLED, "etcd: closed"))
            return self._member

    def _member_steps(self, deadline: float) -> Generator[Any, Any, Member]:
        """MEMBER5, as steps of calls."""
        deadline = min(deadline, time.monotonic() + CHOICE_SECONDS)
        pause, longest = PAUSES
        while True:
            member = self._current()
            if member is not None:
                return member
            try:
                members = [Member(self.access, each) for each in self.access.endpoints]
            except SourceError as error:
                raise SourceFailed(SourceFailure(FailureKind.NETWORK, f"etcd: {error}")) from error
            choice = Choice(members, self.cluster)
            chosen: Member | None = None
            try:
                chosen = yield choice
            except concurrent.futures.CancelledError as error:
                raise failed("cancelled", "etcd", grpc.StatusCode.CANCELLED) from error
            finally:
                choice.release(chosen)
            if chosen is not None:
                logger.debug("etcd: %s serves; not: %s", chosen.endpoint, choice.why)
                return self._use(chosen, choice.cluster)
            if not choice.answered or time.monotonic() + pause > deadline:
                raise SourceFailed(SourceFailure(FailureKind.REFUSED, f"etcd: {choice.why}"))
            try:
                yield Pause(pause)
            except concurrent.futures.CancelledError as error:
                raise failed("cancelled", "etcd", grpc.StatusCode.CANCELLED) from error
            pause = min(2 * pause, longest)

    def _use(self, chosen: Member, cluster: int) -> Member:
        """The member is everybody's, unless somebody else has chosen one meanwhile."""
        with self._lock:
            if self._member is None and not self._closed:
                self._member, self.cluster = chosen, cluster
                return chosen
            found, closed = self._member, self._closed
        chosen.channel.close()
        if closed or found is None:
            raise SourceFailed(SourceFailure(FailureKind.CANCELLED, "etcd: closed"))
        return found

    def leave(self, member: Member) -> None:
        """The next call chooses a member, unless somebody has left this one already.

        The channel is not closed: calls of other threads may still be answered on it. It ends with
        the last of them.
        """
        with self._lock:
            if self._member is member:
                self._member = None

    def close(self) -> None:
        """Ends the open channel. Later calls fail as CANCELLED."""
        with self._lock:
            member, self._member, self._closed = self._member, None, True
        if member is not None:
            member.channel.close()

    # ---- calls -----------------------------------------------------------------------------

    def call(
        self,
        method: Method,
        request: Any,
        what: str,
        *,
        timeout: float,
        writes: bool = False,
        patience: float = PATIENCE,
        pending: Callable[[Any], None] = lambda _: None,
    ) -> Any:
        """The answer of the first member that gives one (MEMBER1). SourceFailed.

        `pending` receives the call before its answer comes; another thread may cancel it.
        """
        steps = self._attempts(method, request, what, timeout, patience, writes=writes)
        return _finished(steps, pending)

    def status(self, timeout: float = 1.0) -> Any:
        """The status of the first endpoint, whether it knows a leader or not. SourceFailed."""
        member = Member(self.access, self.access.endpoints[0])
        try:
            return member.unary(messages.STATUS)(messages.StatusRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise failure_of(error, f"status at {member.endpoint}") from error
        finally:
            member.channel.close()

    async def call_async(
        self, method: Method, request: Any, what: str, *, timeout: float, writes: bool = False
    ) -> Any:
        """The same without blocking the event loop; a cancelled task cancels its call."""
        steps = self._attempts(method, request, what, timeout, PATIENCE, writes=writes)
        try:
            called = next(steps)
            while True:
                try:
                    answer = await _result_of(called)
                except _ENDED as error:
                    called = steps.throw(error)
                else:
                    called = steps.send(answer)
        except StopIteration as ended:
            return ended.value

    def _attempts(
        self, method: Method, request: Any, what: str, timeout: float, patience: float,
        *, writes: bool,
    ) -> Generator[Any, Any, Any]:  # fmt: skip
        """The calls of one request, each of which the caller waits for and answers (MEMBER1)."""
        deadline = time.monotonic() + timeout
        tries, renewed = len(self.access.endpoints), False
        alone = tries == 1 or writes
        while True:
            member = yield from self._member_steps(deadline)
            token: Metadata = ()
            try:
                token = yield from self._token_steps(member)
                left = max(deadline - time.monotonic(), 0.1)
                answer = yield member.unary(method).future(
                    request, timeout=left if alone else min(left, patience), metadata=token
                )
                header = getattr(answer, "header", None)
                if header is None or self.is_ours(member, header):
                    return answer
                tries -= 1
                if writes or tries <= 0:
                    raise failed("another cluster answered", what)
            except grpc.RpcError as error:
                if needs_token(error) and not renewed and self.access.user:
                    renewed = True
                    self.forget(token)
                    continue
                if is_passing(error):
                    logger.debug("%s: %s is left: %s", what, member.endpoint, error.details())
                    self.leave(member)
                    if is_late(error):
                        self.forget(token)
                    if is_late(error) and not alone:
                        patience *= 2
                    else:
                        tries -= 1
                    in_time = tries > 0 and time.monotonic() < deadline
                    if in_time and (not writes or was_not_sent(error)):
                        continue
                raise failure_of(error, f"{what} at {member.endpoint}") from error
            except (grpc.FutureCancelledError, concurrent.futures.CancelledError) as error:
                raise failed("cancelled", what, grpc.StatusCode.CANCELLED) from error

    def is_ours(self, member: Member, header: Any) -> bool:
        """MEMBER7; a member of another cluster is left."""
        if header.cluster_id == self.cluster or not self.cluster:
            self.term = header.raft_term
            return True
        self.leave(member)
        return False

    def stream(
        self,
        method: Method,
        requests: Iterator[Any],
        metadata: Metadata,
        timeout: float | None = None,
    ) -> EtcdStream:
        """Opens a stream at one member; `timeout` includes the choice of it. SourceFailed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        member = self.member(_left(deadline, CHOICE_SECONDS))
        try:
            token = self.token(member, _left(deadline, PATIENCE))
        except grpc.RpcError as error:
            raise self.broken(error, method.path, member, ()) from error
        left = None if deadline is None else _left(deadline, math.inf)
        call = member.stream(method)(requests, timeout=left, metadata=(*metadata, *token))
        return EtcdStream(self, method.path, member, token, call)

    def broken(
        self, error: grpc.RpcError, what: str, member: Member, token: Metadata
    ) -> SourceFailed:
        """The failure of a stream; a member or a token that made it is not used again."""
        if needs_token(error) or is_late(error):
            self.forget(token)
        if is_passing(error):
            logger.debug("%s: %s is left: %s", what, member.endpoint, error.details())
            self.leave(member)
        return failure_of(error, f"{what} at {member.endpoint}")

    # ---- the user --------------------------------------------------------------------------

    def token(self, member: Member, timeout: float | None = None) -> Metadata:
        """The metadata that name our user; none without one. RpcError, SourceFailed."""
        found: Metadata = _finished(self._token_steps(member, timeout))
        return found

    def _token_steps(
        self, member: Member, timeout: float | None = None
    ) -> Generator[Any, Any, Metadata]:
        """At most one call, as _attempts() has them."""
        if not self.access.user:
            return ()
        with self._lock:
            token = self._token
        if token is None:
            try:
                password = self.access.secret()
            except SourceError as error:
                raise failed(str(error), "etcd", grpc.StatusCode.UNAUTHENTICATED) from error
            request = messages.AuthenticateRequest(name=self.access.user, password=password)
            longest = PATIENCE if timeout is None else timeout
            try:
                answer = yield member.unary(messages.AUTHENTICATE).future(request, timeout=longest)
            except grpc.RpcError as error:
                if "authentication is not enabled" in (error.details() or ""):
                    return ()
                raise
            token = answer.token
            with self._lock:
                self._token = token
        return (("token", token),)

    def forget(self, token: Metadata) -> None:
        """This token is of no use any more; one that came later is kept."""
        with self._lock:
            if token and token[0][1] == self._token:
                self._token = None


def _left(deadline: float | None, longest: float) -> float:
    """The seconds until a deadline, at most `longest`; a call always has a tenth of one."""
    if deadline is None:
        return longest
    return max(min(deadline - time.monotonic(), longest), 0.1)


def _finished(steps: Generator[Any, Any, Any], pending: Callable[[Any], None] | None = None) -> Any:
    """Carries out steps, blocking in each call; what they return."""
    try:
        called = next(steps)
        while True:
            if pending is not None:
                pending(called)
            try:
                answer = called.result()
            except _ENDED as error:
                called = steps.throw(error)
            else:
                called = steps.send(answer)
    except StopIteration as ended:
        return ended.value


async def _result_of(called: Any) -> Any:
    """The result of a call of gRPC, which answers in a thread of its own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def answered(_: Any) -> None:
        try:
            loop.call_soon_threadsafe(_finish, done)
        except RuntimeError:  # the loop has ended, and with it everybody who waited
            pass

    called.add_done_callback(answered)
    try:
        await done
    except asyncio.CancelledError:
        called.cancel()
        raise
    return called.result()


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
