"""How the models of one client library behave: their attributes, times, copies and texts.

The extension (csrc/python/models) reads attributes; it asks a Dialect for everything else.
"""

from __future__ import annotations

import contextlib
import functools
import sys

from shmcache import _hot
from shmcache.errors import ShmCacheError
from shmcache.models import naming
from shmcache.models.tables import ModelTable, model_name, release_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_METHODS = ("to_dict", "to_str", "to_model")
_DELEGATED = ("model_dump", "model_dump_json", "to_json")
_DECLARED = ("openapi_types", "attribute_map", "discriminator", "model_fields")


def brief(model: _hot.Model) -> str:
    """repr(): names the object, reads little, and never raises because it cannot be read."""
    name = model._model_class().name  # noqa: SLF001
    try:
        view = model.to_view()
        text = repr(view)
        metadata = view.get("metadata")
    except ShmCacheError as error:
        return f"<{name}: {type(error).__name__}>"
    if text.startswith("<") and isinstance(metadata, _hot.View):
        return f"<{name} {text.partition(' ')[2]}"
    return f"<{name} {text}>"


class Dialect:
    """The rules of one release of one library; dialect_of() has them all."""

    def __init__(self, library: str, release: str) -> None:
        self.library = library
        self.release = release
        self.name = f"{library} {release}"
        self.table = ModelTable(library, release)
        self._classes: dict[str, _hot.ModelClass] = {}
        self._kinds: dict[str, _hot.ModelKind] = {}
        self._tops: dict[tuple[Any, Any], _hot.ModelClass] = {}
        self._custom: CustomDialect | None = None

    def __repr__(self) -> str:
        return f"<shmcache.Dialect {self.name}>"

    # ---- classes -------------------------------------------------------------------------------

    def wrap(self, view: Any) -> Any:
        """The model of a view that has `apiVersion` and `kind`; without these a custom one."""
        if type(view) is not _hot.View:
            from shmcache.models.detached import Detached

            return Detached(view)  # a Tombstone
        top = (view.get("apiVersion"), view.get("kind"))
        try:
            return self._tops[top].wrap(view)
        except KeyError:
            return self._top(*top).wrap(view)

    def _top(self, api_version: Any, kind: Any) -> _hot.ModelClass:
        found = None
        if isinstance(api_version, str) and isinstance(kind, str):
            name = model_name(self.table, api_version, kind, library=self.library)
            if name is not None:
                found = self._tops[api_version, kind] = self.class_named(name)
        return found or self.custom.class_named(kind if isinstance(kind, str) else "Object")

    @property
    def custom(self) -> CustomDialect:
        """The rules for custom resources."""
        if self._custom is None:
            self._custom = CustomDialect(self)
        return self._custom

    def class_named(self, name: str) -> _hot.ModelClass:
        """The class of this name. KeyError if the library has none."""
        found = self._classes.get(name)
        if found is None:
            fields = {
                attribute: _hot.ModelField(key, kind)
                for attribute, key, kind in self.table.entries(name)
            }
            found = self._classes[name] = _hot.ModelClass(name, self, fields)
        return found

    def kind(self, spec: str) -> _hot.ModelKind:
        """The kind that a table's notation stands for: see generate.py."""
        found = self._kinds.get(spec)
        if found is None:
            found = self._kinds[spec] = self._make_kind(spec)
        return found

    def _make_kind(self, spec: str) -> _hot.ModelKind:
        if spec == "@":
            return _hot.ModelKind("time", self._time_rules())
        if spec in {"", "%"}:
            return _hot.ModelKind("float" if spec else "raw")
        if spec[0] in "[{":
            return _hot.ModelKind("list" if spec[0] == "[" else "map", self.kind(spec[1:-1]))
        return _hot.ModelKind("model", self.class_named(spec))

    def _time_rules(self) -> tuple[Any, Callable[[str], Any]]:
        """The library's own tzinfo and reader of times; the standard ones if it is not here."""
        import datetime as dt

        try:
            if self.library in {"kubernetes", "kubernetes.aio"} and int(self.release) >= 37:
                from pydantic import TypeAdapter
                from pydantic_core import TzInfo

                return TzInfo(0), TypeAdapter(dt.datetime).validate_python
            if self.library != "lightkube":
                from dateutil import parser

                # tzutc(), or tzlocal() where the local time is UTC
                return parser.parse("2000-01-01T00:00:00Z").tzinfo, parser.parse
        except ImportError:
            pass
        return dt.UTC, dt.datetime.fromisoformat

    # ---- called by models ---------------------------------------------------------------------

    def attribute(self, model: _hot.Model, name: str) -> Any:
        """A method, or a declaration of the library's class."""
        if name in _METHODS or (name in _DELEGATED and self._pydantic):
            ours = getattr(self, name, None) or functools.partial(self._delegate, name)
            return functools.partial(ours, model)
        if name in _DECLARED:
            theirs = self.library_class(model)
            if theirs is not _hot.Model and hasattr(theirs, name):
                return getattr(theirs, name)
        raise AttributeError(
            f"{model._model_class().name} of {self.name} has no attribute {name!r}",  # noqa: SLF001
            name=name,
        )

    @property
    def _pydantic(self) -> bool:
        return self.library != "lightkube" and int(self.release) >= 37

    def _delegate(self, name: str, model: _hot.Model, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.to_model(model), name)(*args, **kwargs)

    def to_dict(self, model: _hot.Model, serialize: bool = False) -> Any:  # noqa: FBT001, FBT002 - theirs
        """As the library's: a plain dict, with its own names for the members."""
        found = {}
        for attribute, field in model._model_class().fields.items():  # noqa: SLF001
            value = getattr(model, attribute)
            found[field.key if serialize else attribute] = self._plain(value, serialize)
        return found

    def _plain(self, value: Any, serialize: bool) -> Any:  # noqa: FBT001 - of to_dict()
        kind = type(value)
        if kind is _hot.Model:
            return self.to_dict(value, serialize)
        if kind is _hot.ModelList:
            return [self._plain(one, serialize) for one in value]
        if kind is _hot.ModelMap:
            return {key: self._plain(one, serialize) for key, one in value.items()}
        if kind is _hot.View:
            return value.to_dict()
        return value.to_list() if kind is _hot.ListView else value

    def to_str(self, model: _hot.Model) -> str:
        """As the library's: the dict, laid out."""
        from pprint import pformat

        return pformat(self.to_dict(model))

    def text(self, model: _hot.Model) -> str:
        """str(): as the library's, which from kubernetes 37 on is pydantic's own."""
        if not self._pydantic:
            return self.to_str(model)
        try:
            return str(self.to_model(model))
        except ImportError:  # the library is not here
            return self.to_str(model)

    def brief(self, model: _hot.Model) -> str:
        """repr()."""
        return brief(model)

    def names(self, model: _hot.Model) -> list[str]:
        """dir()."""
        methods = (*_METHODS, *(_DELEGATED if self._pydantic else ()))
        return sorted({*model._model_class().fields, *methods, *dir(_hot.Model)})  # noqa: SLF001

    def equal(self, model: _hot.Model, other: Any) -> Any:
        """Whether the other is a model of the same class and content, of ours or the library's."""
        if type(other) is _hot.Model:
            if other._model_class() is not model._model_class():  # noqa: SLF001
                return NotImplemented
            return model.to_view() == other.to_view() or self.to_dict(model) == self.to_dict(other)
        theirs: Any = self.library_class(model)
        if theirs is _hot.Model or not isinstance(other, theirs):
            return NotImplemented
        return self.to_dict(model) == other.to_dict()

    def library_class(self, model: _hot.Model) -> type:
        """The library's class if the process has imported it: what isinstance() compares with."""
        module = sys.modules.get(f"{self.library}.client.models")
        name = model._model_class().name  # noqa: SLF001
        return getattr(module, name, _hot.Model) if module is not None else _hot.Model

    def to_model(self, model: _hot.Model) -> Any:
        """The library's own object, made by its own decoder: a copy that can be changed."""
        return self.decode(model._model_class().name, model.to_view().to_dict())  # noqa: SLF001

    def decode(self, name: str, plain: dict[str, Any]) -> Any:
        """The library's object of this class from a plain dict."""
        from shmcache.models.decoding import decoder

        return decoder(self.library).decode(plain, name)

    def reduce(self, model: _hot.Model) -> tuple[Any, ...]:
        """Pickling: the process that unpickles gets the library's own object."""
        name = model._model_class().name  # noqa: SLF001
        return restore, (self.library, self.release, name, model.to_view().to_dict())


class StructDialect(Dialect):
    """lightkube's: the names of JSON, and no None in to_dict()."""

    def to_dict(self, model: _hot.Model, serialize: bool = False) -> Any:  # noqa: FBT001, FBT002 - theirs
        """As lightkube's: without what is absent."""
        found = {}
        for attribute, field in model._model_class().fields.items():  # noqa: SLF001
            value = getattr(model, attribute)
            if value is not None:
                found[field.key] = self._plain(value, serialize)
        return found

    def _plain(self, value: Any, serialize: bool) -> Any:  # noqa: FBT001 - of to_dict()
        if type(value).__name__ == "datetime":
            from msgspec import to_builtins

            return to_builtins(value)
        return super()._plain(value, serialize)

    def library_class(self, model: _hot.Model) -> type:
        """The resource of that name if it is one, else the model."""
        module, _, name = model._model_class().name.partition(".")  # noqa: SLF001
        for module_name in (f"lightkube.resources.{module}", f"lightkube.models.{module}"):
            found: Any = getattr(sys.modules.get(module_name), name, None)
            if found is not None:
                return found  # type: ignore[no-any-return]
        return _hot.Model


class CustomDialect:
    """Custom resources: attributes by the names of JSON or in snake_case, None for what is absent.

    Metadata is the library's; `[...]` reads members by their keys.
    """

    def __init__(self, base: Dialect) -> None:
        self.base = base
        self.name = base.name
        inner = _hot.ModelClass("Object", self, {})
        self._inner = _hot.ModelKind("any", inner)
        inner.extend(self._inner)
        self._classes: dict[str, _hot.ModelClass] = {}

    def class_named(self, kind: str) -> _hot.ModelClass:
        """The class for custom resources of this kind."""
        found = self._classes.get(kind)
        if found is None:
            lightkube = self.base.library == "lightkube"
            metadata = "meta_v1.ObjectMeta" if lightkube else "V1ObjectMeta"
            fields = {"metadata": _hot.ModelField("metadata", metadata)}
            found = _hot.ModelClass(kind, self, fields, self._inner)
            if len(self._classes) < 1024:  # kinds of one cache
                self._classes[kind] = found
        return found

    def kind(self, spec: str) -> _hot.ModelKind:
        """As Dialect's."""
        return self.base.kind(spec)

    def attributes(self, keys: Iterable[str]) -> dict[str, int]:
        """The positions of keys by the names of attributes."""
        return naming.attributes(keys)

    def attribute(self, model: _hot.Model, name: str) -> Any:
        """Methods: the extension has tried the members already."""
        if name in _METHODS:
            return functools.partial(getattr(self, name), model)
        raise AttributeError(f"no attribute or member {name!r} in {self.brief(model)}", name=name)

    def to_dict(self, model: _hot.Model) -> dict[str, Any]:
        """The object's JSON as plain dicts."""
        return model.to_view().to_dict()

    def to_str(self, model: _hot.Model) -> str:
        """The same, laid out."""
        from pprint import pformat

        return pformat(self.to_dict(model))

    def to_model(self, model: _hot.Model) -> Any:
        """A copy with the same attributes that can be changed."""
        from shmcache.models.detached import Detached

        return Detached(self.to_dict(model))

    text = to_str

    def brief(self, model: _hot.Model) -> str:
        """As Dialect's."""
        return brief(model)

    def names(self, model: _hot.Model) -> list[str]:
        """dir()."""
        members: set[str] = set()
        with contextlib.suppress(ShmCacheError):  # a handle that is closed still has methods
            members = {naming.snake(key) for key in model.to_view()}
        return sorted({*members, *_METHODS, *dir(_hot.Model)})

    def equal(self, model: _hot.Model, other: Any) -> Any:
        """Whether the other has the same content."""
        from shmcache.models.detached import Detached

        if type(other) is _hot.Model and other._model_class().dialect is self:  # noqa: SLF001
            return model.to_view() == other.to_view()
        return model.to_view() == other.to_dict() if type(other) is Detached else NotImplemented

    def library_class(self, _: _hot.Model) -> type:
        """No library has one."""
        return _hot.Model

    def reduce(self, model: _hot.Model) -> tuple[Any, ...]:
        """Pickling: the process that unpickles gets a copy that can be changed."""
        from shmcache.models.detached import Detached

        return Detached, (self.to_dict(model),)


@functools.cache
def _dialect(library: str, release: str) -> Dialect:
    return (StructDialect if library == "lightkube" else Dialect)(library, release)


def dialect_of(library: str, version: str | None = None) -> Dialect:
    """The rules of a library's version, by default of the installed one."""
    return _dialect(library, release_of(library, version))


def restore(library: str, release: str, name: str, plain: dict[str, Any]) -> Any:
    """Unpickles a model: the library's own object, or without the library ImportError."""
    return dialect_of(library, release).decode(name, plain)
