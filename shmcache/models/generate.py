"""Makes the tables of names in this folder from the installed client libraries.

    python -m shmcache.models.generate kubernetes      the installed version's table, to stdout

A table has one line for each class: its name, then its attributes in the library's order.

    V1Pod apiVersion kind metadata:V1ObjectMeta spec:V1PodSpec status:V1PodStatus
    V1ContainerStateRunning startedAt:@
    V1PodStatus ... containerStatuses:[V1ContainerStatus] ...

The attribute of `nodeName` is `node_name`, or `nodeName` where the head of the table has
`names=keys`; another one is in front: `_from=from`. Behind the colon: a class, `@` a time, `%` a
float, `[...]` an array, `{...}` a map; without a colon the value is as JSON has it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from typing import TYPE_CHECKING, Any

from shmcache.models.naming import snake

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULES = {
    "kubernetes": "kubernetes.client.models",
    "kubernetes.aio": "kubernetes.aio.client.models",
    "kubernetes_asyncio": "kubernetes_asyncio.client.models",
}
_OPTIONAL = re.compile(r"^Optional\[(.*)\]$")
_LIST = re.compile(r"^[Ll]ist\[(.*)\]$")
_MAP = re.compile(r"^[Dd]ict[\[(][^,]*, ?(.*)[\])]$")


def generate(library: str) -> str:
    """The table of the installed version of a library, as the file in this folder has it."""
    lines = _struct_lines() if library == "lightkube" else _openapi_lines(_MODULES[library])
    names = "keys" if library == "lightkube" else "snake"
    head = f"# {library} {installed(library)}: made by shmcache.models.generate names={names}"
    return "\n".join([head, *sorted(lines)]) + "\n"


def installed(library: str) -> str:
    """The version of a library that names its table: of lightkube, that of its models."""
    package = {"lightkube": "lightkube-models"}.get(library, library.partition(".")[0])
    version = importlib.metadata.version(package)
    return ".".join(version.split(".")[:2]) if library == "lightkube" else version.split(".")[0]


def _spec(declared: str, known: set[str]) -> str:
    """A type of the library in the table's notation; "" for values as JSON has them."""
    optional = _OPTIONAL.match(declared)
    if optional:
        return _spec(optional[1], known)
    for pattern, form in ((_LIST, "[{}]"), (_MAP, "{{{}}}")):
        found = pattern.match(declared)
        if found:
            inner = _spec(found[1], known)
            return form.format(inner) if inner else ""
    if declared in known:
        return declared
    return {"datetime": "@", "float": "%"}.get(declared, "")


def _entry(attribute: str, key: str, usual: str, spec: str) -> str:
    name = key if attribute == usual else f"{attribute}={key}"
    return f"{name}:{spec}" if spec else name


def _openapi_lines(module: str) -> Iterator[str]:
    """Models with openapi_types and attribute_map: all releases of the official clients."""
    models = importlib.import_module(module)
    found = {name: getattr(models, name) for name in dir(models)}
    classes = {name: one for name, one in found.items() if hasattr(one, "openapi_types")}
    for name, one in classes.items():
        entries = [
            _entry(attribute, key, snake(key), _spec(one.openapi_types[attribute], set(classes)))
            for attribute, key in one.attribute_map.items()
        ]
        yield " ".join([name, *entries])


def _struct_lines() -> Iterator[str]:
    """Lightkube's models: structures of msgspec, in a module for each version of a group."""
    import pkgutil

    models = importlib.import_module("lightkube.models")
    for module in pkgutil.iter_modules(models.__path__):
        if not re.search(r"_v\d", module.name):
            continue
        content = importlib.import_module(f"lightkube.models.{module.name}")
        for name, one in vars(content).items():
            if isinstance(one, type) and one.__module__ == content.__name__:
                yield _struct_line(f"{module.name}.{name}", one)


def _struct_line(name: str, one: Any) -> str:
    declared = {
        field: (text, vars(sys.modules[base.__module__]))
        for base in reversed(one.__mro__)
        for field, text in getattr(base, "__annotations__", {}).items()
    }
    entries = [
        _entry(field, key, key, _struct_spec(*declared[field]))
        for field, key in zip(one.__struct_fields__, one.__struct_encode_fields__, strict=True)
    ]
    return " ".join([name, *entries])


def _struct_spec(declared: str, names: dict[str, Any]) -> str:
    """The same as _spec() for an annotation of lightkube, whose names are those of its module."""
    for pattern, form in ((_OPTIONAL, "{}"), (_LIST, "[{}]"), (_MAP, "{{{}}}")):
        found = pattern.match(declared)
        if found:
            inner = _struct_spec(found[1], names)
            return form.format(inner) if inner else ""
    module, _, name = declared.rpartition(".")
    one = getattr(names[module], name) if module else names.get(name)
    if isinstance(one, type) and hasattr(one, "__struct_fields__"):
        return f"{one.__module__.rpartition('.')[2]}.{one.__name__}"
    return "@" if getattr(one, "__name__", "") == "datetime" else "%" if name == "float" else ""


if __name__ == "__main__":
    sys.stdout.write(generate(sys.argv[1]))
