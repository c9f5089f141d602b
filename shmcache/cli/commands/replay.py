"""`shmcache replay`: a cache that goes through a flight record, at any speed."""

from __future__ import annotations

import signal
import sys
import threading

from shmcache.cli.arguments import value
from shmcache.cli.output import past
from shmcache.cli.output.finding import DONE, USAGE, Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "Feeds a cache from a flight record: its workers see the recorded changes again."
EPILOG = """\
  shmcache replay /var/lib/shmcache --cache incident
  shmcache replay /var/lib/shmcache --cache incident --speed 10 --at 2026-11-19T21:00:00Z

The record is that of `shmcache run --recorder DIR`. The cache begins with the state of --at, or
with the first one that is known, and keeps the last one until ctrl-C. (`shmcache run --replay FILE`
is another thing: it gives a reflector the answers of a server that `run --record` kept.)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which record, from where on, how fast."""
    parser.epilog = EPILOG
    parser.usage = "shmcache replay DIR --cache NAME [OPTIONS]"
    parser.add_argument("directory", metavar="DIR", help="directory of the flight record")
    parser.add_argument("--cache", metavar="NAME", help="name of the cache to feed (required)")
    past.add_at(parser, help="begin with this state: 2026-11-19T21:00:00Z or -6h")
    past.add_at(parser, "--until", help="end with this state")
    parser.add_argument(
        "--speed",
        type=value("factor"),
        metavar="N",
        help="1: as fast as it happened, 10: ten times as fast (default: without pauses)",
    )
    parser.add_argument(
        "--exit", action="store_true", help="remove the cache and exit at the end of the record"
    )


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    from shmcache.recorder.player import Player

    if not options.cache:
        raise Trouble("replay makes a cache of its own: name it with --cache", USAGE)
    for moment in (options.at, options.until):
        if moment is not None and moment.version is not None:
            raise Trouble("replay goes by times; give -6h or 2026-11-19T21:00:00Z", USAGE)
    record = past.opened_record(options.directory)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    since = options.at.time_ns if options.at else None
    until = options.until.time_ns if options.until else None
    with Player(record, options.cache, since_ns=since) as player:
        print(f"shmcache: {options.cache}: {player.clock}", file=sys.stderr)
        for text in player.play(until_ns=until, speed=options.speed, over=over):
            print(f"shmcache: warning: {text}", file=sys.stderr)
        print(f"shmcache: {options.cache}: {player.clock}, the end", file=sys.stderr)
        if not options.exit:
            over.wait()
    return DONE
