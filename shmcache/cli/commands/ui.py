"""`shmcache ui`: a page that shows a cache live, in a browser."""

from __future__ import annotations

import argparse
import dataclasses

from shmcache.cli.commands import serve
from shmcache.cli.output.finding import USAGE, Trouble

ADDRESS = "127.0.0.1:8002"
HELP = "Shows a cache live in a browser: resources, workers, queues, changes, objects, history."
EPILOG = """\
Open the printed address in a browser. The server is the one of `shmcache serve`, with the same
access rules, so it also answers the Kubernetes API; `shmcache serve --ui` adds the page to a server
that runs anyway. Data of any age are shown, with their age.

Exit status: 0 ended normally, 2 command line, 70 internal error, 75 try again later,
77 permission denied, 78 configuration.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `serve`, with another address."""
    serve.add_options(parser, address=ADDRESS, max_age="0")
    parser.epilog = EPILOG


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit status."""
    from shmcache.engine import logs
    from shmcache.serve import process

    try:
        wanted = serve.options_of(options)
    except ValueError as error:
        raise Trouble(str(error), USAGE) from None
    logs.start_logging(options.log_format, options.log_level)
    return process.run(dataclasses.replace(wanted, ui=True))
