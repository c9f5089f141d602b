"""`shmcache top`: resources, freshness, memory, workers and queues of a cache, live."""

from __future__ import annotations

import json
import sys
import time

from shmcache import observing
from shmcache.cli import finding, report
from shmcache.cli.finding import DONE
from shmcache.cli.screen import BOLD, GREEN, RED, YELLOW, Screen
from shmcache.errors import ShmCacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from shmcache.observing import Observed, Survey
    from shmcache.reader import Cache

HELP = "Shows resources, freshness, memory, workers and queues of a cache, live. q ends it."
SURVEY_SECONDS = 5.0
COLOURS = {"synced": GREEN, "listing": YELLOW, "retrying": YELLOW, "stale": RED, "exceeded": RED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How often, and in which form."""
    parser.add_argument("--once", action="store_true", help="one picture, then end")
    parser.add_argument("-d", "--delay", type=float, default=1.0, metavar="SECONDS",
                        help="between two looks (1)")  # fmt: skip
    parser.add_argument("-o", "--output", choices=["json"], help="a line of JSON for each look")
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return finding.guarded("top", lambda: _top(options))


class Looks:
    """One look after another; the walk for bytes is done anew only now and then."""

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
            f"{screen.paint(at.name, BOLD)}  {time.strftime('%H:%M:%S')}  {_numbers(at)}",
            f"writer  {screen.paint(report.writer(at), well)}",
            f"memory  {report.memory(at)}",
            "",
        ]
        if survey is not None and survey.fault:
            lines.insert(3, screen.paint(f"BROKEN  {survey.fault}", RED, BOLD))
        rows = report.resources(at, survey).splitlines()
        lines += [rows[0], *(_coloured(screen, row) for row in rows[1:])]
        lines += [
            f"  {name}: {status.reason}" for name, status in at.resources.items() if status.reason
        ]
        lines += ["", *report.workers(at).splitlines()]
        queues = report.queues(observing.queues(self._cache))
        return [*lines, *(["", *queues.splitlines()] if queues else [])]

    def json(self) -> str:
        """The same in one line."""
        at = observing.observe(self._cache)
        return json.dumps(report.as_json(at, self.survey(), observing.queues(self._cache)))


def _numbers(at: Observed) -> str:
    return (
        f"generation {at.generation:,}  window {at.head - at.tail:,} of {at.ring_slots // 2:,} "
        f"changes  seats {len(at.workers)} of {at.seats}"
    )


def _coloured(screen: Screen, row: str) -> str:
    state = row.split()[1]
    return row.replace(f" {state} ", f" {screen.paint(state, COLOURS.get(state, ''))} ", 1)


def _top(options: argparse.Namespace) -> int:
    with finding.open_cache(options.cache) as cache:
        looks = Looks(cache)
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
