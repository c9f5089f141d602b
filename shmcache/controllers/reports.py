"""Errors of reconciles in the log: the traceback once for each distinct error, then numbers.

All processes of a controller count together, so the log of eight workers is that of one.
"""

from __future__ import annotations

import logging

from shmcache.controllers.board import Board
from shmcache.controllers.rows import digest
from shmcache.handlers.distinct import identity, is_due

AGAIN_SECONDS = 3600.0
"""An error that has not happened for so long is logged with its traceback again."""

logger = logging.getLogger(__name__)


def report(board: Board, controller: str, key: str, error: BaseException, then: str) -> None:
    """Logs the first one with its traceback; of the others the 10th, the 100th, and so on."""
    count = board.happened(digest(repr(identity(error))), AGAIN_SECONDS)
    if count == 1:
        logger.error("%s %s: %r: %s", controller, key, error, then, exc_info=error)
    elif is_due(count):
        logger.error("%s: for the %dth time, now %s: %r", controller, count, key, error)
