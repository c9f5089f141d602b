"""Log lines of a reflector process: for people, or one JSON object each."""

from __future__ import annotations

import json
import logging
import sys
import time

from shmcache.reasons import printable


class Readable(logging.Formatter):
    """2026-03-01 12:00:00.123 INFO  pods: 10000 objects at version 77 in 0.29 s."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and an exception below it; REASON2."""
        return printable(super().format(record))


class Json(logging.Formatter):
    """{"time": "...Z", "level": "info", "logger": "...", "thread": "...", "message": "..."}."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the message."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_logging(form: str, level: str) -> None:
    """Sends our own log lines to standard error; what others log stays at warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Readable())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("shmcache").setLevel(level.upper())
    logging.captureWarnings(capture=True)
