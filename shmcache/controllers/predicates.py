"""Which events matter: functions of an event that say whether it makes a key dirty.

An event has `kind` ("ADDED", "MODIFIED", "DELETED"), `key`, `old` and `new`. All those here let
everything pass but updates, and every update that turns out to be another object of the same name.

A predicate is a plain function, and `old` is always the whole object: events whose object before is
gone (the consumer was away for longer than the window) pass without being asked about.
"""

from __future__ import annotations

from collections.abc import Callable

from shmcache.queue.feeder import SourceEvent

Predicate = Callable[[SourceEvent], bool]


def _changed(name: str) -> Predicate:
    def changed(event: SourceEvent) -> bool:
        if event.old is None or event.new is None:
            return True
        old, new = event.old["metadata"], event.new["metadata"]
        before, after = old.get(name) or None, new.get(name) or None  # missing and empty are equal
        return bool(old.get("uid") != new.get("uid") or before != after)

    changed.__name__ = changed.__qualname__ = f"{name}_changed"
    return changed


resource_version_changed = _changed("resourceVersion")
"""Holds back objects that a relist or a resync shows again."""
labels_changed = _changed("labels")
annotations_changed = _changed("annotations")


def generation_changed(event: SourceEvent) -> bool:
    """The spec changed, and not only the status. An object without a generation always passes."""
    if event.old is None or event.new is None:
        return True
    old, new = event.old["metadata"], event.new["metadata"]
    if "generation" not in new or old.get("uid") != new.get("uid"):
        return True
    deleting = "deletionTimestamp"  # raises the generation at real servers, not at all others
    return bool(
        old.get("generation") != new["generation"] or old.get(deleting) != new.get(deleting)
    )


def all_of(*predicates: Predicate) -> Predicate:
    """Lets events pass that all of them let pass."""
    return lambda event: all(predicate(event) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """Lets events pass that one of them lets pass."""
    return lambda event: any(predicate(event) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """Lets events pass that the predicate does not."""
    return lambda event: not predicate(event)
