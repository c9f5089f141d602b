"""Keeps the flight recorder's process running, for as long as the reflector runs.

RECCHILD1  One thread starts the process and waits for it, since the kernel ends a child with
the thread that started it. It starts another one, with pauses, whenever one ends.
RECCHILD2  The reflector never waits for the recorder but at its own end, and not for long.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import threading
import time

from shmcache.reasons import reason_at
from shmcache.reflector.backoff import Backoff, BackoffSettings

logger = logging.getLogger(__name__)

PAUSES = BackoffSettings(initial=0.5, cap=30.0, jitter=0.5, reset_after=120.0)
END_SECONDS = 5.0


class RecorderChild:
    """The process of one cache's recorder."""

    def __init__(self, arguments: list[str]) -> None:
        """`arguments` of recorder_process.main(), without the parent."""
        module = "shmcache.engine.recorder_process"
        self._command = [sys.executable, "-m", module, *arguments]
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="shmcache-recorder", daemon=True)

    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    def stop(self, timeout: float = END_SECONDS) -> None:
        """Lets the recorder record what the ring has, and ends it."""
        self._over.set()
        deadline = time.monotonic() + timeout
        self._signal("terminate")
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning("the recorder has not ended within %g s: it is killed", timeout)
            self._signal("kill")
            self._thread.join(timeout)

    @property
    def pid(self) -> int:
        """Of the running process; 0 without one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    def _signal(self, how: str) -> None:
        process = self._process
        if process is not None:
            getattr(process, how)()

    def _run(self) -> None:
        pauses = Backoff(PAUSES, random.Random())
        while not self._over.is_set():
            self._live()
            if not self._over.is_set():
                pause = pauses.next(time.monotonic())
                logger.warning("the next recorder begins in %.1f s", pause)
                self._over.wait(pause)

    def _live(self) -> None:
        """One process, from its start to its end."""
        command = [*self._command, "--parent", str(os.getpid())]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            logger.error("no recorder can be started: %s", reason_at(error))  # noqa: TRY400
            return
        if self._over.is_set():  # stop() came just before there was a process
            self._process.terminate()
        status = self._process.wait()
        if not self._over.is_set():
            logger.warning("the recorder (pid %d) ended: %d", self._process.pid, status)
