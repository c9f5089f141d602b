"""`shmcache metrics`: prints the metrics of a cache, or serves them with the probes."""

from __future__ import annotations

import sys

from shmcache.cli import finding
from shmcache.cli.finding import DONE, USAGE, Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "Prints metrics of a cache and all its processes for Prometheus, or serves them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Once, or as a server."""
    parser.add_argument("--serve", metavar="ADDRESS:PORT",
                        help="or unix:/path: /metrics, /livez, /readyz, /healthz")  # fmt: skip
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return finding.guarded("metrics", lambda: _metrics(options))


def _metrics(options: argparse.Namespace) -> int:
    if options.serve is not None:
        return _serve(options)
    from shmcache.metrics import Meter

    with finding.open_cache(options.cache) as cache:
        sys.stdout.write(Meter(cache).text())
        sys.stdout.flush()
    return DONE


def _serve(options: argparse.Namespace) -> int:
    import signal
    import threading

    from shmcache.endpoint import Served
    from shmcache.health import Endpoint

    try:
        served = Served(options.serve, Endpoint(finding.name_of(options.cache)))
    except (ValueError, OSError) as error:
        raise Trouble(f"--serve {options.serve}: {error}", USAGE) from None
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    print(f"metrics and probes: {served.url}", flush=True)
    done.wait()
    served.close()
    return DONE
