"""`shmcache run`: keeps a cache as a file, the environment and these flags say."""

from __future__ import annotations

import argparse
from typing import Any

HELP = "Watches the API server and keeps the cache: one process for the whole machine."

_TOP = ("name", "server", "kubeconfig", "context", "namespaces", "max_age", "requests_per_second",
        "metrics", "replay", "record")  # fmt: skip
_MEMORY = ("arena_max", "ring_slots", "ring_bytes", "garbage_max", "seats", "mode")
_RESOURCE = ("labels", "fields", "transform", "max_bytes")

EPILOG = """\
Flags replace what the environment (SHMCACHE_NAME, SHMCACHE_ARENA_MAX, ...) says, which replaces
what the file says. --labels, --fields, --transform, --metadata-only and --max-bytes are about the
resources named on the command line. Exit status: 0 drained, 2 usage, 70 a bug, 75 try again later,
78 configuration.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each key that is worth one; the file has all of them."""
    parser.epilog = EPILOG
    parser.add_argument("resources", nargs="*", metavar="RESOURCE", help="pods, deployments.apps…")
    parser.add_argument("-c", "--config", metavar="FILE", help="a TOML file (or SHMCACHE_CONFIG)")
    parser.add_argument("--name", help="of the cache (default: shmcache)")
    parser.add_argument("--index", action="append", default=[], metavar="RESOURCE:NAME=PATH",
                        help="pods:node=spec.nodeName; several times")  # fmt: skip
    parser.add_argument("-n", "--namespaces", metavar="A,B", help="only these (default: all)")
    parser.add_argument("-l", "--labels", metavar="SELECTOR", help="a label selector")
    parser.add_argument("--fields", metavar="SELECTOR", help="a field selector")
    parser.add_argument("--transform", metavar="MODULE:FUNCTION", help="applied to each object")
    parser.add_argument("--metadata-only", action="store_true", default=None)
    parser.add_argument("--max-bytes", metavar="SIZE", help="of JSON, for each of the resources")
    parser.add_argument("--max-age", metavar="SECONDS", help="until silence is stale (120s)")
    parser.add_argument("--allow-secrets", action="store_true", default=None)
    parser.add_argument("-s", "--server", metavar="URL", help="without a kubeconfig")
    parser.add_argument("--kubeconfig", metavar="FILE", help="as kubectl's")
    parser.add_argument("--context", help="of the kubeconfig")
    parser.add_argument("--requests-per-second", metavar="N", help="started at most (20)")
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=None,
                        help="leave the memory to the next run when told to end (yes)")  # fmt: skip
    parser.add_argument("--standby", action=argparse.BooleanOptionalAction, default=None,
                        help="wait while the cache has another writer (yes)")  # fmt: skip
    for name in _MEMORY:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--metrics", metavar="ADDRESS:PORT",
                        help="or unix:/path: /metrics, /livez, /readyz, /healthz")  # fmt: skip
    parser.add_argument("--log-format", choices=["text", "json"])
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--replay", metavar="FILE", help="a recording instead of a server")
    parser.add_argument("--record", metavar="FILE", help="all that the server says; a new file")
    parser.add_argument("--validate", action="store_true",
                        help="checks everything, shows what would be cached, and ends")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    from shmcache.engine import configuration, keys, logs, plans

    try:
        flags = flags_of(options)
    except ValueError as error:
        print(f"shmcache run: {error}", file=_err())
        return 2
    try:
        wanted = configuration.of_process(options.config, flags)
    except (keys.ConfigurationError, plans.PlanError) as error:
        print(f"shmcache run: {error}", file=_err())
        return 78
    logs.start_logging(wanted.log_format, wanted.log_level)
    if options.validate:
        from shmcache.cli import run_validate

        return run_validate.validate(wanted)
    from shmcache.engine import service

    return service.run(wanted)


def flags_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the flags say, in the form of a file. ValueError if an --index cannot be read."""
    given = vars(options)
    top = (*_TOP, "log_format", "log_level", "allow_secrets", "keep", "standby")
    found: dict[str, Any] = {name: given[name] for name in top if given[name] is not None}
    found["memory"] = {name: given[name] for name in _MEMORY if given[name] is not None}
    shared = {name: given[name] for name in _RESOURCE if given[name] is not None}
    if options.metadata_only:
        shared["metadata_only"] = True
    if shared and not options.resources:
        raise ValueError(f"--{next(iter(shared)).replace('_', '-')} needs resources that it is for")
    tables: dict[str, dict[str, Any]] = {name: dict(shared) for name in options.resources}
    for text in options.index:
        resource, name, path = _index(text)
        tables.setdefault(resource, {}).setdefault("indices", {})[name] = path
    found["resources"] = tables
    return found


def _index(text: str) -> tuple[str, str, str]:
    resource, colon, rest = text.partition(":")
    name, equals, path = rest.partition("=")
    if not (resource and colon and name and equals and path):
        raise ValueError(f"--index {text!r}: RESOURCE:NAME=PATH is wanted, as in pods:node=spec.x")
    return resource, name, path


def _err() -> Any:
    import sys

    return sys.stderr
