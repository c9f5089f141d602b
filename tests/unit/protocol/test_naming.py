"""Invariants tested: NAME1 to NAME4 of naming.py, DESC1 to DESC3 of describing.py."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

import shmcache
from shmcache import Resource
from shmcache.engine.describing import described
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.protocol import describing
from shmcache.protocol.describing import known_as
from shmcache.protocol.naming import AmbiguousName, UnknownName, resolve
from shmcache.protocol.tables import printing
from shmcache.protocol.tables.printcustom import declared_column
from shmcache.reader import resolving
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

WIDGETS = {
    "group": "example.com",
    "version": "v1beta2",
    "plural": "widgets",
    "kind": "Widget",
    "singular": "widget",
    "short_names": ["wd", "wi"],
    "categories": ["all", "things"],
    "namespaced": False,
    "columns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
    "selectable_fields": ["spec.color"],
}
NAMES = ("pods", "deployments.apps", "events", "events.events.k8s.io", "nodes", "ingresses")
KINDS = {name: known_as(name, {}) for name in NAMES} | {
    "widgets.example.com": known_as("widgets.example.com", WIDGETS),
    "gadgets.a.example.com": known_as("gadgets.a.example.com", {}),
    "gadgets.b.example.com": known_as("gadgets.b.example.com", {}),
}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("pods", "pods"),
        ("pod", "pods"),
        ("po", "pods"),
        ("Pod", "pods"),
        ("PO", "pods"),
        ("pods/v1", "pods"),
        ("pods.v1", "pods"),
        ("deployment", "deployments.apps"),
        ("deploy.apps", "deployments.apps"),
        ("deploy.v1.apps", "deployments.apps"),
        ("deployments.apps/v1", "deployments.apps"),
        ("no", "nodes"),
        ("ing", "ingresses"),
        ("ingress.networking.k8s.io", "ingresses"),
        ("ev", "events"),
        ("event", "events"),
        ("events.events.k8s.io", "events.events.k8s.io"),
        ("event.v1.events.k8s.io", "events.events.k8s.io"),
        ("wd", "widgets.example.com"),
        ("wi", "widgets.example.com"),
        ("Widget", "widgets.example.com"),
        ("widgets.v1beta2.example.com", "widgets.example.com"),
        ("things", "widgets.example.com"),
        ("gadget.a.example.com", "gadgets.a.example.com"),
    ],
)
def test_a_resource_is_found_by_each_name_that_the_server_has_for_it(word: str, name: str) -> None:
    assert resolve(word, KINDS) == (name,)


def test_a_category_is_every_resource_in_it_in_the_order_of_the_cache() -> None:
    assert resolve("all", KINDS) == ("pods", "deployments.apps", "widgets.example.com")


def test_a_name_takes_precedence_over_a_category() -> None:
    kinds = {"pods": KINDS["pods"], "all.example.com": known_as("all.example.com", {})}

    assert resolve("all", kinds) == ("all.example.com",)


@pytest.mark.parametrize(
    "word",
    [
        "pods.apps",
        "pods/v2",
        "deployments.v2.apps",
        "deployments.app",
        "widgets.v1.example.com",
        "podz",
        "",
        ".",
    ],
)
def test_a_name_of_another_group_or_version_means_nothing(word: str) -> None:
    with pytest.raises(UnknownName):
        resolve(word, KINDS)


def test_a_name_in_several_groups_is_ambiguous_unless_the_core_group_has_it() -> None:
    with pytest.raises(AmbiguousName) as caught:
        resolve("gadgets", KINDS)

    assert str(caught.value) == (
        "'gadgets' may mean gadgets.a.example.com or gadgets.b.example.com: name the group, too"
    )


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("pdos", ("pods",)),
        ("deploymnets", ("deployments.apps",)),
        ("widgts", ("widgets.example.com",)),
        ("xyzzy", ()),
    ],
)
def test_an_unknown_name_comes_with_the_names_that_are_spelt_alike(
    word: str, near: tuple[str, ...]
) -> None:
    with pytest.raises(UnknownName) as caught:
        resolve(word, KINDS)

    assert caught.value.near == near
    assert caught.value.names == tuple(KINDS)
    if near:
        assert str(caught.value) == f"no resource {word!r}; did you mean {near[0]}?"
    else:
        assert str(caught.value) == f"no resource {word!r}, only {', '.join(KINDS)}"


def test_an_unknown_name_suggests_the_built_in_resource() -> None:
    with pytest.raises(UnknownName) as caught:
        resolve("cm", KINDS)
    with pytest.raises(UnknownName) as other:
        resolve("podz", KINDS)

    assert caught.value.builtin is not None
    assert caught.value.builtin.key == "configmaps"
    assert other.value.builtin is None


# ---- descriptions --------------------------------------------------------------------------------


def test_a_description_makes_the_kind_that_the_definition_has() -> None:
    kind = describing.kind_of(WIDGETS)

    assert kind is not None
    assert (kind.key, kind.api_version, kind.kind) == (
        "widgets.example.com",
        "example.com/v1beta2",
        "Widget",
    )
    assert (kind.namespaced, kind.custom, kind.short_names) == (False, True, ("wd", "wi"))
    assert kind.selectable == ("metadata.name", "spec.color")
    assert kind.columns == (WIDGETS["columns"][0],)  # type: ignore[index]
    assert kind.verbs == ("get", "list", "watch")


def test_a_built_in_resource_keeps_fields_missing_from_discovery() -> None:
    kind = describing.kind_of(
        {"group": "autoscaling", "version": "v1", "plural": "horizontalpodautoscalers", "kind": "x"}
    )

    assert kind is not None
    assert (kind.api_version, kind.kind) == ("autoscaling/v1", "HorizontalPodAutoscaler")
    assert (kind.custom, kind.short_names) == (False, ("hpa",))


@pytest.mark.parametrize("settings", [{}, {"plural": "pods"}, {"kind": "Pod"}])
def test_without_a_plural_and_a_kind_nothing_is_described(settings: dict[str, str]) -> None:
    assert describing.kind_of(settings) is None


@pytest.mark.parametrize(
    ("name", "key", "version"),
    [
        ("po", "pods", "v1"),
        ("deploy.apps", "deployments.apps", "v1"),
        ("deployments.v1.apps", "deployments.apps", "v1"),
        ("events", "events", "v1"),
        ("gadgets.example.com/v3", "gadgets.example.com", "v3"),
    ],
)
def test_a_resource_without_a_description_is_known_by_its_name(
    name: str, key: str, version: str
) -> None:
    kind = known_as(name, {})

    assert (kind.key, kind.version) == (key, version)
    assert kind.custom is (key not in describing.builtins())


def test_no_key_of_a_description_is_a_setting_of_the_plan() -> None:
    plan = Plan(name="pods")
    with ApiServer() as server:
        found = described(KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url))), plan)

    assert not set(found) & set(plan.resource_at("", ()).settings)
    assert found.keys() == WIDGETS.keys()
    assert json.loads(json.dumps(found)) == found


# ---- the Python API ------------------------------------------------------------------------------


def test_a_cache_and_its_snapshots_have_resources_by_every_name(name: str) -> None:
    with (
        shmcache.Writer(name, [Resource("deployments.apps"), Resource("pods")]) as writer,
        shmcache.attach(name) as cache,
    ):
        writer.put("pods", "a/b", {"metadata": {"name": "b", "namespace": "a"}})
        with cache.snapshot() as at:
            assert "po" in at
            assert "a/b" in at["Pod"]
            assert "nodes" not in at
            with pytest.raises(KeyError, match="did you mean pods"):
                at["podz"]

        assert cache["po"]["a/b"]["metadata"]["name"] == "b"
        assert cache["deploy"].name == "deployments.apps"
        assert "deploy" in cache
        assert "nodes" not in cache
        assert resolving.find(cache, "all") == ("deployments.apps", "pods")
        with pytest.raises(KeyError, match="did you mean pods"):
            cache["podz"]
        with pytest.raises(KeyError, match=r"means several resources: deployments\.apps, pods"):
            cache["all"]


def test_a_resource_found_by_another_name_goes_on_after_a_take_over(name: str) -> None:
    with shmcache.Writer(name, [Resource("pods")]) as writer:
        writer.put("pods", "a", {"metadata": {"name": "a"}})
        cache = shmcache.attach(name)
        pods = cache["po"]
        assert list(pods) == ["a"]
    with shmcache.Writer(name, [Resource("nodes"), Resource("pods")], fresh=True) as writer, cache:
        with writer.batch():
            writer.put("pods", "b", {"metadata": {"name": "b"}})
        deadline = time.monotonic() + 30
        while list(pods) != ["b"]:
            assert time.monotonic() < deadline, "the new instance is not read"
        assert pods.name == "pods"


ODD: list[Any] = [None, 5, -1, True, [], {}, 10**400, 1.5, math.inf, "\ud800", 1 << 40]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
@pytest.mark.parametrize("key", ["name", "type", "format", "description", "priority", "jsonPath"])
def test_a_description_holds_nothing_that_no_definition_can_have(
    key: str, odd: Any, name: str
) -> None:
    """DESC3: it can be stored, and readers can make a table by it."""
    names = {"plural": "widgets", "kind": "Widget"}
    column = {"name": "A", "type": "string", "jsonPath": ".a"}
    version = {
        "name": "v1",
        "additionalPrinterColumns": [column | {key: odd}, column],
        "selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".\ud800"}],
    }
    definition = {"spec": {"group": "e.com", "names": names, "versions": [version]}}

    found = describing.columns_of(definition, "v1")

    assert found["columns"][-1] == column
    assert found["selectable_fields"] == ["spec.a"]
    with shmcache.Writer(name, ["widgets.e.com"]) as writer:
        writer.describe("widgets.e.com", **names, group="e.com", **found)
        with shmcache.attach(name) as cache:
            kind = describing.kind_of(cache["widgets.e.com"].record()["settings"])
            assert kind is not None
            shown = printing.columns(kind)
            assert "x" in printing.cells(shown, {"metadata": {"name": "w"}, "a": "x"})


@pytest.mark.parametrize("priority", [*ODD, "many", "1"])
def test_columns_of_others_make_a_table_whatever_they_hold(priority: Any) -> None:
    column = declared_column({"priority": priority, "jsonPath": ".a"})
    assert column.cell({"a": "x"}) == "x"
