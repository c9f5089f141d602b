"""Chaos, the history: whatever the cache showed during a storm was a true state of its server, at
the version that it showed (G21)."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import orjson
from chaos_world import CACHED, FEEDS

Versions = dict[str, int]


def versions(objects: dict[str, bytes]) -> Versions:
    return {
        key: int(orjson.loads(text)["metadata"]["resourceVersion"]) for key, text in objects.items()
    }


def versions_of(state: dict[str, dict[str, bytes]]) -> dict[str, Versions]:
    return {name: versions(objects) for name, objects in state.items()}


def versions_in(resource: Any) -> Versions:
    return {key: int(obj["metadata"]["resourceVersion"]) for key, obj in resource.items()}


def digest(versions: Versions) -> str:
    """Of (namespace, name, resourceVersion), in the order of the keys."""
    rows = sorted((*key.split("/"), version) for key, version in versions.items())
    return hashlib.sha256(repr(rows).encode()).hexdigest()


class Written(NamedTuple):
    """One write at the server."""

    resource: str
    version: int
    key: str
    is_there: bool


class Sample(NamedTuple):
    """The content of the cache at some moment."""

    resource: str
    version: int
    found: Versions


def check(base: dict[str, Versions], written: list[Written], samples: list[Sample]) -> None:
    """AssertionError if a sample differs from the base with all writes up to its version."""
    for resource in CACHED:
        ours = [one for one in written if one.resource == resource and _is_cached(one)]
        state, done = dict(base[resource]), 0
        mixed = sum(name == resource for name, _ in FEEDS) > 1
        for sample in sorted(
            (one for one in samples if one.resource == resource), key=lambda one: one.version
        ):
            while done < len(ours) and ours[done].version <= sample.version:
                _apply(state, ours[done])
                done += 1
            later = {one.key for one in ours[done:]} if mixed else set()
            wrong = differences(sample.found, state) - later
            assert not wrong, (
                f"{resource} at {sample.version} never was a state of the server: "
                f"{ {key: (sample.found.get(key), state.get(key)) for key in sorted(wrong)[:5]} }"
            )


def _is_cached(one: Written) -> bool:
    return one.key.partition("/")[0] in CACHED[one.resource]


def _apply(state: Versions, one: Written) -> None:
    if one.is_there:
        state[one.key] = one.version
    else:
        state.pop(one.key, None)


def differences(left: Versions, right: Versions) -> set[str]:
    return {key for key in left.keys() | right.keys() if left.get(key) != right.get(key)}
