"""Objects for model views: recorded ones, and one of each kind with every attribute.

Generated objects come from the declarations of the library itself (openapi_types, structures), not
from shmcache's tables, so that a wrong table shows.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shmcache.models.tables import BUILTIN_GROUPS, ModelTable

TRACES = Path(
    os.environ.get("SHMCACHE_TRACES")
    or Path(__file__).resolve().parents[1] / "conformance" / "traces"
)
DEEPEST = 7
_TIMES = ("2026-03-01T12:00:00Z", "2026-02-28T23:59:59.123456Z", "1999-12-31T00:00:00.5Z")
_LIST = re.compile(r"^(?:Optional\[)?[Ll]ist\[(.*?)\]+$")
_MAP = re.compile(r"^[Dd]ict[\[(]\w+, ?(.*)[\])]$")


def kinds() -> list[tuple[str, str]]:
    """(apiVersion, kind) of everything that a cache of built-in resources may hold."""
    groups = {word: group for group, word in BUILTIN_GROUPS.items()}
    table, found = ModelTable("lightkube", "1.37"), []
    for name in table.lines:
        module, _, kind = name.partition(".")
        word, _, version = module.rpartition("_")
        attributes = {attribute: spec for attribute, _, spec in table.entries(name)}
        if kind == "Eviction":  # written, never read
            continue
        if {"apiVersion", "kind"} <= set(attributes) and "ObjectMeta" in attributes.get(
            "metadata", ""
        ):
            group = groups[word]
            found.append((f"{group}/{version}" if group else version, kind))
    return found


def recorded() -> Iterator[dict[str, Any]]:
    """The recorded objects, one for each set of members: most differ in their names alone."""
    seen = set()
    for obj in _recorded():
        form = (obj["apiVersion"], obj["kind"], _members(obj))
        if form not in seen:
            seen.add(form)
            yield obj


def _members(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _members(one)) for key, one in value.items())
    if isinstance(value, list):
        return frozenset(map(_members, value))
    return type(value)


def _recorded() -> Iterator[dict[str, Any]]:
    for path in sorted(TRACES.glob("*.body*")):
        body = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for document in _documents(body):
            if not isinstance(document, dict):
                continue
            whole = document.get("object", document)
            items = whole.get("items")
            inherited = {
                "apiVersion": whole.get("apiVersion", ""),
                "kind": str(whole.get("kind", "")).removesuffix("List"),
            }
            for obj in items if isinstance(items, list) else [whole]:
                if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict):
                    yield {**inherited, **obj}


def _documents(body: bytes) -> Iterator[Any]:
    try:
        yield json.loads(body)
    except ValueError:
        for line in body.splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


class Filled:
    """Makes objects of a library's classes in which every member is set, at random."""

    def __init__(self, library: str, rng: random.Random) -> None:
        self._library = library
        self._rng = rng
        if library != "lightkube":
            self._models = importlib.import_module(f"{library}.client.models")

    def object(self, api_version: str, kind: str, name: str) -> dict[str, Any]:
        """The JSON of a kind. `name`: of its model."""
        made: dict[str, Any] = self._model(name, 0)
        return made | {"apiVersion": api_version, "kind": kind}

    def _model(self, name: str, depth: int) -> dict[str, Any]:
        return {
            key: value
            for key, declared in self._members(name)
            if (value := self._value(declared, depth + 1)) is not None
        }

    def _members(self, name: str) -> Iterator[tuple[str, str]]:
        if self._library == "lightkube":
            from shmcache.models import generate

            module, _, kind = name.partition(".")
            one = getattr(importlib.import_module(f"lightkube.models.{module}"), kind)
            for word in generate._struct_line(name, one).split()[1:]:
                members, _, spec = word.partition(":")
                yield members.rpartition("=")[2], _struct_type(one, members, spec)
            return
        one = getattr(self._models, name)
        for attribute, key in one.attribute_map.items():
            declared = one.openapi_types[attribute]
            if declared == "object" and hasattr(one, "model_fields"):
                validated = str(one.model_fields[attribute].annotation)
                declared = "dict" if "Dict" in validated else "scalar"
            yield key, declared

    def _value(self, declared: str, depth: int) -> Any:
        found = _LIST.match(declared)
        if found:
            values = [self._value(found[1], depth) for _ in range(self._rng.randint(0, 2))]
            return [] if None in values else values
        found = _MAP.match(declared)
        if found:
            values = [self._value(found[1], depth + 1) for _ in range(self._rng.randint(0, 2))]
            return {f"key-{n}": one for n, one in enumerate(values) if one is not None}
        return self._scalar(declared, depth)

    def _scalar(self, declared: str, depth: int) -> Any:
        rng = self._rng
        made: dict[str, Any] = {
            "str": rng.choice(["", "a", "text-é", "10Gi", "x" * 70]),
            "int": rng.choice([0, 1, -7, 2**31, 2**53]),
            "bool": rng.random() < 0.5,
            "float": rng.choice([0, 3, 2.5]),
            "datetime": rng.choice(_TIMES),
            "bytes": "YWJj",
            "scalar": rng.choice([80, "50%"]),
            "object": rng.choice([{"a": [1, {"b": None}]}, "text", 5, [1, "b"]]),
            "dict": {"a": {"b": [1]}},
            "Dict": {"a": 1},
            "Any": "any",
        }
        if declared in made:
            return made[declared]
        return self._model(declared, depth) if depth < DEEPEST else None


def _struct_type(one: Any, member: str, spec: str) -> str:
    """A declared type of lightkube in the words of the others."""
    if spec:
        listed = spec.startswith("[")
        inner = spec.strip("[]{}").replace("@", "datetime").replace("%", "float")
        return f"List[{inner}]" if listed else f"Dict[str, {inner}]" if spec[0] == "{" else inner
    declared = next(
        base.__annotations__[member.partition("=")[0]]
        for base in one.__mro__
        if member.partition("=")[0] in getattr(base, "__annotations__", {})
    )
    plain = re.sub(r"^Optional\[(.*)\]$", r"\1", declared)
    plain = re.sub(r"[\w.]*(Quantity|IntOrString)\b", "str", plain)
    plain = re.sub(r"[\w.]*(RawExtension|JSON\w*)\b", "dict", plain)
    return (
        plain
        if re.fullmatch(r"(List\[)?(str|int|bool|dict)\]?|List\[List\[str\]\]", plain)
        else "dict"
    )
