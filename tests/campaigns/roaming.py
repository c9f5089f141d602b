"""Simulated leaves of relays: sockets of one process that watch at one of several servers.

    python tests/campaigns/roaming.py --leaves 200 --seed 7 8001 8002 8003

A leaf follows the rules of `shmcache run`: it goes on at the next server at the same version, after
20 to 300 ms by chance, when a connection breaks or when nothing came for SILENCE seconds; when a
watch ends in order, it goes home to its first server. A version that a server does not have (410)
is too old when all servers have refused it, or when PATIENCE is over. Half of the leaves have the
first two servers in the other order. serve_watchers.py checks the events of each of them.

It prints "listed" when all leaves have the objects. Each line of standard input, with the objects
that there are, makes it wait until all leaves have them, and print its counts, and the times since
the line before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from serve_watchers import Counts, Gone, Watcher

SILENCE = 5.0
PAUSES = (0.02, 0.3)
PATIENCE = (8.0, 15.0)
DEADLINE = 120.0


@dataclass
class Roamer(Watcher):
    """One leaf: its servers, and how long it was without a watch."""

    servers: list[int] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)
    """Seconds from the end of a connection to the first event or bookmark of the next watch."""
    silent: list[float] = field(default_factory=list)
    """The same where a server on the way was silent, from the last event before."""
    at: int = 0
    heard: float = 0.0
    lost: float | None = None
    fell_silent: bool = False
    patient_until: float = 0.0
    refused: set[int] = field(default_factory=set)
    """The servers that do not have our version."""

    async def run(self) -> None:
        """Watches for ever."""
        listed = False
        while True:
            self.port = self.servers[self.at]
            try:
                if not listed:
                    await self._list()
                listed = True
                if await self._watch():
                    self.at = 0
                else:
                    listed = not self._is_lost()
                    await self._next()
            except TimeoutError:
                self._lose(self.heard, silent=True)
                await self._next()
            except (Gone, OSError):
                self._lose(time.monotonic(), silent=False)
                await self._next()

    def _is_lost(self) -> bool:
        """After a 410: whether a list is all that is left."""
        now = time.monotonic()
        self.refused.add(self.at)
        self.patient_until = self.patient_until or now + self.luck.uniform(*PATIENCE)
        if len(self.refused) < len(self.servers) and now < self.patient_until:
            return False
        self.refused.clear()
        self.patient_until = 0.0
        return True

    def _lose(self, moment: float, *, silent: bool) -> None:
        self.counts.cut += 1
        if self.lost is None and self.heard:
            self.lost, self.fell_silent = moment, False
        self.fell_silent = self.fell_silent or silent

    async def _next(self) -> None:
        self.at = (self.at + 1) % len(self.servers)
        await asyncio.sleep(self.luck.uniform(*PAUSES))

    def _event(self, event: dict[str, Any]) -> bool:
        if event["type"] != "ERROR":
            self.heard = time.monotonic()
            self.refused.clear()
            self.patient_until = 0.0
            if self.lost is not None:
                times = self.silent if self.fell_silent else self.broken
                times.append(self.heard - self.lost)
                self.lost = None
        return super()._event(event)


async def roam(servers: list[int], leaves: int, seed: int) -> None:
    """All leaves, until standard input has the objects of the end."""
    luck, counts = random.Random(f"{seed} roaming"), Counts()
    roamers = []
    for number in range(leaves):
        first = servers[:2] if number % 2 == 0 else [*reversed(servers[:2])]
        roamers.append(Roamer(0, "", "", luck, counts, silence=SILENCE,
                              servers=[*first, *servers[2:]]))  # fmt: skip
    tasks = [asyncio.create_task(one.run()) for one in roamers]
    await _until(lambda: all(one.version for one in roamers))
    say("listed")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        theirs = json.loads(line)
        late = []
        try:
            await _until(lambda theirs=theirs: all(one.state == theirs for one in roamers))
        except TimeoutError:
            late.append(f"{sum(one.state != theirs for one in roamers)} leaves lack objects")
        raised = [repr(task.exception()) for task in tasks if task.done()]
        report = {
            "wrong": [*(text for one in roamers for text in one.wrong), *raised, *late],
            "counts": asdict(counts),
            "broken": [seconds for one in roamers for seconds in one.broken],
            "silent": [seconds for one in roamers for seconds in one.silent],
        }
        for one in roamers:
            one.broken.clear()
            one.silent.clear()
        say(json.dumps(report))


async def _until(holds: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():
            await asyncio.sleep(0.05)


def say(text: str) -> None:
    """A line for the campaign."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--leaves", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("servers", type=int, nargs="+", metavar="PORT")
    options = parser.parse_args()
    asyncio.run(roam(options.servers, options.leaves, options.seed))


if __name__ == "__main__":
    main()
