"""`shmcache verify`: the reflector compares its cache with the API server, now (VERIFY1)."""

from __future__ import annotations

import json

from shmcache.cli.arguments import value
from shmcache.cli.output import finding, names
from shmcache.cli.output.finding import DONE, MISSING, UNREACHABLE
from shmcache.cli.output.grid import Grid
from shmcache.errors import UnconfirmedError
from shmcache.reader import resolving

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.reader.cache import Cache

HELP = "Compares a cache with its API server now, object by object, and repairs what differs."
EPILOG = """\
  shmcache verify
  shmcache verify pods deploy --cache web
  shmcache verify -o json

The reflector lists the metadata of each resource, and compares keys, UIDs and versions. It repairs
what differs. Exit status 0: all is equal; 1: something differed, also where it is repaired; 69:
nothing differed, but a resource could not be compared.
"""
TIMEOUT = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = EPILOG
    parser.usage = f"{parser.prog} [RESOURCE ...] [OPTIONS]"
    parser.add_argument(
        "resources", nargs="*", metavar="RESOURCE", help="pods, deploy (default: all)"
    )
    parser.add_argument(
        "--timeout",
        type=value("seconds"),
        default=TIMEOUT,
        metavar="DURATION",
        help="the longest wait for each resource (default and maximum: 60s)",
    )
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON instead of a table")
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    with finding.open_cache(options.cache) as cache:
        finding.warn_without_writer(cache)
        kinds = resolving.kinds(cache)
        wanted = [name for typed in options.resources for name, _ in names.find(typed, kinds)]
        found = {
            name: _reports(cache, name, min(options.timeout, TIMEOUT))
            for name in dict.fromkeys(wanted or cache.resources)
        }
    if options.output:
        print(json.dumps({"resources": found}, indent=4))
    else:
        _print(found)
    reports = [one for each in found.values() for one in each]
    if any(one.get("differences") for one in reports):
        return MISSING
    return UNREACHABLE if any("error" in one for one in reports) else DONE


def _reports(cache: Cache, name: str, timeout: float) -> list[dict[str, Any]]:
    from shmcache.reader.verifying import verify

    try:
        return verify(cache, name, timeout)
    except UnconfirmedError as error:
        return [{"namespace": "", "error": str(error).removeprefix(f"{name}: ")}]


def _print(found: dict[str, list[dict[str, Any]]]) -> None:
    rows = [["RESOURCE", "NAMESPACE", "OBJECTS", "VERSION", "RESULT"]]
    wrong: list[str] = []
    for name, reports in found.items():
        for one in reports:
            objects = f"{one['objects']:,}" if "objects" in one else "-"
            rows.append(
                [name, one["namespace"] or "-", objects, one.get("version", "-"), _verdict(one)]
            )
            wrong += [f"{name}: {_difference(each)}" for each in one.get("differences", ())]
            if one.get("more"):
                wrong.append(f"{name}: and {one['more']:,} more")
    print(Grid().lines(rows), end="")
    if wrong:
        print("\n" + "\n".join(wrong))


def _verdict(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"not compared: {one['error']}"
    count = len(one["differences"]) + one["more"]
    return f"{count:,} different" if count else "equal"


def _difference(each: dict[str, Any]) -> str:
    return f"{each['key']}: {_state(each['server'])} at the server, {_state(each['cache'])} here"


def _state(found: dict[str, str] | None) -> str:
    return "absent" if found is None else f"version {found['version']}"
