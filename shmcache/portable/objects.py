"""Views of the portable cache: objects that read as dicts and lists, and that nobody can change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from shmcache.errors import UnsupportedValue

Plain = dict[str, Any]


def view_of(obj: Mapping[str, Any]) -> View:
    """A view of a copy of the object. UnsupportedValue for what JSON does not have."""
    try:
        copy = json.loads(json.dumps(obj, allow_nan=False, default=default))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedValue(f"an object must consist of JSON values: {error}") from error
    return View(copy)


def default(value: Any) -> Any:
    """For json.dumps(default=): a view as a dict or list."""
    if isinstance(value, View):
        return value.to_dict()
    if isinstance(value, ListView):
        return value.to_list()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return View(value)
    return ListView(value) if isinstance(value, list) else value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


class View(Mapping[str, Any]):
    """A read-only object: a mapping whose members are attributes, too."""

    __slots__ = ("_inside",)
    __hash__ = None  # type: ignore[assignment] # as a dict

    def __init__(self, inside: Plain) -> None:
        object.__setattr__(self, "_inside", inside)

    def __getitem__(self, key: str) -> Any:
        return _shown(self._inside[key])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return _shown(self._inside[name])
        except KeyError:
            raise AttributeError(f"the object has no member {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("objects of a cache are read-only: change a copy, as of .to_dict()")

    def __iter__(self) -> Iterator[str]:
        return iter(self._inside)

    def __reversed__(self) -> Iterator[str]:
        return iter(tuple(self._inside)[::-1])

    def __len__(self) -> int:
        return len(self._inside)

    def __contains__(self, key: object) -> bool:
        return key in self._inside

    def __eq__(self, other: object) -> bool:
        if isinstance(other, View):
            other = other._inside
        return bool(self._inside == default_of(other))

    def __repr__(self) -> str:
        return f"View({self._inside!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.to_dict(),)

    def copy(self) -> Plain:
        """A dict with the same members."""
        return {key: _shown(value) for key, value in self._inside.items()}

    def to_dict(self) -> Plain:
        """A deep copy."""
        found: Plain = _copied(self._inside)
        return found

    def json(self) -> bytes:
        """The text, without blanks."""
        return _text(self._inside)


class ListView(Sequence[Any]):
    """A read-only list."""

    __slots__ = ("_inside",)
    __hash__ = None  # type: ignore[assignment] # as a list

    def __init__(self, inside: list[Any]) -> None:
        self._inside = inside

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [_shown(one) for one in self._inside[index]]
        return _shown(self._inside[index])

    def __len__(self) -> int:
        return len(self._inside)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListView):
            return self._inside == other._inside
        return self._inside == default_of(other)

    def __repr__(self) -> str:
        return f"ListView({self._inside!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self.to_list(),)

    def copy(self) -> list[Any]:
        """A list with the same elements."""
        return [_shown(one) for one in self._inside]

    def to_list(self) -> list[Any]:
        """A deep copy."""
        found: list[Any] = _copied(self._inside)
        return found

    def json(self) -> bytes:
        """The text, without blanks."""
        return _text(self._inside)


def default_of(other: object) -> object:
    """The other side of a comparison, with plain values instead of views."""
    if isinstance(other, Mapping):
        return {key: default_of(value) for key, value in other.items()}
    if isinstance(other, ListView):
        return other.to_list()
    return [default_of(one) for one in other] if isinstance(other, list) else other


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
