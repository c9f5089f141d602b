"""The flight recorder's own process: `python -m shmcache.engine.recorder_process`.

RECPROC1  It ends with the reflector: SIGTERM after the last feed has ended lets it record what
the ring has; if the reflector dies, the kernel kills it, and nothing that was acknowledged
is lost (RECORD2).
RECPROC2  SIGINT of a terminal is the reflector's to answer.
RECPROC3  Whatever fails, it goes on trying, and reports what fails: in its file next to
the cache, and once in the log for each change.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from types import FrameType

from shmcache import _native
from shmcache.engine.logs import start_logging
from shmcache.errors import ShmCacheError
from shmcache.reader.cache import Cache, attach
from shmcache.reasons import reason_at
from shmcache.recorder.recorder import FlightRecorder
from shmcache.recorder.shelf import RecorderLimits
from shmcache.recorder.standing import FAILING, RECORDING, RecorderStatus, StandingFile, standing_of

logger = logging.getLogger("shmcache.recorder")

LOOK_SECONDS = 0.25
AGAIN_SECONDS = 2.0
ATTACH_SECONDS = 60.0
DONE, TEMPORARY = 0, 75


def main(arguments: list[str] | None = None) -> int:
    """The life of the process; its exit status."""
    options = _parse(arguments)
    over = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        over.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.parent and _native.lib.shmc_die_with_parent(options.parent) != _native.OK:
        return TEMPORARY  # the reflector is gone already
    start_logging(options.log_format, options.log_level)
    try:
        with attach(options.cache, timeout=ATTACH_SECONDS) as cache:
            RecorderLoop(cache, options.directory, options.limits, options.mode).run(over)
    except (ShmCacheError, BlockingIOError) as error:
        logger.warning("%s", error)
        return TEMPORARY
    return DONE


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shmcache.engine.recorder_process")
    parser.add_argument("cache")
    parser.add_argument("directory")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--mode", type=int, default=0o600)
    parser.add_argument("--keep", type=float, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--log-format", default="text")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args(arguments)
    options.limits = RecorderLimits(keep=options.keep, bytes=options.bytes)
    return options


class RecorderLoop:
    """A recorder, and what it says of itself. For one thread."""

    def __init__(self, cache: Cache, directory: str, limits: RecorderLimits, mode: int) -> None:
        """BlockingIOError if this cache has another recorder."""
        self._cache = cache
        self._directory = directory
        self._limits = limits
        self._file = StandingFile(cache.place, mode)
        self._said = ("", "")

    def run(self, over: threading.Event) -> None:
        """Until `over`; what the ring has then is recorded."""
        recorder: FlightRecorder | None = None
        try:
            while recorder is None and not over.is_set():
                recorder = self._open()
                if recorder is None:
                    over.wait(AGAIN_SECONDS)
            while recorder is not None and not over.wait(LOOK_SECONDS):
                recorder.step()
                self._tell(recorder.standing)
        finally:
            if recorder is not None:
                recorder.close()
                self._tell(recorder.standing)
            self._file.close()

    def _open(self) -> FlightRecorder | None:
        try:
            return FlightRecorder(self._cache, self._directory, self._limits)
        except BlockingIOError:
            why = (FAILING, f"another recorder writes in {self._directory}")
        except OSError as error:
            why = standing_of(error)
        standing = RecorderStatus(self._directory)
        standing.state, standing.reason = why
        self._tell(standing)
        return None

    def _tell(self, standing: RecorderStatus) -> None:
        """RECPROC3."""
        said = (standing.state, standing.reason)
        if said != self._said:
            if standing.state != RECORDING:
                logger.error(
                    "%s: changes are not recorded: %s (%s); the cache goes on",
                    standing.directory, standing.reason, standing.state,
                )  # fmt: skip
            elif self._said[0]:
                logger.info("%s: changes are recorded again", standing.directory)
            else:
                logger.info("changes are recorded in %s", standing.directory)
            self._said = said
        try:
            self._file.write(standing)
        except OSError as error:
            logger.debug("the state of the recorder cannot be written: %s", reason_at(error))


if __name__ == "__main__":
    sys.exit(main())
