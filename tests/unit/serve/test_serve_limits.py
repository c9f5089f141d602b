"""The numbers of docs/serve.md are those of the code."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from served import pod, serving

from shmcache.serve.auth import permit, review
from shmcache.serve.certificate import LOOK_SECONDS
from shmcache.serve.http import holding, websocket, weights, wire
from shmcache.serve.http.listeners import BACKLOG
from shmcache.serve.limits import Limits

PAGE = (Path(__file__).parents[3] / "docs" / "serve.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
VALUES = {row[3].strip("`"): row[1] for row in ROWS if len(row) == 4 and row[3].startswith("`")}
LIMITS = Limits()


def size(text: str) -> float:
    """125 bytes, 64 KiB, 24 MiB, or a plain number."""
    number, unit = re.fullmatch(r"(\d+)(?: (bytes|KiB|MiB))?", text).groups()  # type: ignore[union-attr]
    return int(number) * {"KiB": 1 << 10, "MiB": 1 << 20}.get(unit, 1)


@pytest.mark.parametrize("name", [
    "connections", "held_bytes", "head_bytes", "headers", "target_bytes",
    "selector_bytes", "body_bytes", "head_seconds", "body_seconds", "idle_seconds",
    "stall_seconds", "kept_bytes",
])  # fmt: skip
def test_a_limit_is_documented_with_its_value(name: str) -> None:
    assert size(VALUES[f"Limits.{name}"]) == getattr(LIMITS, name)


def test_the_other_numbers_of_the_page_are_those_of_the_code() -> None:
    assert size(VALUES["PRESSED_SECONDS"]) == holding.PRESSED_SECONDS
    linger = f"{wire.LINGER_SECONDS:.0f}, and {wire.LINGER_BYTES >> 20} MiB"
    assert VALUES["LINGER_SECONDS"] == linger
    assert f"beyond {weights.FREE >> 10} KiB each" in PAGE
    assert size(VALUES["REVOKED_SECONDS"]) == permit.REVOKED_SECONDS
    assert size(VALUES["CONTROL_MAX"]) == websocket.CONTROL_MAX
    assert size(VALUES["LONGEST"]) == websocket.LONGEST
    strange, checks = (
        next(text for name, text in VALUES.items() if name.startswith(first))
        for first in ("STRANGE", "CHECKS")
    )
    assert (
        strange == f"{review.STRANGE_AT_ONCE:.0f} at once, {review.STRANGE_PER_SECOND:.0f} a second"
    )
    assert checks == f"{review.CHECKS_AT_ONCE:.0f} at once, {review.CHECKS_PER_SECOND:.0f} a second"
    assert f"within {LOOK_SECONDS:.0f} s of a change" in PAGE
    assert VALUES["Limits.lasting"] == "5/8 of the connections"
    assert LIMITS.lasting == LIMITS.connections * 5 // 8
    assert VALUES["Limits.handshakes"] == "1/16 of the connections"
    assert LIMITS.handshakes == LIMITS.connections // 16
    assert VALUES["Limits.waiting"] == "1/8 of the connections, at most 512"
    assert LIMITS.waiting == min(512, LIMITS.connections // 8)
    assert VALUES["Limits.proxied"] == "1/16 of the connections, at most 64"
    assert LIMITS.proxied == min(64, LIMITS.connections // 16)


def test_long_and_waiting_requests_leave_places_free() -> None:
    """Watches, waiting requests, reviews and requests that are passed on never take them all."""
    for connections in (64, 1000, 4096):
        limits = Limits(connections=connections)
        taken = limits.lasting + 2 * limits.waiting + limits.proxied
        assert taken < connections


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_server_that_can_accept_nothing_goes_on_after_a_moment(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving({"pods": [pod(1)]}) as asked:
        server = asked.serve.server
        real, calls = server._listener, [OSError(number, os.strerror(number))]

        def accept() -> Any:
            if calls:
                raise calls.pop()
            return real.accept()

        server._listener = SimpleNamespace(  # type: ignore[assignment]
            accept=accept, fileno=real.fileno, close=real.close, family=real.family
        )
        assert asked.names("/api/v1/pods") == ["p-0001"]
        assert not calls
        server._listener = real
    assert "accepting no connections for a moment" in caplog.text


def test_as_many_connections_wait_to_be_accepted_as_there_may_be() -> None:
    """The kernel drops what comes to a full queue, and a client tries again after a second."""
    assert LIMITS.connections <= BACKLOG
