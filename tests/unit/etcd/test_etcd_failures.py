"""Invariants tested: MEMBER4; STORE3: "nothing was changed" is only raised where that is known."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from shmcache.errors import SourceError
from shmcache.etcd.errors import EtcdError, WriteUnknown, error_of
from shmcache.reader.namespace_versions import versions
from shmcache.source.base import SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection, EtcdStream
from shmcache.source.etcd.failures import failed
from shmcache.source.etcd.history import ClusterHistory
from shmcache.source.etcd.http2 import CallFailed
from shmcache.source.etcd.members import Member

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (CODE.CANCELLED, "Channel closed!"),
        (CODE.UNKNOWN, "Stream removed"),
        (CODE.INTERNAL, "Received RST_STREAM with error code 2"),
        (CODE.DATA_LOSS, "the answer is cut"),
        (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (CODE.UNAVAILABLE, "Socket closed"),
        (CODE.UNAVAILABLE, "etcdserver: leader changed"),
        (CODE.UNKNOWN, "context deadline exceeded"),
        (CODE.UNAVAILABLE, "etcdserver: request timed out"),
    ],
)
def test_a_write_whose_answer_is_lost_is_unknown(code: grpc.StatusCode, text: str) -> None:
    lost = failed(text, "create a", code)
    assert isinstance(error_of(lost, writes=True), WriteUnknown)
    assert type(error_of(lost, writes=False)) is EtcdError


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (CODE.UNAVAILABLE, "connect: Connection refused (111)"),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied"),
        (CODE.INVALID_ARGUMENT, "etcdserver: request is too large"),
        (CODE.NOT_FOUND, "etcdserver: requested lease not found"),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token"),
    ],
)
def test_a_refused_write_has_changed_nothing(code: grpc.StatusCode, text: str) -> None:
    assert type(error_of(failed(text, "create a", code), writes=True)) is EtcdError


@pytest.mark.parametrize(
    "late",
    [
        CallFailed(CODE.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        CallFailed(CODE.UNKNOWN, "context deadline exceeded"),
    ],
)
def test_a_late_call_has_a_new_token_the_next_time(late: CallFailed) -> None:
    """A member whose history was restored waits for the token's index until the call's end."""
    endpoint = "http://127.0.0.1:1"
    access = EtcdAccess(endpoints=(endpoint,), user="root", password="x")  # noqa: S106
    connection = EtcdConnection(access)
    connection._member = Member(access, endpoint)
    vars(connection).update(_token="of the lost history")  # noqa: S106
    request = messages.RangeRequest(key=b"a")
    steps = connection._attempts(messages.RANGE, request, "read", 5.0, 3.0, writes=False)
    next(steps).cancel()

    with pytest.raises(SourceFailed):
        steps.throw(late)

    assert vars(connection)["_token"] is None
    connection.close()


@pytest.mark.parametrize(
    ("code", "text", "kept"),
    [
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token", None),
        (CODE.UNKNOWN, "context deadline exceeded", None),
        (CODE.UNAVAILABLE, "Socket closed", "mine"),
    ],
)
def test_a_stream_that_its_token_ends_has_a_new_one_the_next_time(
    code: grpc.StatusCode, text: str, kept: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: CallFailed) -> None:
        raise error

    caplog.set_level(logging.DEBUG)
    endpoint = "http://127.0.0.1:1"
    access = EtcdAccess(endpoints=(endpoint,), user="root", password="x")  # noqa: S106
    connection = EtcdConnection(access)
    vars(connection).update(_token="mine")  # noqa: S106
    token = connection.token(Member(access, endpoint))
    answers = map(fail, [CallFailed(code, text)])
    stream = EtcdStream(connection, "watch", Member(access, endpoint), token, answers)

    with pytest.raises(SourceFailed):
        next(iter(stream))

    assert vars(connection)["_token"] == kept
    left = [] if code is CODE.UNAUTHENTICATED else [f"watch: {endpoint} is left: {text}"]
    assert left == caplog.messages


def test_a_history_does_not_count_as_versions_of_namespaces() -> None:
    """MARKS1: it is stored where the versions of namespaces are in other caches."""
    history = ClusterHistory()
    history.listed(SimpleNamespace(cluster_id=(1 << 63) + 5, raft_term=200))

    assert versions({"marks": history.text()}) == {}
    assert versions({"marks": '{"cluster": "5", "term": "6"}'}) == {"cluster": "5", "term": "6"}


def test_a_password_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff")
    access = EtcdAccess.of("http://a:1", user="u", password_file=str(file))

    with pytest.raises(SourceError, match=f"{file} is not text"):
        access.secret()
