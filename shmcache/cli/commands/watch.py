"""`shmcache watch`, and `get --watch`: the objects, then every change to them as it happens.

The events are those of handlers: an object that begins to match a selector is ADDED, an object that
stops matching is DELETED, and nothing is lost when this process is slow.
"""

from __future__ import annotations

import sys
import time
from queue import Empty, SimpleQueue

from shmcache.cli.arguments import value
from shmcache.cli.output import finding, forms, gotext
from shmcache.cli.output.finding import DONE
from shmcache.cli.output.grid import Grid
from shmcache.cli.output.targets import (
    Rows,
    Targets,
    add_columns,
    add_selection,
    fields_of,
    form_of,
    warn,
)
from shmcache.monitor.starting import without_writer
from shmcache.reader.sharding import metadata_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.protocol.kinds import Kind
    from shmcache.reader.cache import Cache
    from shmcache.reader.resources import CachedResource

    Line = tuple[bool, list[str] | str]
    """Whether it belongs to the first content, and what is shown."""

HELP = "Shows changes to objects of a cache as they happen."
SETTLE_SECONDS = 30.0
LOOK_SECONDS = 2.0
"""Between looks for the writer, while nothing comes."""
LONGEST_EVENT = len("MODIFIED")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of get that apply to a watch."""
    add_selection(parser)
    parser.add_argument(
        "-o", "--output", default="", metavar="FORMAT", help="wide, json, yaml, name, jsonpath=…"
    )
    add_columns(parser)
    parser.add_argument(
        "--show-managed-fields",
        action="store_true",
        help="include managedFields in -o json and yaml, if the cache has them",
    )
    parser.add_argument("--watch-only", action="store_true", help="show only changes from now on")
    parser.add_argument(
        "--timeout",
        type=value("seconds"),
        metavar="DURATION",
        help="end after this long (default: never)",
    )


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    options.max_age = None
    return follow(options, options.timeout, events=True)


class Watched:
    """One resource that is watched: how its objects become rows or texts.

    With the types of events, `-o json`, `yaml`, `jsonpath` and `custom-columns` of `get` show the
    whole event, as those of kubectl do; `watch` puts the type before a text of one line.
    """

    def __init__(
        self, kind: Kind, options: argparse.Namespace, rows: Rows, *, events: bool
    ) -> None:
        self.kind = kind
        self._form = form_of(options)
        self._output = options.output.partition("=")[0].lower()
        self._rows = rows
        self._events = events
        as_kubectl = "output_watch_events" in options
        self._wraps = events and (as_kubectl or self._output == "yaml") and self._output != "name"
        self._prefixes = events and not as_kubectl
        self._whole = options.show_managed_fields

    @property
    def head(self) -> list[str]:
        """The titles, or an empty list."""
        if isinstance(self._form, forms.CustomColumns):
            return self._form.titles
        if self._form is not None:
            return []
        return ["EVENT", *self._rows.head] if self._events else self._rows.head

    @property
    def separator(self) -> str:
        """The text between two objects."""
        return "---\n" if self._output == "yaml" else ""

    def layout(self) -> Grid | gotext.Tabs:
        """The columns that its rows share."""
        return gotext.Tabs() if isinstance(self._form, forms.CustomColumns) else Grid()

    def show(self, event: str, obj: Any) -> list[str] | str:
        """A row, or a text. Called while the object is certainly there."""
        if not self._whole:
            obj = forms.without_managed_fields(obj)
        if self._form is None:
            row = self._rows.row(obj)
            return [event.ljust(LONGEST_EVENT), *row] if self._events else row
        if self._output == "json" and self._events:
            return forms.event_line(event, obj)
        shown = {"object": obj, "type": event} if self._wraps else obj
        if isinstance(self._form, forms.CustomColumns):
            return self._form.row(shown)
        text = self._form([(self.kind, shown)], alone=True)
        if self._prefixes and "\n" not in text[:-1]:
            return f"{event} {text.removesuffix(chr(10))}\n"
        return text


def follow(options: argparse.Namespace, limit: float | None, *, events: bool) -> int:
    """Runs until ctrl-C, or for `limit` seconds."""
    lines: SimpleQueue[Line] = SimpleQueue()
    with finding.open_cache(options.cache) as cache:
        asked = Targets(cache, options)
        warn(cache, asked, options.max_age)
        kinds = asked.types or [(resource, kind) for resource, kind, _ in asked.named]
        watched = []
        for resource, kind in dict(kinds).items():
            how = {"namespace": asked.namespace is None, "prefix": len(asked.resources) > 1}
            rows = Rows(kind, options, **how)
            watched.append(Watched(kind, options, rows, events=events))
            _register(asked, cache[resource], watched[-1], lines, options)
        cache.start()
        try:
            _print(cache, watched, lines, options, limit)
        except KeyboardInterrupt:
            return DONE  # the usual end
    return DONE


def _register(
    asked: Targets,
    resource: CachedResource,
    watched: Watched,
    lines: SimpleQueue[Line],
    options: argparse.Namespace,
) -> None:
    wanted = {name for found, _, name in asked.named if found == resource.name}

    def put(event: str, obj: Any, *, initial: bool = False) -> None:
        name = metadata_of(obj).get("name")
        if not wanted or name in wanted:
            lines.put((initial, watched.show(event, obj)))

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
    """A deleted object; only the name is left if the deletion itself was not seen."""
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
    """Prints the first content as one table, then each event as it comes.

    Where nothing comes, it may be that the writer has ended since.
    """
    start = time.monotonic()
    printer = _Printer(watched[0], headers=not options.no_headers)
    rows = _first(cache, lines)
    printer.write([shown for initial, shown in rows if not (initial and options.watch_only)])
    warning = without_writer(cache)
    left = LOOK_SECONDS
    while limit is None or (left := start + limit - time.monotonic()) > 0:
        try:
            _, shown = lines.get(timeout=min(left, LOOK_SECONDS))
        except Empty:
            before, warning = warning, without_writer(cache)
            if warning and not before:
                finding.warn(warning)
            continue
        printer.write([shown])  # each by itself: a later row must not widen this one's columns


class _Printer:
    """Writes rows in columns that only become wider, their titles with the first ones; or texts."""

    def __init__(self, watched: Watched, *, headers: bool) -> None:
        self._head = [watched.head] if headers and watched.head else []
        self._layout = watched.layout()
        self._separator = watched.separator
        self._begun = False

    def write(self, shown: list[list[str] | str]) -> None:
        """Writes what there is, in its order."""
        rows = [one for one in shown if isinstance(one, list)]
        texts = [one for one in shown if isinstance(one, str)]
        if rows:
            sys.stdout.write(self._layout.lines([*self._head, *rows]))
            self._head = []
        for text in texts:
            sys.stdout.write(self._separator + text if self._begun else text)
            self._begun = True
        sys.stdout.flush()


def _first(cache: Cache, lines: SimpleQueue[Line]) -> list[Line]:
    """The lines until every handler has received the first content."""
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
