"""`shmcache get`: objects of a cache in the forms that kubectl has, from one state of it."""

from __future__ import annotations

import sys
from argparse import SUPPRESS

from shmcache.cli.arguments import value
from shmcache.cli.output import finding, forms, names, past
from shmcache.cli.output.finding import DONE, MISSING, USAGE, Trouble
from shmcache.cli.output.grid import Grid, one_line
from shmcache.monitor.observing import observe
from shmcache.protocol.selectors.fields import MADE
from shmcache.protocol.tables import printing
from shmcache.reader import resolving
from shmcache.reader.selectors import FieldSelector

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.protocol.kinds import Kind
    from shmcache.reader.cache import Cache
    from shmcache.reader.snapshot import Snapshot

    Found = list[tuple[Kind, Any]]

HELP = "Shows objects of a cache, as kubectl does; sends no request to the API server."
EPILOG = """\
  shmcache get pods -A -l app=web
  shmcache get pod/web-0 node/node-7 -o yaml
  shmcache get deploy,rs -n prod
  shmcache get po -o jsonpath='{.items[*].metadata.name}'
  shmcache get pods -A --at -90s
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kubectl get` that apply to a cache."""
    parser.epilog = EPILOG
    add_selection(parser)
    parser.add_argument("-o", "--output", default="", metavar="FORMAT", help=forms.FORMS)
    parser.add_argument(
        "--sort-by", metavar="PATH", help="sort by a path such as .metadata.creationTimestamp"
    )
    add_columns(parser)
    parser.add_argument(
        "--show-managed-fields",
        action="store_true",
        help="include managedFields in -o json and yaml, if the cache has them",
    )
    parser.add_argument(
        "--ignore-not-found", action="store_true", help="exit with status 0 if an object is missing"
    )
    parser.add_argument(
        "--max-age",
        type=value("seconds"),
        metavar="DURATION",
        help="exit with status 75 if the data is older (minimum: 90s)",
    )
    parser.add_argument(
        "--timeout",
        type=value("seconds"),
        default=60.0,
        metavar="DURATION",
        help="wait this long for a first list that is under way (default: 60s)",
    )
    past.add_at(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show the objects, then every change to them"
    )
    parser.add_argument("--watch-only", action="store_true", help="show only changes from now on")
    parser.add_argument(
        "--output-watch-events",
        action="store_true",
        help="with --watch: show the type of each change",
    )
    parser.add_argument("--chunk-size", metavar="N", help=SUPPRESS)  # a cache needs no pages


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which objects, of which cache."""
    parser.usage = f"{parser.prog} RESOURCE[,RESOURCE] [NAME ...] | RESOURCE/NAME ... [OPTIONS]"
    parser.add_argument(
        "words", nargs="+", metavar="RESOURCE", help="pods, po, deployments.apps or pod/web-0"
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


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return _get(options)


def form_of(options: argparse.Namespace) -> forms.OutputForm | None:
    """The form of -o, or None for a table; Trouble for options that only tables have."""
    form = forms.form_of(options.output, headers=not options.no_headers)
    if form is not None and options.show_labels:
        raise Trouble(f"--show-labels cannot be combined with -o {options.output}", USAGE)
    return form


class Targets:
    """The resources and names that the words of a command mean."""

    def __init__(self, cache: Cache, options: argparse.Namespace) -> None:
        self.named: list[tuple[str, Kind, str]] = []
        """Resource, kind and name of each object that is named."""
        self.types: list[tuple[str, Kind]] = []
        words: list[str] = options.words
        self._kinds = resolving.kinds(cache)
        if any("/" in word for word in words):
            for word in words:
                kind, slash, name = word.partition("/")
                if not (kind and slash and name):
                    raise Trouble(
                        f"{word!r} must be RESOURCE/NAME, as the other arguments are", USAGE
                    )
                self.named += [(*found, name) for found in names.find(kind, self._kinds)]
        else:
            self.types = self._types(words[0])
            if words[1:] and len(self.types) == 1:
                self.named = [(*self.types[0], name) for name in words[1:]]
            elif words[1:]:
                raise Trouble(
                    "names need exactly one resource; use RESOURCE/NAME for several", USAGE
                )
        if self.named and (options.selector or options.field_selector or options.all_namespaces):
            raise Trouble("names cannot be combined with -l, --field-selector or -A", USAGE)
        self.namespace = None if options.all_namespaces else options.namespace or "default"

    def _types(self, text: str) -> list[tuple[str, Kind]]:
        """Each resource of a list once, in the order of the list."""
        words = [word for word in text.split(",") if word]
        if not words:
            raise Trouble(f"{text!r} names no resource; try pods or deployments.apps", USAGE)
        found = [pair for word in words for pair in names.find(word, self._kinds)]
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


def _get(options: argparse.Namespace) -> int:
    form = form_of(options)
    if options.at and (options.watch or options.watch_only):
        raise Trouble("--at shows the past, --watch the future", USAGE)
    if options.watch or options.watch_only:
        from shmcache.cli.commands import watch

        return watch.follow(options, None, events=options.output_watch_events)
    with finding.open_cache(options.cache) as cache:
        asked = Targets(cache, options)
        finding.wait_listed(cache, asked.resources, options.timeout)
        warn(cache, asked, options.max_age)
        with past.opened(cache, options.at) as at:
            found, missing = select(at, asked, options)
            if options.sort_by:
                _sort(found, options.sort_by)
            if form is not None:
                alone = len(asked.named) == 1
                if found or not alone:
                    shown = found if options.show_managed_fields else forms.without_fields(found)
                    sys.stdout.write(form(shown, alone=alone))
            else:
                _print_tables(at, asked, found, options)
            if not found and not missing and form is None:
                _say_nothing(at, asked)
            sys.stdout.flush()
    for text in missing:
        print(f"shmcache get: {text}", file=sys.stderr)
    return MISSING if missing and not options.ignore_not_found else DONE


def warn(cache: Cache, asked: Targets, max_age: float | None) -> None:
    """Warns about data that is not fresh; CacheTooOld if it is older than `max_age`."""
    if not observe(cache).writer.alive:
        start = finding.start_command(cache.name, cache.resources)
        print(
            f"shmcache: warning: cache {cache.name!r} has no writer, its data is old; start it "
            f"with `{start}`",
            file=sys.stderr,
        )
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
            print(f"shmcache: warning: {text}", file=sys.stderr)


# ---- selecting -----------------------------------------------------------------------------------


def select(at: Snapshot, asked: Targets, options: argparse.Namespace) -> tuple[Found, list[str]]:
    """The objects, and a sentence for each missing one."""
    found: Found = []
    missing: list[str] = []
    for resource, kind, name in asked.named:
        obj = _named(at, resource, asked.namespace or "default", name)
        if obj is not None:
            found.append((kind, obj))
        elif not options.ignore_not_found:
            missing.append(_not_found(at, resource, kind, asked.namespace or "default", name))
    if not asked.named:
        for resource, kind in asked.types:
            scope = asked.namespace if is_namespaced(at, resource, kind) else None
            fields = fields_of(kind, options.field_selector)
            selected = at[resource].list(scope, options.selector, fields)
            found += [(kind, obj) for obj in selected]
    return found, missing


def fields_of(kind: Kind, text: str | None) -> FieldSelector | None:
    """A selector of any fields; fields of the server are compared with the text it gives them."""
    return FieldSelector.parse(text, made=MADE.get(kind.key)) if text else None


def _named(at: Snapshot, resource: str, namespace: str, name: str) -> Any:
    found = at[resource].get(f"{namespace}/{name}")
    return at[resource].get(name) if found is None else found


def _not_found(at: Snapshot, resource: str, kind: Kind, namespace: str, name: str) -> str:
    elsewhere = [key for key in at[resource].keys() if key.endswith("/" + name)]  # noqa: SIM118
    hint = ""
    if elsewhere:
        hint = f"; found in {' and '.join(key.partition('/')[0] for key in elsewhere[:3])} (use -n)"
    if not is_namespaced(at, resource, kind):
        return f"{kind.key} {name!r} not found"
    return f"{kind.key} {name!r} not found in namespace {namespace}{hint}"


def is_namespaced(at: Snapshot, resource: str, kind: Kind) -> bool:
    """By the keys of its objects; without objects, by its kind."""
    for key in at[resource].keys():  # noqa: SIM118 - not a dict
        return "/" in key
    return kind.namespaced


def _sort(found: Found, text: str) -> None:
    """Sorts by the values at a path; Trouble if no object has one, or they have no order."""
    from shmcache.cli.output import jsonpath

    steps = jsonpath.path(text.strip("{}"), strict=False)
    values = [next(iter(jsonpath.walk(steps, obj)), None) for _, obj in found]
    if found and all(value is None for value in values):
        raise Trouble(f"--sort-by: no object has a value at {text}", MISSING)
    if not all(isinstance(value, str | int | float | None) for value in values):
        raise Trouble(f"--sort-by: the values at {text} are objects or lists", MISSING)
    places = [_order(value) for value in values]
    found[:] = [found[at] for at in sorted(range(len(found)), key=places.__getitem__)]


def _order(value: Any) -> tuple[int, Any]:
    """Missing values first, then numbers, then text."""
    if value is None:
        return 0, ""
    if isinstance(value, bool):
        return 2, str(value).lower()
    return (2, value) if isinstance(value, str) else (1, value)


# ---- tables --------------------------------------------------------------------------------------


class Rows:
    """The columns of a resource under the given options, and its objects as rows of text."""

    def __init__(self, kind: Kind, options: argparse.Namespace, **how: bool) -> None:
        self._kind = kind
        self._shown = printing.columns(kind)
        wide = options.output == "wide"
        self._places = [n for n, one in enumerate(self._shown) if wide or one.priority == 0]
        self._plain = len(self._places) == len(self._shown)
        self._namespace = how.get("namespace", False)
        self._prefix = how.get("prefix", False) or options.show_kind
        self._labels = [one for text in options.label_columns for one in text.split(",") if one]
        self._all_labels = options.show_labels

    @property
    def head(self) -> list[str]:
        """The titles, in capitals."""
        titles = [self._shown[place].name.upper() for place in self._places]
        before = ["NAMESPACE"] if self._namespace else []
        labels = [label.rpartition("/")[2].upper() for label in self._labels]
        return [*before, *titles, *labels, *(["LABELS"] if self._all_labels else [])]

    def row(self, obj: Any) -> list[str]:
        """One object's line."""
        cells = self._shown.row(obj)
        found = [one_line(cells[place]) for place in self._places]
        if not (self._namespace or self._prefix or self._labels or self._all_labels):
            return found
        metadata = obj["metadata"]
        if self._prefix:
            found[0] = names.called(self._kind, found[0])
        labels = metadata.get("labels") or {}
        found += [str(labels.get(label, "")) for label in self._labels]
        if self._all_labels:
            found.append(printing.labels(labels))
        return [metadata.get("namespace") or "", *found] if self._namespace else found


def _print_tables(at: Snapshot, asked: Targets, found: Found, options: argparse.Namespace) -> None:
    groups: dict[str, tuple[Kind, list[Any]]] = {}
    for kind, obj in found:
        groups.setdefault(kind.key, (kind, []))[1].append(obj)
    several = len(asked.types or groups) > 1
    for number, (kind, objects) in enumerate(groups.values()):
        resource = asked.resource_of(kind)
        namespace = asked.namespace is None and _with_namespace(at, asked, resource)
        rows = Rows(kind, options, namespace=namespace, prefix=several)
        head = [] if options.no_headers else [rows.head]
        text = Grid().lines([*head, *map(rows.row, objects)])
        sys.stdout.write("\n" + text if number and head else text)


def _with_namespace(at: Snapshot, asked: Targets, resource: str) -> bool:
    """Whether `-A` adds a column: from the first namespaced resource on, as in kubectl."""
    for name, kind in asked.types:
        if is_namespaced(at, name, kind):
            return True
        if name == resource:
            return False
    return False


def _say_nothing(at: Snapshot, asked: Targets) -> None:
    """Reports that nothing was found, and where there are objects."""
    where = f" in {asked.namespace} namespace" if asked.namespace else ""
    kinds = [(name, kind) for name, kind in asked.types if is_namespaced(at, name, kind)]
    total = sum(len(at[name]) for name, _ in kinds)
    hint = f" ({total:,} in all namespaces; use -A)" if where and total else ""
    print(f"No resources found{where if kinds else ''}.{hint}", file=sys.stderr)
