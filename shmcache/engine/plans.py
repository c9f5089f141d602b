"""The plan of one resource: which objects to cache and how; frozen, checked when it is made.

A plan says nothing about where the objects come from: the source does.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shmcache.callables import check_plain, imported
from shmcache.protocol.selectors.shards import ShardSelector, parse_share
from shmcache.settings import IndexSpec, Resource, parse_size
from shmcache.writer.indexing import identity_of

Transform = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""Is given an object, returns what is to be stored of it; None leaves it out. Idempotent."""

LEAST_AGE = 90.0  # bookmarks come about every 60 s
_SECRETS = re.compile(r"secrets?([./]v1\.?)?", re.IGNORECASE)

_SECRETS_IN_ETCD = "/registry/secrets/"


class PlanError(ValueError):
    """The plan is invalid. The text names the resource and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One resource: which of its objects, in what form, within which bounds."""

    name: str
    """As kubectl knows it: pods, po, deployments.apps, widgets.example.com/v1."""
    indices: Mapping[str, IndexSpec] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    """Only these; each is listed and watched by itself. None: all, by one watch."""
    labels: str = ""
    fields: str = ""
    shard: str = ""
    """A part of the objects by hash: I/N, or a shardRange expression."""
    metadata_only: bool = False
    transform: Transform | str | None = None
    """A function, or "module:function"."""
    keep_managed_fields: bool = False
    max_bytes: int | str = 0
    """Of JSON text, as the server sends its objects; 0: unlimited."""
    keys: str = ""
    """In etcd: the prefix or pattern of its keys (source/etcd/keys.py)."""
    value: str = "object"
    """In etcd: what its values are (source/etcd/values.py)."""
    revisions: bool = False
    """In etcd: create_revision and version in the metadata of Kubernetes objects, too."""
    max_age: float = 120.0
    """Seconds without contact with the server after which the resource is stale."""

    def __post_init__(self) -> None:
        Resource(self.name, self.indices)
        object.__setattr__(self, "max_bytes", parse_size(self.max_bytes, "max_bytes"))
        if self.max_age < LEAST_AGE:
            raise PlanError(
                f"{self.name}: max_age must be at least {LEAST_AGE:g} s, not {self.max_age:g} s: a "
                "server sends data on a quiet watch only about once a minute"
            )
        if len(set(self.namespaces)) != len(self.namespaces) or not all(self.namespaces):
            raise PlanError(
                f"{self.name}: namespaces must not be empty or repeated: "
                f"{', '.join(map(repr, self.namespaces))}"
            )
        if isinstance(self.transform, str) and ":" not in self.transform:
            raise PlanError(
                f"{self.name}: transform must be module:function, not {self.transform!r}"
            )

    @property
    def resource(self) -> Resource:
        """The resource that the writer declares."""
        return self.resource_at("", ())

    def resource_at(self, origin: str, default_namespaces: tuple[str, ...]) -> Resource:
        """The resource that the writer declares, with everything that its content depends on.

        A writer that takes the cache over with another declaration lists the resource again.
        """
        transform = self.load_transform()
        return Resource(
            self.name,
            self.indices,
            keep_managed_fields=self.keep_managed_fields,
            settings={
                "origin": origin,
                "namespaces": sorted(self.namespaces or default_namespaces),
                "labels": self.labels,
                "fields": self.fields,
                "metadata_only": self.metadata_only,
                "transform": _name_of(transform),
                "transform_code": _code_of(transform),
                "shard": None if self.share is None else str(self.share),
                **self._of_etcd(),
            },
        )

    def _of_etcd(self) -> dict[str, Any]:
        if not self.keys:
            return {}
        return {"keys": self.keys, "value": self.value, "revisions": self.revisions}

    @property
    def share(self) -> ShardSelector | None:
        """The shard. InvalidSelector."""
        return parse_share(self.shard) if self.shard else None

    @property
    def budget(self) -> int:
        """max_bytes in bytes."""
        return int(self.max_bytes)

    @property
    def is_secret(self) -> bool:
        """Whether the name is one of those of Secrets, or its keys are, or may be, theirs."""
        if _SECRETS.fullmatch(self.name) is not None:
            return True
        prefix = self.keys.partition("{")[0]
        return bool(prefix) and (
            "secrets" in prefix.split("/") or _SECRETS_IN_ETCD.startswith(prefix)
        )

    def load_transform(self) -> Transform | None:
        """The function itself, imported if need be. PlanError if it cannot be had."""
        if not isinstance(self.transform, str):
            return self._checked(self.transform)
        try:
            found = imported(self.transform)
        except ImportError as error:
            raise PlanError(f"{self.name}: transform {error}") from error
        if not callable(found):
            raise PlanError(f"{self.name}: transform {self.transform} is not a function")
        return self._checked(found)

    def _checked(self, found: Any) -> Transform | None:
        if found is None:
            return None
        try:
            check_plain(found, f"transform {self.transform}")
        except TypeError as error:
            raise PlanError(f"{self.name}: {error}") from None
        transform: Transform = found
        return transform


def _name_of(transform: Transform | None) -> str:
    if transform is None:
        return ""
    module, name = getattr(transform, "__module__", ""), getattr(transform, "__qualname__", "")
    return f"{module}:{name}" if name else repr(type(transform))


def _code_of(transform: Transform | None) -> str:
    """Identifies the code of a transform; where nothing can, a new identity each time."""
    return "" if transform is None else identity_of(transform) or uuid.uuid4().hex
