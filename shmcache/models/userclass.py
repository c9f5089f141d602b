"""Objects of the cache as a user's own class: dataclass, attrs, msgspec Struct or pydantic.

Two ways, as asked. "lazily" gives a model view with the attributes that the class declares: nested
classes are views again, and a scalar is validated (pydantic, msgspec) or converted (attrs) when it
is read. "at once" gives an instance of the class: a copy, validated as the class does it.

The member of a field `node_name` is `nodeName`, unless the class itself names one: by an alias of
pydantic, a name of msgspec, or `metadata={"json": ...}` of dataclasses and attrs.
"""

from __future__ import annotations

import functools
import types
import typing

from shmcache import _hot
from shmcache.models.dialect import brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

LAZILY, AT_ONCE = "lazily", "at once"
_REQUIRED = object()


class DeclaredField:
    """One field of a user's class."""

    __slots__ = ("annotation", "convert", "default", "key", "name")

    def __init__(
        self,
        name: str,
        key: str | None,
        annotation: Any,
        default: Any = _REQUIRED,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = name
        self.key = key or camel(name)
        self.annotation = annotation
        self.default = default
        """A function that gives it, or _REQUIRED."""
        self.convert = convert
        """A function that validates a scalar when it is read, or None."""


def camel(name: str) -> str:
    """`node_name` ▸ `nodeName`; `from_` ▸ `from`."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def declared(of: Any) -> list[DeclaredField]:
    """The fields of a class. TypeError for one that is of none of the four makes."""
    for attribute, read in _MAKES.items():
        if isinstance(of, type) and hasattr(of, attribute):
            return list(read(of))
    raise TypeError(
        f"{of!r} cannot be the class of models: use a dataclass, attrs, msgspec.Struct or "
        "pydantic class, or the name of a client library"
    )


def is_declared(of: Any) -> bool:
    """Whether it is a class of one of the four makes."""
    return isinstance(of, type) and any(hasattr(of, attribute) for attribute in _MAKES)


def _value(default: Any) -> Callable[[], Any]:
    return lambda: default


def _of_dataclass(of: Any) -> Iterator[DeclaredField]:
    import dataclasses

    hints = typing.get_type_hints(of)
    for field in dataclasses.fields(of):
        default: Any = _REQUIRED
        if field.default is not dataclasses.MISSING:
            default = _value(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory
        yield DeclaredField(field.name, field.metadata.get("json"), hints[field.name], default)


def _of_attrs(of: Any) -> Iterator[DeclaredField]:
    import attrs

    hints = typing.get_type_hints(of)
    for field in attrs.fields(of):
        default: Any = _REQUIRED
        if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a class
            default = field.default.factory
        elif field.default is not attrs.NOTHING:
            default = _value(field.default)
        annotation = hints.get(field.name, typing.Any)
        key = field.metadata.get("json")
        yield DeclaredField(field.name, key, annotation, default, field.converter)


def _of_struct(of: Any) -> Iterator[DeclaredField]:
    import msgspec

    for field in msgspec.structs.fields(of):
        default: Any = _REQUIRED
        if field.default is not msgspec.NODEFAULT:
            default = _value(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory
        key = field.encode_name if field.encode_name != field.name else None
        convert = functools.partial(msgspec.convert, type=field.type)
        yield DeclaredField(field.name, key, field.type, default, convert)


def _of_pydantic(of: Any) -> Iterator[DeclaredField]:
    from pydantic import TypeAdapter

    for name, field in of.model_fields.items():
        alias = field.validation_alias
        if alias is not None and not isinstance(alias, str):
            alias = next(
                (one for one in getattr(alias, "choices", ()) if isinstance(one, str)), None
            )
        whole = field.annotation
        for one in field.metadata:
            whole = typing.Annotated[whole, one]
        default = _REQUIRED if field.is_required() else _defaults(field)
        convert = _late_adapter(TypeAdapter, whole)
        yield DeclaredField(name, alias, field.annotation, default, convert)


def _defaults(field: Any) -> Callable[[], Any]:
    return lambda: field.get_default(call_default_factory=True, validated_data={})


def _late_adapter(adapter: Any, annotation: Any) -> Callable[[Any], Any]:
    made: list[Any] = []

    def validate(value: Any) -> Any:
        if not made:
            made.append(adapter(annotation))
        return made[0].validate_python(value)

    return validate


_MAKES: dict[str, Callable[[Any], Iterator[DeclaredField]]] = {
    "model_fields": _of_pydantic,
    "__struct_fields__": _of_struct,
    "__attrs_attrs__": _of_attrs,
    "__dataclass_fields__": _of_dataclass,
}


# ---- nested classes ------------------------------------------------------------------------------


def nested(annotation: Any) -> tuple[str, Any]:
    """("model", class), ("list", ...) or ("map", ...) of it, or ("", None) for anything else."""
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return nested(arguments[0])
    if origin in {typing.Union, types.UnionType}:
        left = [one for one in arguments if one is not type(None)]
        return nested(left[0]) if len(left) == 1 else ("", None)
    if is_declared(annotation):
        return "model", annotation
    if origin in _CONTAINERS and nested(arguments[-1 if origin is dict else 0])[0] == "model":
        return _CONTAINERS[origin], nested(arguments[-1 if origin is dict else 0])[1]
    return "", None


_CONTAINERS = {list: "list", tuple: "list", dict: "map"}
_FIELDS: Callable[[Any], list[DeclaredField]] = functools.cache(declared)


def convert(of: Any, plain: Any) -> Any:
    """An instance of the class from a plain dict: "at once"."""
    if hasattr(of, "model_fields"):
        return of.model_validate(_renamed(of, plain))
    if hasattr(of, "__struct_fields__"):
        import msgspec

        return msgspec.convert(_renamed(of, plain), of)
    found = {}
    for field in _FIELDS(of):
        if field.key in plain:
            how, inner = nested(field.annotation)
            found[field.name.lstrip("_")] = _inside(how, inner, plain[field.key], convert)
    return of(**found)


def _inside(how: str, inner: Any, value: Any, make: Callable[[Any, Any], Any]) -> Any:
    if how == "model" and isinstance(value, dict):
        return make(inner, value)
    if how == "list" and isinstance(value, list):
        return [make(inner, one) for one in value]
    if how == "map" and isinstance(value, dict):
        return {key: make(inner, one) for key, one in value.items()}
    return value


def _renamed(of: Any, plain: Any) -> Any:
    """The dict with the names by which the class itself finds its fields."""
    if not isinstance(plain, dict):
        return plain
    found = dict(plain)
    for field in _FIELDS(of):
        if field.key in plain:
            how, inner = nested(field.annotation)
            del found[field.key]
            found[_accepted(of, field)] = _inside(how, inner, plain[field.key], _renamed)
    return found


def _accepted(of: Any, field: DeclaredField) -> str:
    if hasattr(of, "__struct_fields__"):
        return dict(zip(of.__struct_fields__, of.__struct_encode_fields__, strict=True))[field.name]  # type: ignore[no-any-return]
    info = of.model_fields[field.name]
    return field.key if info.validation_alias else field.name


# ---- views ---------------------------------------------------------------------------------------


class ClassDialect:
    """Model views with the attributes of a user's class, validated lazily."""

    def __init__(self, of: Any) -> None:
        self.of = of
        self.name = of.__name__
        self._classes: dict[Any, _hot.ModelClass] = {}
        self._of_class: dict[_hot.ModelClass, Any] = {}
        self._top = self.class_of(of)

    def wrap(self, view: Any) -> Any:
        """The view as this class; a Tombstone as an object with attributes."""
        if type(view) is not _hot.View:
            from shmcache.models.detached import Detached

            return Detached(view)
        return self._top.wrap(view)

    def class_of(self, of: Any) -> _hot.ModelClass:
        """The class of views for a class."""
        found = self._classes.get(of)
        if found is None:
            fields = {
                field.name: _hot.ModelField(field.key, field, self._absent(of, field))
                for field in declared(of)
            }
            found = self._classes[of] = _hot.ModelClass(of.__name__, self, fields)
            self._of_class[found] = of
        return found

    @staticmethod
    def _absent(of: Any, field: DeclaredField) -> Callable[[], Any]:
        if field.default is not _REQUIRED:
            return field.default  # type: ignore[no-any-return]

        def missing() -> Any:
            raise ValueError(
                f"{of.__name__}.{field.name} is required: the object has no {field.key}"
            )

        return missing

    def kind(self, field: DeclaredField) -> _hot.ModelKind:
        """How a field is read."""
        how, inner = nested(field.annotation)
        if how:
            model = _hot.ModelKind("model", self.class_of(inner))
            return model if how == "model" else _hot.ModelKind(how, model)
        if field.convert is None:
            return _hot.ModelKind("raw")
        convert_one = field.convert
        return _hot.ModelKind("call", lambda value: convert_one(_plain(value)))

    def _class(self, model: _hot.Model) -> Any:
        return self._of_class[model._model_class()]  # noqa: SLF001

    def attribute(self, model: _hot.Model, name: str) -> Any:
        """Methods of views, then the class's own, with the view as `self`."""
        if name in {"to_dict", "to_str", "to_model"}:
            return functools.partial(getattr(self, name), model)
        of = self._class(model)
        for base in of.__mro__:
            if name in vars(base) and not name.startswith("__"):
                if base.__module__.partition(".")[0] in {"pydantic", "msgspec", "attr", "builtins"}:
                    return getattr(self.to_model(model), name)
                found = vars(base)[name]
                return found.__get__(model, of) if hasattr(found, "__get__") else found
        raise AttributeError(f"{of.__name__} has no attribute {name!r}", name=name)

    def to_dict(self, model: _hot.Model) -> dict[str, Any]:
        """The object's JSON as plain dicts."""
        return model.to_view().to_dict()

    def to_str(self, model: _hot.Model) -> str:
        """str() of an instance of the class."""
        return str(self.to_model(model))

    def to_model(self, model: _hot.Model) -> Any:
        """An instance of the class, validated."""
        return convert(self._class(model), self.to_dict(model))

    text = to_str

    def brief(self, model: _hot.Model) -> str:
        """repr()."""
        return brief(model)

    def names(self, model: _hot.Model) -> list[str]:
        """dir()."""
        return sorted({*dir(self._class(model)), *model._model_class().fields, *dir(_hot.Model)})  # noqa: SLF001

    def equal(self, model: _hot.Model, other: Any) -> Any:
        """Whether the other is a view of the same content, or an equal instance of the class."""
        if type(other) is _hot.Model:
            same = other._model_class() is model._model_class()  # noqa: SLF001
            return model.to_view() == other.to_view() if same else NotImplemented
        of = self._class(model)
        return self.to_model(model) == other if type(other) is of else NotImplemented

    def library_class(self, _: _hot.Model) -> type:
        """The view has not been validated as an instance."""
        return _hot.Model

    def reduce(self, model: _hot.Model) -> tuple[Any, ...]:
        """Pickling: the process that unpickles gets an instance."""
        return convert, (self._class(model), self.to_dict(model))


class AtOnce:
    """Instances of a user's class, validated at once."""

    def __init__(self, of: Any) -> None:
        declared(of)
        self.of = of
        self.name = of.__name__

    def wrap(self, view: Any) -> Any:
        """An instance of the class; a Tombstone as an object with attributes."""
        if type(view) is not _hot.View:
            from shmcache.models.detached import Detached

            return Detached(view)
        return convert(self.of, view.to_dict())


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is _hot.View:
        return value.to_dict()
    return value.to_list() if kind is _hot.ListView else value
