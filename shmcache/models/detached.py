"""A copy of a custom resource with the attributes of its model view, which can be changed."""

from __future__ import annotations

from shmcache.models.naming import snake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Detached:
    """Attributes in snake_case, or as JSON has them, over a plain dict; None for what is absent.

    Setting one changes the dict, which to_dict() returns. New members are written in camelCase.
    """

    __slots__ = ("_of",)
    __hash__ = None  # type: ignore[assignment]
    _of: dict[str, Any]

    def __init__(self, plain: dict[str, Any]) -> None:
        object.__setattr__(self, "_of", plain)

    def _key(self, name: str) -> str | None:
        if name in self._of:
            return name
        return next((key for key in self._of if snake(key) == name), None)

    def __getattr__(self, name: str) -> Any:
        key = self._key(name)
        if key is not None:
            return _with_attributes(self._of[key])
        if name.startswith("_") or hasattr(dict, name) or hasattr(list, name):
            raise AttributeError(f"{self!r} has no attribute {name!r}", name=name)
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        first, *rest = name.rstrip("_").split("_")
        key = self._key(name) or first + "".join(part[:1].upper() + part[1:] for part in rest)
        self._of[key] = _without_attributes(value)

    def __delattr__(self, name: str) -> None:
        key = self._key(name)
        if key is None:
            raise AttributeError(f"{self!r} has no attribute {name!r}", name=name)
        del self._of[key]

    def __getitem__(self, key: str) -> Any:
        return _with_attributes(self._of[key])

    def __setitem__(self, key: str, value: Any) -> None:
        self._of[key] = _without_attributes(value)

    def __eq__(self, other: object) -> bool:
        return self._of == other._of if isinstance(other, Detached) else NotImplemented

    def __dir__(self) -> list[str]:
        return sorted({*map(snake, self._of), *object.__dir__(self)})

    def __deepcopy__(self, memo: dict[int, Any]) -> Detached:
        from copy import deepcopy

        return Detached(deepcopy(self._of, memo))

    def __reduce__(self) -> tuple[type[Detached], tuple[dict[str, Any]]]:
        return Detached, (self._of,)

    def __repr__(self) -> str:
        return f"<shmcache.Detached {self._of!r}>"

    def to_dict(self) -> dict[str, Any]:
        """The dict itself."""
        return self._of


def _with_attributes(value: Any) -> Any:
    if isinstance(value, dict):
        return Detached(value)
    if isinstance(value, list):
        return [_with_attributes(one) for one in value]
    return value


def _without_attributes(value: Any) -> Any:
    if isinstance(value, Detached):
        return value._of  # noqa: SLF001 - ours
    if isinstance(value, list):
        return [_without_attributes(one) for one in value]
    return value
