"""Whether a model view equals the library's own model, attribute by attribute."""

from __future__ import annotations

import datetime as dt
from typing import Any

from shmcache import _hot

_BOXES = {list: (_hot.ModelList, _hot.ListView), dict: (_hot.ModelMap, _hot.View)}


class Comparison:
    """Counts what was compared; a difference is an AssertionError that names its path."""

    def __init__(self) -> None:
        self.attributes = 0

    def model(self, ours: Any, theirs: Any, path: str = "") -> None:
        """Every attribute of the library's model."""
        names = _attributes(theirs)
        assert type(ours) is _hot.Model, f"{path}: {ours!r}"
        assert set(ours._model_class().fields) == set(names), path
        fixed = {"apiVersion", "kind"} if hasattr(theirs, "__post_init__") else set()
        for name in names:
            if name in fixed:  # lightkube sets these, whatever the object has
                continue
            self.attributes += 1
            assert hasattr(ours, name)
            self.value(getattr(ours, name), getattr(theirs, name), f"{path}.{name}")

    def value(self, ours: Any, theirs: Any, path: str) -> None:
        """One value of it."""
        if _attributes(theirs) is not None:
            self.model(ours, theirs, path)
        elif isinstance(theirs, list):
            assert type(ours) in _BOXES[list], f"{path}: {ours!r}"
            assert len(ours) == len(theirs), path
            for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
                self.value(mine, other, f"{path}[{place}]")
        elif isinstance(theirs, dict):
            assert type(ours) in _BOXES[dict], f"{path}: {ours!r}"
            assert set(ours) == set(theirs), path
            for key in theirs:
                self.value(ours[key], theirs[key], f"{path}[{key!r}]")
        else:
            assert ours == theirs, f"{path}: {ours!r}, not {theirs!r}"
            assert type(ours) is type(theirs), f"{path}: {ours!r}, not {theirs!r}"
            if isinstance(theirs, dt.datetime):
                assert repr(ours) == repr(theirs), path

    def whole(self, ours: Any, theirs: Any) -> None:
        """The copies and texts that both make of themselves."""
        assert ours.to_dict() == theirs.to_dict()
        if hasattr(theirs, "to_str"):
            assert ours.to_str() == theirs.to_str()
            assert str(ours) == str(theirs)
        assert ours == theirs
        assert theirs == ours or not hasattr(theirs, "openapi_types")
        assert isinstance(ours, type(theirs))


def _attributes(theirs: Any) -> Any:
    declared = getattr(theirs, "openapi_types", None) or getattr(theirs, "__struct_fields__", None)
    if declared is None:
        return None
    if hasattr(theirs, "__struct_fields__"):
        return [name for name in declared if name != "_lazy_values"]
    return list(declared)
