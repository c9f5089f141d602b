"""EtcdConnection: the members of one etcd cluster, as everything in a process shares them.

MEMBER1  a read that a member does not answer goes to the next member, each at most once; a
write only if no member can have seen it (failures.was_not_sent).
MEMBER2  a member that failed is left: later calls begin with the one that answered last.
MEMBER3  certificates are read when a channel is opened, so that rotated files count from the
next connection on; a channel that failed is never used again.
MEMBER4  a token that etcd refuses is renewed once for the call that met it. etcd refuses all
tokens whenever its users change.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import grpc

from shmcache.errors import SourceError
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.etcd import messages
from shmcache.source.etcd.failures import failed, failure_of, is_passing, needs_token, was_not_sent
from shmcache.source.etcd.messages import Method

KEEPALIVE, KEEPALIVE_TIMEOUT = 10.0, 5.0
"""Seconds between pings of an open connection, and until one without an answer ends it. etcd
refuses clients that ping more often than every 5 s."""
MESSAGE_MAX = 64 << 20
"""Bytes of the largest answer that is taken; pages are made far smaller."""
FIRST_PATIENCE = 3.0
"""Seconds that a member has for a read while there are others to ask."""
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Where an etcd cluster is, and as whom it is asked."""

    endpoints: tuple[str, ...]
    """https://host:port or http://host:port, all of one scheme."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    password: str = ""
    password_file: str = ""

    def __post_init__(self) -> None:
        schemes = {urlsplit(each).scheme for each in self.endpoints}
        if not self.endpoints or not all(_is_endpoint(each) for each in self.endpoints):
            raise SourceError(
                f"{','.join(self.endpoints)!r} are not endpoints of etcd, such as "
                "https://etcd-1:2379,https://etcd-2:2379"
            )
        if len(schemes) > 1:
            raise SourceError("the endpoints of one etcd cluster must all be http or all be https")
        if bool(self.cert_file) != bool(self.key_file):
            raise SourceError("a client certificate needs both files: certificate and key")
        if (self.ca_file or self.cert_file) and not self.is_secure:
            raise SourceError("certificates need https:// endpoints")
        if (self.password or self.password_file) and not self.user:
            raise SourceError("a password needs a user")

    @classmethod
    def of(cls, text: str, **more: Any) -> EtcdAccess:
        """Of endpoints that are separated by commas."""
        found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
        return cls(endpoints=found, **more)

    @property
    def is_secure(self) -> bool:
        """Whether connections use TLS."""
        return self.endpoints[0].startswith("https://")

    @property
    def origin(self) -> str:
        """The cluster, in the settings that a cache's content depends on."""
        return "etcd " + ",".join(sorted(self.endpoints))

    def secret(self) -> str:
        """The password, from its file if it has one. SourceError."""
        if not self.password_file:
            return self.password
        return _read(self.password_file).decode().strip()

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS of a new channel; None without TLS. SourceError."""
        if not self.is_secure:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file) if self.ca_file else None,
            private_key=_read(self.key_file) if self.key_file else None,
            certificate_chain=_read(self.cert_file) if self.cert_file else None,
        )


def _is_endpoint(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and not parts.path


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


OPTIONS = [
    ("grpc.keepalive_time_ms", int(1000 * KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", int(1000 * KEEPALIVE_TIMEOUT)),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel does not wait for an old one's backoff
    ("grpc.enable_retries", 0),  # call() decides (MEMBER1)
    ("grpc.enable_http_proxy", 0),
]


class Member:
    """A channel to one endpoint."""

    def __init__(self, access: EtcdAccess, endpoint: str) -> None:
        self.endpoint = endpoint
        target, credentials = urlsplit(endpoint).netloc, access.credentials()
        self.channel = (
            grpc.insecure_channel(target, OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, OPTIONS)
        )

    def unary(self, method: Method) -> Any:
        """A callable of a method with one answer."""
        return self.channel.unary_unary(
            method.path, method.request.SerializeToString, method.response.FromString
        )

    def stream(self, method: Method) -> Any:
        """A callable of a method with streams in both directions."""
        return self.channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )


class EtcdStream:
    """An open stream of answers. Used by one thread, apart from cancel()."""

    def __init__(
        self, connection: EtcdConnection, what: str, member: Member, token: Metadata, call: Any
    ) -> None:
        self._connection = connection
        self._what = what
        self._member = member
        self._token = token
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise self._connection.broken(error, self._what, self._member, self._token) from error

    def leave(self) -> None:
        """The next call goes to another member, if there is one."""
        self._connection.leave(self._member)

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
        self._lock = threading.Lock()
        self._at = 0
        self._member: Member | None = None
        self._token: str | None = None
        self._closed = False

    # ---- members ---------------------------------------------------------------------------

    def member(self) -> Member:
        """The member that answered last, or the next one to try."""
        with self._lock:
            if self._closed:
                raise SourceFailed(SourceFailure(FailureKind.CANCELLED, "etcd: closed"))
            if self._member is None:
                endpoints = self.access.endpoints
                try:
                    self._member = Member(self.access, endpoints[self._at % len(endpoints)])
                except SourceError as error:
                    raise SourceFailed(
                        SourceFailure(FailureKind.NETWORK, f"etcd: {error}")
                    ) from error
            return self._member

    def leave(self, member: Member) -> None:
        """The next call goes to the next endpoint, unless somebody has left this one already.

        The channel is not closed: calls of other threads may still be answered on it. It ends with
        the last of them.
        """
        with self._lock:
            if self._member is member:
                self._member, self._at = None, self._at + 1

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
        pending: Callable[[Any], None] = lambda _: None,
    ) -> Any:
        """The answer of the first member that gives one (MEMBER1). SourceFailed.

        `pending` receives the call before its answer comes; another thread may cancel it.
        """
        steps = self._attempts(method, request, what, timeout, writes=writes)
        called = next(steps)
        try:
            while True:
                pending(called)
                try:
                    answer = called.result()
                except (grpc.RpcError, grpc.FutureCancelledError) as error:
                    called = steps.throw(error)
                else:
                    called = steps.send(answer)
        except StopIteration as ended:
            return ended.value

    async def call_async(
        self, method: Method, request: Any, what: str, *, timeout: float, writes: bool = False
    ) -> Any:
        """The same without blocking the event loop; a cancelled task cancels its call."""
        steps = self._attempts(method, request, what, timeout, writes=writes)
        called = next(steps)
        try:
            while True:
                try:
                    answer = await _result_of(called)
                except (grpc.RpcError, grpc.FutureCancelledError) as error:
                    called = steps.throw(error)
                else:
                    called = steps.send(answer)
        except StopIteration as ended:
            return ended.value

    def _attempts(
        self, method: Method, request: Any, what: str, timeout: float, *, writes: bool
    ) -> Generator[Any, Any, Any]:
        """The calls of one request, each of which the caller waits for and answers (MEMBER1)."""
        tries = len(self.access.endpoints)
        renewed = False
        while True:
            tries -= 1
            member = self.member()
            token: Metadata = ()
            try:
                token = yield from self._token_steps(member)
                patience = min(timeout, FIRST_PATIENCE) if tries > 0 and not writes else timeout
                return (
                    yield member.unary(method).future(request, timeout=patience, metadata=token)
                )
            except grpc.RpcError as error:
                if needs_token(error) and not renewed and self.access.user:
                    renewed, tries = True, tries + 1
                    self.forget(token)
                    continue
                if is_passing(error):
                    self.leave(member)
                    if tries > 0 and (not writes or was_not_sent(error)):
                        continue
                raise failure_of(error, f"{what} at {member.endpoint}") from error
            except grpc.FutureCancelledError as error:
                raise failed("cancelled", what, grpc.StatusCode.CANCELLED) from error

    def stream(
        self,
        method: Method,
        requests: Iterator[Any],
        metadata: Metadata,
        timeout: float | None = None,
    ) -> EtcdStream:
        """Opens a stream at one member. SourceFailed."""
        member = self.member()
        try:
            token = self.token(member)
        except grpc.RpcError as error:
            raise self.broken(error, method.path, member, ()) from error
        call = member.stream(method)(requests, timeout=timeout, metadata=(*metadata, *token))
        return EtcdStream(self, method.path, member, token, call)

    def broken(
        self, error: grpc.RpcError, what: str, member: Member, token: Metadata
    ) -> SourceFailed:
        """The failure of a stream; a member or a token that made it is not used again."""
        if needs_token(error):
            self.forget(token)
        if is_passing(error):
            self.leave(member)
        return failure_of(error, f"{what} at {member.endpoint}")

    # ---- the user --------------------------------------------------------------------------

    def token(self, member: Member) -> Metadata:
        """The metadata that name our user; none without one. RpcError, SourceFailed."""
        steps = self._token_steps(member)
        try:
            called = next(steps)
            while True:
                try:
                    answer = called.result()
                except grpc.RpcError as error:
                    called = steps.throw(error)
                else:
                    called = steps.send(answer)
        except StopIteration as ended:
            found: Metadata = ended.value
            return found

    def _token_steps(self, member: Member) -> Generator[Any, Any, Metadata]:
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
            try:
                answer = yield member.unary(messages.AUTHENTICATE).future(
                    request, timeout=FIRST_PATIENCE
                )
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
