"""`run --ui`: the page of `shmcache ui`, served by a child process of the reflector.

The page has the same rules as `shmcache ui`: the child is that command. It starts with the
reflector, waits for the cache, and is started again when it ends, with pauses. The reflector never
waits for it, except at the end.

    PAGECHILD1  The child does not outlive the reflector, also if that is killed (CHILD1): the
        thread that starts it lives as long as the reflector.
"""

from __future__ import annotations

import sys
import threading

from shmcache.processes.child import command
from shmcache.processes.supervisor import Supervisor

LOOK_SECONDS = 0.5
DRAIN_SECONDS = 3.0


class PageServer:
    """The server of the page, until close()."""

    def __init__(self, cache: str, address: str, log_format: str) -> None:
        arguments = ("-m", "shmcache", "ui", "--cache", cache, "--listen", address)
        body = command(sys.executable, *arguments, "--log-format", log_format)
        self._supervisor = Supervisor([body], name="page", drain_seconds=DRAIN_SECONDS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shmcache page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the child, and waits for its end. Idempotent."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        supervisor = self._supervisor
        try:
            while not supervisor.over:
                if self._ended.is_set():
                    supervisor.drain()
                supervisor.start()
                supervisor.turn(LOOK_SECONDS)
        finally:
            supervisor.close()
