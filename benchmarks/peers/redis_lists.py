"""Redis lists as a work queue: BLMOVE to a list of keys in progress, LREM when one is done."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MISSING = "redis-server is not here: apt-get install redis-server"
WAITING, WORKING = "waiting", "working"


def is_here() -> bool:
    """Whether a server can be started; it is not a Python package."""
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Starts a server on a Unix socket, without a disk; yields its path."""
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError(MISSING)
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as place:
        socket = str(Path(place) / "redis.sock")
        command = [program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", place]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                _await(socket)
                yield socket
            finally:
                process.kill()


def _await(socket: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            connect(socket).ping()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def connect(socket: str) -> Any:
    import redis

    try:
        client = redis.Redis(unix_socket_path=socket)
        client.ping()
    except redis.ConnectionError as error:
        raise OSError(str(error)) from error
    return client


def add(client: Any, key: str) -> None:
    client.lpush(WAITING, key)


def get(client: Any) -> str:
    return str(client.blmove(WAITING, WORKING, 0, "RIGHT", "LEFT"), "utf-8")


def done(client: Any, key: str) -> None:
    client.lrem(WORKING, 1, key)
