"""`shmcache top`: resources, freshness, memory, workers and queues of a cache, live."""

from __future__ import annotations

import json
import sys
import time

from shmcache.cli.arguments import value
from shmcache.cli.output import finding, report
from shmcache.cli.output.finding import DONE
from shmcache.cli.output.screen import BOLD, GREEN, RED, YELLOW, Screen
from shmcache.errors import ShmCacheError
from shmcache.monitor import observing
from shmcache.reasons import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from shmcache.monitor.observing import Observed, Survey
    from shmcache.reader.cache import Cache

HELP = "Shows resources, freshness, memory, workers and queues of a cache, live; q quits."
SURVEY_SECONDS = 5.0
COLOURS = {"synced": GREEN, "listing": YELLOW, "retrying": YELLOW, "stale": RED, "exceeded": RED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How often, and in which form."""
    parser.add_argument("--once", action="store_true", help="show the cache once and exit")
    parser.add_argument(
        "-d",
        "--delay",
        type=value("seconds"),
        default=1.0,
        metavar="DURATION",
        help="time between updates (default: 1s)",
    )
    parser.add_argument(
        "-o", "--output", choices=["json"], help="print a line of JSON for each update"
    )
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return _top(options)


class Looks:
    """One look after another; the walk that counts bytes is repeated every few seconds only."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._survey: Survey | None = None
        self._generation = -1
        self._due = 0.0

    def survey(self) -> Survey | None:
        """Of some seconds ago at most; None where the writer was faster than the walk."""
        if time.monotonic() >= self._due and self._generation != self._cache.latest:
            self._generation = self._cache.latest
            try:
                self._survey = observing.survey(self._cache)
            except ShmCacheError:
                self._survey = None
            self._due = time.monotonic() + SURVEY_SECONDS
        return self._survey

    def text(self, screen: Screen) -> list[str]:
        """The picture."""
        at, survey = observing.observe(self._cache), self.survey()
        well = GREEN if at.writer.beats else RED
        lines = [
            f"{screen.paint(at.name, BOLD)}  {time.strftime('%H:%M:%S')}",
            f"writer  {screen.paint(report.writer(at), well)}",
            *report.wrapped("state   ", _numbers(at), screen.shape[0]),
            *report.wrapped("memory  ", report.memory(at), screen.shape[0]),
            *self._recorder(at, screen),
            "",
        ]
        if survey is not None and survey.fault:
            lines.insert(1, screen.paint(f"BROKEN  {survey.fault}", RED, BOLD))
        rows = report.resources(at, survey).splitlines()
        lines += [rows[0], *(_coloured(screen, row) for row in rows[1:])]
        lines += [
            f"  {name}: {printable(status.reason)}"
            for name, status in at.resources.items()
            if status.reason
        ]
        lines += ["", *report.workers(at).splitlines()]
        queues = report.queues(observing.queues(self._cache))
        return [*lines, *(["", *queues.splitlines()] if queues else [])]

    @staticmethod
    def _recorder(at: Observed, screen: Screen) -> list[str]:
        text = report.recorder(at)
        if not text or at.recorder is None:
            return []
        first, *rest = report.wrapped("recorder ", text, screen.shape[0])
        return [screen.paint(first, "" if at.recorder.records else RED), *rest]

    def json(self) -> str:
        """The same in one line."""
        at = observing.observe(self._cache)
        return json.dumps(report.as_json(at, self.survey(), observing.queues(self._cache)))


def _numbers(at: Observed) -> str:
    return (
        f"generation {at.generation:,}, window {at.head - at.tail:,} of {at.ring_slots // 2:,} "
        f"changes, seats {len(at.workers)} of {at.seats}"
    )


def _coloured(screen: Screen, row: str) -> str:
    state = row.split()[1]
    return row.replace(f" {state} ", f" {screen.paint(state, COLOURS.get(state, ''))} ", 1)


def _top(options: argparse.Namespace) -> int:
    with finding.open_cache(options.cache) as cache:
        looks = Looks(cache)
        if options.once:
            finding.warn_without_writer(cache)
        if options.output:
            return _lines(looks, options)
        if options.once:
            print("\n".join(looks.text(Screen())))
            return DONE
        with Screen() as screen:
            while True:
                screen.draw(looks.text(screen))
                if screen.wait(options.delay):
                    return DONE


def _lines(looks: Looks, options: argparse.Namespace) -> int:
    while True:
        sys.stdout.write(looks.json() + "\n")
        sys.stdout.flush()
        if options.once:
            return DONE
        time.sleep(options.delay)
