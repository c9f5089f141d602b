"""Invariant tested: a reader can only read, and leaves nothing behind, however it ends (G9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from workers import Command

import shmcache
from shmcache.errors import UntrustedSegment

STRANGER = 54321
READER = """
import signal, sys, shmcache
cache = shmcache.attach(sys.argv[1])
at = cache.snapshot()
view = at["pods"]["a"]
print(cache.seat, flush=True)
signal.pause()
"""


@contextmanager
def reader(name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is attached, and holds a snapshot and a view."""
    with Command(
        [sys.executable, "-c", READER, name], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        try:
            yield process
        finally:
            process.kill()


def eventually(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_readers_seat_and_pin_are_released(name: str) -> None:
    with shmcache.Writer(name, ["pods"], seats=1) as writer:
        writer.put("pods", "a", {"x": "y" * 100_000})
        with reader(name) as process:
            with pytest.raises(shmcache.BusyError):
                shmcache.attach(name)
            writer.delete("pods", "a")
            writer.drop_window()
            writer.reclaim()
            assert 100_000 <= writer.stats()["limbo_bytes"]

            process.send_signal(signal.SIGKILL)
            process.wait()

        eventually(lambda: writer.stats()["limbo_bytes"] < 100_000)
        shmcache.attach(name).close()
        writer.check()


def test_a_stopped_reader_does_not_slow_the_writer(name: str) -> None:
    """It holds the one state that it was reading, and loses nothing."""
    with shmcache.Writer(name, ["pods"], arena_max="16MiB", garbage_max="1MiB") as writer:
        writer.put("pods", "a", {"x": 0})
        with reader(name) as process:
            process.send_signal(signal.SIGSTOP)
            for n in range(200):
                writer.put("pods", "a", {"x": f"{n}" * 30_000})
            writer.drop_window()
            writer.reclaim()
            assert 0 == writer.stats()["revoked"]
            assert writer.stats()["limbo_bytes"] < 100_000
            assert writer.stats()["file_bytes"] <= 16 << 20
            writer.check()
            process.send_signal(signal.SIGCONT)


if os.geteuid() == 0:

    def test_another_uid_can_only_read(name: str) -> None:
        with shmcache.Writer(name, ["pods"], mode=0o644) as writer:
            writer.put("pods", "a", {"x": 1})
            pid = os.fork()
            if pid == 0:
                os._exit(as_stranger(writer))
            _, status = os.waitpid(pid, 0)
            assert 0 == os.waitstatus_to_exitcode(status)
            writer.check()

    def as_stranger(writer: shmcache.Writer) -> int:
        os.setresgid(STRANGER, STRANGER, STRANGER)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        with shmcache.attach(writer.name) as cache:
            readable = cache["pods"]["a"]["x"] == 1
        refused = 0
        for file in writer.place.location.names(writer.place.stem):
            if not file.endswith(".seats"):
                try:
                    os.close(os.open(writer.place.location.file(file), os.O_RDWR))
                except PermissionError:
                    refused += 1
        return 0 if (readable, refused) == (True, 3) else 1

    def test_a_strangers_cache_is_refused_unless_trusted(name: str) -> None:
        pid = os.fork()
        if pid == 0:
            os.setresuid(STRANGER, STRANGER, STRANGER)
            writer = shmcache.Writer(name, ["pods"], mode=0o644)
            signal.pause()
            writer.close()
        try:
            with pytest.raises(UntrustedSegment, match=str(STRANGER)):
                shmcache.attach(name, timeout=60)
            shmcache.attach(name, trusted_uids=[STRANGER]).close()
            with pytest.raises(UntrustedSegment):
                shmcache.Writer(name)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
