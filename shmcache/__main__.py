"""The command line: `shmcache COMMAND`, or `python -m shmcache COMMAND`.

A command is imported when it is asked for, and nothing else is: help takes no longer than Python.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

EXTRAS = {
    "urllib3": "kubernetes",
    "kubernetes": "kubernetes",
    "orjson": "kubernetes",
    "h11": "demo",
}
"""What only some commands need, and the extra that installs it."""
COMMANDS = {
    "run": "keep a cache: watch the API server, one process for the whole machine",
    "serve": "answer the API server's clients from the cache: lists, reads and watches",
    "demo": "see it work: an API server, a reflector and workers, all on this machine",
    "get": "show objects of a cache, as kubectl does",
    "watch": "show what happens to objects, as it happens",
    "top": "resources, freshness, memory, workers and queues, live",
    "inspect": "verify a cache, and say all that is known of it",
    "gc": "remove what crashes left behind, and nothing that lives",
    "metrics": "print metrics in the Prometheus text format, or serve them",
    "bench": "measure this machine: reads, events and memory",
    "completion": "print a script that completes commands and resources in a shell",
    "help": "help exit-codes: what exit statuses mean",
}
EXIT_CODES = """\
Exit statuses of every command:

    0    done; run: drained after a signal
    1    something that was asked for is not there, or `inspect` found a fault
    2    the command line is wrong
    66   there is no cache of that name
    70   a bug ended the process
    75   something that may pass: another writer has the cache, all seats are taken, there is no
         room, the cache is older than --max-age
    78   the configuration is wrong: a file, the kubeconfig, who may read what, a missing package
    130  ended by ctrl-C (128 + n: by signal n)
"""


def usage() -> str:
    """What `shmcache --help` says."""
    lines = "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())
    return (
        "usage: shmcache COMMAND [ARGUMENTS]\n\n"
        "A Kubernetes informer cache for a machine, in shared memory.\n\n"
        f"commands:\n{lines}\n\n"
        "`shmcache COMMAND --help` says more; --version says which this is. Commands that read a\n"
        "cache take its name from --cache, or SHMCACHE_NAME, or the only one there is.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in {"-h", "--help"}:
        print(usage(), end="")
        raise SystemExit(0 if words else 2)
    name, rest = words[0], words[1:]
    if name == "--version":
        from shmcache import __version__

        print(f"shmcache {__version__}")
        return 0
    if name == "help":
        return _help(rest)
    if name not in COMMANDS:
        return _unknown(name)
    return _run(name, rest)


def _help(rest: list[str]) -> int:
    if rest == ["exit-codes"]:
        print(EXIT_CODES, end="")
        return 0
    return main([*rest[:1], "--help"] if rest else ["--help"])


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, 1)
    hint = f"; do you mean {near[0]}?" if near else ""
    print(f"shmcache: there is no command {name!r}{hint} See `shmcache --help`.", file=sys.stderr)
    return 2


def _run(name: str, rest: list[str]) -> int:
    import argparse
    import importlib

    module: ModuleType = importlib.import_module(f"shmcache.cli.{name}")
    parser = argparse.ArgumentParser(
        prog=f"shmcache {name}",
        description=module.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parse = parser.parse_args if hasattr(module, "REST") else parser.parse_intermixed_args
    try:
        status: int = module.run(parse(rest))
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        extra = EXTRAS[error.name]
        print(f"shmcache {name} needs {error.name}: pip install 'shmcache[{extra}]'",
              file=sys.stderr)  # fmt: skip
        return 78
    return status


if __name__ == "__main__":
    sys.exit(main())
