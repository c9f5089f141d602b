"""`shmcache watch`, and `get --watch`: what there is, then what happens to it, as it happens.

What is told is what handlers are told: an object that begins to match a selector is added, one that
ends to match is deleted, and nothing is lost where this process was too slow.
"""

from __future__ import annotations

import sys
import time
from queue import Empty, SimpleQueue

from shmcache.cli import finding, forms
from shmcache.cli.finding import DONE
from shmcache.cli.get import Asked, Rows, add_selection, declared_columns, fields_of, warn
from shmcache.cli.grid import Grid

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.cli.names import Kind
    from shmcache.reader import Cache
    from shmcache.resources import CachedResource

    Line = tuple[bool, str, "Watched", Any]
    """Whether it is of the first content, the event, of which type, and what is shown of it."""

HELP = "Shows what happens to objects of a cache, as it happens."
SETTLE_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As of get."""
    add_selection(parser)
    parser.add_argument(
        "-o", "--output", default="", metavar="FORM", help="wide, json, yaml, name, jsonpath="
    )
    parser.add_argument("--show-labels", action="store_true", help="as the last column")
    parser.add_argument("-L", "--label-columns", metavar="A,B", help="labels that become columns")
    parser.add_argument("--no-headers", action="store_true")
    parser.add_argument("--watch-only", action="store_true", help="only what happens from now on")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="after which it ends")


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    options.max_age = None
    return finding.guarded("watch", lambda: follow(options, options.timeout, events=True))


class Watched:
    """One type that is watched: how its objects become text."""

    def __init__(
        self, kind: Kind, options: argparse.Namespace, rows: Rows, *, events: bool
    ) -> None:
        self.kind = kind
        self._form = forms.form_of(options.output)
        self._json = options.output == "json" and events
        self._rows = rows
        self._events = events

    @property
    def head(self) -> list[str] | None:
        """The titles; None where there is no table."""
        if self._form is not None or self._json:
            return None
        return ["EVENT", *self._rows.head] if self._events else self._rows.head

    def show(self, event: str, obj: Any) -> Any:
        """A row, or a text. Called while the object is surely there."""
        if self._json:
            return forms.json_line({"object": obj, "type": event}) + "\n"
        if self._form is not None:
            text = self._form([(self.kind, obj)], alone=True)
            text += "" if text.endswith("\n") else "\n"
            return f"{event} {text}" if self._events and "\n" not in text[:-1] else text
        row = self._rows.row(obj)
        return [event, *row] if self._events else row


def follow(options: argparse.Namespace, limit: float | None, *, events: bool) -> int:
    """Until ctrl-C, or for so many seconds."""
    lines: SimpleQueue[Line] = SimpleQueue()
    with finding.open_cache(options.cache) as cache:
        asked = Asked(cache, options)
        warn(cache, asked, options.max_age)
        kinds = asked.types or [(resource, kind) for resource, kind, _ in asked.named]
        watched = []
        for resource, kind in dict(kinds).items():
            how = {"namespace": asked.namespace is None, "prefix": len(asked.resources) > 1}
            rows = Rows(kind, declared_columns(cache, kind), options, **how)
            watched.append(Watched(kind, options, rows, events=events))
            _register(asked, cache[resource], watched[-1], lines, options)
        cache.start()
        try:
            _print(cache, watched, lines, options, limit)
        except KeyboardInterrupt:
            return DONE  # that is how it is ended
    return DONE


def _register(
    asked: Asked,
    resource: CachedResource,
    watched: Watched,
    lines: SimpleQueue[Line],
    options: argparse.Namespace,
) -> None:
    wanted = {name for found, _, name in asked.named if found == resource.name}

    def put(event: str, obj: Any, *, initial: bool = False) -> None:
        name = obj["metadata"]["name"]
        if not wanted or name in wanted:
            lines.put((initial, event, watched, watched.show(event, obj)))

    resource.add_handler(
        on_add=lambda obj, initial: put("ADDED", obj, initial=initial),
        on_update=lambda _, obj: put("MODIFIED", obj),
        on_delete=lambda obj, _: put("DELETED", _known(obj)),
        labels=options.selector,
        fields=fields_of(watched.kind, options.field_selector),
        namespace=asked.namespace if _namespaced(resource, watched.kind) else None,
        name=resource.name,
    )


def _namespaced(resource: CachedResource, kind: Kind) -> bool:
    for key in resource.keys():  # noqa: SIM118 - not a dict
        return "/" in key
    return kind.namespaced


def _known(obj: Any) -> Any:
    """A deleted object; of one whose end was found, not seen, only the name is left."""
    if hasattr(obj, "keys"):
        return obj
    namespace, slash, name = obj.key.rpartition("/")
    metadata = {"name": name, "uid": obj.uid, **({"namespace": namespace} if slash else {})}
    return {"metadata": metadata}


def _print(
    cache: Cache,
    watched: list[Watched],
    lines: SimpleQueue[Line],
    options: argparse.Namespace,
    limit: float | None,
) -> None:
    """The first content as one table, then each event as it comes."""
    start = time.monotonic()
    grid, rows = Grid(), _first(cache, lines)
    head = watched[0].head
    if getattr(options, "watch_only", False):
        rows = [line for line in rows if not line[0]]
    shown = [] if head is None or options.no_headers else [head]
    _write(grid, shown, rows)
    while limit is None or time.monotonic() < start + limit:
        left = None if limit is None else max(0.0, start + limit - time.monotonic())
        try:
            line = lines.get(timeout=left)
        except Empty:
            return
        _write(grid, [], [line, *_waiting(lines)])


def _first(cache: Cache, lines: SimpleQueue[Line]) -> list[Line]:
    """All that is told until every handler has seen the first content."""
    deadline = time.monotonic() + SETTLE_SECONDS
    for one in cache.informer.registrations:
        while not (one.has_synced or _empty(cache[one.resource])) and time.monotonic() < deadline:
            one.wait_synced(0.1)
    return _waiting(lines)


def _empty(resource: CachedResource) -> bool:
    """Whether there is nothing to wait for: no list is under way, and no object is there."""
    status = resource.status
    return status.state != "listing" and not status.objects


def _waiting(lines: SimpleQueue[Line]) -> list[Line]:
    found = []
    while True:
        try:
            found.append(lines.get_nowait())
        except Empty:
            return found


def _write(grid: Grid, head: list[list[str]], lines: list[Line]) -> None:
    if lines and isinstance(lines[0][3], str):
        sys.stdout.write("".join([line[3] for line in lines]))
    else:
        sys.stdout.write(grid.lines([*head, *(line[3] for line in lines)]))
    sys.stdout.flush()
