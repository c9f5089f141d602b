"""The three ways to patch: JSON merge (RFC 7386), JSON patch (RFC 6902), strategic merge.

Strategic merge knows the built-in types' lists by the names of their fields: lists of objects that
have a merge key are merged by it, finalizers and the like as sets, all others are replaced.
"""

from __future__ import annotations

import copy
from typing import Any

from shmcache.protocol import failures

Object = dict[str, Any]

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "ownerReferences": "uid",
    "secrets": "name",
    "addresses": "type",
    "podIPs": "ip",
    "hostIPs": "ip",
    "resourceClaims": "name",
}
SETS = frozenset({"finalizers", "podCIDRs"})
PORT_KEYS = ("containerPort", "port")


def json_merge(obj: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null deletes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = json_merge(merged.get(key), value)
    return merged


def json_patch(obj: Object, operations: list[Any]) -> Object:
    """RFC 6902; a Failure (422) where an operation cannot be done."""
    for operation in operations:
        try:
            obj = _operate(obj, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise failures.Failure(
                422,
                "Invalid",
                f"the server rejected our request due to an error in our request: {error!r}",
                details={},
            ) from error
    return obj


def _operate(obj: Object, operation: Object) -> Object:
    op, path = operation["op"], _steps(operation["path"])
    if op == "test":
        if _at(obj, path) != operation["value"]:
            raise ValueError(f"testing path {operation['path']} value failed")
        return obj
    root = {"": copy.deepcopy(obj)}
    if op in {"move", "copy"}:
        value = copy.deepcopy(_at(obj, _steps(operation["from"])))
        if op == "move":
            _remove(root, _steps(operation["from"]))
        _add(root, path, value)
    elif op == "add":
        _add(root, path, operation["value"])
    elif op == "replace":
        _at(obj, path)
        if path:
            _remove(root, path)
        _add(root, path, operation["value"])
    elif op == "remove":
        _remove(root, path)
    else:
        raise ValueError(f"unexpected kind: {op}")
    return root[""]


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _at(value: Any, steps: list[str]) -> Any:
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _add(root: Object, steps: list[str], value: Any) -> None:
    *path, last = ["", *steps]
    parent = _at(root, path)
    if isinstance(parent, list):
        at = len(parent) if last == "-" else int(last)
        if not 0 <= at <= len(parent):
            raise IndexError(last)
        parent.insert(at, value)
    else:
        parent[last] = value


def _remove(root: Object, steps: list[str]) -> None:
    *path, last = ["", *steps]
    parent = _at(root, path)
    del parent[int(last) if isinstance(parent, list) else last]


def strategic_merge(obj: Any, patch: Object) -> Object:
    """As kubectl apply and patch send it for built-in types, directives included."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(obj) if isinstance(obj, dict) else {}
    kept = patch.get("$retainKeys")
    if kept is not None:
        merged = {key: value for key, value in merged.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [one for one in merged.get(field) or [] if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(key, None)
        else:
            merged[key] = _merged(key, merged.get(key), value)
    return _sorted_as_asked(merged, patch)


def _merged(field: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return strategic_merge(old, new)
    if not isinstance(new, list):
        return new
    if field in SETS:
        return [*(old or []), *(one for one in new if one not in (old or []))]
    key = _merge_key(field, [*(old or []), *new])
    return new if key is None else _merged_list(old or [], new, key)


def _merge_key(field: str, elements: list[Any]) -> str | None:
    if not all(isinstance(one, dict) for one in elements):
        return None
    if field == "ports":
        return next((key for key in PORT_KEYS if any(key in one for one in elements)), None)
    return MERGE_KEYS.get(field)


def _merged_list(old: list[Object], new: list[Object], key: str) -> list[Object]:
    if any(one.get("$patch") == "replace" for one in new):
        return [one for one in new if "$patch" not in one]
    result = list(old)
    for one in new:
        number = next((at for at, had in enumerate(result) if had.get(key) == one.get(key)), None)
        if one.get("$patch") == "delete":
            if number is not None:
                del result[number]
        elif number is None:
            result.append(strategic_merge({}, one))
        else:
            result[number] = strategic_merge(result[number], one)
    return result


def _sorted_as_asked(merged: Object, patch: Object) -> Object:
    for directive, order in patch.items():
        if not directive.startswith("$setElementOrder/"):
            continue
        field = directive.partition("/")[2]
        elements = merged.get(field) or []
        key = _merge_key(field, elements) if elements else None
        wanted = [one[key] if key and isinstance(one, dict) else one for one in order]

        def rank(one: Any, key: str | None = key, wanted: list[Any] = wanted) -> int:
            name = one.get(key) if key and isinstance(one, dict) else one
            return wanted.index(name) if name in wanted else len(wanted)

        merged[field] = sorted(elements, key=rank)
    return merged
