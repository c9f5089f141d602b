"""The event loop of serve: its end, while other threads hand it calls."""

from __future__ import annotations

import os
import threading

import pytest

from shmcache.serve.http.loop import FEW_TIMERS, Loop

PATIENCE = 60.0


def test_a_loop_that_is_closed_while_a_thread_wakes_it_closes_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LOOP1: the closing thread is started between the look at the descriptor and the write."""
    loop, write = Loop(), os.eventfd_write
    closing = threading.Thread(target=loop.close)
    written = []

    def write_late(fd: int, value: int) -> None:
        closing.start()
        closing.join(0.1)  # without LOOP1 it ends
        written.append(os.readlink(f"/proc/self/fd/{fd}"))
        write(fd, value)

    monkeypatch.setattr(os, "eventfd_write", write_late)
    loop.call_threadsafe(lambda: None)
    closing.join(PATIENCE)

    assert written == ["anon_inode:[eventfd]"]
    loop.call_threadsafe(lambda: None)  # closed: nothing is written
    assert len(written) == 1


def test_timers_that_are_cancelled_do_not_pile_up() -> None:
    loop, called = Loop(), []
    loop.call_later(0.0, lambda: called.append("due"))
    for _ in range(20 * FEW_TIMERS):
        loop.call_later(3600.0, lambda: called.append("never")).cancel()
    assert len(loop._timers) <= 2 * FEW_TIMERS
    loop.call_later(0.0, loop.stop)
    loop.run()
    loop.close()

    assert called == ["due"]
