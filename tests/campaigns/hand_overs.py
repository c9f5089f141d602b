"""Machines of one controller are killed, stopped and cut off while they work; their slots move.

    python tests/campaigns/hand_overs.py --hand-overs 100 --seed 7

Three machines, each a cache and a group of processes, share the keys of a controller by Leases at
an API server. In each turn one of them is killed (SIGKILL) or stopped (SIGSTOP) with all of its
processes, or loses the server (a proxy that passes nothing on), while all keys change all the
time. The wall clock of each machine is up to an hour off, and jumps with each turn.

    HAND1  The slots are with the other machines within the duration of the Lease and a second.
    HAND2  No two processes are in a key at once, unless the earlier one was stopped, and has an
        older token, by which the receiver of a write refuses it (docs/leader.md).
    HAND3  Each key is reconciled with its last version, in each turn.

The last line is "passed"; anything else is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from controlled import Line
from sharing_machines import PODS, Machine, Site
from wall_clock import WallClock
from workers import eventually

MACHINES = 3
HOUR = 3600
WORK_SECONDS = "0.01"
CHANGE_SECONDS = 0.3
KINDS = ("kill", "stop", "cut")


class Acts:
    """Reads the journal once, and checks it while it grows."""

    def __init__(self, site: Site) -> None:
        self.stopped: set[int] = set()
        """The processes that were stopped at any time."""
        self.begun: dict[str, int] = {}
        """The last version with which each key was begun."""
        self.overlaps = 0
        """Acts of stopped processes in keys of their successors (HAND2)."""
        self.count = 0
        self._path = Path(site.journal.path)
        self._offset = 0
        self._inside: dict[str, dict[int, int]] = {}
        self._gone: set[tuple[str, int]] = set()
        """Keys, and processes that died in them."""
        self._newest: dict[str, int] = {}

    def read(self) -> None:
        """HAND2, for all that was written since the last time."""
        if not self._path.exists():
            return
        with self._path.open(encoding="utf-8") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in whole.splitlines():
            self._note(Line(*json.loads(line)))

    def _note(self, line: Line) -> None:
        self.count += 1
        inside = self._inside.setdefault(line.key, {})
        if (line.key, line.pid) in self._gone:
            self._gone.discard((line.key, line.pid))
            self._overlap(line, line.pid)
        if line.what == "begin":
            self.begun[line.key] = int(line.version or 0)
        elif line.what == "end":
            inside.pop(line.pid, None)
        elif line.what == "token":
            self._enter(line, int(line.version or 0))

    def _enter(self, line: Line, token: int) -> None:
        inside = self._inside[line.key]
        newest = self._newest.get(line.key, 0)
        for pid, theirs in list(inside.items()):
            assert theirs != token or not _lives(pid), f"{pid} and {line.pid} are in {line.key}"
            if _lives(pid):
                self._overlap(line, pid if theirs < token else line.pid)
            else:
                del inside[pid]
                self._gone.add((line.key, pid))
        assert token >= newest or line.pid in self.stopped, f"{line}, and there was {newest}"
        inside[line.pid] = token
        self._newest[line.key] = max(newest, token)

    def _overlap(self, line: Line, old: int) -> None:
        self.overlaps += 1
        assert old in self.stopped, f"{line}: process {old} was in this key, and not stopped"


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Campaign:
    """The machines, and what is done to them."""

    def __init__(self, site: Site, clocks: Path, duration: float, seed: int) -> None:
        self.site = site
        self.limit = duration + 1.0
        self.acts = Acts(site)
        self.moves: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self._rng = random.Random(f"{seed} hand-overs")
        times = {"duration": duration, "renew_deadline": duration * 2 / 3}
        self._lease = {**times, "retry_period": duration / 15}
        self._clocks = []
        self._machines: list[Machine] = []
        for number in range(MACHINES):
            folder = clocks / str(number)
            folder.mkdir()
            self._clocks.append(WallClock(folder))
            self._machines.append(self._start(number))

    def _start(self, number: int) -> Machine:
        clock = self._clocks[number]
        before = {name: os.environ.get(name) for name in clock.environment}
        os.environ.update(clock.environment)
        try:
            lease = {**self._lease, "identity": f"m{number}"}
            if number < len(self._machines):
                return self.site.restart(self._machines[number], "machines", lease)
            return self.site.machine("machines", lease)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    def turn(self, kind: str) -> None:
        """One hand-over, and the way back."""
        self._settle()
        number = self._rng.randrange(MACHINES)
        self._clocks[number].move(self._rng.randint(-HOUR, HOUR))
        self._work(self._rng.uniform(0.0, 1.0), lambda: False)
        machine, proxy = self._machines[number], self.site.proxies[self._machines[number].name]
        pids = machine.pids()
        begin = time.monotonic()
        if kind == "kill":
            machine.signal_all(signal.SIGKILL)
        elif kind == "stop":
            self.acts.stopped |= pids
            machine.signal_all(signal.SIGSTOP)
        else:
            proxy.cut()
        self._work(10 * self.limit, lambda: f"m{number}" not in self.site.owners().owners)
        self.moves[kind].append(time.monotonic() - begin)
        say(f"{kind}: {self.moves[kind][-1]:.2f} s")
        self._reconcile_all()
        if kind == "kill":
            self._machines[number] = self._start(number)
        elif kind == "stop":
            machine.signal_all(signal.SIGCONT)
        else:
            proxy.mend()

    def end(self) -> None:
        """The last look."""
        self._settle()
        self._reconcile_all()

    def _settle(self) -> None:
        names = {f"m{number}" for number in range(MACHINES)}
        eventually(lambda: set(self.site.owners().owners) == names, "a machine does not come back")

    def _work(self, seconds: float, holds: Any) -> None:
        """Keys change until it holds, or until the time is over."""
        end, change = time.monotonic() + seconds, 0.0
        while not holds() and (now := time.monotonic()) < end:
            if now >= change:
                self.site.change()
                change = now + CHANGE_SECONDS
            self.acts.read()
            time.sleep(0.01)

    def _reconcile_all(self) -> None:
        """HAND3."""
        self.site.change()
        version = self.site.version

        def done() -> bool:
            self.acts.read()
            last = self.acts.begun
            return len(last) == PODS and all(found >= version for found in last.values())

        eventually(done, f"a key was not reconciled with version {version}")


def run(hand_overs: int, duration: float, seed: int, *, name: str, folder: Path) -> float:
    """HAND2 and HAND3: AssertionError where one is broken. The seconds of the slowest move."""
    with ExitStack() as stack:
        site = Site(name, str(folder / "journal"), stack, do="token", value=WORK_SECONDS)
        campaign = Campaign(site, folder, duration, seed)
        for turn in range(hand_overs):
            campaign.turn(KINDS[turn % len(KINDS)])
        campaign.end()
        acts, slowest = campaign.acts, max(max(one, default=0) for one in campaign.moves.values())
        for kind, times in campaign.moves.items():
            if times:
                middle = sorted(times)[len(times) // 2]
                say(f"{kind}: {len(times)} times, {middle:.2f} s, at most {max(times):.2f} s")
        say(f"{acts.count} lines of reconciles, {acts.overlaps} in keys of a successor, all fenced")
        return slowest


def say(text: str) -> None:
    """A line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hand-overs", type=int, default=100)
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--duration", type=float, default=3.0, help="of the Leases, in seconds")
    parser.add_argument("--logs", type=Path, help="keep the logs of all machines there")
    options = parser.parse_args()
    say(f"SEED={options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        at = options.logs or Path(folder)
        name = f"moves-{os.getpid()}"
        slowest = run(options.hand_overs, options.duration, options.seed, name=name, folder=at)
    assert slowest <= options.duration + 1.0, "HAND1"
    say("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
