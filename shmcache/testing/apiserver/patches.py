"""PATCH: what each format makes of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmcache.protocol import failures
from shmcache.protocol.kinds import Kind
from shmcache.testing.apiserver.merging import json_merge, json_patch, strategic_merge
from shmcache.testing.apiserver.requests import ApiRequest

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def change(kind: Kind, request: ApiRequest) -> Callable[[Object], Object]:
    """The change that the request's body makes; a Failure (415, 400) of anything but a patch."""
    media = request.headers.get("content-type", "").partition(";")[0].strip()
    if media not in {JSON_PATCH, MERGE_PATCH, STRATEGIC} or (media == STRATEGIC and kind.custom):
        raise failures.unsupported_media_type()
    patch = request.json()
    if media == JSON_PATCH:
        if not isinstance(patch, list):
            raise failures.bad_request("a JSON patch is an array of operations")
        return lambda obj: json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise failures.bad_request("a merge patch is an object")
    if media == MERGE_PATCH:
        return lambda obj: json_merge(obj, patch)
    return lambda obj: strategic_merge(obj, patch)
