"""Writes docs/api.md from signatures and docstrings: public classes, functions, attributes, errors.

    python tests/docs/reference.py        writes it

Public is what `shmcache.__all__` names, and the modules of MODULES that the pages in docs/ name.
Of a class: its arguments, its methods and properties with docstrings, and attributes that the class
describes by a string after them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "api.md"

SECTIONS = {
    "Reading": ["attach", "Cache", "CachedResource", "Snapshot", "Cursor", "Delta"],
    "Objects": ["View", "ListView", "default", "Tombstone", "LabelSelector", "FieldSelector"],
    "Handlers": ["Registration"],
    "Writing": ["Writer", "Resource", "Staged"],
    "Controllers": [
        "controller", "Controller", "run_controllers", "Owns", "Watches", "Requeue", "written",
        "deleted",
    ],
    "Leaders": ["leader", "Leader", "LeaseSettings", "Candidacy", "fencing_token"],
    "Columns": ["columns"],
}  # fmt: skip
MODULES = {
    "shmcache.settings": ["WriterSettings"],
    "shmcache.reader.freshness": ["Status"],
    "shmcache.reader.snapshot": ["Difference"],
    "shmcache.handlers.aio": ["Event"],
    "shmcache.handlers.consumer": ["Consumer", "ConsumedEvent"],
    "shmcache.interop": ["to_model"],
    "shmcache.models": ["model", "Model", "ModelList", "ModelMap"],
    "shmcache.models.plain": ["default", "dumps", "fragment", "raw"],
    "shmcache.integrations.fastapi": ["ViewResponse", "ViewRoute"],
    "shmcache.integrations": ["attached"],
    "shmcache.integrations.clients": ["CachedApi", "CachedList"],
    "shmcache.integrations.frames": ["total", "ColumnFrame", "GroupBy", "LiveGroups"],
    "shmcache.integrations.gunicorn": ["hooks"],
    "shmcache.integrations.asgi": ["lifespan", "WithCache"],
    "shmcache.integrations.telemetry": ["observe", "traced"],
    "shmcache.metrics": ["Collector", "wsgi_app", "asgi_app"],
    "shmcache.queue.workqueue": ["WorkQueue"],
    "shmcache.portable": ["reflect", "NotPortable"],
    "shmcache.controllers.predicates": None,
    "shmcache.etcd": None,
    "shmcache.testing": None,
}
"""Public names of each; None: its __all__, or every function and class that it defines."""

OBTAINED = {
    "Cache": "`attach()`",
    "CachedResource": "`cache[name]`",
    "Snapshot": "`Cache.snapshot()`",
    "Cursor": "`Cache.follow()`",
    "Delta": "`Cursor.take()`",
    "View": "look-ups",
    "ListView": "look-ups",
    "Registration": "`CachedResource.add_handler()`",
    "Staged": "`Writer.begin_replace()`",
    "Controller": "`controller()`",
    "WorkQueue": "`Cache.queue()`",
    "Tombstone": "handlers",
    "WriterSettings": "the keyword arguments of Writer",
    "Status": "`CachedResource.status`",
    "Difference": "`Snapshot.diff()`",
    "Event": "`CachedResource.events()`",
    "Leader": "`leader()`",
}
"""Classes whose objects are not made by their names."""

HEAD = """# API reference

`python tests/docs/reference.py` writes this page from signatures and docstrings; a test compares.
[Errors](#errors) are at the end, each with its cause and its cure.
"""


class Entry(NamedTuple):
    """A public name: where it is found, and under which heading."""

    section: str
    name: str
    found: Any
    module: str


def entries() -> Iterator[Entry]:
    import shmcache

    for section, names in SECTIONS.items():
        for name in names:
            yield Entry(section, name, getattr(shmcache, name), "shmcache")
    for module_name, chosen in MODULES.items():
        module = _module(module_name)
        for name in chosen or getattr(module, "__all__", None) or _defined(module):
            yield Entry(module_name, name, getattr(module, name), module_name)


def _module(name: str) -> Any:
    """By its name, or as the attribute of shmcache under which it is imported late."""
    import shmcache

    late = getattr(shmcache, name.removeprefix("shmcache."), None)
    return late if inspect.ismodule(late) else importlib.import_module(name)


def errors() -> list[type[BaseException]]:
    """The root first, then each by its name."""
    import shmcache

    found = [getattr(shmcache, name) for name in shmcache.__all__]
    classes = [each for each in found if inspect.isclass(each) and issubclass(each, BaseException)]
    return sorted(classes, key=lambda each: (each is not shmcache.ShmCacheError, each.__name__))


def _defined(module: Any) -> list[str]:
    """Functions and classes in the order of the file."""
    tree = ast.parse(inspect.getsource(module))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
    ]


def text() -> str:
    parts = [HEAD]
    section = ""
    for entry in entries():
        if entry.section != section:
            section = entry.section
            parts.append(f"## {f'`{section}`' if section in MODULES else section}\n")
        parts.append(_of(entry))
    parts.append("## Errors\n")
    parts += [_of_error(each) for each in errors()]
    return "\n".join(parts)


def _of(entry: Entry) -> str:
    found = entry.found
    lines = [f"### {entry.name}", ""]
    if not inspect.isclass(found):
        signature = _signature(found)
        return "\n".join([*lines, _code(f"{entry.name}{signature}"), _prose(found)])
    if entry.name in OBTAINED:
        lines += [f"Obtained from {OBTAINED[entry.name]}.", ""]
    elif "__init__" in vars(found):
        lines.append(_code(f"{entry.name}{_signature(found.__init__)}"))
    lines.append(_prose(found))
    lines += [f"* {each}" for each in members(found)]
    return "\n".join(lines) + "\n"


def members(found: type) -> list[str]:
    """Public methods, properties and described attributes, those of its own bases, too."""
    listed: dict[str, str] = {}
    for home in reversed(found.__mro__):
        if home.__module__.startswith("shmcache"):
            described = dict(_described(home))
            for name, member in vars(home).items():
                doc = described.get(name) or _doc_of(member)
                if not name.startswith("_") and doc:
                    more = _arguments(home, name, member) or _default(found, name)
                    listed[name] = f"`{name}{more}`: {_one_line(doc)}"
            for name, doc in described.items():
                listed.setdefault(name, f"`{name}{_default(found, name)}`: {_one_line(doc)}")
    return [listed[name] for name in sorted(listed)]


def _default(found: type, name: str) -> str:
    """Of a dataclass's field, as its source has it: ` = 0o600`."""
    if not dataclasses.is_dataclass(found):
        return ""
    source = textwrap.dedent(inspect.getsource(found))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(target=ast.Name(id=found_name), value=ast.Constant() as value):
                if found_name == name:
                    return f" = {ast.get_source_segment(source, value)}"
    return ""


def _doc_of(member: Any) -> str:
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if inspect.ismemberdescriptor(member) and not member.__doc__:
        return ""
    named = inspect.isroutine(member) or inspect.isdatadescriptor(member)
    return inspect.getdoc(member) or "" if named else ""


def _described(home: type) -> Iterator[tuple[str, str]]:
    """Attributes with a string after their assignment, in the class or in its __init__."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(home)))
    except (OSError, TypeError):
        return  # of C: its members have docstrings
    for body in (node.body for node in ast.walk(tree) if hasattr(node, "body")):
        statements = body if isinstance(body, list) else []
        for before, after in pairwise(statements):
            name = _assigned(before)
            if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield name, inspect.cleandoc(str(after.value.value))


def _assigned(node: ast.AST) -> str:
    targets: list[ast.expr] = []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    names = [getattr(each, "attr", None) or getattr(each, "id", "") for each in targets]
    return next((name for name in names if name and not name.startswith("_")), "")


def _arguments(home: type, name: str, member: Any) -> str:
    if inspect.isdatadescriptor(member):
        return ""
    return _stubs().get(f"{home.__name__}.{name}") or _signature(member)


@cache
def _stubs() -> dict[str, str]:
    """Arguments of what C defines, as _hot.pyi has them: `Class.method` to `(key: str) -> View`."""
    tree = ast.parse((ROOT / "shmcache" / "_hot.pyi").read_text())
    found: dict[str, str] = {}
    for node in tree.body:
        for method in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(method, ast.FunctionDef):
                given = re.sub(r"^self(?:, /)?(?:, )?", "", ast.unparse(method.args))
                result = ast.unparse(method.returns) if method.returns else "None"
                tail = "" if result == "None" else f" -> {result}"
                found[f"{getattr(node, 'name', '')}.{method.name}"] = f"({given}){tail}"
    return found


def _signature(found: Any) -> str:
    """As it is written in the source; of C, as its text signature has it."""
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return "(...)"
    kept = [each for each in signature.parameters.values() if each.name not in {"self", "cls"}]
    shown = str(signature.replace(parameters=kept))
    bare = re.sub(r"(: |-> )'([^']*)'", r"\1\2", re.sub(r"<[^>]*>", "...", shown))
    return bare.removesuffix(" -> None")


def _code(line: str) -> str:
    if len(line) > 100:
        head, _, rest = line.partition("(")
        arguments, _, result = rest.rpartition(")")
        split = re.split(r", (?![^\[(]*[\])])", arguments)
        line = f"{head}(\n" + "".join(f"    {each},\n" for each in split) + f"){result}"
    return f"```text\n{line}\n```\n"


def _prose(found: Any) -> str:
    doc = inspect.getdoc(found) or ""
    paragraphs = re.split(r"\n\s*\n", doc)
    shown = (
        f"```text\n{textwrap.dedent(each)}\n```" if each.startswith("    ") else _one_line(each)
        for each in paragraphs
        if each
    )
    return "\n\n".join(shown) + "\n"


def _one_line(doc: str) -> str:
    return " ".join(doc.split())


def _of_error(found: type[BaseException]) -> str:
    bases = ", ".join(each.__name__ for each in found.__bases__)
    return f"### {found.__name__}\n\nA kind of `{bases}`. {_prose(found)}"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(text())
