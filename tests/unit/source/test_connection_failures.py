"""Messages of connections that were not made name the address that was tried."""

from __future__ import annotations

import socket

import pytest
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, ReadTimeoutError

from shmcache.source.base import FailureKind
from shmcache.source.failures import failure_of


def message_of(error: Exception) -> str:
    return failure_of(error, "GET /api/v1").message


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_refused_connection_names_its_address(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as bound:  # and not listening
        bound.bind((host.strip("[]"), 0))
        port = bound.getsockname()[1]
        with pytest.raises(urllib3.exceptions.HTTPError) as caught:
            urllib3.PoolManager().request("GET", f"http://{host}:{port}/", retries=False)

    assert message_of(caught.value) == f"GET /api/v1: Connection refused ({host}:{port})"
    assert failure_of(caught.value, "").kind is FailureKind.REFUSED


def test_a_connection_that_takes_too_long_names_its_address() -> None:
    connection = HTTPConnection("api.example", 6443)

    assert message_of(ConnectTimeoutError(connection, "took too long")) == (
        "GET /api/v1: timed out (api.example:6443)"
    )


def test_an_answer_that_takes_too_long_names_the_request_alone() -> None:
    pool = urllib3.HTTPConnectionPool("api.example", 6443)

    assert message_of(ReadTimeoutError(pool, "/", "took too long")) == "GET /api/v1: timed out"
