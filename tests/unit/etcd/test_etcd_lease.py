"""Invariants tested: LEASE2. A member that is in a minority, or does not answer, over real gRPC.

The waits of a connection are made endless here: a call that ends in these tests does so by the
deadline that was passed to it, on a machine of any speed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from shmcache.etcd import Store
from shmcache.etcd.lease import Expiry
from shmcache.lease.settings import boot_seconds
from shmcache.source.base import SourceFailed
from shmcache.source.etcd import connection as connections
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.source.etcd.watching import WatchStream

PATIENCE = 60.0
ENDLESS = 3600.0
USER = {"user": "u", "password": "p"}


class EtcdMember:
    """A member of a cluster that can lose its leader, and whose users can be out of reach."""

    def __init__(self) -> None:
        self.leader = 1
        self.authenticate: Callable[[Any], None] = lambda _: None
        self.released = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        one, many = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        for method, handler, kind in (
            (messages.STATUS, self._status, one),
            (messages.GRANT, self._grant, one),
            (messages.REVOKE, self._revoke, one),
            (messages.AUTHENTICATE, self._authenticate, one),
            (messages.KEEP_ALIVE, self._keep_alive, many),
        ):
            service, name = method.path.strip("/").split("/")
            found = kind(handler, method.request.FromString, method.response.SerializeToString)
            generic = grpc.method_handlers_generic_handler(service, {name: found})
            self._server.add_generic_rpc_handlers((generic,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.endpoint = f"http://127.0.0.1:{port}"

    def _answer(self, method: Any, **fields: Any) -> Any:
        answer = method.response(**fields)
        answer.header.cluster_id = 7
        return answer

    def hold(self, _: Any) -> None:
        """Answers nothing before the test ends."""
        assert self.released.wait(2 * PATIENCE)

    def _status(self, _: Any, __: Any) -> Any:
        return self._answer(messages.STATUS, version="3.5.9", leader=self.leader)

    def _grant(self, request: Any, _: Any) -> Any:
        return self._answer(messages.GRANT, ID=5, TTL=request.TTL)

    def _revoke(self, _: Any, __: Any) -> Any:
        return self._answer(messages.REVOKE)

    def _authenticate(self, _: Any, context: Any) -> Any:
        self.authenticate(context)
        return self._answer(messages.AUTHENTICATE, token="a")  # noqa: S106 - of this test

    def _keep_alive(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for _ in requests:
            if not self.leader:
                context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
            yield self._answer(messages.KEEP_ALIVE, ID=5, TTL=2)

    def close(self) -> None:
        self.released.set()
        self._server.stop(0).wait()


@pytest.fixture
def member() -> Iterator[EtcdMember]:
    found = EtcdMember()
    yield found
    found.close()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHOICE_SECONDS", ENDLESS)
    monkeypatch.setattr(connections, "PATIENCE", ENDLESS)


def failure(act: Callable[[], Any]) -> BaseException:
    """The failure of something that may last too long."""
    with futures.ThreadPoolExecutor(1) as pool:
        called = pool.submit(act)
        try:
            return called.exception(PATIENCE) or AssertionError("no failure")
        except TimeoutError:
            return AssertionError("it lasts longer than its deadline")


class Held(EtcdConnection):
    """A connection whose streams open when they are free."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(EtcdAccess.of(endpoint))
        self.free = threading.Event()

    def stream(self, *args: Any, **options: Any) -> Any:
        assert self.free.wait(2 * PATIENCE)
        return super().stream(*args, **options)


def test_a_lease_is_lost_while_a_call_still_lasts(member: EtcdMember) -> None:
    """LEASE2: also for those who began to wait before, and whatever the call answers later."""
    connection = Held(member.endpoint)
    with Store(connection, "/services/") as store:
        lease = store.lease(2)
        try:
            assert lease.lost.wait(PATIENCE), "lost by the clock"
            assert lease.lost.is_set()
        finally:
            connection.free.set()
        lease._thread.join(PATIENCE)  # its last renewal succeeds, too late
        assert lease.lost.is_set()
        lease.close()
    connection.close()


@pytest.mark.usefixtures("endless")
def test_a_lease_in_a_minority_is_lost(member: EtcdMember) -> None:
    """LEASE2: members that answer without a leader keep nobody waiting."""
    with Store(member.endpoint, "/services/") as store:
        lease = store.lease(2)
        member.leader = 0
        assert lease.lost.wait(PATIENCE)
        lease._thread.join(PATIENCE)
        assert not lease._thread.is_alive(), "the choice of a member ends with the lease"
        lease.close()


def test_a_time_that_came_cannot_be_put_off() -> None:
    lost = Expiry(boot_seconds() + ENDLESS)
    assert not lost.wait(0.01)
    assert lost.put_off(boot_seconds() + 0.05)
    assert lost.wait(PATIENCE)
    assert not lost.put_off(boot_seconds() + ENDLESS)
    assert lost.is_set()
    assert lost.wait(0)


def test_a_waiter_sleeps_on_when_the_time_is_put_off() -> None:
    lost = Expiry(boot_seconds() + 2.5)
    with futures.ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(lost.wait, PATIENCE)
        assert lost.put_off(boot_seconds() + ENDLESS)
        done, _ = futures.wait([waiter], 2.7)
        assert not done
        lost.set()
        assert waiter.result(PATIENCE)


@pytest.mark.usefixtures("endless")
def test_a_stream_that_finds_no_leader_ends_in_its_time(member: EtcdMember) -> None:
    member.leader = 0
    connection = EtcdConnection(EtcdAccess.of(member.endpoint))
    try:
        error = failure(lambda: connection.stream(messages.KEEP_ALIVE, iter([]), (), timeout=0.3))
    finally:
        connection.close()
    assert isinstance(error, SourceFailed), error


@pytest.mark.usefixtures("endless")
def test_a_stream_whose_user_is_not_known_in_time_ends(member: EtcdMember) -> None:
    member.authenticate = member.hold
    connection = EtcdConnection(EtcdAccess.of(member.endpoint, **USER))
    try:
        error = failure(lambda: connection.stream(messages.KEEP_ALIVE, iter([]), (), timeout=0.3))
    finally:
        member.released.set()
        connection.close()
    assert isinstance(error, SourceFailed), error


def test_a_watch_survives_a_member_that_ends_while_it_names_its_user(member: EtcdMember) -> None:
    """The feed repeats a SourceFailed; any other error is a crash of it."""
    member.authenticate = lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "closing")
    connection = EtcdConnection(EtcdAccess.of(member.endpoint, **USER))
    watch = WatchStream(connection, "etcd widgets", [(b"/widgets/", None)])
    try:
        with pytest.raises(SourceFailed, match="closing"):
            watch.open(messages.WatchRequest())
        assert connection._member is None, "the member is left"
    finally:
        watch.close()
        connection.close()
