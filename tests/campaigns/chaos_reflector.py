"""Chaos, the reflector: `shmcache run` in a process that is killed, drained and started again.

Started as a program, this is `shmcache run` that checks its memory (Writer.check) after draining.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from workers import eventually

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = f"{ROOT}:{ROOT / 'tests' / 'support'}"
CHECKED = "every invariant of the memory holds"
REWIND = "the server went back from version"
SAYINGS = {
    "relists": "listed again",
    "410": "too old resource version",
    "fallbacks": "lists instead of watch-lists",
    "rewinds": REWIND,
    "checks": CHECKED,
    "silences": ": timed out",
}
"""Counts of log lines, and the text that such lines contain."""


class Life(NamedTuple):
    """From its start to its known end."""

    began: float
    ended: float


class Reflector:
    """One `shmcache run` at a time; each check notices crashes."""

    def __init__(self, configuration: str, log: str) -> None:
        self.lives: list[Life] = []
        self.kills = self.drains = 0
        self._command = [sys.executable, __file__, "run", "-c", configuration]
        self._log = log
        self._start()

    def _start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stderr=log, env=os.environ | {"PYTHONPATH": PYTHONPATH}
            )
        self._began = time.monotonic()

    def look(self) -> None:
        """AssertionError if it ended by itself."""
        status = self._process.poll()
        assert status is None, f"the reflector ended by itself, with {status}"

    def kill(self) -> None:
        """Kills it at any instruction, and starts another one."""
        self._end(signal.SIGKILL, -signal.SIGKILL)
        self.kills += 1
        self._start()

    def drain(self) -> None:
        """Drains it in order, and starts another one."""
        self.finish()
        self._start()

    def finish(self) -> None:
        """Ends it in order, once it writes: before that, nothing is left in order. No other one
        starts."""
        eventually(self._writes, "the reflector does not start to write")
        self._end(signal.SIGTERM, 0)
        self.drains += 1

    def _writes(self) -> bool:
        self.look()
        return f": writing, pid {self._process.pid}" in Path(self._log).read_text(encoding="utf-8")

    def _end(self, number: int, wanted: int) -> None:
        self.look()
        self._process.send_signal(number)
        status = self._process.wait(60)
        assert status == wanted, f"after signal {number} the reflector ended with {status}"
        self.lives.append(Life(self._began, time.monotonic()))

    def abandon(self) -> None:
        """Kills it, in any state."""
        self._process.kill()
        self._process.wait()


def logged(path: str) -> Counter[str]:
    """How often each of SAYINGS was logged; AssertionError for an error that no fault explains."""
    found: Counter[str] = Counter()
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        record = _record(line)
        level, message = record["level"], record["message"]
        found[level] += 1
        for name, saying in SAYINGS.items():
            found[name] += saying in message
        explained = REWIND in message or level not in {"error", "critical"}
        assert explained, f"logged: {line}"
        assert "exception" not in record, f"logged: {line}"
    return found


def _record(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        raise AssertionError(f"no line of the log: {line}") from None
    return found


def main() -> int:
    """`shmcache` with a writer that checks itself."""
    from shmcache import __main__
    from shmcache.engine import service
    from shmcache.writer import writer

    class Checked(writer.Writer):
        def leave(self) -> None:
            self.check()
            logging.getLogger("shmcache.chaos").info(CHECKED)
            super().leave()

    vars(service)["Writer"] = Checked
    return __main__.main()


if __name__ == "__main__":
    sys.exit(main())
