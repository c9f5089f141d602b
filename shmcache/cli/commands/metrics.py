"""`shmcache metrics`: prints the metrics of a cache, or serves them with the probes."""

from __future__ import annotations

import sys

from shmcache.cli.arguments import renamed
from shmcache.cli.output import finding
from shmcache.cli.output.finding import DONE, TEMPORARY, USAGE, Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "Prints the metrics of a cache and of all its processes for Prometheus, or serves them."
EPILOG = """\
Exit status: 0 the cache is up, 66 no such cache, 75 the cache has no live writer (the metrics are
printed nevertheless).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Print once, or serve."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="serve /metrics, /livez, /readyz and /healthz on HOST:PORT, :PORT or unix:PATH",
    )
    finding.add_cache(parser)
    renamed(parser, "--serve", now="--listen", dest="listen")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit status."""
    if options.listen is not None:
        return _serve(options)
    from shmcache.monitor.metering import Meter
    from shmcache.monitor.observing import observe
    from shmcache.monitor.starting import restart_command

    with finding.open_cache(options.cache) as cache:
        sys.stdout.write(Meter(cache).text())
        sys.stdout.flush()
        writer = observe(cache).writer
        if writer.beats:
            return DONE
        state = "is not responding" if writer.alive else "has ended"
        raise Trouble(
            f"cache {cache.name!r} is down: its writer {state}; start it with "
            f"`{restart_command(cache)}`",
            TEMPORARY,
        )


def _serve(options: argparse.Namespace) -> int:
    import signal
    import threading

    from shmcache.engine.config import value_types
    from shmcache.monitor.health import Endpoint
    from shmcache.monitor.metrics_server import MetricsServer

    try:
        value_types.address(options.listen)
    except ValueError as error:
        raise Trouble(f"--listen {error}, not {options.listen!r}", USAGE) from None
    name = finding.name_of(options.cache)
    try:
        served = MetricsServer(options.listen, Endpoint(name))
    except OSError as error:
        raise Trouble(*finding.explained_listen(options.listen, error)) from None
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    print(f"metrics and probes: {served.url}", flush=True)
    done.wait()
    served.close()
    return DONE
