"""The command line: `shmcache run`, or `python -m shmcache run`."""

from __future__ import annotations

import argparse
import sys

from shmcache import __version__
from shmcache.cli import bench, demo, run, serve

EXTRAS = {
    "urllib3": "kubernetes",
    "kubernetes": "kubernetes",
    "orjson": "kubernetes",
    "h11": "demo",
}
"""What only some commands need, and the extra that installs it."""
COMMANDS = {"run": run, "serve": serve, "demo": demo, "bench": bench}


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="shmcache", description="A Kubernetes informer cache for a machine, in shared memory."
    )
    parser.add_argument("--version", action="version", version=f"shmcache {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    chosen = parser.parse_args(arguments)
    try:
        status: int = COMMANDS[chosen.command].run(chosen)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        extra = EXTRAS[error.name]
        print(f"shmcache {chosen.command} needs {error.name}: pip install 'shmcache[{extra}]'",
              file=sys.stderr)  # fmt: skip
        return 78
    return status


if __name__ == "__main__":
    sys.exit(main())
