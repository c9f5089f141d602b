"""Invariant tested: a list shows the objects that its selectors match, whichever way it takes; in
order, paged.

Each answer is compared with the same selectors applied to plain dicts. The store and lister tests
of client-go's tools/cache (index, thread_safe_store, listers) are at the end.
"""

from __future__ import annotations

import random
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

import shmcache
from shmcache import Resource, _hot
from shmcache.errors import CacheTooOld, InvalidSelector
from shmcache.reader.selectors import FieldSelector, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache import Cache, CachedResource, Writer

COUNT = 600
INDICES = {
    "node": "spec.nodeName",
    "label": "metadata.labels",
    "owner": "metadata.ownerReferences[*].uid",
    "ip": "status.podIP",
}


def pod(number: int) -> dict[str, Any]:
    labels: dict[str, Any] = {"app": f"app-{number % 9}", "size": str(number % 5)}
    if number % 4 == 0:
        labels["canary"] = ""
    if number % 7 == 0:
        labels["a-rather-long.example.com/label-name"] = f"a rather long value {number % 3}"
    made: dict[str, Any] = {
        "metadata": {
            "name": f"pod-{number:04}",
            "namespace": f"space-{number % 3}",
            "uid": f"uid-of-pod-{number}",
            "labels": labels,
            "ownerReferences": [{"uid": f"owner-{number % 11}"}, {"uid": f"other-{number % 13}"}],
        },
        "spec": {"nodeName": f"node-{number % 17}", "replicas": number % 6, "deep": [[number % 2]]},
        "status": {"phase": ["Running", "Pending"][number % 2], "ratio": (number % 4) / 2},
    }
    if number % 10 == 0:
        del made["spec"]["nodeName"]
    if number % 50 == 0:
        del made["metadata"]["labels"]
    if number % 60 == 0:
        made["spec"] = None
    return made


PODS = {f"space-{n % 3}/pod-{n:04}": pod(n) for n in range(COUNT)}


@pytest.fixture(scope="module")
def cache() -> Iterator[Cache]:
    name = f"test-listing-{random.SystemRandom().getrandbits(48):x}"
    resources: list[Resource | str] = [Resource("pods", INDICES), "plain"]
    with (
        shmcache.Writer(name, resources, arena_max="64MiB", ring_slots=4096) as writer,
        shmcache.attach(name) as made,
    ):
        writer.apply("pods", list(PODS.values()))
        writer.apply("plain", list(PODS.values()))
        yield made


def expected(namespace: str | None, labels: str | None, fields: str | None) -> list[dict[str, Any]]:
    label_selector = LabelSelector.parse(labels or "")
    field_selector = FieldSelector.parse(fields or "")
    return [
        PODS[key]
        for key in sorted(PODS)
        if (not namespace or key.startswith(namespace + "/"))  # "" is all, as for every client
        and label_selector.matches(PODS[key])
        and field_selector.matches(PODS[key])
    ]


LABELS = [
    None,
    "app=app-3",
    "app==app-3,size=2",
    "app in (app-1,app-2,app-4)",
    "app!=app-3",
    "app notin (app-1,app-2)",
    "canary",
    "!canary",
    "canary=",
    "size>2",
    "size<2,app=app-5",
    "size>x-ray".replace("x-ray", "9"),
    "a-rather-long.example.com/label-name",
    "nothing=here",
    "nothing!=here,nothing",
    "canary in (),app in (app-0)",
]
FIELDS = [
    None,
    "spec.nodeName=node-7",
    "spec.nodeName!=node-7",
    "spec.nodeName=",
    "spec.nodeName!=",
    "metadata.ownerReferences[*].uid=owner-3",
    "metadata.ownerReferences[*].uid!=owner-3",
    "metadata.ownerReferences[*].uid=other-1,spec.nodeName=node-1",
    "status.phase=Running,spec.replicas=3",
    "status.ratio=0.5",
    "status.ratio=1.0",
    "metadata.labels=app\\=app-3",
    "metadata.labels=canary\\=",
    "spec.deep[*][*]=1",
    "spec.deep[*]=1",
    "metadata.name=pod-0042",
    "metadata.namespace=space-1",
    "status.podIP=",
    "nothing.at.all=x",
    "nothing.at.all!=x",
]


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["pods", "plain"])
@pytest.mark.parametrize("labels", LABELS)
def test_all_selections_show_their_matches(cache: Cache, resource: str, labels: str | None) -> None:
    for fields in FIELDS:
        for namespace in (None, "space-1", "space", ""):
            found = cache[resource].list(namespace, labels, fields)
            asked = (resource, namespace, labels, fields)

            assert [dict(one) for one in found] == expected(namespace, labels, fields), asked


@pytest.mark.parametrize(("after", "count"), [("a/b", 1), ("space-0/pod-0003", 0), ("x/y", 0)])
def test_a_page_of_one_named_object_begins_after_its_key(
    cache: Cache, after: str, count: int
) -> None:
    found = cache["pods"].list("space-0", fields="metadata.name=pod-0003", after=after)

    assert ["pod-0003"][:count] == [one["metadata"]["name"] for one in found]


@pytest.mark.parametrize("labels", ["app in (app-1,app-2,app-4)", "app=app-3", "!canary", None])
@pytest.mark.parametrize("namespace", [None, "space-2"])
@pytest.mark.parametrize("limit", [1, 7, 500])
def test_pages_make_up_the_list(
    cache: Cache, labels: str | None, namespace: str | None, limit: int
) -> None:
    fields = "status.phase=Running"
    whole = [one["metadata"]["uid"] for one in expected(namespace, labels, fields)]
    for resource in ("pods", "plain"):
        with cache.snapshot() as at:
            pages, after = [], None
            while True:
                page = at[resource].list(namespace, labels, fields, limit=limit, after=after)
                if not page:
                    break
                assert len(page) <= limit
                pages += [one["metadata"]["uid"] for one in page]
                last = page[-1]["metadata"]
                after = f"{last['namespace']}/{last['name']}"

        assert pages == whole


NOTHING_ELSE = [{}, {"namespace": "space-1"}]


@pytest.mark.parametrize(
    ("asked", "uses"),
    [
        ({}, "everything"),
        ({"namespace": "space-1"}, "namespace space-1"),
        ({"labels": "app=app-3"}, "index label = app=app-3"),
        ({"labels": "app!=app-3"}, "everything"),
        ({"labels": "app!=app-3", "namespace": "space-1"}, "namespace space-1"),
        ({"labels": {"app": "app-3", "nothing": "x"}}, "index label = nothing=x"),
        ({"labels": "app in (app-3,app-4)"}, "index label = app=app-3 or app=app-4"),
        ({"fields": "spec.nodeName=node-3"}, "index node = node-3"),
        ({"fields": "spec.nodeName="}, "everything"),  # absent fields have no entries
        ({"fields": "spec['nodeName']=node-3"}, "index node = node-3"),
        ({"fields": "spec.nodeName=node-3", "labels": "app=app-3"}, "index node = node-3"),
        ({"fields": "status.phase=Running"}, "everything"),
        ({"fields": "metadata.name=pod-0042", "namespace": "space-0"}, "key space-0/pod-0042"),
        ({"fields": "metadata.namespace=space-1"}, "namespace space-1"),
    ],
)
def test_the_shortest_way_is_taken_and_explained(
    cache: Cache, asked: dict[str, Any], uses: str
) -> None:
    plan = cache["pods"].explain(**asked)

    assert plan.uses == uses
    assert str(plan).startswith(uses)
    assert (plan.why == "nothing else is asked") == (asked in NOTHING_ELSE)
    assert (plan.why == "there is no index for it") == (uses == "everything" and asked != {})


def test_the_explanation_names_the_ways_not_taken(cache: Cache) -> None:
    plan = cache["pods"].explain(labels="app=app-3", fields="spec.nodeName=node-3")

    assert [way.name for way in plan.others] == ["index label = app=app-3"]
    assert "sifted" in str(plan)
    sizes = [
        len(cache["pods"].index_keys(*index))
        for index in (("node", "node-3"), ("label", "app=app-3"))
    ]
    assert plan.why == f"{sizes[0]} entries; index label = app=app-3: {sizes[1]}"


def test_invalid_selections_are_refused(cache: Cache) -> None:
    pods: Any = cache["pods"]
    with pytest.raises(InvalidSelector, match=r"^found '==', expected"):
        pods.list(labels="==!")
    with pytest.raises(InvalidSelector, match="can't understand"):
        pods.list(fields="x")
    with pytest.raises(ValueError, match="0 <= i < n"):
        pods.list(shard=(2, 2))
    with pytest.raises(TypeError):
        pods.list(labels=7)
    with pytest.raises(CacheTooOld):
        pods.list(max_age=100)
    assert pods.list(max_age=100, fallback=lambda: ["other"]) == ["other"]


def test_shards_divide_the_objects_as_upstream_hashes_them(cache: Cache) -> None:
    def fnv(uid: str) -> int:
        value = 0xCBF29CE484222325
        for byte in uid.encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        return value

    assert f"{fnv('abc'):016x}" == "e71fa2190541574b"  # FNV-1a's own test vector
    parts = [cache["plain"].list(shard=(i, 3)) for i in range(3)]
    for number, part in enumerate(parts):
        for one in part:
            assert fnv(one["metadata"]["uid"]) * 3 // 2**64 == number
    assert sum(map(len, parts)) == COUNT
    some = cache["pods"].list("space-1", "app=app-3", shard=(1, 3))
    assert [one["metadata"]["uid"] for one in some] == [
        one["metadata"]["uid"]
        for one in expected("space-1", "app=app-3", None)
        if fnv(one["metadata"]["uid"]) * 3 // 2**64 == 1
    ]


def test_owners_and_owned(cache: Cache, writer: Writer) -> None:
    for resource in ("pods", "plain"):
        owned = cache[resource].owned_by("owner-3")
        expect = expected(None, None, "metadata.ownerReferences[*].uid=owner-3")
        assert [dict(one) for one in owned] == expect
    sets = [
        {"metadata": {"namespace": "s", "name": "a", "uid": "1"}},
        {"metadata": {"namespace": "s", "name": "b", "uid": "2"}},
        {"metadata": {"name": "cluster", "uid": "3"}},
    ]
    writer.apply("pods", sets)
    with shmcache.attach(writer.name) as other:
        pods = other["pods"]

        def owner(*references: dict[str, Any]) -> Any:
            found = pods.owner_of({"metadata": {"namespace": "s", "ownerReferences": references}})
            return found and found["metadata"]["name"]

        assert owner({"name": "a", "uid": "1"}) == "a"
        assert owner({"name": "a", "uid": "9"}) is None  # another object of that name
        assert (
            owner({"name": "a", "uid": "1"}, {"name": "b", "uid": "2", "controller": True}) == "b"
        )
        assert owner({"name": "cluster", "uid": "3"}) == "cluster"
        assert owner() is None


def test_a_selection_is_compiled_once_and_follows_the_cache(writer: Writer) -> None:
    """A Where remembers facts of one generation only: another pod may use the same block later."""
    rng = random.Random(5)
    with shmcache.attach(writer.name) as cache:
        pods = cache["pods"]
        for _ in range(60):
            batch = [
                {
                    "metadata": {
                        "name": f"p{rng.randrange(40)}",
                        "labels": {"color": rng.choice(["red", "a colour of many letters"])},
                    },
                    "spec": {"nodeName": f"node-{rng.randrange(3)}-with-a-long-name"},
                }
                for _ in range(10)
            ]
            writer.apply("pods", batch)
            for labels, fields in (
                ("color=red", None),
                (None, "spec.nodeName!=node-1-with-a-long-name"),
            ):
                found = pods.list(labels=labels, fields=fields)
                assert [dict(one) for one in found] == [
                    dict(one)
                    for one in pods.values()
                    if LabelSelector.parse(labels or "").matches(one)
                    and FieldSelector.parse(fields or "").matches(one)
                ]


@pytest.mark.parametrize(
    ("groups", "error"),
    [
        ([], TypeError),
        (((),), TypeError),
        (((("a",), (((None,), "in", ("x",)),)),), ValueError),
        (((("a",), ((("b",), "like", ("x",)),)),), ValueError),
        (((("a",), ((("b",), "gt", ("x",)),)),), ValueError),
        (((("a",), (((), "=", ()),)),), ValueError),
        ((((None,), (((), "=", ("x",)),)),), ValueError),
        (((("a",), (((), "=", (None,)),)),), ValueError),
        ((((7,), ()),), TypeError),
        (((("a",), ((("b",), "in", [1]),)),), TypeError),
    ],
)
def test_a_selection_that_cannot_be_compiled_is_refused(
    groups: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        _hot.Where(groups)


# ---- tools/cache: index_test, thread_safe_store_test, listers_test -------------------------------


@pytest.fixture
def store(name: str) -> Iterator[tuple[Writer, CachedResource]]:
    """The tests there call it an indexer: by the users of an annotation, several a pod."""
    indices = {"byUser": "users[*]", "byLabel": "metadata.labels"}
    with (
        shmcache.Writer(name, [Resource("pods", indices)], arena_max="16MiB") as writer,
        shmcache.attach(name) as cache,
    ):
        yield writer, cache["pods"]
        writer.check()


Store = tuple["Writer", "CachedResource"]


def user_pod(name: str, *names: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "users": list(names)}


def names(found: list[Any]) -> list[str]:
    return [one["metadata"]["name"] for one in found]


def test_index_function_values(store: Store) -> None:
    writer, pods = store
    writer.apply("pods", [user_pod("one", "foo"), user_pod("two", "bar"), user_pod("three", "foo")])

    assert pods.index_values("byUser") == ["bar", "foo"]


def test_multi_index_keys(store: Store) -> None:
    writer, pods = store
    writer.apply("pods", [user_pod("one", "ernie", "bert"), user_pod("two", "bert", "oscar")])
    writer.apply("pods", [user_pod("tre", "ernie", "elmo")])
    assert pods.index_keys("byUser", "ernie") == ["one", "tre"]
    assert pods.index_keys("byUser", "bert") == ["one", "two"]
    assert pods.index_keys("byUser", "elmo") == ["tre"]
    assert pods.index_keys("byUser", "elmo1") == []
    writer.delete("pods", "tre")
    assert pods.index_keys("byUser", "elmo") == []
    writer.apply("pods", [user_pod("two", "oscar")])  # an update removes it from its old value
    assert pods.index_keys("byUser", "bert") == ["one"]
    assert pods.index_keys("byUser", "oscar") == ["two"]


def test_deleting_the_last_object_leaves_no_empty_value(store: Store) -> None:
    writer, pods = store
    writer.apply("pods", [user_pod("one", "high")])
    writer.delete("pods", "one")

    assert pods.index_values("byUser") == []
    assert pods.record()["indices"][0][2] == 0


def test_a_value_of_other_objects_stays(store: Store) -> None:
    writer, pods = store
    writer.apply("pods", [user_pod("keep", "high"), user_pod("delete", "high")])
    writer.delete("pods", "delete")

    assert pods.index_values("byUser") == ["high"]
    assert pods.index_keys("byUser", "high") == ["keep"]


def test_indexing_with_several_values_follows_updates(store: Store) -> None:
    writer, pods = store
    writer.apply("pods", [user_pod("key1", "foo"), user_pod("key2")])
    for values in (["foo", "bar"], ["bar"], [], ["baz", "baz"], ["foo", "bar", "baz"]):
        writer.apply("pods", [user_pod("key1", *values)])
        assert pods.index_values("byUser") == sorted(set(values))
        for value in ("foo", "bar", "baz"):
            assert pods.index_keys("byUser", value) == (["key1"] if value in values else [])


def test_list_all(store: Store) -> None:
    """listers_test's TestListAll: nothing, everything, by label, in a namespace."""
    writer, pods = store
    assert pods.list(labels="a=b") == []
    writer.apply(
        "pods",
        [
            {"metadata": {"namespace": "x", "name": "b", "labels": {"a": "b"}}},
            {"metadata": {"namespace": "x", "name": "a", "labels": {"a": "c"}}},
            {"metadata": {"namespace": "y", "name": "c", "labels": {"a": "b"}}},
        ],
    )
    assert names(pods.list()) == names(pods.list(labels="")) == ["a", "b", "c"]
    assert names(pods.list(labels="a=b")) == ["b", "c"]
    assert names(pods.list("x", "a=b")) == ["b"]
    assert names(pods.list("x", LabelSelector.of({}))) == ["a", "b"]


def test_the_version_of_the_store(store: Store) -> None:
    """TestThreadSafeStoreRV: a version is the resource's own, and set by its writer alone."""
    writer, pods = store
    writer.apply("pods", [{"metadata": {"name": "a", "resourceVersion": "10"}}])
    before = pods.version  # an object's version does not determine the others
    writer.replace("pods", [{"metadata": {"name": "a", "resourceVersion": "10"}}], "12")
    assert pods.version == "12"
    writer.set_state("pods", pods.state, "20")
    assert (before, pods.version) == (None, "20")
    writer.delete("pods", "a", "19")
    assert pods.version == "20"


def test_an_index_that_is_added_later_is_found(store: Store) -> None:
    writer, pods = store
    writer.apply("pods", [user_pod(f"p{n}", "u") for n in range(200)])
    fields = "metadata.name=p7"
    assert names(pods.list(fields=fields)) == ["p7"]
    writer.add_index("pods", "byName", "metadata.name")

    assert pods.explain(fields=fields).uses == "index byName = p7"
    for _ in range(100):  # the remembered way changes in between
        assert names(pods.list(fields=fields)) == ["p7"]


def test_ways_belong_to_the_instance_that_is_read(name: str) -> None:
    """A new writer may declare its indices in another order: their numbers then mean others."""
    node, label = {"node": "spec.nodeName"}, {"label": "metadata.labels"}
    asked: dict[str, Any] = {"labels": "app=app-3"}
    with shmcache.Writer(name, [Resource("pods", {**node, **label})], arena_max="16MiB") as first:
        first.apply("pods", list(PODS.values())[:200])
        cache = shmcache.attach(name)
        pods = cache["pods"]
        before = [dict(one) for one in pods.list(**asked)]
        instance = cache.instance
    with (
        cache,
        shmcache.Writer(name, [Resource("pods", {**label, **node})], arena_max="16MiB") as second,
    ):
        second.apply("pods", list(PODS.values())[:200])
        for _ in range(100):
            assert [dict(one) for one in pods.list(**asked)] == before
        assert cache.instance != instance
        assert pods.explain(**asked).uses == "index label = app=app-3"


def test_an_index_by_a_function_leaves_all_selectors_working(name: str) -> None:
    """The stored form of such an index in the record is not a path."""
    indices: dict[str, Any] = {"image": lambda _: "nginx", "node": "spec.nodeName"}
    resource = Resource("pods", indices)
    with shmcache.Writer(name, [resource]) as writer, shmcache.attach(name) as cache:
        labels, owners = {"app": "web"}, [{"uid": "u-0"}]
        for number in range(4):
            metadata = {"uid": f"u-{number}", "labels": labels, "ownerReferences": owners}
            obj = {"metadata": metadata, "spec": {"nodeName": f"n-{number % 2}"}}
            writer.put("pods", f"prod/{number}", obj)
        pods = cache["pods"]
        assert len(pods.list(labels="app=web")) == 4
        assert len(pods.list("prod", fields="spec.nodeName=n-1")) == 2
        assert len(pods.list(shard=(0, 2))) + len(pods.list(shard=(1, 2))) == 4
        assert len(pods.owned_by("u-0")) == 4
        assert pods.explain(fields="spec.nodeName=n-1").uses == "index node = n-1"
        assert len(pods.by_index("image", "nginx")) == 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"labels": {"a": 5}}, "labels must be strings, not 'a': 5"),
        ({"labels": {5: "a"}}, "labels must be strings, not 5: 'a'"),
        ({"labels": 5}, "labels must be a LabelSelector, its text or a dict, not 5"),
        ({"fields": 5}, "fields must be a FieldSelector or its text, not 5"),
    ],
)
def test_a_selector_of_a_wrong_type_is_explained(
    cache: Cache, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        cache["pods"].list(**arguments)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda pods: pods.list(fields={"a": 1}), "fields must be a FieldSelector or its text"),
        (lambda pods: pods.list(labels=5), "labels must be a LabelSelector, its text or a dict"),
        (lambda pods: pods.list(5), "namespace must be a str, not 5"),
        (lambda pods: pods.list(5, labels="a"), "namespace must be a str, not 5"),
        (lambda pods: pods.list(max_age="x"), "max_age must be a number of seconds, not 'x'"),
        (lambda pods: pods.wait_synced("x"), "timeout must be a number of seconds, not 'x'"),
        (lambda pods: pods.wait_for(5), "version must be a resourceVersion, which is a str, not 5"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(
    cache: shmcache.Cache, call: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        call(cache["pods"])


def test_the_name_of_a_resource_is_a_str(cache: shmcache.Cache) -> None:
    with pytest.raises(TypeError, match="the name of a resource must be a str, not 5"):
        cache[5]  # type: ignore[index]


def test_seconds_may_be_any_real_number(cache: shmcache.Cache) -> None:
    assert not cache["pods"].wait_synced(Fraction(1, 1000))  # type: ignore[arg-type]
