"""`shmcache blame`: each change to an object in the window: when, which fields, by whom."""

from __future__ import annotations

import sys

from shmcache.cli.output import finding, names, past
from shmcache.cli.output.finding import DONE, MISSING, USAGE, Trouble, ago
from shmcache.errors import Lapped
from shmcache.reader import resolving, time_marks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from shmcache._hot import Delta, Root
    from shmcache.reader.time_marks import TimeMark

HELP = "Shows each recent change to an object: when, which fields, by whom."
EPILOG = """\
  shmcache blame pods prod/web-0
  shmcache blame deploy/web -n prod

Times are those at which the cache changed. The manager is known where the cache keeps managedFields
(keep_managed_fields of its resource).
"""
TAKE = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = EPILOG
    parser.usage = f"{parser.prog} RESOURCE NAMESPACE/NAME | RESOURCE/NAME [OPTIONS]"
    parser.add_argument("words", nargs="+", metavar="OBJECT", help="pods prod/web-0, or pod/web-0")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace (default: default)")
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    word, name = _object(options.words)
    with finding.open_cache(options.cache) as cache:
        found = names.find(word, resolving.kinds(cache))
        if len(found) != 1:
            raise Trouble(f"{word!r} names {len(found)} resources; choose one", USAGE)
        [(resource, kind)] = found
        namespace = options.namespace or "default"
        key = name if "/" in name or not kind.namespaced else f"{namespace}/{name}"
        root = cache.reader.root()
        marks = time_marks.read(cache.place, root)
        lines = list(_changes(root, root.names().index(resource), key, marks))
        for line in lines:
            sys.stdout.write(line)
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


def _object(words: list[str]) -> tuple[str, str]:
    if len(words) == 1 and "/" in words[0]:
        return past.split(words[0])
    if len(words) != 2:
        raise Trouble("blame needs one object: RESOURCE NAMESPACE/NAME, or RESOURCE/NAME", USAGE)
    return words[0], words[1]


def _changes(root: Root, number: int, key: str, marks: list[TimeMark]) -> Iterator[str]:
    position = root.tail
    while position < root.head:
        try:
            deltas, position = root.take(position, TAKE, [number])
        except Lapped as lapped:
            position = lapped.position
            continue
        for delta in deltas:
            if delta.kind == "RELIST":
                yield f"{_when(delta, marks)}  a list replaced the content: changes are unknown\n"
            elif delta.key == key:
                yield from _change(delta, marks)


def _change(delta: Delta, marks: list[TimeMark]) -> Iterator[str]:
    by = past.managers(delta.old, delta.new)
    yield f"{_when(delta, marks)}  {delta.kind}  version {delta.version}  by {by}\n"
    if delta.kind == "MODIFIED":
        for text in past.changes(delta.old, delta.new):
            yield f"    {text}\n"


def _when(delta: Delta, marks: list[TimeMark]) -> str:
    """By the first mark after the change; it is at most about a second later."""
    for mark in marks:
        if mark.head > delta.number:
            return ago(mark.age)
    return "just now" if marks else "time unknown"
