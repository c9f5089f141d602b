"""How much of a resource the cache holds, as who fills it has said; and what a request is told.

Nothing is left out silently: what a cache does not hold is refused with the scope in words (403),
what it holds in another form than the server's is named by the headers of each answer.

What is not held decides nothing either: objects whose metadata alone is cached are selected by
nothing else, and are no more than a name and an age in tables. What a transform has taken away
nobody knows: who selects among its objects is warned, so that kubectl says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shmcache.protocol import accept, failures
from shmcache.protocol.accept import Shape
from shmcache.protocol.kinds import Kind
from shmcache.protocol.labels import Requirement
from shmcache.selectors import FieldSelector, LabelSelector, Selector

FORM_HEADER = b"X-Shmcache-Form"
"""What is different about the objects of an answer, in words; only where something is."""
_NAMES = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is cached of a resource; the default is all of it."""

    namespaces: tuple[str, ...] = ()
    """Only these; none: all."""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False
    transform: str = ""
    """The name of the function that changed the objects before they were stored."""
    managed_fields: bool = True
    known: bool = True
    """Whether somebody has said so."""

    @classmethod
    def read(cls, settings: dict[str, Any]) -> Scope:
        """Of a resource's settings in the cache; what they do not name is not restricted."""
        return cls(
            namespaces=tuple(settings.get("namespaces") or ()),
            labels=str(settings.get("labels") or ""),
            fields=str(settings.get("fields") or ""),
            metadata_only=bool(settings.get("metadata_only")),
            transform=str(settings.get("transform") or ""),
            managed_fields=bool(settings.get("managed_fields")),
        )

    @property
    def selective(self) -> bool:
        """Whether objects are missing."""
        return bool(self.namespaces or self.labels or self.fields)

    @property
    def words(self) -> str:
        """The restrictions, for people."""
        found = []
        if self.namespaces:
            found.append(f"the namespaces {', '.join(self.namespaces)}")
        if self.labels:
            found.append(f"labels {self.labels}")
        if self.fields:
            found.append(f"fields {self.fields}")
        return " and ".join(found) or "everything"

    @property
    def form(self) -> str:
        """What is different about its objects, for people; empty: nothing but managedFields."""
        found = []
        if self.metadata_only:
            found.append("metadata only")
        if self.transform:
            found.append(f"transformed by {self.transform}")
        if not self.managed_fields:
            found.append("without managedFields")
        return ", ".join(found)

    def headers(self) -> bytes:
        """What each answer says of its objects; empty where they are as the server has them."""
        form = self.form.encode("ascii", "replace")
        lines = b"%b: %b\r\n" % (FORM_HEADER, form) if form else b""
        if self.transform:
            lines += b'Warning: 299 - "%b: shown and selected as they are now"\r\n' % form
        return lines

    def check(self, kind: Kind, namespace: str, *, shape: Shape) -> Shape:
        """A Failure (403) where objects would be missing, or would not be what they seem.

        `namespace`: that of the request, "" for all. Returns the shape that they can be shown in.
        """
        if self.namespaces and kind.namespaced and namespace not in self.namespaces:
            asked = f"the namespace {namespace!r}" if namespace else "all namespaces"
            raise self._refusal(kind, f"{kind.key} of {asked} is not cached here")
        if self.metadata_only and (shape == accept.FULL or shape.include == "Object"):
            text = f"{kind.key} is cached with its metadata only: ask for PartialObjectMetadata"
            raise failures.out_of_scope(kind.resource, kind.group, text)
        return shape._replace(bare=self.metadata_only and shape.name == accept.TABLE.name)

    def check_selectors(
        self, kind: Kind, labels: LabelSelector | None, fields: FieldSelector | None
    ) -> tuple[LabelSelector | None, FieldSelector | None]:
        """A Failure (403) where more is selected than what is cached, or by what is not cached.

        What the cache selects must be part of what is asked: then nothing can be missing. Returns
        what is left to be asked of the objects.
        """
        for cached, asked in ((self._labels, labels), (self._fields, fields)):
            wanted = set(asked.requirements) if asked else set()
            if not wanted.issuperset(cached):
                raise self._refusal(kind, f"not all {kind.key} that are asked for are cached here")
        if labels and self.transform:
            labels = LabelSelector(_open(labels, self._labels))
        if fields and (self.transform or self.metadata_only):
            fields = FieldSelector(_open(fields, self._fields), kind.made)
        for term in fields.requirements if fields and self.metadata_only else ():
            if term.key not in _NAMES:
                text = f"{kind.key} is cached with its metadata only, without {term.key}"
                raise failures.out_of_scope(kind.resource, kind.group, text)
        return labels or None, fields or None

    def missing(self, kind: Kind, name: str) -> failures.Failure:
        """Of a key that is not cached: 404, or 403 where it may exist outside of the scope."""
        if self.labels or self.fields:
            return self._refusal(kind, f'{kind.key} "{name}" is not cached here, but may exist')
        return failures.not_found(kind.resource, kind.group, name)

    @property
    def _labels(self) -> tuple[Requirement, ...]:
        return LabelSelector.parse(self.labels).requirements if self.labels else ()

    @property
    def _fields(self) -> tuple[Requirement, ...]:
        return FieldSelector.parse(self.fields).requirements if self.fields else ()

    def _refusal(self, kind: Kind, why: str) -> failures.Failure:
        text = f"{why}: this cache holds {self.words}"
        return failures.out_of_scope(kind.resource, kind.group, text)


def _open(asked: Selector, cached: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """What is left to be asked: the server has seen to the terms of the scope."""
    return tuple(term for term in asked.requirements if term not in cached)


UNKNOWN = Scope(known=False)
