"""Peers' cases: controller-runtime's event handlers (pkg/handler/eventhandler_test.go) and kube-rs'
triggers (controller/mod.rs), by behaviour: which keys an event of which object makes dirty."""

from __future__ import annotations

from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.controllers.sources import Owns, Sources, Type, Watches
from shmcache.handlers.tombstone import Tombstone
from shmcache.queue.feeder import SourceEvent


def obj(name: str = "a", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "biz", "uid": f"u-{name}", **metadata}}


def reference(name: str = "foo-parent", **given: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True,
        **given,
    }  # fmt: skip


def owned(*references: Any, **metadata: Any) -> dict[str, Any]:
    return obj(ownerReferences=list(references), **metadata)


def event(old: Any, new: Any, resource: str = "pods") -> SourceEvent:
    kind = "ADDED" if old is None else "DELETED" if new is None else "MODIFIED"
    return SourceEvent(resource, kind, "biz/a", old, new)


def keys(cache: shmcache.Cache, found: SourceEvent, **given: Any) -> list[str]:
    sources = Sources(
        given.get("type") or Type("replicasets.apps"),
        (),
        given.get("owns", ()),
        given.get("watches", ()),
        None,
    )
    return list(dict(sources.feeds(cache))[found.resource](found))


def owners(cache: shmcache.Cache, found: SourceEvent, **given: Any) -> list[str]:
    kind = given.pop("type", None)
    return keys(cache, found, type=kind, owns=(Owns("pods", **given),))


# ---- EnqueueRequestForObject ---------------------------------------------------------------------

OWN: list[tuple[Any, Any, str]] = [
    (None, obj("a"), "CreateEvent"),
    (obj("a"), obj("a", resourceVersion="2"), "UpdateEvent"),
    (obj("a"), None, "DeleteEvent"),
    (obj("a"), obj("a", uid="another"), "UpdateEvent of another object of the name"),
    (Tombstone("biz/a", "u", None), None, "DeleteEvent without its last state"),
    (Tombstone("biz/a", "u", None), obj("a"), "UpdateEvent without its old object"),
    (None, {"metadata": {}}, "CreateEvent of an object without a name"),
]


@pytest.mark.parametrize(("old", "new"), [pytest.param(*row[:2], id=row[2]) for row in OWN])
def test_an_object_makes_its_own_key_dirty(cache: shmcache.Cache, old: Any, new: Any) -> None:
    """EnqueueRequestForObject: "should enqueue a Request with the Name / Namespace"."""
    found = event(old, new, "replicasets.apps")
    assert keys(cache, found) == ["biz/a"]


# ---- EnqueueRequestForOwner ----------------------------------------------------------------------

OWNERS: list[tuple[str, list[Any], dict[str, Any], list[str]]] = [
    ("owner is a controller", [reference()], {}, ["biz/foo-parent"]),
    ("another version of the group", [reference(apiVersion="apps/v2")], {}, ["biz/foo-parent"]),
    ("another group", [reference(apiVersion="extensions/v1")], {}, []),
    ("the core group", [reference(apiVersion="v1")], {}, []),
    ("another kind", [reference(kind="Pod")], {}, []),
    ("not its controller", [reference(controller=False)], {}, []),
    ("no controller field", [{**reference(), "controller": None}], {}, []),
    ("controller is not a boolean", [reference(controller="true")], {}, []),
    ("no references", [], {}, []),
    ("not its controller, any owner", [reference(controller=False)], {"any_owner": True},
     ["biz/foo-parent"]),
    ("all owners", [reference("foo1"), reference("foo2", controller=False)], {"any_owner": True},
     ["biz/foo1", "biz/foo2"]),
    ("the controller among owners", [reference("foo1", controller=False), reference("foo2")], {},
     ["biz/foo2"]),
    ("the first of two controllers", [reference("foo1"), reference("foo2")], {}, ["biz/foo1"]),
    ("the first controller is of another kind", [reference("d", kind="Job"), reference("s")], {},
     []),
    ("the same owner twice", [reference(), reference()], {"any_owner": True}, ["biz/foo-parent"]),
    ("a malformed apiVersion", [reference(apiVersion="/////"), reference("ok")],
     {"any_owner": True}, ["biz/ok"]),
    ("no apiVersion", [{"kind": "ReplicaSet", "name": "x"}, reference("ok")], {"any_owner": True},
     ["biz/ok"]),
    ("no kind", [{"apiVersion": "apps/v1", "name": "x"}, reference("ok")], {"any_owner": True},
     ["biz/ok"]),
    ("no name", [{"apiVersion": "apps/v1", "kind": "ReplicaSet"}, reference("ok")],
     {"any_owner": True}, ["biz/ok"]),
    ("an empty name", [reference(""), reference("ok")], {"any_owner": True}, ["biz/ok"]),
    ("a name that is a number", [reference(name=7), reference("ok")],  # type: ignore[arg-type]
     {"any_owner": True}, ["biz/ok"]),
    ("a reference that is a string", ["apps/v1", reference("ok")], {"any_owner": True}, ["biz/ok"]),
    ("a reference that is null", [None, reference("ok")], {"any_owner": True}, ["biz/ok"]),
]  # fmt: skip


@pytest.mark.parametrize("when", ["create", "update", "delete"])
@pytest.mark.parametrize("row", [pytest.param(row[1:], id=row[0]) for row in OWNERS])
def test_an_object_makes_its_owner_dirty(
    cache: shmcache.Cache, when: str, row: tuple[list[Any], dict[str, Any], list[str]]
) -> None:
    """EnqueueRequestForOwner: "should enqueue a Request with the Owner of the object"."""
    references, options, expected = row
    pod = owned(*references)
    events = {"create": (None, pod), "update": (pod, pod), "delete": (pod, None)}
    assert owners(cache, event(*events[when]), **options) == expected


@pytest.mark.parametrize("references", ["apps/v1", 7, {"name": "x"}, None])
def test_owner_references_of_another_shape_are_skipped(
    cache: shmcache.Cache, references: Any
) -> None:
    """ "should log an error and enqueue nothing if the owner reference cannot be parsed"."""
    assert owners(cache, event(None, obj(ownerReferences=references))) == []


def test_both_owners_of_an_update_are_dirty(cache: shmcache.Cache) -> None:
    """ "should enqueue a Request with the Owner of both objects in the UpdateEvent"."""
    found = event(owned(reference("foo1")), owned(reference("foo2")))
    assert owners(cache, found) == ["biz/foo1", "biz/foo2"]


def test_an_owner_of_both_objects_is_dirty_once(cache: shmcache.Cache) -> None:
    """ "should enqueue a Request with the one duplicate Owner of both objects"."""
    found = event(owned(reference()), owned(reference(), resourceVersion="2"))
    assert owners(cache, found) == ["biz/foo-parent"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (owned(reference()), obj(), ["biz/foo-parent"]),
        (obj(), owned(reference()), ["biz/foo-parent"]),
        (obj(), obj(), []),
    ],
)
def test_an_owner_that_comes_or_goes_is_dirty(
    cache: shmcache.Cache, old: Any, new: Any, expected: list[str]
) -> None:
    """Orphaning and adoption, which the garbage collector's tests do."""
    assert owners(cache, event(old, new)) == expected


def test_an_owner_of_cluster_scope_has_no_namespace(cache: shmcache.Cache) -> None:
    """ "should use the empty namespace for cluster scoped owners"."""
    pod = owned(reference("n1", apiVersion="v1", kind="Node"))
    assert owners(cache, event(None, pod), type=Type("nodes")) == ["n1"]


def test_a_dependent_of_cluster_scope_names_an_owner_of_cluster_scope(
    cache: shmcache.Cache,
) -> None:
    """The same, for a dependent without a namespace."""
    node = {"metadata": {"name": "a", "ownerReferences": [reference("n1", apiVersion="v1",
                                                                    kind="Node")]}}  # fmt: skip
    assert owners(cache, event(None, node), type=Type("nodes")) == ["n1"]


@pytest.mark.parametrize("namespaced", [False, True])
def test_kind_and_scope_of_a_custom_owner_come_from_discovery(
    writer: shmcache.Writer, cache: shmcache.Cache, namespaced: bool
) -> None:
    """ "should use the RESTMapper's scope": without a single object of the resource."""
    writer.add_resource("widgets.example.com")
    writer.describe(
        "widgets.example.com", kind="Widget", group="example.com", namespaced=namespaced
    )
    pod = owned(
        reference("w", apiVersion="example.com/v1", kind="Widget"),
        reference("g", apiVersion="example.com/v1", kind="Gadget"),
    )
    found = owners(cache, event(None, pod), type=Type("widgets.example.com"), any_owner=True)
    assert found == ["biz/w" if namespaced else "w"]


# ---- EnqueueRequestsFromMapFunc ------------------------------------------------------------------

MAPPED: list[tuple[Any, list[str]]] = [
    (["foo/bar", "biz/baz"], ["foo/bar", "biz/baz"]),
    (["foo/bar", "foo/bar"], ["foo/bar"]),
    ("foo/bar", ["foo/bar"]),
    ((), []),
    (None, []),
    (iter(["foo/bar"]), ["foo/bar"]),
    ({"foo/bar": 1}, ["foo/bar"]),
]


@pytest.mark.parametrize(("answer", "expected"), MAPPED, ids=[repr(row[1]) for row in MAPPED])
def test_an_object_makes_the_keys_of_its_function_dirty(
    cache: shmcache.Cache, answer: Any, expected: list[str]
) -> None:
    """EnqueueRequestsFromMapFunc: "should enqueue a Request with the function applied"."""
    watches = (Watches("pods", lambda *_: answer),)
    assert keys(cache, event(None, obj()), watches=watches) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, obj("a"), ["biz/of-a"]),
        (obj("a"), None, ["biz/of-a"]),
        (obj("a"), obj("a"), ["biz/of-a"]),
        (obj("a"), obj("b"), ["biz/of-a", "biz/of-b"]),
    ],
)
def test_the_function_is_applied_to_both_objects(
    cache: shmcache.Cache, old: Any, new: Any, expected: list[str]
) -> None:
    """The same: "should enqueue a Request with the function applied to both objects"."""
    watches = (Watches("pods", lambda one, _: f"biz/of-{one['metadata']['name']}"),)
    assert keys(cache, event(old, new), watches=watches) == expected


@pytest.mark.parametrize("answer", [[7], [None], [b"x"], 7])
def test_keys_that_are_not_strings_are_an_error(cache: shmcache.Cache, answer: Any) -> None:
    """Typed in Go; here the event comes again, and the error is in the log."""
    watches = (Watches("pods", lambda *_: answer),)
    with pytest.raises(TypeError):
        keys(cache, event(None, obj()), watches=watches)


@pytest.mark.parametrize("which", ["owns", "watches"])
@pytest.mark.parametrize("gone", ["deleted", "modified"])
def test_an_event_without_its_last_state_makes_everything_dirty_once(
    writer: shmcache.Writer, cache: shmcache.Cache, which: str, gone: str
) -> None:
    """DeletedFinalStateUnknown has the last known object there; a Tombstone has the identity only.

    Differs on purpose: nothing is kept per worker, so all keys are dirty, once for each state.
    """
    writer.put_many("nodes", [(f"n{number}", obj(f"n{number}"), "1") for number in range(3)])
    writer.set_state("nodes", states.SYNCED, "1")
    owns = (Owns("pods"),) if which == "owns" else ()
    watches = (Watches("pods", lambda *_: ()),) if which == "watches" else ()
    sources = Sources(Type("nodes"), (), owns, watches, None)
    found = dict(sources.feeds(cache))["pods"]
    stone = Tombstone("biz/a", "u", None)

    def ask(state: object) -> list[str]:
        new = None if gone == "deleted" else obj("a")
        kind = "DELETED" if gone == "deleted" else "MODIFIED"
        return list(found(SourceEvent("pods", kind, "biz/a", stone, new, state=state)))

    assert [ask((1, 5)), ask((1, 5)), ask((1, 6))] == [["n0", "n1", "n2"], [], ["n0", "n1", "n2"]]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shards_are_disjoint_and_whole(cache: shmcache.Cache, count: int) -> None:
    """kubernetes-controller-sharding: every object is of exactly one shard."""
    found: list[str] = []
    for index in range(count):
        sources = Sources(Type("pods"), (), (), (), (index, count))
        ask = dict(sources.feeds(cache))["pods"]
        for number in range(50):
            found += ask(SourceEvent("pods", "ADDED", f"biz/{number}", None, obj()))
    assert sorted(found) == sorted(f"biz/{number}" for number in range(50))
