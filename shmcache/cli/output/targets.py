"""The objects that a command shows: their resources, names, their selection and rows."""

from __future__ import annotations

import sys

from shmcache.cli.output import finding, forms, names
from shmcache.cli.output.finding import USAGE, Trouble
from shmcache.cli.output.grid import one_line
from shmcache.protocol.selectors.fields import MADE
from shmcache.protocol.tables import printing
from shmcache.reader import resolving
from shmcache.reader.selectors import FieldSelector
from shmcache.reader.sharding import metadata_of
from shmcache.reasons import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.protocol.kinds import Kind
    from shmcache.reader.cache import Cache
    from shmcache.reader.snapshot import Snapshot


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which objects, of which cache."""
    parser.usage = f"{parser.prog} RESOURCE[,RESOURCE] [NAME ...] | RESOURCE/NAME ... [OPTIONS]"
    parser.add_argument(
        "resources", nargs="+", metavar="RESOURCE", help="pods, po, deployments.apps or pod/web-0"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace (default: default)")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="objects of all namespaces"
    )
    parser.add_argument(
        "-l", "--selector", metavar="SELECTOR", help="label selector, such as app=web,tier!=test"
    )
    parser.add_argument(
        "--field-selector",
        metavar="SELECTOR",
        help="field selector; any path, such as spec.nodeName=node-1",
    )
    finding.add_cache(parser)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Which columns a table has."""
    parser.add_argument("--show-labels", action="store_true", help="show labels as the last column")
    parser.add_argument("--show-kind", action="store_true", help="show names as kind/name")
    parser.add_argument(
        "-L",
        "--label-columns",
        action="append",
        default=[],
        metavar="A,B",
        help="show these labels as columns",
    )
    parser.add_argument("--no-headers", action="store_true", help="leave out the column titles")


def form_of(options: argparse.Namespace) -> forms.OutputForm | None:
    """The form of -o, or None for a table; Trouble for options that only tables have."""
    form = forms.form_of(options.output, headers=not options.no_headers)
    if form is not None and options.show_labels:
        raise Trouble(f"--show-labels cannot be combined with -o {options.output}", USAGE)
    return form


class Targets:
    """The resources and names that the arguments of a command mean."""

    def __init__(self, cache: Cache, options: argparse.Namespace) -> None:
        self.named: list[tuple[str, Kind, str]] = []
        """Resource, kind and name of each object that is named."""
        self.types: list[tuple[str, Kind]] = []
        given: list[str] = options.resources
        self._kinds = resolving.kinds(cache)
        if any("/" in argument for argument in given):
            for argument in given:
                kind, slash, name = argument.partition("/")
                if not (kind and slash and name) or "/" in name:
                    raise Trouble(
                        f"{argument!r} must be RESOURCE/NAME, as the other arguments are", USAGE
                    )
                self.named += [(*found, name) for found in names.find(kind, self._kinds)]
        else:
            self.types = self._types(given[0])
            if "" in given[1:]:
                raise Trouble("the name of an object is empty", USAGE)
            if given[1:] and len(self.types) == 1:
                self.named = [(*self.types[0], name) for name in given[1:]]
            elif given[1:]:
                raise Trouble(
                    "names need exactly one resource; use RESOURCE/NAME for several", USAGE
                )
        if self.named and (options.selector or options.field_selector or options.all_namespaces):
            raise Trouble("names cannot be combined with -l, --field-selector or -A", USAGE)
        self.namespace = None if options.all_namespaces else options.namespace or "default"

    def _types(self, text: str) -> list[tuple[str, Kind]]:
        """Each resource of a list once, in the order of the list."""
        typed = [each for each in text.split(",") if each]
        if not typed:
            raise Trouble(f"{text!r} names no resource; try pods or deployments.apps", USAGE)
        found = [pair for each in typed for pair in names.find(each, self._kinds)]
        return [pair for number, pair in enumerate(found) if pair not in found[:number]]

    @property
    def resources(self) -> list[str]:
        """Each once."""
        found = [name for name, _, _ in self.named] or [name for name, _ in self.types]
        return list(dict.fromkeys(found))

    def resource_of(self, kind: Kind) -> str:
        """The name in the cache of a resource of the command."""
        pairs = [(name, one) for name, one, _ in self.named] + self.types
        return next(name for name, one in pairs if one == kind)


def warn(cache: Cache, asked: Targets, max_age: float | None) -> None:
    """Warns about data that is not fresh; CacheTooOld if it is older than `max_age`."""
    finding.warn_without_writer(cache)
    for name in asked.resources:
        if max_age is not None:
            try:
                error = cache[name].too_old(max_age)
            except ValueError:
                raise Trouble(
                    f"--max-age must be at least {finding.QUIET_SECONDS:g}s, not {max_age:g}s: a "
                    "server sends data on a quiet watch only about once a minute",
                    USAGE,
                ) from None
            if error is not None:
                raise error
        text = finding.freshness(name, cache[name].status)
        if text:
            print(f"shmcache: warning: {printable(text)}", file=sys.stderr)


def fields_of(kind: Kind, text: str | None) -> FieldSelector | None:
    """A selector of any fields; fields of the server are compared with the text it gives them."""
    return FieldSelector.parse(text, made=MADE.get(kind.key)) if text else None


def is_namespaced(at: Snapshot, resource: str, kind: Kind) -> bool:
    """By the keys of its objects; without objects, by its kind."""
    for key in at[resource].keys():  # noqa: SIM118 - not a dict
        return "/" in key
    return kind.namespaced


class Rows:
    """The columns of a resource under the given options, and its objects as rows of text."""

    def __init__(self, kind: Kind, options: argparse.Namespace, **how: bool) -> None:
        self._kind = kind
        self._shown = printing.columns(kind)
        wide = options.output == "wide"
        self._columns = [n for n, one in enumerate(self._shown) if wide or one.priority == 0]
        self._plain = len(self._columns) == len(self._shown)
        self._namespace = how.get("namespace", False)
        self._prefix = how.get("prefix", False) or options.show_kind
        self._labels = [one for text in options.label_columns for one in text.split(",") if one]
        self._all_labels = options.show_labels

    @property
    def head(self) -> list[str]:
        """The titles, in capitals."""
        titles = [self._shown[number].name.upper() for number in self._columns]
        before = ["NAMESPACE"] if self._namespace else []
        labels = [label.rpartition("/")[2].upper() for label in self._labels]
        return [*before, *titles, *labels, *(["LABELS"] if self._all_labels else [])]

    def row(self, obj: Any) -> list[str]:
        """One object's line."""
        cells = printing.cells(self._shown, obj)
        found = [one_line(cells[number]) for number in self._columns]
        if not (self._namespace or self._prefix or self._labels or self._all_labels):
            return found
        metadata = metadata_of(obj)
        if self._prefix:
            found[0] = names.called(self._kind, found[0])
        labels = metadata.get("labels")
        labels = labels if hasattr(labels, "items") else {}
        found += [str(labels.get(label, "")) for label in self._labels]
        if self._all_labels:
            found.append(printing.labels(labels))
        return [str(metadata.get("namespace") or ""), *found] if self._namespace else found
