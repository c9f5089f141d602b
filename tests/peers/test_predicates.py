"""Peers' cases: controller-runtime's predicates (pkg/predicate/predicate_test.go), by behaviour.

Where a case differs on purpose, its row has the reason; docs/controllers.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shmcache.controllers import predicates
from shmcache.controllers.predicates import Predicate
from shmcache.handlers.tombstone import Tombstone
from shmcache.queue.feeder import SourceEvent

ALL: dict[str, Predicate] = {
    "resource-version": predicates.resource_version_changed,
    "generation": predicates.generation_changed,
    "labels": predicates.labels_changed,
    "annotations": predicates.annotations_changed,
}


def obj(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "biz", "namespace": "baz", "uid": "u", **metadata}}


def event(kind: str, old: Any, new: Any) -> SourceEvent:
    return SourceEvent("pods", kind, "baz/biz", old, new)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("initial", [False, True])
def test_a_create_event_passes(name: str, initial: bool) -> None:
    """ResourceVersionChangedPredicate and its siblings, "Where the event is a create": true."""
    assert ALL[name](SourceEvent("pods", "ADDED", "baz/biz", None, obj(), initial=initial))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("old", [obj(), obj(labels={"a": "b"}), obj(generation=3)])
def test_a_delete_event_passes(name: str, old: Any) -> None:
    """The same, "Where the event is a delete": true."""
    assert ALL[name](event("DELETED", old, None))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("old", "new"), [(None, obj()), (obj(), None), (None, None)])
def test_an_update_without_one_of_its_objects_passes(name: str, old: Any, new: Any) -> None:
    """ "Where the old object is missing": they return false and log an error, so the event is lost.

    Differs on purpose: nothing is known of what changed, and a reconcile too many costs less.
    """
    assert ALL[name](event("MODIFIED", old, new))


VERSIONS = [("v1", "v1", False), ("v1", "v2", True), ("9", "10", True), ("", "", False)]


@pytest.mark.parametrize(("old", "new", "passes"), VERSIONS)
def test_resource_versions(old: str, new: str, passes: bool) -> None:
    """ResourceVersionChangedPredicate, "the versions have (not) changed"."""
    found = event("MODIFIED", obj(resourceVersion=old), obj(resourceVersion=new))
    assert predicates.resource_version_changed(found) is passes


GENERATIONS = [
    ({"generation": 1}, {"generation": 1}, False),
    ({"generation": 1}, {"generation": 2}, True),
    ({"generation": 2}, {"generation": 1}, True),
    ({"generation": 1, "labels": {"a": "1"}}, {"generation": 1, "labels": {"a": "2"}}, False),
    ({"generation": 1, "resourceVersion": "1"}, {"generation": 1, "resourceVersion": "2"}, False),
    ({}, {"generation": 1}, True),
    # theirs compares 0 with 0 and drops each change of an object without generations (a Service)
    ({}, {}, True),
    # theirs relies on servers that raise the generation at a deletion; not all resources do
    ({"generation": 1}, {"generation": 1, "deletionTimestamp": "now"}, True),
]


@pytest.mark.parametrize(("old", "new", "passes"), GENERATIONS)
def test_generations(old: Any, new: Any, passes: bool) -> None:
    """GenerationChangedPredicate, "the generations have (not) changed"."""
    assert predicates.generation_changed(event("MODIFIED", obj(**old), obj(**new))) is passes


MAPS = [
    ({"booz": "wooz"}, {"booz": "wooz"}, False),
    ({"booz": "wooz"}, {"booz": "waz"}, True),
    ({"booz": "wooz"}, {"zooz": "qooz"}, True),
    ({"booz": "wooz"}, {"booz": "wooz", "zooz": "qooz"}, True),
    ({"booz": "wooz", "zooz": "qooz"}, {"booz": "wooz"}, True),
    ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, False),
    ({"a": ""}, {"a": ""}, False),
    ({"a": ""}, {}, True),
    (None, {"a": "1"}, True),
    ({"a": "1"}, None, True),
    (None, None, False),
    ({}, {}, False),
    # theirs: a nil map and an empty one are not deeply equal. JSON of a server has neither
    (None, {}, False),
    ({}, None, False),
]


@pytest.mark.parametrize("name", ["labels", "annotations"])
@pytest.mark.parametrize(("old", "new", "passes"), MAPS)
def test_labels_and_annotations(name: str, old: Any, new: Any, passes: bool) -> None:
    """LabelChangedPredicate and AnnotationChangedPredicate, "Where the old object has ..."."""
    before = obj() if old is None else obj(**{name: old})
    after = obj() if new is None else obj(**{name: new})
    assert ALL[name](event("MODIFIED", before, after)) is passes


@pytest.mark.parametrize("name", ALL)
def test_another_object_under_the_name_passes(name: str) -> None:
    """kube-rs predicates_test "predicate_filtering_should_handle_recreated_resources"."""
    assert ALL[name](event("MODIFIED", obj(uid="1"), obj(uid="2")))


@pytest.mark.parametrize("name", ["labels", "annotations"])
def test_other_metadata_does_not_pass(name: str) -> None:
    """LabelChangedPredicate, "the labels have not changed": annotations have, and conversely."""
    other = {"labels": "annotations", "annotations": "labels"}[name]
    assert not ALL[name](event("MODIFIED", obj(**{other: {"a": "1"}}), obj(**{other: {"a": "2"}})))


def passing(_: SourceEvent) -> bool:
    return True


def failing(_: SourceEvent) -> bool:
    return False


COMBINED: list[tuple[Predicate, bool]] = [
    (predicates.all_of(passing, passing), True),
    (predicates.all_of(passing, failing), False),
    (predicates.all_of(failing, passing), False),
    (predicates.all_of(failing, failing), False),
    (predicates.all_of(), True),
    (predicates.any_of(passing, passing), True),
    (predicates.any_of(passing, failing), True),
    (predicates.any_of(failing, passing), True),
    (predicates.any_of(failing, failing), False),
    (predicates.any_of(), False),
    (predicates.not_(passing), False),
    (predicates.not_(failing), True),
    (predicates.not_(predicates.not_(passing)), True),
    (predicates.all_of(predicates.any_of(passing, failing), predicates.not_(failing)), True),
]


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize(("predicate", "passes"), COMBINED)
def test_boolean_operators(predicate: Predicate, passes: bool, kind: str) -> None:
    """Boolean predicates: And(), Or(), Not()."""
    old = None if kind == "ADDED" else obj()
    new = None if kind == "DELETED" else obj()
    assert predicate(event(kind, old, new)) is passes


def test_operators_stop_at_the_first_answer() -> None:
    """And() and Or() do not call the predicates after the one that decides."""

    def unreachable(_: SourceEvent) -> bool:
        raise AssertionError("it was called")

    found = event("MODIFIED", obj(), obj())
    assert not predicates.all_of(failing, unreachable)(found)
    assert predicates.any_of(passing, unreachable)(found)


@pytest.mark.parametrize("make", [predicates.all_of, predicates.any_of])
def test_an_event_reaches_each_predicate_unchanged(make: Callable[..., Predicate]) -> None:
    """Funcs: "should call Create/Update/Delete with the event"."""
    seen: list[SourceEvent] = []
    answer = make is predicates.all_of

    def note(found: SourceEvent) -> bool:
        seen.append(found)
        return answer

    found = event("MODIFIED", obj(), obj())
    make(note, note)(found)
    assert seen == [found, found]


def test_the_identity_of_an_object_is_not_compared_with_an_object() -> None:
    """No peer has this case: a Tombstone has no labels, which is not the same as empty ones.

    Predicates of a controller are not asked about such events (SRC2); direct calls compare.
    """
    stone = Tombstone("baz/biz", "u", "1")
    assert predicates.labels_changed(event("MODIFIED", stone, obj(labels={"a": "b"})))
