"""Invariant tested: STORE3: an error says that nothing was changed only if that is known."""

from __future__ import annotations

import grpc
import pytest

from shmcache.etcd.errors import EtcdError, WriteUnknown, error_of
from shmcache.source.etcd.failures import failed

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
