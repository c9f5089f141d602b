"""`shmcache diff`: the changes between a past state and now, field by field."""

from __future__ import annotations

import sys

from shmcache.cli.output import finding, names, past
from shmcache.cli.output.finding import DONE, USAGE, Trouble
from shmcache.reader import resolving
from shmcache.reasons import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from shmcache.reader.cache import Cache

HELP = "Shows the changes between a past state and now; sends no request to the API server."
EPILOG = """\
  shmcache diff pods --since 5m
  shmcache diff pods,deploy -n prod --since 4711
  shmcache diff --recorder /var/lib/shmcache --since -6h --until -5h

Lines begin with + (added), - (deleted) or ~ (changed). The ring of the cache limits how far back it
leads; a flight record leads further. Exit status 1: an object has changed.
"""
CHANGED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = EPILOG
    parser.usage = f"{parser.prog} [RESOURCE[,RESOURCE]] --since MOMENT [OPTIONS]"
    parser.add_argument(
        "resources", nargs="?", default="", metavar="RESOURCE", help="resources (default: all)"
    )
    past.add_at(parser, "--since", required=True, help="compare with -5m or a resourceVersion")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="only this namespace")
    parser.add_argument("--names-only", action="store_true", help="show objects, not their fields")
    past.add_at(parser, "--until", help="with --recorder: compare with this state, not the last")
    past.add_recorder(parser)
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    if options.until and not options.recorder:
        raise Trouble("--until needs a flight record: --recorder DIR", USAGE)
    if options.recorder:
        return _of_record(options)
    with finding.open_cache(options.cache) as cache, past.opened(cache, options.since) as at:
        return _show(cache, at, options)


def _of_record(options: argparse.Namespace) -> int:
    """Between a recorded state and the last one, or that of --until."""
    from shmcache.recorder.rebuilding import RebuiltCache

    record = past.record_of(options)
    then = past.contents_of(record, options.since)
    now = past.contents_of(record, options.until)
    with RebuiltCache() as rebuilt, rebuilt.between(then, now) as at:
        return _show(rebuilt.cache, at, options)


def _show(cache: Cache, at: Any, options: argparse.Namespace) -> int:
    found = False
    for resource in _resources(cache, options.resources):
        for line in _lines(at[resource], at.latest[resource], options):
            sys.stdout.write(printable(line))
            found = True
    sys.stdout.flush()
    return CHANGED if found else DONE


def _resources(cache: Cache, text: str) -> list[str]:
    kinds = resolving.kinds(cache)
    typed = [each for each in text.split(",") if each]
    if not typed:
        return list(cache.resources)
    return [name for each in typed for name, _ in names.find(each, kinds)]


def _lines(then: Any, now: Any, options: argparse.Namespace) -> Iterator[str]:
    prefix = f"{options.namespace}/" if options.namespace else ""
    for key in sorted(then.changed):
        old, new = then.changed[key], now.get(key)
        if not key.startswith(prefix) or (old is None and new is None):
            continue
        sign = "+" if old is None else "-" if new is None else "~"
        yield f"{sign} {now.name} {key}\n"
        if sign == "~" and not options.names_only:
            for text in past.changes(old, new):
                yield f"    {text}\n"
