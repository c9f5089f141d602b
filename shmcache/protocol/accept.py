"""What an Accept header asks for: which shape of objects, in which media type."""

from __future__ import annotations

from collections.abc import Mapping

from shmcache.protocol import failures

FULL, PARTIAL, TABLE = "full", "partial", "table"
"""Whole objects, PartialObjectMetadata, rows of a Table."""
OFFERED = "application/json, application/json;stream=watch"
_RANGES = frozenset({"application/json", "application/*", "*/*"})
_PARTIAL = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})


_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
"""How the clients begin to call themselves that show JSON to people."""
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


def shape(text: str) -> str:
    """Of the first media range that can be served; a Failure (406) if there is none."""
    found = _chosen(text)
    if found is None:
        raise failures.not_acceptable(OFFERED)
    return found[0]


def pretty(query: Mapping[str, str], headers: Mapping[str, str]) -> bool:
    """Whether JSON is to be laid out for people: the media type, the query or the client says so.

    A watch is never asked: its events are lines.
    """
    found = _chosen(headers.get("accept", ""))
    if found is not None and found[1].get("pretty") == "1":
        return True
    if asked := query.get("pretty"):
        return asked in _TRUE
    return headers.get("user-agent", "").startswith(_PEOPLE)


def _chosen(text: str) -> tuple[str, dict[str, str]] | None:
    """The first media range that can be served: the shape it asks for, and its parameters."""
    for one in (text or "*/*").split(","):
        media, *parameters = (part.strip() for part in one.split(";"))
        if media not in _RANGES:
            continue
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        known = wanted.get("g") == "meta.k8s.io" and wanted.get("v") == "v1"
        if "as" not in wanted:
            return FULL, wanted
        if known and wanted["as"] in _PARTIAL:
            return PARTIAL, wanted
        if known and wanted["as"] == "Table":
            return TABLE, wanted
    return None
