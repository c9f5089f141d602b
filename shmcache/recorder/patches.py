"""The difference of two JSON values as a list of steps, and its way back.

A patch is a list of steps, applied in their order; each begins with the path of what it changes:

    [path, value]                  the member or element at the path is this value
    [path]                         the member is gone
    [path, first, count, items]    of the list at the path, `count` elements from `first` on are
                                   replaced by these
    [path, names, 0]               the members of the object at the path are in this order

    PATCH1  apply(old, difference(old, new)) equals new: types, numbers and the order of members
        included. 1, 1.0 and true are three values.
    PATCH2  apply() changes nothing that it is given: parts that stay are shared with the old value,
        and it copies each list or object at most once.
    PATCH3  Values that are nested deeper than DEPTH are compared and replaced as a whole.
"""

from __future__ import annotations

from typing import Any

DEPTH = 64

Path = list[str | int]
Patch = list[list[Any]]


def difference(old: Any, new: Any) -> Patch:
    """The steps from one value to another; [] if they are the same."""
    steps: Patch = []
    _compare(steps, [], old, new)
    return steps


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: equal, of one type, members in one order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) and (not isinstance(left, float) or repr(left) == repr(right))


def _compare(steps: Patch, path: Path, old: Any, new: Any) -> None:
    if len(path) >= DEPTH:
        if not same(old, new):
            steps.append([path, new])
    elif type(old) is dict and type(new) is dict:
        _compare_objects(steps, path, old, new)
    elif type(old) is list and type(new) is list:
        _compare_lists(steps, path, old, new)
    elif not same(old, new):
        steps.append([path, new])


def _compare_objects(steps: Patch, path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    for name in old:
        if name not in new:
            steps.append([[*path, name]])
    for name, value in new.items():
        if name not in old:
            steps.append([[*path, name], value])
        elif old[name] is not value:
            _compare(steps, [*path, name], old[name], value)
    order = [name for name in old if name in new]
    order += [name for name in new if name not in old]
    if order != list(new):
        steps.append([path, list(new), 0])


def _compare_lists(steps: Patch, path: Path, old: list[Any], new: list[Any]) -> None:
    if len(old) == len(new):
        for number, (left, right) in enumerate(zip(old, new, strict=True)):
            _compare(steps, [*path, number], left, right)
        return
    least = min(len(old), len(new))
    first = 0
    while first < least and same(old[first], new[first]):
        first += 1
    last = 0
    while last < least - first and same(old[-1 - last], new[-1 - last]):
        last += 1
    steps.append([path, first, len(old) - first - last, new[first : len(new) - last]])


def apply(value: Any, steps: Patch) -> Any:
    """The value after all steps; the given one stays as it is. ValueError if it does not fit."""
    owned: dict[int, Any] = {}
    try:
        for step in steps:
            value = _step(value, step, 0, owned)
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the patch does not fit the value: {error!r}") from error
    return value


def _step(value: Any, step: list[Any], depth: int, owned: dict[int, Any]) -> Any:
    path = step[0]
    if depth == len(path):
        return _changed(value, step)
    name = path[depth]
    copy = _own(value, owned)
    if len(step) == 1 and depth == len(path) - 1:
        del copy[name]
    elif len(step) == 2 and depth == len(path) - 1:
        copy[name] = step[1]
    else:
        copy[name] = _step(value[name], step, depth + 1, owned)
    return copy


def _own(value: Any, owned: dict[int, Any]) -> Any:
    """A copy that belongs to this apply(): one of each list or object, however many steps."""
    if id(value) in owned:
        return value
    copy = value.copy()
    owned[id(copy)] = copy
    return copy


def _changed(value: Any, step: list[Any]) -> Any:
    """The value that the whole step is about."""
    if len(step) == 2:
        return step[1]
    if len(step) == 3:
        if sorted(value) != sorted(step[1]):
            raise KeyError("other members")
        return {name: value[name] for name in step[1]}
    _, first, count, items = step
    return [*value[:first], *items, *value[first + count :]]
