"""Views at a prompt: dir(), trees and tables in IPython and Jupyter.

The extension asks here (csrc/python/views/pyprompt.c); nothing of it is imported before.
"""

from __future__ import annotations

import contextlib
from html import escape

from shmcache import _hot
from shmcache.errors import ShmCacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

ROWS = 50
"""Lines of a table or members of one level of a tree: a notebook stays usable on any object."""
DEPTH = 6
TEXT = 120


def names(view: Any) -> list[str]:
    """dir(): attributes, and keys that can be attributes."""
    found = set(dir(type(view)))
    if type(view) is _hot.View:
        with contextlib.suppress(ShmCacheError):  # a handle that is closed still has methods
            found |= {key for key in view if key.isidentifier()}
    return sorted(found)


def pretty(view: Any, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - IPython's call
    """IPython's _repr_pretty_: the name, then what is in it, as deep as fits on a screen."""
    if cycle:
        printer.text("...")
        return
    try:
        text = "\n".join(_lines(view))
    except ShmCacheError:
        text = ""
    head = repr(view)
    named = head.startswith("<")
    printer.text(head if named or not text else text)
    if named and text:
        printer.break_()
        for number, line in enumerate(text.split("\n")):
            if number:
                printer.break_()
            printer.text(line)


def html(view: Any) -> str | None:
    """Jupyter's _repr_html_: a tree of an object, a table of a list of objects."""
    try:
        if type(view) is _hot.View:
            return f"<div><b>{escape(repr(view))}</b>{_tree(view, 0)}</div>"
        objects = [one for one in view[:ROWS] if type(one) is _hot.View]
        if len(objects) == min(len(view), ROWS) and objects:
            return table(objects, len(view))
        return f"<div>{_tree(view, 0)}</div>"
    except ShmCacheError:
        return None  # its repr names the error


# ---- text ----------------------------------------------------------------------------------------


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    if type(value) is _hot.View:
        return ((key, value[key]) for key in list(value)[:ROWS])
    return ((f"[{number}]", one) for number, one in enumerate(value[:ROWS]))


def _is_open(value: Any, depth: int) -> bool:
    return type(value) in {_hot.View, _hot.ListView} and len(value) > 0 and depth < DEPTH


def _brief(value: Any) -> str:
    kind = type(value)
    if kind is _hot.View:
        return f"{{{len(value)} members}}" if len(value) else "{}"
    if kind is _hot.ListView:
        return f"[{len(value)} items]" if len(value) else "[]"
    text = repr(value)
    return text if len(text) <= TEXT else text[:TEXT] + "…"


def _lines(value: Any, depth: int = 0) -> Iterator[str]:
    indent = "  " * depth
    for name, one in _entries(value):
        if _is_open(one, depth + 1):
            yield f"{indent}{name}:"
            yield from _lines(one, depth + 1)
        else:
            yield f"{indent}{name}: {_brief(one)}"
    if len(value) > ROWS:
        yield f"{indent}… {len(value) - ROWS} more"


# ---- HTML ----------------------------------------------------------------------------------------


def _tree(value: Any, depth: int) -> str:
    parts = ["<ul style='margin:0;list-style:none;text-align:left'>"]
    for name, one in _entries(value):
        if _is_open(one, depth + 1):
            opened = " open" if depth < 1 else ""
            inner = _tree(one, depth + 1)
            parts.append(
                f"<li><details{opened}><summary>{escape(name)}</summary>{inner}</details></li>"
            )
        else:
            parts.append(f"<li>{escape(name)}: <code>{escape(_brief(one))}</code></li>")
    if len(value) > ROWS:
        parts.append(f"<li>… {len(value) - ROWS} more</li>")
    return "".join(parts) + "</ul>"


def table(objects: Iterable[Any], total: int) -> str:
    """A table of objects: of Kubernetes objects their names and ages, of others their members."""
    rows = [_row(one) for one in objects]
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(list(row)[:10]))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(row.get(name, ''))}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    rest = f"<p>… {total - len(rows)} more</p>" if total > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _row(view: Any) -> dict[str, str]:
    metadata = view.get("metadata")
    if type(metadata) is not _hot.View or "name" not in metadata:
        return {key: _text(view[key]) for key in view}
    row = {
        "kind": view.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "created": metadata.get("creationTimestamp"),
    }
    for name, key in (("status", "phase"), ("spec", "nodeName"), ("spec", "replicas")):
        part = view.get(name)
        if type(part) is _hot.View and key in part:
            row[key] = part[key]
    return {name: _text(value) for name, value in row.items() if value is not None}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else _brief(value)
    return text if len(text) <= TEXT else text[:TEXT] + "…"
