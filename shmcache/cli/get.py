"""`shmcache get`: objects of a cache in the forms that kubectl has, from one state of it."""

from __future__ import annotations

import sys

from shmcache.cli import finding, forms, names
from shmcache.cli.finding import DONE, MISSING, USAGE, Trouble
from shmcache.cli.grid import Grid, one_line
from shmcache.observing import observe
from shmcache.protocol import printing
from shmcache.protocol.fields import MADE
from shmcache.selectors import FieldSelector

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.cli.names import Kind
    from shmcache.reader import Cache
    from shmcache.snapshot import Snapshot

    Found = list[tuple[Kind, Any]]

HELP = "Shows objects of a cache, as kubectl does: no request goes to the API server."
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of kubectl, as far as they mean something here."""
    parser.epilog = (
        "shmcache get pods -A -l app=web        shmcache get pod/web-0 node/node-7 -o yaml\n"
        "shmcache get deploy,rs -n prod\n"
        "shmcache get po -o jsonpath='{.items[*].metadata.name}'"
    )
    add_selection(parser)
    parser.add_argument("-o", "--output", default="", metavar="FORM", help=forms.FORMS)
    parser.add_argument(
        "--sort-by", metavar="PATH", help="a path such as .metadata.creationTimestamp"
    )
    parser.add_argument("--show-labels", action="store_true", help="as the last column")
    parser.add_argument("-L", "--label-columns", metavar="A,B", help="labels that become columns")
    parser.add_argument("--no-headers", action="store_true")
    parser.add_argument("--ignore-not-found", action="store_true")
    parser.add_argument("--max-age", type=float, metavar="SECONDS",
                        help="else exit 75: since the server was heard (90 or more)")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS",
                        help="for a first list that is under way (60)")  # fmt: skip
    parser.add_argument("-w", "--watch", action="store_true", help="and what happens after it")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """What is wanted, and in which cache."""
    parser.add_argument("words", nargs="+", metavar="TYPE[,TYPE] [NAME...] | TYPE/NAME...",
                        help="pods, po, deployments.apps, pod/web-0")  # fmt: skip
    parser.add_argument("-n", "--namespace", metavar="NAME", help="(default: default)")
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-l", "--selector", metavar="SELECTOR", help="of labels")
    parser.add_argument("--field-selector", metavar="SELECTOR", help="of any fields")
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return finding.guarded("get", lambda: _get(options))


class Asked:
    """What the words of a command mean: types, and names of each."""

    def __init__(self, cache: Cache, options: argparse.Namespace) -> None:
        self.named: list[tuple[str, Kind, str]] = []
        """Resource, kind and name of each object that is named."""
        self.types: list[tuple[str, Kind]] = []
        words: list[str] = options.words
        known = cache.resources
        if any("/" in word for word in words):
            for word in words:
                kind, slash, name = word.partition("/")
                if not (kind and slash and name):
                    raise Trouble(f"{word!r}: TYPE/NAME is wanted, as of the others", USAGE)
                self.named.append((*names.find(kind, known), name))
        else:
            self.types = [names.find(word, known) for word in words[0].split(",") if word]
            if words[1:] and len(self.types) == 1:
                self.named = [(*self.types[0], name) for name in words[1:]]
            elif words[1:]:
                raise Trouble("names can be given of one type only; say TYPE/NAME", USAGE)
        if self.named and (options.selector or options.field_selector or options.all_namespaces):
            raise Trouble("an object has one name: no selector, and no -A, beside it", USAGE)
        self.namespace = None if options.all_namespaces else options.namespace or "default"

    @property
    def resources(self) -> list[str]:
        """Each once."""
        found = [name for name, _, _ in self.named] or [name for name, _ in self.types]
        return list(dict.fromkeys(found))


def _get(options: argparse.Namespace) -> int:
    form = forms.form_of(options.output)
    if options.watch:
        from shmcache.cli import watch

        return watch.follow(options, None, events=False)
    with finding.open_cache(options.cache) as cache:
        asked = Asked(cache, options)
        finding.wait_listed(cache, asked.resources, options.timeout)
        warn(cache, asked, options.max_age)
        with cache.snapshot() as at:
            found, missing = select(at, asked, options)
            if options.sort_by:
                _sort(found, options.sort_by)
            if form is not None:
                alone = len(asked.named) == 1
                if found or not alone:
                    sys.stdout.write(form(found, alone=alone))
            else:
                _print_tables(at, asked, found, options)
            if not found and not missing and form is None:
                _say_nothing(at, asked)
            sys.stdout.flush()
    for text in missing:
        print(f"shmcache get: {text}", file=sys.stderr)
    return MISSING if missing and not options.ignore_not_found else DONE


def warn(cache: Cache, asked: Asked, max_age: float | None) -> None:
    """What is not fresh is said; CacheTooOld if that is not accepted."""
    if not observe(cache).writer.alive:
        print(f"shmcache: nobody writes it: cache {cache.name} is as its last writer left it",
              file=sys.stderr)  # fmt: skip
    for name in asked.resources:
        if max_age is not None:
            try:
                error = cache[name].too_old(max_age)
            except ValueError as wrong:
                raise Trouble(f"--max-age {wrong}", USAGE) from None
            if error is not None:
                raise error
        text = finding.freshness(name, cache[name].status)
        if text:
            print(f"shmcache: {text}", file=sys.stderr)


# ---- selecting -----------------------------------------------------------------------------------


def select(at: Snapshot, asked: Asked, options: argparse.Namespace) -> tuple[Found, list[str]]:
    """The objects, and what to say of those that are not there."""
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
    """The selector of any fields, in which those of the server have the text that it gives them."""
    return FieldSelector.parse(text, made=MADE.get(kind.key)) if text else None


def _named(at: Snapshot, resource: str, namespace: str, name: str) -> Any:
    found = at[resource].get(f"{namespace}/{name}")
    return at[resource].get(name) if found is None else found


def _not_found(at: Snapshot, resource: str, kind: Kind, namespace: str, name: str) -> str:
    elsewhere = [key for key in at[resource].keys() if key.endswith("/" + name)]  # noqa: SIM118
    hint = f"; there is {', '.join(elsewhere[:3])} (-n)" if elsewhere else ""
    if not is_namespaced(at, resource, kind):
        return f"{kind.key} {name!r} not found"
    return f"{kind.key} {name!r} not found in namespace {namespace}{hint}"


def is_namespaced(at: Snapshot, resource: str, kind: Kind) -> bool:
    """By the keys of its objects, or by what is known of the kind where there are none."""
    for key in at[resource].keys():  # noqa: SIM118 - not a dict
        return "/" in key
    return kind.namespaced


def _sort(found: Found, text: str) -> None:
    from shmcache.cli import jsonpath

    steps = jsonpath.path(text.strip("{}"))

    def place(pair: tuple[Kind, Any]) -> tuple[int, Any]:
        values = jsonpath.walk(steps, pair[1])
        value = values[0] if values else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return (0, "") if value is None else (2, jsonpath.shown(value))
        return 1, value

    found.sort(key=place)


# ---- tables --------------------------------------------------------------------------------------


class Rows:
    """Which columns a type has under the flags given, and its objects as rows of text."""

    def __init__(self, kind: Kind, declared: Any, options: argparse.Namespace, **how: bool) -> None:
        self._kind = kind
        self._shown = printing.columns_of(kind.key, declared)
        wide = options.output == "wide"
        self._places = [n for n, one in enumerate(self._shown) if wide or one.priority == 0]
        self._plain = len(self._places) == len(self._shown)
        self._namespace = how.get("namespace", False)
        self._prefix = how.get("prefix", False)
        self._labels = (options.label_columns or "").split(",") if options.label_columns else []
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
            found[0] = self._kind.called(found[0])
        labels = metadata.get("labels") or {}
        found += [str(labels.get(label, "")) for label in self._labels]
        if self._all_labels:
            found.append(printing.labels(labels))
        return [metadata.get("namespace") or "", *found] if self._namespace else found


def declared_columns(at: Snapshot | Cache, kind: Kind) -> Any:
    """What a custom resource's definition says of its columns, if definitions are cached, too."""
    if DEFINITIONS not in at.resources:
        return None
    definition = at[DEFINITIONS].get(kind.key)
    if definition is None:
        return None
    served = [one for one in definition["spec"]["versions"] if one.get("storage")]
    return [one for version in served for one in version.get("additionalPrinterColumns") or ()]


def _print_tables(at: Snapshot, asked: Asked, found: Found, options: argparse.Namespace) -> None:
    groups: dict[str, tuple[Kind, list[Any]]] = {}
    for kind, obj in found:
        groups.setdefault(kind.key, (kind, []))[1].append(obj)
    several = len(asked.resources) > 1
    for number, (kind, objects) in enumerate(groups.values()):
        resource = next(name for name in asked.resources if names.kind_of(name).key == kind.key)
        namespace = asked.namespace is None and is_namespaced(at, resource, kind)
        rows = Rows(kind, declared_columns(at, kind), options, namespace=namespace, prefix=several)
        head = [] if options.no_headers else [rows.head]
        text = Grid().lines([*head, *map(rows.row, objects)])
        sys.stdout.write("\n" + text if number else text)


def _say_nothing(at: Snapshot, asked: Asked) -> None:
    """That there is nothing, and where there is something."""
    where = f" in {asked.namespace} namespace" if asked.namespace else ""
    kinds = [(name, kind) for name, kind in asked.types if is_namespaced(at, name, kind)]
    total = sum(len(at[name]) for name, _ in kinds)
    hint = f" ({total:,} in all namespaces: -A)" if where and total else ""
    print(f"No resources found{where if kinds else ''}.{hint}", file=sys.stderr)
