"""The process between a server's master and the reflector: starts it, restarts it, ends with both.

    master ──(its death: a pidfd; its request: SIGTERM)──▸ keeper ──(supervisor.py)──▸ reflector

A master that forks workers can afford neither threads nor waits of its own, and what it opens its
workers inherit. So it only starts this process, which may wait.

    KEEPER1  The reflector ends when its keeper does, however that ended (child.py, CHILD1).
    KEEPER2  The keeper drains and ends when its master has ended, however that did.
    KEEPER3  Two keepers of one cache: one reflector. The other stands by until the lock is free.
    KEEPER4  A reflector that says nothing for `silence` seconds, because it is stopped or stuck, is
        killed; one that has ended comes again, ever more slowly while it goes on ending.

    python -m shmcache.integrations.keeper --parent PID --name NAME -- run pods ...
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
import threading
import time

from shmcache.engine.logs import start_logging
from shmcache.memory.segments import Place
from shmcache.processes.supervisor import Supervisor

BEAT_SECONDS = 0.5
LOOK_SECONDS = 0.5
DRAIN_SECONDS = 15.0

logger = logging.getLogger(__name__)


class Keeper:
    """Keeps one reflector for one master, of which it has a pidfd."""

    def __init__(self, options: argparse.Namespace, master: int) -> None:
        self._place = Place(options.name)
        self._arguments: list[str] = options.arguments
        self._silence: float = options.silence
        self._master = select.poll()
        self._master.register(master, select.POLLIN)
        self._beats, self._beat = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._heard = 0.0
        self._supervisor = Supervisor(
            [self._reflect], name="reflector", drain_seconds=DRAIN_SECONDS, tick=self._tick
        )

    def run(self) -> None:
        """Runs until the master is gone or requests the end; then drains the reflector."""
        self._supervisor.run()

    def _tick(self) -> float:
        """Looks at both sides."""
        now = time.monotonic()
        if self._master.poll(0):
            self._supervisor.drain()
        try:
            os.read(self._beats, 65536)
            self._heard = now
        except BlockingIOError:
            pass
        child = self._supervisor.children[0]
        if child.alive and now - max(self._heard, child.started) > self._silence:
            logger.error("cache %s: the reflector is stuck or stopped", self._place.name)
            self._supervisor.kill(0)
        return LOOK_SECONDS

    # ---- the child's side ----------------------------------------------------------------------

    def _reflect(self) -> int:
        threading.Thread(target=self._go_on_beating, name="keeper", daemon=True).start()
        if self._taken():
            logger.info("cache %s: another reflector keeps it; standing by", self._place.name)
        while self._taken():
            time.sleep(LOOK_SECONDS)
        from shmcache.__main__ import main

        return main(self._arguments)

    def _taken(self) -> bool:
        try:
            return self._place.writer_alive()
        except OSError:
            return False  # the reflector will say why

    def _go_on_beating(self) -> None:
        while True:
            try:
                os.write(self._beat, b".")
            except BlockingIOError:
                pass  # the keeper is stopped
            time.sleep(BEAT_SECONDS)


def become(user: int, group: int) -> None:
    """Gives up root's rights for those of the workers, if we have them."""
    if os.geteuid() or not user:
        return
    import pwd

    try:
        os.initgroups(pwd.getpwuid(user).pw_name, group)
    except KeyError:
        os.setgroups([])
    os.setgid(group)
    os.setuid(user)


def main(arguments: list[str]) -> int:
    """Given the master's pid, whom to become, and the cache; then the reflector's arguments."""
    parser = argparse.ArgumentParser(prog="shmcache.integrations.keeper")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--user", type=int, default=0)
    parser.add_argument("--group", type=int, default=0)
    parser.add_argument("--name", required=True)
    parser.add_argument("--silence", type=float, default=30.0)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args(arguments)
    start_logging("text", "info")
    try:
        master = os.pidfd_open(options.parent)
    except ProcessLookupError:
        return 0
    if os.getppid() != options.parent:
        return 0  # it ended, and another one has its number
    become(options.user, options.group)
    Keeper(options, master).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
