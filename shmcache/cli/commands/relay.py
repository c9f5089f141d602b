"""`shmcache relay`: `run` and `serve` under one supervisor, for caches on other machines."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from functools import partial
from typing import Any

from shmcache.cli.arguments import Parser
from shmcache.cli.commands import run as reflector
from shmcache.cli.commands import serve as server
from shmcache.cli.output.finding import USAGE, WRONG

HELP = "Keeps a cache and serves it: caches on other machines follow it instead of the API server."
EPILOG = """\
A reflector and its servers are children of one process, which starts them again when they end; they
share a cache on this machine. Clients follow with `shmcache run --server`, which takes several
relays. Relays pass on the resourceVersions of the API server, so a client can switch relays without
a new list. --review asks the last --server. docs/relays.md describes a deployment.

  shmcache relay pods --server kube --listen :8443 --tls-cert tls.crt --tls-key tls.key --review
  shmcache run pods --server https://relay-a:8443 --server https://relay-b:8443 --server kube

Exit status: 0 ended normally, 2 command line, 70 internal error, 75 try again later,
77 permission denied, 78 configuration.
"""
_APART = frozenset({"listen", "max_age"})
"""Flags that `run` and `serve` both have, and mean differently."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `serve`, and those of `run` for objects and the API server."""
    parser.epilog = EPILOG
    parser.usage = "shmcache relay [RESOURCE ...] [OPTIONS]"
    parser.add_argument("resources", nargs="*", metavar="RESOURCE", help="resources to relay")
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="configuration file in TOML, as for `run`"
    )
    parser.add_argument(
        "--cache", metavar="NAME", help="name of the cache (default: SHMCACHE_NAME, or shmcache)"
    )
    parser.add_argument(
        "--listen",
        default=server.ADDRESS,
        metavar="ADDRESS",
        help=f"listen on HOST:PORT, :PORT or unix:PATH (default: {server.ADDRESS})",
    )
    parser.add_argument(
        "--metrics",
        metavar="ADDRESS",
        help="serve the reflector's metrics and probes on HOST:PORT, :PORT or unix:PATH",
    )
    server.add_processes(parser)
    reflector.add_selection(parser)
    reflector.add_server(parser, of_relay=True)
    server.add_access(parser)
    server.add_limits(parser, "5m")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit status."""
    from shmcache.engine import config as configuration
    from shmcache.engine import logs, plans, service
    from shmcache.engine.config import keys
    from shmcache.engine.config.checks import check_functions
    from shmcache.errors import SourceError
    from shmcache.serve import process

    try:
        wanted = configuration.of_process(options.config, reflector.flags_of(_of_run(options)))
        serving = _served(options, wanted)
        check_functions(wanted.plans)
        service.reach(wanted)  # reports a wrong address before any process starts
    except (keys.ConfigurationError, plans.PlanError, SourceError) as error:
        text = str(error).replace("`shmcache run ", "`shmcache relay ")
        print(f"shmcache relay: {text}", file=sys.stderr)
        return WRONG
    except ValueError as error:
        print(f"shmcache relay: {error}", file=sys.stderr)
        return USAGE
    logs.start_logging(options.log_format, options.log_level)
    return process.run(serving, [partial(service.run, wanted)])


def _of_run(options: argparse.Namespace) -> argparse.Namespace:
    """The options as `run` takes them."""
    parser = Parser("run", reflector.HELP)
    reflector.add_arguments(parser)
    found = parser.parse_intermixed_args([])
    known = vars(found)
    given = {name: text for name, text in vars(options).items() if name not in _APART}
    known.update({name: text for name, text in given.items() if name in known})
    found.listen = options.metrics
    return found


def _served(options: argparse.Namespace, wanted: Any) -> Any:
    """The options as `serve` takes them."""
    from shmcache.engine.config.keys import ConfigurationError
    from shmcache.engine.service import reach

    if wanted.contexts or wanted.etcd or wanted.replay:
        raise ConfigurationError("a relay relays one API server: name it with --server")
    review, options.review, options.cache = options.review, False, wanted.name
    found = server.options_of(options)
    asked = (lambda: reach(wanted)[-1]) if review else None
    return dataclasses.replace(found, review=asked)
