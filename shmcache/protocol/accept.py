"""What an Accept header asks for: which shape of objects, in which media type."""

from __future__ import annotations

from shmcache.protocol import failures

FULL, PARTIAL, TABLE = "full", "partial", "table"
"""Whole objects, PartialObjectMetadata, rows of a Table."""
OFFERED = "application/json, application/json;stream=watch"
_RANGES = frozenset({"application/json", "application/*", "*/*"})
_PARTIAL = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})


def shape(text: str) -> str:
    """Of the first media range that can be served; a Failure (406) if there is none."""
    for one in (text or "*/*").split(","):
        media, *parameters = (part.strip() for part in one.split(";"))
        if media not in _RANGES:
            continue
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        known = wanted.get("g") == "meta.k8s.io" and wanted.get("v") == "v1"
        if "as" not in wanted:
            return FULL
        if known and wanted["as"] in _PARTIAL:
            return PARTIAL
        if known and wanted["as"] == "Table":
            return TABLE
    raise failures.not_acceptable(OFFERED)
