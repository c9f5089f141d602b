"""The resources of a writer, their indices and their settings, as the open batch declares them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shmcache import _hot, _native
from shmcache._native import NULL, check, ffi, lib
from shmcache.settings import check_index_spec, check_label
from shmcache.writer.indexing import Functions, identity_of, published, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache.settings import IndexSpec, Resource
    from shmcache.writer.handle import Handle


class Declared:
    """A resource of this writer: its id, and the index functions that run here."""

    __slots__ = (
        "functions",
        "id",
        "keep_managed_fields",
        "name",
        "refused",
        "settings",
        "shares",
    )

    def __init__(self, resource: Resource, number: int) -> None:
        self.name = name = resource.name
        self.id = number
        self.keep_managed_fields = resource.keep_managed_fields
        self.refused = 0  # items that could not be stored
        self.shares: dict[str, Any] = {}  # by prefix: the Staged of its new content
        self.functions = Functions(name)
        self.settings: dict[str, Any] = {}  # as they are stored


def settings_of(resource: Resource) -> dict[str, Any]:
    """The settings that are stored with a resource: those on which its content depends."""
    if not resource.settings and not resource.keep_managed_fields:
        return {}
    return {**resource.settings, "managed_fields": resource.keep_managed_fields}


def text_of(text: str | None) -> tuple[Any, int]:
    """Bytes and their length, as the core takes them; NULL and 0 for None."""
    if text is None:
        return NULL, 0
    encoded = text.encode()
    return encoded, len(encoded)


class Declarations:
    """Declares resources and indices, and finds them by name."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.declared: dict[str, Declared] = {}

    def find(self, resource: str) -> Declared:
        """KeyError lists the resources of the cache."""
        try:
            return self.declared[resource]
        except KeyError:
            known = ", ".join(self.declared) or "none"
            where = f"cache {self._handle.name!r}"
            raise KeyError(f"{where}: no resource {resource!r}, only {known}") from None

    def add(self, resource: Resource) -> None:
        """Declares a resource and its indices, in a batch."""
        name, number = resource.name.encode(), ffi.new("uint32_t *")
        with self._handle.change(resource.name, whole=True) as raw:
            if resource.name in self.declared:
                where = f"cache {self._handle.name!r}"
                raise ValueError(f"{where}: {resource.name} is declared already")
            status = lib.shmc_declare_resource(raw, name, len(name), number)
            check(status, f"declaring {resource.name}")
            declared = self.enlist(resource, int(number[0]))
            for index, spec in resource.indices.items():
                self.declare_index(declared, index, resolve(index, spec) or spec)
            if settings := settings_of(resource):
                self.describe(declared, settings)

    def enlist(self, resource: Resource, number: int) -> Declared:
        """Remembers a resource that the open batch declares, or found."""
        declared = self.declared[resource.name] = Declared(resource, number)
        self._handle.on_abort(lambda: self.declared.pop(declared.name))
        return declared

    def describe(self, declared: Declared, settings: dict[str, Any]) -> None:
        """Stores the settings of a resource, in the open batch."""
        text = json.dumps(settings, sort_keys=True).encode()
        status = lib.shmc_set_settings(self._handle.opened, declared.id, text, len(text))
        check(status, declared.name)
        before, declared.settings = declared.settings, settings
        self._handle.on_abort(lambda: setattr(declared, "settings", before))

    def add_index(self, declared: Declared, index: str, spec: IndexSpec) -> None:
        """Declares an index and fills it from the objects that exist, as one generation."""
        check_label("an index's name", index)
        check_index_spec(index, spec)
        emit = resolve(index, spec)
        with self._handle.turn():
            if emit is not None:
                self._handle.refuse_batch(f"{declared.name}: add_index() with a function")
        with self._handle.change(declared.name, whole=True):
            self.declare_index(declared, index, emit or spec)
            if emit is not None:
                self.refill(declared)

    def declare_index(
        self, declared: Declared, index: str, spec: str | Callable[[Any], Any]
    ) -> None:
        """Declares an index, in the open batch; a function's values are not computed yet."""
        raw = self._handle.opened
        name, path = index.encode(), text_of(spec if isinstance(spec, str) else None)
        found = ffi.new("uint32_t *")
        status = lib.shmc_declare_index(raw, declared.id, name, len(name), *path, found)
        if status == _native.INVALID:
            raise ValueError(
                f"{declared.name}: index {index} cannot be declared: its name is taken, or "
                f"{spec!r} is not a valid path"
            )
        check(status, f"{declared.name}: declaring index {index}")
        if not isinstance(spec, str):
            if (identity := identity_of(spec)) is not None:
                text = identity.encode()
                status = lib.shmc_set_function(raw, declared.id, found[0], text, len(text))
                check(status, f"{declared.name}: declaring index {index}")
            declared.functions.add(index, spec)
            self._handle.on_abort(declared.functions.drop_last)

    def refill(self, declared: Declared) -> None:
        """Computes the values of all index functions for each object, in the open batch."""
        for key, obj in published(self._handle.mapped, declared.id):
            emitted = emit(self._handle, declared, key, obj)
            _hot.refill(self._handle.address, declared.id, key, emitted)


def emit(handle: Handle, declared: Declared, key: str, obj: Any) -> tuple[tuple[str, ...], ...]:
    """The values of all index functions for an object; they must not use the writer."""
    handle.inside = True
    try:
        return declared.functions.emit(key, obj)
    finally:
        handle.inside = False
