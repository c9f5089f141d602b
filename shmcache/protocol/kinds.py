"""A resource as the API knows it: its names, its scope, and what can be done with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmcache.protocol.selectors.fields import Made

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource in one version; `resource` is its plural name, as in paths."""

    group: str
    version: str
    resource: str
    kind: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    """Whether /status is a resource of its own: a write of one leaves the other as it is."""
    generation: bool = False
    """Whether a change of the spec raises metadata.generation."""
    fields: tuple[str, ...] = ()
    """The fields that selectors may name, in addition to metadata.name and metadata.namespace."""
    made: dict[str, Made] = field(default_factory=dict, hash=False)
    """Those of them that do not follow a path: how the server makes their text."""
    columns: tuple[dict[str, Any], ...] = ()
    """additionalPrinterColumns of a custom resource."""
    custom: bool = False
    zero: dict[str, Any] = field(default_factory=dict, hash=False)
    """The content of an empty object, without its metadata, as bookmarks show it."""
    warning: str = ""
    """The warning that comes with each answer of a deprecated one."""
    verbs: tuple[str, ...] = ALL_VERBS
    """The verbs in the order in which discovery lists them."""

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of its lists."""
        return f"{self.kind}List"

    @property
    def key(self) -> str:
        """The name under which its objects are stored, in any version: pods, deployments.apps."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def selectable(self) -> tuple[str, ...]:
        """All that field selectors may name, in the order in which a refusal lists it."""
        own = self.custom or self.fields
        scope = ("metadata.name", "metadata.namespace")
        return (*(scope if self.namespaced or not own else scope[:1]), *self.fields)
