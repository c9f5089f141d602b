"""A resource as the API knows it: its names, its scope, and what can be done with it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.protocol.selectors.fields import Made

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class Kind:
    """One resource in one version; `resource` is its plural name, as in paths.

    A plain class: dataclasses would be a fifth of what `shmcache get` imports. It is not changed.
    """

    __slots__ = (
        "categories", "columns", "custom", "fields", "generation", "group", "kind", "made",
        "namespaced", "resource", "short_names", "singular", "status", "verbs", "version",
        "warning", "zero",
    )  # fmt: skip

    def __init__(
        self,
        *,
        group: str,
        version: str,
        resource: str,
        kind: str,
        singular: str,
        namespaced: bool = True,
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        status: bool = False,
        generation: bool = False,
        fields: tuple[str, ...] = (),
        made: dict[str, Made] | None = None,
        columns: tuple[dict[str, Any], ...] = (),
        custom: bool = False,
        zero: dict[str, Any] | None = None,
        warning: str = "",
        verbs: tuple[str, ...] = ALL_VERBS,
    ) -> None:
        self.group = group
        self.version = version
        self.resource = resource
        self.kind = kind
        self.singular = singular
        self.namespaced = namespaced
        self.short_names = short_names
        self.categories = categories
        self.status = status
        """Whether /status is a resource of its own: a write of one leaves the other as it is."""
        self.generation = generation
        """Whether a change of the spec raises metadata.generation."""
        self.fields = fields
        """The fields that selectors may name, beyond metadata.name and metadata.namespace."""
        self.made = made or {}
        """Those of them that do not follow a path: how the server makes their text."""
        self.columns = columns
        """additionalPrinterColumns of a custom resource."""
        self.custom = custom
        self.zero = zero or {}
        """The content of an empty object, without its metadata, as bookmarks show it."""
        self.warning = warning
        """The warning that comes with each answer of a deprecated one."""
        self.verbs = verbs
        """The verbs in the order in which discovery lists them."""

    def with_(self, **changes: Any) -> Kind:
        """The same with other values of these fields."""
        return Kind(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Kind):
            return self is other
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.group, self.version, self.resource))

    def __repr__(self) -> str:
        return f"Kind({self.resource} of {self.api_version})"

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
