"""The metadata that the server itself writes, and the names that it takes."""

from __future__ import annotations

import datetime as dt
import random
import re
import uuid
from typing import Any

from shmcache.protocol import failures
from shmcache.protocol.kinds import Kind

Object = dict[str, Any]

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
NO_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{SUBDOMAIN}')"
)
NAME_IS_REQUIRED = "Required value: name or generateName is required"
FREE_NAMES = "rbac.authorization.k8s.io"
"""The group whose names may be any path segment."""


def now() -> str:
    """The time as the API writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def begin(kind: Kind, obj: Object, luck: random.Random) -> None:
    """Completes the metadata of an object that is created."""
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(luck.choice(ALPHABET) for _ in range(5))
        metadata["name"] = metadata["generateName"] + suffix
    check_name(kind, metadata.get("name") or "")
    metadata.pop("deletionTimestamp", None)
    metadata.pop("deletionGracePeriodSeconds", None)
    metadata["uid"] = str(uuid.UUID(int=luck.getrandbits(128), version=4))
    metadata["creationTimestamp"] = now()
    if kind.generation:
        metadata["generation"] = 1


def check_name(kind: Kind, name: str) -> None:
    """A Failure (422) where the name may not be one."""
    if not name:
        cause = ("FieldValueRequired", NAME_IS_REQUIRED, "metadata.name")
    elif kind.group == FREE_NAMES or (re.fullmatch(SUBDOMAIN, name) and len(name) <= 253):
        return
    else:
        text = f'Invalid value: "{name}": {NO_SUBDOMAIN}'
        cause = ("FieldValueInvalid", text, "metadata.name")
    raise failures.invalid(kind.kind, kind.group, name, [cause])


def carry_over(kind: Kind, old: Object, new: Object) -> None:
    """Keeps what an update cannot change, and counts the generation."""
    before, after = old["metadata"], new["metadata"]
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        after.pop(field, None)
        if field in before:
            after[field] = before[field]
    after["name"] = before["name"]
    if "namespace" in before:
        after["namespace"] = before["namespace"]
    after.pop("generation", None)
    if "generation" in before:
        raised = kind.generation and _wanted(old) != _wanted(new)
        after["generation"] = before["generation"] + raised


def _wanted(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in {"metadata", "status"}}
