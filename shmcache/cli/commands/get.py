"""`shmcache get`: objects of a cache in the forms that kubectl has, from one state of it."""

from __future__ import annotations

import sys
from argparse import SUPPRESS

from shmcache.cli.arguments import at_least, value
from shmcache.cli.output import finding, forms, past
from shmcache.cli.output.finding import DONE, MISSING, USAGE, Trouble
from shmcache.cli.output.grid import Grid
from shmcache.cli.output.targets import (
    Rows,
    Targets,
    add_columns,
    add_selection,
    fields_of,
    form_of,
    is_namespaced,
    warn,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.protocol.kinds import Kind
    from shmcache.reader.snapshot import Snapshot

    Found = list[tuple[Kind, Any]]

HELP = "Shows objects of a cache, as kubectl does; sends no request to the API server."
EPILOG = """\
  shmcache get pods -A -l app=web
  shmcache get pod/web-0 node/node-7 -o yaml
  shmcache get deploy,rs -n prod
  shmcache get po -o jsonpath='{.items[*].metadata.name}'
  shmcache get pods -A --at -90s
  shmcache get pods -A --recorder /var/lib/shmcache --at -6h
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
    past.add_recorder(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show the objects, then every change to them"
    )
    parser.add_argument("--watch-only", action="store_true", help="show only changes from now on")
    parser.add_argument(
        "--output-watch-events",
        action="store_true",
        help="with --watch: show the type of each change",
    )
    # A cache needs no pages.
    parser.add_argument("--chunk-size", metavar="N", type=at_least(0), help=SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return _get(options)


def _get(options: argparse.Namespace) -> int:
    form = form_of(options)
    if (options.at or options.recorder) and (options.watch or options.watch_only):
        raise Trouble("--at and --recorder show the past, --watch the future", USAGE)
    if options.watch or options.watch_only:
        from shmcache.cli.commands import watch

        return watch.follow(options, None, events=options.output_watch_events)
    if options.recorder:
        return _get_recorded(options, form)
    with finding.open_cache(options.cache) as cache:
        asked = Targets(cache, options)
        finding.wait_listed(cache, asked.resources, options.timeout)
        warn(cache, asked, options.max_age)
        with past.opened(cache, options.at) as at:
            return _show(at, asked, options, form)


def _get_recorded(options: argparse.Namespace, form: forms.OutputForm | None) -> int:
    """From a flight record: the same from a cache that shows the recorded state."""
    from shmcache.recorder.rebuilding import RebuiltCache

    if options.max_age is not None:
        raise Trouble("--max-age is for a cache, and a flight record only ages", USAGE)
    contents = past.contents_of(past.record_of(options), options.at)
    with RebuiltCache() as rebuilt:
        rebuilt.show(contents)
        with rebuilt.cache.snapshot() as at:
            return _show(at, Targets(rebuilt.cache, options), options, form)


def _show(
    at: Snapshot, asked: Targets, options: argparse.Namespace, form: forms.OutputForm | None
) -> int:
    """Prints the objects of one state; the exit status."""
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


def _sort(found: Found, text: str) -> None:
    """Sorts by the values at a path; Trouble if no object has one, or they have no order."""
    from shmcache.cli.output import jsonpath

    steps = jsonpath.path(text.strip("{}"), strict=False)
    values = [next(iter(jsonpath.walk(steps, obj)), None) for _, obj in found]
    if found and all(value is None for value in values):
        raise Trouble(f"--sort-by: no object has a value at {text}", MISSING)
    if not all(isinstance(value, str | int | float | None) for value in values):
        raise Trouble(f"--sort-by: the values at {text} are objects or lists", MISSING)
    orders = [_order(value) for value in values]
    found[:] = [found[at] for at in sorted(range(len(found)), key=orders.__getitem__)]


def _order(value: Any) -> tuple[int, Any]:
    """Missing values first, then numbers, then text."""
    if value is None:
        return 0, ""
    if isinstance(value, bool):
        return 2, str(value).lower()
    return (2, value) if isinstance(value, str) else (1, value)


# ---- tables --------------------------------------------------------------------------------------


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
