"""The command line: `shmcache COMMAND`, or `python -m shmcache COMMAND`.

Only the module of the command in use is imported: help takes no longer than Python itself. Every
failure ends as one sentence on standard error and an exit status of EXIT_CODES; only a bug shows a
traceback.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

EXTRAS = {
    "urllib3": "kubernetes",
    "yaml": "kubernetes",
    "orjson": "kubernetes",
    "h11": "demo",
}
"""Packages that only some commands need, and the extra that installs each."""
COMMANDS = {
    "run": "keep a cache: one process watches the API server for the whole machine",
    "serve": "answer API clients from the cache: gets, lists and watches",
    "relay": "keep a cache and serve it: caches of other machines follow it",
    "ui": "show a cache live in a browser",
    "demo": "see it work: an API server, a reflector and workers on this machine",
    "get": "show objects of a cache, as kubectl does",
    "diff": "show the changes between a past state and now",
    "blame": "show each change to an object: when, which fields, by whom",
    "replay": "feed a cache from a flight record, at any speed",
    "watch": "show changes to objects as they happen",
    "top": "show resources, freshness, memory, workers and queues, live",
    "inspect": "verify a cache and show everything about it",
    "verify": "compare a cache with its API server now, and repair what differs",
    "gc": "remove the leftovers of crashed caches; live caches stay",
    "metrics": "print metrics in the Prometheus text format, or serve them",
    "bench": "measure reads, events and memory on this machine",
    "completion": "print a shell script that completes commands and resources",
    "help": "show help for a command; `help exit-codes` lists exit statuses",
}
EXIT_CODES = """\
Exit statuses of every command:

    0    success; run and serve: ended normally after a signal
    1    an object or resource was not found, `inspect` found a fault, or `verify` a
         difference
    2    invalid command line
    66   no cache of that name
    69   the API server cannot be reached, or `verify` could not compare a resource
    70   internal error: please report it
    74   reading or writing a file failed
    75   temporary failure, try again: another process writes the cache, all seats are taken, no
         memory is left, the cache is older than --max-age or its writer has ended
    77   permission denied: by the API server or by the system
    78   invalid configuration: a file, the kubeconfig, a setting, a missing package
    130  interrupted by ctrl-C (128 + n: ended by signal n)
"""


def usage() -> str:
    """The text of `shmcache --help`."""
    lines = "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())
    return (
        "usage: shmcache COMMAND [ARGUMENTS]\n\n"
        "A Kubernetes informer cache for a whole machine, in shared memory.\n\n"
        f"commands:\n{lines}\n\n"
        "`shmcache COMMAND --help` describes a command; `shmcache --version` prints the version.\n"
        "Commands that read a cache take its name from --cache or SHMCACHE_NAME; if neither is\n"
        "given and there is only one cache, they use that one.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        print(usage(), end="", file=sys.stderr)
        return 2
    name, rest = given[0], given[1:]
    if name in {"-h", "--help"}:
        print(usage(), end="")
        return 0
    if name in {"--version", "-V", "version"}:
        return _version(rest)
    if name == "help":
        return _help(rest)
    if name not in COMMANDS:
        return _unknown(name)
    return _run(name, rest)


def _version(rest: list[str]) -> int:
    if rest:
        return _unexpected(rest[0])
    from shmcache import __version__

    print(f"shmcache {__version__}")
    return 0


def _help(rest: list[str]) -> int:
    if rest == ["exit-codes"]:
        print(EXIT_CODES, end="")
        return 0
    if rest[1:]:
        return _unexpected(rest[1])
    return main([*rest, "--help"] if rest and rest != ["help"] else ["--help"])


def _unexpected(argument: str) -> int:
    print(f"shmcache: unexpected argument {argument!r} (see `shmcache --help`)", file=sys.stderr)
    return 2


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    what = "option" if name.startswith("-") else "command"
    near = get_close_matches(name, [*COMMANDS, "--help", "--version"], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    print(f"shmcache: unknown {what} {name}{hint} (see `shmcache --help`)", file=sys.stderr)
    return 2


def _run(name: str, rest: list[str]) -> int:
    """Runs a command; a failure of any kind becomes one sentence and an exit status."""
    import importlib

    from shmcache.cli.arguments import Parser
    from shmcache.cli.output import finding

    try:
        module: ModuleType = importlib.import_module(f"shmcache.cli.commands.{name}")
        parser = Parser(name, module.HELP)
        module.add_arguments(parser)
        rest_at = getattr(module, "REST", None)
        parse = parser.parse_args if rest_at else parser.parse_intermixed_args
        options = parse(rest)
        return finding.guarded(name, lambda: int(module.run(options)))
    except ModuleNotFoundError as error:
        return _missing(name, error)
    except KeyboardInterrupt:
        return 130


def _missing(name: str, error: ModuleNotFoundError) -> int:
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        raise error
    print(
        f"shmcache {name} needs the package {package}: pip install 'shmcache[{EXTRAS[package]}]'",
        file=sys.stderr,
    )
    return 78


if __name__ == "__main__":
    sys.exit(main())
