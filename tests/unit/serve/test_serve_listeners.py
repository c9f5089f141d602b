"""Paths of sockets: LISTEN1, whatever another process does at them."""

from __future__ import annotations

import contextlib
import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from shmcache.serve.http import listeners

if TYPE_CHECKING:
    from pathlib import Path


def test_a_listener_whose_queue_is_full_keeps_its_path_and_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    """It may be stopped, or another user's, who connects to it and accepts nothing."""
    path = str(tmp_path / "socket")
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket(socket.AF_UNIX))
        taken.bind(path)
        taken.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(path)

        with pytest.raises(OSError, match="another process listens there") as refused:
            listeners.unix(path, 0o600, stack)
        assert refused.value.errno == errno.EADDRINUSE


def test_a_path_at_which_nobody_listens_is_taken(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(path)
    with ExitStack() as stack:
        assert listeners.unix(path, 0o600, stack).getsockname() == path
    assert not (tmp_path / "socket").exists()
