"""Accept headers: which shape of objects a client asks for, in which media type.

ACCEPT1  The clauses are tried in the order of the API server: by quality, a wildcard behind what it
    covers. The first that can be served decides, with all its parameters.
ACCEPT2  A clause of quality 0 names a form that the client does not take, and is left out (the API
    server tries it last).
ACCEPT3  `drop=metadata.managedFields` (KEP-5958) leaves these fields out of every object of the
    answer. Other names in `drop`, separated by +, are ignored: a later API server may know them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cmp_to_key
from typing import NamedTuple

from shmcache.protocol import failures


class Shape(NamedTuple):
    """A form of objects."""

    name: str
    version: str = "v1"
    """Of meta.k8s.io, in which metadata and tables are written."""
    include: str = ""
    """The content of the rows of a table: Object, Metadata (also ""), None."""
    bare: bool = False
    """Whether rows show name and age alone: nothing else is known of the objects."""
    lean: bool = False
    """Whether objects come without metadata.managedFields (ACCEPT3)."""

    @property
    def api_version(self) -> str:
        """As metadata and tables say it."""
        return f"meta.k8s.io/{self.version}"


FULL, PARTIAL, TABLE = Shape("full"), Shape("partial"), Shape("table")
"""Whole objects, PartialObjectMetadata, rows of a Table."""
OFFERED = "application/json, application/json;stream=watch"
_RANGES = frozenset({("application", "json"), ("application", "*"), ("*", "*")})
_ONE, _MANY = "PartialObjectMetadata", "PartialObjectMetadataList"
_SHAPES = {"": FULL, _ONE: PARTIAL, _MANY: PARTIAL, "Table": TABLE}
_INCLUDED = frozenset({"", "Metadata", "Object", "None"})
_NUMBER = re.compile(r"\d++(\.\d*+)?|\.\d++")
MANAGED = "metadata.managedFields"
CLAUSES = 64
"""Of a header, as many are read: ordering them costs more than reading them."""
_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
"""How the clients begin to call themselves that show JSON to people."""
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class _Clause(NamedTuple):
    media: tuple[str, str]
    quality: float
    wanted: dict[str, str]
    """Its parameters."""


def shape(text: str, query: Mapping[str, str] | None = None, *, many: bool | None = None) -> Shape:
    """Of an Accept header and a query; a Failure (406, 400) for what cannot be served.

    `many`: whether the answer is a list; None, of a watch, takes the names of both.
    """
    found = _chosen(text)
    if found is None:
        raise failures.not_acceptable(OFFERED)
    name = found.get("as", "")
    lean = MANAGED in found.get("drop", "").split("+")
    if many is not None and name == (_ONE if many else _MANY):
        raise failures.not_convertible(name, many=many)
    if not name:
        return FULL._replace(lean=lean)
    include = query.get("includeObject", "") if query and name == "Table" else ""
    if include not in _INCLUDED:
        raise failures.no_table(include)
    return _SHAPES[name]._replace(version=found["v"], include=include, lean=lean)


def pretty(query: Mapping[str, str], headers: Mapping[str, str]) -> bool:
    """Whether JSON is to be laid out for people, by the media type, the query or the client.

    A watch is never asked: its events are lines.
    """
    found = _chosen(headers.get("accept", ""))
    if found is not None and found.get("pretty") == "1":
        return True
    if asked := query.get("pretty"):
        return asked in _TRUE
    return headers.get("user-agent", "").startswith(_PEOPLE)


def _chosen(text: str) -> dict[str, str] | None:
    """The parameters of the first clause that can be served."""
    if not text or text == "application/json":
        return {}
    clauses = sorted(_clauses(text), key=cmp_to_key(_order))
    return next((clause.wanted for clause in clauses if _served(clause.wanted)), None)


def _clauses(text: str) -> Iterator[_Clause]:
    for one in text.split(",", CLAUSES)[:CLAUSES]:
        media, *parameters = one.split(";")
        kind, _, inner = media.partition("/")
        pair = kind.strip(" "), inner.strip(" ") or ("*" if kind.strip(" ") == "*" else "")
        if pair not in _RANGES:
            continue
        wanted, quality = {}, "1"
        for name, equals, value in (parameter.partition("=") for parameter in parameters):
            if not equals or not value or "=" in value:
                continue
            if name.strip(" ") == "q":
                quality = value
            else:
                wanted[name.strip(" ")] = value.strip(" ")
        number = float(quality) if _NUMBER.fullmatch(quality) else -1.0
        if number:
            yield _Clause(pair, number, wanted)


def _order(one: _Clause, other: _Clause) -> int:
    """Each may be before the other (a wildcard of more quality); then it is the later one."""
    pairs = zip(one.media, other.media, strict=True)
    closer = any(mine != "*" == theirs for mine, theirs in pairs)
    return -1 if closer or one.quality > other.quality else 0


def _served(wanted: Mapping[str, str]) -> bool:
    """Whether objects can be shown as the parameters want it."""
    if wanted.get("stream", "watch") != "watch" or wanted.get("sv", "v1") != "v1":
        return False
    if wanted.keys().isdisjoint({"as", "g", "v"}):
        return True
    named = wanted.get("as", "") in _SHAPES.keys() - {""}
    return named and wanted.get("g") == "meta.k8s.io" and wanted.get("v") in {"v1", "v1beta1"}
