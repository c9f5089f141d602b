"""`shmcache demo`: an API server with generated pods, `shmcache run`, workers, and a live table.

Needs nothing but this machine, ends by itself (or by ctrl-C, or SIGTERM), leaves nothing behind.
"""

from __future__ import annotations

import argparse
from typing import Any

HELP = "An API server, one reflector, several workers, generated pods: all of it on this machine."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be changed; the defaults suit a laptop."""
    parser.add_argument("--seconds", type=float, default=20, help="how long (default: 20)")
    parser.add_argument("--workers", type=int, default=4, help="processes (default: 4)")
    parser.add_argument("--pods", type=int, default=10_000, help="objects (default: 10000)")
    parser.add_argument("--rate", type=int, default=1000, help="changes a second (default: 1000)")


def run(options: argparse.Namespace) -> int:
    """The whole demo; its exit status."""
    from shmcache.cli import demo_show

    shown: Any = demo_show
    status: int = shown.show(options)
    return status
