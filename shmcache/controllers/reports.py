"""Errors of reconciles in the log: the traceback once for each distinct error, then numbers.

Distinct is where it was raised, and what it is; not its text, which has the key in it. All
processes of a controller count together, so the log of eight workers is that of one.
"""

from __future__ import annotations

import logging
import traceback

from shmcache.controllers.board import Board
from shmcache.controllers.places import digest

AGAIN_SECONDS = 3600.0
"""One that has not happened for so long is told anew."""

logger = logging.getLogger(__name__)


def identity(error: BaseException) -> int:
    """The same for the same error from the same lines, in every process."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 16:
        frames = traceback.extract_tb(seen.__traceback__)
        lines = [f"{frame.filename}:{frame.lineno}" for frame in frames[-8:]]
        parts.append(f"{type(seen).__module__}.{type(seen).__qualname__} {lines}")
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return digest("\n".join(parts))


def report(board: Board, controller: str, key: str, error: BaseException, then: str) -> None:
    """Logs the first one with its traceback; of the others the 10th, the 100th, and so on."""
    count = board.happened(identity(error), AGAIN_SECONDS)
    if count == 1:
        logger.error("%s %s: %r: %s", controller, key, error, then, exc_info=error)
    elif str(count).strip("0") == "1":
        logger.error("%s: for the %dth time, now %s: %r", controller, count, key, error)
