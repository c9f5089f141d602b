"""`shmcache blame`: each change to an object in the window: when, which fields, by whom."""

from __future__ import annotations

import sys

from shmcache.cli.output import finding, names, past
from shmcache.cli.output.finding import DONE, MISSING, USAGE, Trouble, ago
from shmcache.errors import Lapped
from shmcache.reader import instants, resolving
from shmcache.reasons import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from shmcache._hot import Delta, Root
    from shmcache.protocol.kinds import Kind
    from shmcache.reader.instants import Instant

HELP = "Shows each recent change to an object: when, which fields, by whom."
EPILOG = """\
  shmcache blame pods prod/web-0
  shmcache blame deploy/web -n prod
  shmcache blame pods prod/web-0 --recorder /var/lib/shmcache

Times are those at which the cache changed. The manager is known where the cache keeps managedFields
(keep_managed_fields of its resource).
"""
TAKE = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = EPILOG
    parser.usage = f"{parser.prog} RESOURCE NAMESPACE/NAME | RESOURCE/NAME [OPTIONS]"
    parser.add_argument("object", nargs="+", metavar="OBJECT", help="pods prod/web-0, or pod/web-0")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace (default: default)")
    past.add_recorder(parser)
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    typed, name = _object(options.object)
    if options.recorder:
        return _of_record(options, typed, name)
    with finding.open_cache(options.cache) as cache:
        resource, key = _named(options, typed, name, resolving.kinds(cache))
        root = cache.reader.root()
        known = instants.read(cache.place, root)
        lines = list(_changes(root, root.names().index(resource), key, known))
        for line in lines:
            sys.stdout.write(printable(line))
        sys.stdout.flush()
        if lines:
            return DONE
        there = cache[resource].get(key) is not None
    print(
        f"shmcache blame: {resource} {key!r} "
        + ("has not changed within the window" if there else "not found"),
        file=sys.stderr,
    )
    return DONE if there else MISSING


def _named(
    options: argparse.Namespace, typed: str, name: str, kinds: dict[str, Kind]
) -> tuple[str, str]:
    """The resource and the key that the arguments name."""
    found = names.find(typed, kinds)
    if len(found) != 1:
        raise Trouble(f"{typed!r} names {len(found)} resources; choose one", USAGE)
    [(resource, kind)] = found
    namespace = options.namespace or "default"
    return resource, name if "/" in name or not kind.namespaced else f"{namespace}/{name}"


def _of_record(options: argparse.Namespace, typed: str, name: str) -> int:
    """From a flight record."""
    from shmcache.recorder.changes import changes_of, kinds_of
    from shmcache.recorder.history import clock

    record = past.record_of(options)
    resource, key = _named(options, typed, name, kinds_of(record))
    shown = there = False
    for change in changes_of(record, resource, key):
        when = clock(change.time_ns)
        if change.why:
            shown = True
            sys.stdout.write(f"{when}  changes are unknown: {change.why}\n")
        if change.kind:
            shown = True
            by = printable(past.managers(change.old, change.new))
            sys.stdout.write(
                f"{when}  {change.kind}  version {change.version or 'unknown'}  by {by}\n"
            )
        if change.kind == "MODIFIED":
            sys.stdout.writelines(
                f"    {printable(text)}\n" for text in past.changes(change.old, change.new)
            )
        there = change.new is not None
    sys.stdout.flush()
    if not shown:
        text = "has not changed within the record" if there else "not found"
        print(f"shmcache blame: {resource} {key!r} {text}", file=sys.stderr)
    return DONE if shown or there else MISSING


def _object(given: list[str]) -> tuple[str, str]:
    if len(given) == 1 and "/" in given[0]:
        return past.split(given[0])
    if len(given) != 2:
        raise Trouble("blame needs one object: RESOURCE NAMESPACE/NAME, or RESOURCE/NAME", USAGE)
    return given[0], given[1]


def _changes(root: Root, number: int, key: str, known: list[Instant]) -> Iterator[str]:
    position = root.tail
    while position < root.head:
        try:
            deltas, position = root.take(position, TAKE, [number])
        except Lapped as lapped:
            position = lapped.position
            continue
        for delta in deltas:
            if delta.kind == "RELIST":
                yield f"{_when(delta, known)}  a list replaced the content: changes are unknown\n"
            elif delta.key == key:
                yield from _change(delta, known)


def _change(delta: Delta, known: list[Instant]) -> Iterator[str]:
    by = past.managers(delta.old, delta.new)
    yield f"{_when(delta, known)}  {delta.kind}  version {delta.version or 'unknown'}  by {by}\n"
    if delta.kind == "MODIFIED":
        for text in past.changes(delta.old, delta.new):
            yield f"    {text}\n"


def _when(delta: Delta, known: list[Instant]) -> str:
    """By the first instant after the change; it is at most about a second later."""
    for instant in known:
        if instant.head > delta.number:
            return ago(instant.age)
    return "just now" if known else "time unknown"
