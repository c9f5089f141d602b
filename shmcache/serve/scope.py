"""How much of a resource the cache holds, as its writer declared; and how requests learn of it.

Nothing is left out silently: requests for objects that the cache does not hold are refused (403),
and the message names the scope; if objects are held in a form other than the server's, each
answer's headers name that form.

Missing fields decide nothing either: objects of which only metadata is cached can be selected by
metadata alone, and are no more than a name and an age in tables. Fields that a transform removed
are unknown: a request that selects among such objects gets a warning, which kubectl shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shmcache.protocol import accept, failures
from shmcache.protocol.accept import Shape
from shmcache.protocol.kinds import Kind
from shmcache.protocol.selectors.labels import Requirement
from shmcache.protocol.selectors.shards import ShardSelector
from shmcache.reader.selectors import FieldSelector, LabelSelector, Selector

FORM_HEADER = b"X-Shmcache-Form"
"""Describes how the objects of an answer differ from the server's; sent only if they do."""
_NAMES = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of a resource that is cached; the default is all of it."""

    namespaces: tuple[str, ...] = ()
    """Only these; empty: all."""
    labels: str = ""
    fields: str = ""
    shard: str = ""
    metadata_only: bool = False
    transform: str = ""
    """The name of the function that changed the objects before they were stored."""
    managed_fields: bool = True
    known: bool = True
    """Whether the writer declared it."""

    @classmethod
    def read(cls, settings: dict[str, Any]) -> Scope:
        """From a resource's settings in the cache; they restrict only what they name."""
        return cls(
            namespaces=tuple(settings.get("namespaces") or ()),
            labels=str(settings.get("labels") or ""),
            fields=str(settings.get("fields") or ""),
            shard=str(settings.get("shard") or ""),
            metadata_only=bool(settings.get("metadata_only")),
            transform=str(settings.get("transform") or ""),
            managed_fields=bool(settings.get("managed_fields")),
        )

    @property
    def restrictions(self) -> str:
        """The restrictions, for people."""
        found = []
        if self.namespaces:
            found.append(f"the namespaces {', '.join(self.namespaces)}")
        if self.labels:
            found.append(f"labels {self.labels}")
        if self.fields:
            found.append(f"fields {self.fields}")
        if self.shard:
            found.append(f"the shard {self.shard}")
        return " and ".join(found) or "everything"

    @property
    def form(self) -> str:
        """How its objects differ from the server's, for people; empty: only in managedFields."""
        found = []
        if self.metadata_only:
            found.append("metadata only")
        if self.transform:
            found.append(f"transformed by {self.transform}")
        if not self.managed_fields:
            found.append("without managedFields")
        return ", ".join(found)

    def headers(self) -> bytes:
        """Headers that describe the objects; empty if they are as the server has them."""
        form = self.form.encode("ascii", "replace")
        lines = b"%b: %b\r\n" % (FORM_HEADER, form) if form else b""
        if self.transform:
            lines += b'Warning: 299 - "%b: shown and selected as they are now"\r\n' % form
        return lines

    def check(self, kind: Kind, namespace: str, *, shape: Shape) -> Shape:
        """A Failure (403) if objects would be missing, or would differ from what they seem.

        `namespace`: that of the request, "" for all. Returns the shape that they can be shown in.
        """
        if self.namespaces and kind.namespaced and namespace not in self.namespaces:
            asked = f"the namespace {namespace!r}" if namespace else "all namespaces"
            raise self._refusal(kind, f"{kind.key} of {asked} is not cached here")
        full = shape.name == accept.FULL.name
        if self.metadata_only and (full or shape.include == "Object"):
            text = f"{kind.key} is cached with its metadata only: ask for PartialObjectMetadata"
            raise failures.out_of_scope(kind.resource, kind.group, text)
        bare = self.metadata_only and shape.name == accept.TABLE.name
        lean = shape.lean and self.managed_fields  # else there is nothing to leave out
        return shape._replace(bare=bare, lean=lean)

    def check_selectors(
        self, kind: Kind, labels: LabelSelector | None, fields: FieldSelector | None
    ) -> tuple[LabelSelector | None, FieldSelector | None]:
        """A Failure (403) if more is selected than is cached, or by fields that are not cached.

        The request must contain the selection of the cache: then nothing can be missing. Returns
        the terms that remain to be checked on the objects.
        """
        for cached, asked in ((self._labels, labels), (self._fields, fields)):
            wanted = set(asked.requirements) if asked else set()
            if not wanted.issuperset(cached):
                raise self._refusal(kind, f"not all requested {kind.key} are cached here")
        if labels and self.transform:
            labels = LabelSelector(_open(labels, self._labels))
        if fields and (self.transform or self.metadata_only):
            fields = FieldSelector(_open(fields, self._fields), kind.made)
        for term in fields.requirements if fields and self.metadata_only else ():
            if term.key not in _NAMES:
                text = f"{kind.key} is cached with its metadata only, without {term.key}"
                raise failures.out_of_scope(kind.resource, kind.group, text)
        return labels or None, fields or None

    def check_shard(self, kind: Kind, asked: ShardSelector | None) -> ShardSelector | None:
        """A Failure (403) for objects of shards that are not cached; else what remains to check."""
        if not self.shard:
            return asked
        cached = ShardSelector.parse(self.shard)
        if asked is None or not asked.is_within(cached):
            raise self._refusal(kind, f"not all requested {kind.key} are cached here")
        return None if asked == cached else asked

    def missing(self, kind: Kind, name: str) -> failures.Failure:
        """For a key that is not cached: 404, or 403 if it may exist outside of the scope."""
        if self.labels or self.fields or self.shard:
            return self._refusal(kind, f'{kind.key} "{name}" is not cached here, but may exist')
        return failures.not_found(kind.resource, kind.group, name)

    @property
    def _labels(self) -> tuple[Requirement, ...]:
        return LabelSelector.parse(self.labels).requirements if self.labels else ()

    @property
    def _fields(self) -> tuple[Requirement, ...]:
        return FieldSelector.parse(self.fields).requirements if self.fields else ()

    def _refusal(self, kind: Kind, why: str) -> failures.Failure:
        text = f"{why}: this cache holds {self.restrictions}"
        return failures.out_of_scope(kind.resource, kind.group, text)


def _open(asked: Selector, cached: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """The terms left to check: the server has already applied those of the scope."""
    return tuple(term for term in asked.requirements if term not in cached)


UNKNOWN = Scope(known=False)
