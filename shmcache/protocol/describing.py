"""Descriptions of resources, which the reflector stores for readers: names, kind, columns.

DESC1  A description holds what discovery and, of a custom resource, its definition state.
       `kind_of` makes a Kind of it again, the same for every reader. It is stored in one mapping
       with the settings of the plan, so no key of the one may be a key of the other.
DESC2  A cache that a program filled has no descriptions. Then the names of built-in resources are
       known, and of other ones only what their name in the cache says (`guessed`).
DESC3  Readers trust a description as they trust the settings: it holds texts, numbers and lists of
       the types that the API has, whatever a server has stated.
"""

from __future__ import annotations

from functools import cache

from shmcache.protocol.builtins import builtin, defined, optional
from shmcache.protocol.jsontext import is_text
from shmcache.protocol.kinds import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

READ_VERBS = ("get", "list", "watch")
"""The verbs that a cache has."""
_COLUMN = ("name", "type", "format", "description", "priority", "jsonPath")


@cache
def builtins() -> Mapping[str, Kind]:
    """The built-in resources by their keys: pods, deployments.apps."""
    return {kind.key: kind.with_(verbs=READ_VERBS) for kind in (*builtin(), *optional())}


@cache
def _aliases() -> Mapping[str, Kind]:
    """Of built-in resources by all that they may be called, the first ones of the table first."""
    found: dict[str, Kind] = {}
    for kind in builtins().values():
        for name in (kind.key, kind.resource, kind.singular, *kind.short_names):
            found.setdefault(name, kind)
    return found


def is_builtin(group: str, plural: str) -> bool:
    """Whether this is one of the built-in resources, which have no definition."""
    return (f"{plural}.{group}" if group else plural) in builtins()


def columns_of(definition: dict[str, Any] | None, version: str) -> dict[str, Any]:
    """The part of a description that a CustomResourceDefinition states of one version.

    Without a definition, as of a built-in resource or where it may not be read, nothing is stated.
    Nor is what no definition can have (DESC3).
    """
    kinds = [one for one in defined(definition) if one.version == version] if definition else []
    if not kinds:
        return {"columns": [], "selectable_fields": []}
    columns = [
        {key: row[key] for key in _COLUMN if key in row and _fits(key, row[key])}
        for row in kinds[0].columns
    ]
    return {
        "columns": [row for row in columns if "name" in row],
        "selectable_fields": list(filter(is_text, kinds[0].fields)),
    }


def _fits(key: str, value: object) -> bool:
    """Whether a member of a column is of its type."""
    if key == "priority":
        return type(value) is int and abs(value) < 1 << 31
    return is_text(value)


def kind_of(settings: Mapping[str, Any]) -> Kind | None:
    """The kind of a described resource; None where nothing describes it."""
    resource, name = settings.get("plural"), settings.get("kind")
    if not resource or not name:
        return None
    group, version = str(settings.get("group") or ""), str(settings.get("version") or "v1")
    known = builtins().get(f"{resource}.{group}" if group else str(resource))
    if known is not None:
        return known.with_(version=version)
    return Kind(
        group=group,
        version=version,
        resource=str(resource),
        kind=str(name),
        singular=str(settings.get("singular") or str(name).lower()),
        namespaced=bool(settings.get("namespaced", True)),
        short_names=tuple(settings.get("short_names") or ()),
        categories=tuple(settings.get("categories") or ()),
        columns=tuple(settings.get("columns") or ()),
        fields=tuple(settings.get("selectable_fields") or ()),
        custom=True,
        verbs=READ_VERBS,
    )


def called(name: str) -> Kind | None:
    """The built-in resource of this name in a configuration: po, deployments.v1.apps, events/v1."""
    full, _, _version = name.lower().partition("/")
    first, _, group = full.partition(".")
    found = _aliases().get(full)
    if found is not None:
        return found
    for kind in builtins().values():
        if (
            first in {kind.resource, kind.singular, *kind.short_names}
            and group
            and in_group(kind, group)
        ):
            return kind
    return None


def in_group(kind: Kind, rest: str) -> bool:
    """Whether `rest` names the kind's group: that of deployments.apps or deployments.v1.apps."""
    version, _, group = rest.partition(".")
    return rest == kind.group or (version == kind.version and group == kind.group)


def guessed(name: str) -> Kind:
    """The kind of a resource that is neither described nor built in, by its name in the cache."""
    full, _, version = name.partition("/")
    first, _, group = full.partition(".")
    singular = first.removesuffix("s")
    return Kind(
        group=group,
        version=version or "v1",
        resource=first,
        kind=singular.capitalize(),
        singular=singular,
        custom=True,
        verbs=READ_VERBS,
    )


def known_as(name: str, settings: Mapping[str, Any]) -> Kind:
    """The kind of a resource of a cache, as well as it is known there."""
    return kind_of(settings) or called(name) or guessed(name)
