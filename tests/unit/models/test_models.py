"""Invariants tested: MODEL1 to MODEL4, and a resource of models gives models everywhere."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime as dt
import gc
import pickle
import weakref
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

import shmcache
from shmcache import _hot
from shmcache.models import Model, ModelList, model
from shmcache.models.detached import Detached

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "prod",
        "uid": "u-1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {"app": "web"},
    },
    "spec": {
        "nodeName": "node-7",
        "containers": [{"name": "app", "image": "app:1"}, {"name": "log", "image": "log:1"}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "app",
                "image": "app:1",
                "imageID": "id",
                "ready": True,
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-03-01T12:00:01Z"}},
            }
        ],
    },
}
WIDGET: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "prod", "creationTimestamp": "2026-03-01T12:00:00Z"},
    "spec": {"nodeName": "n", "size": 3, "from": "x", "parts": [{"partID": "p"}], "a-b": {"c": 1}},
}


@pytest.fixture
def pods(writer: shmcache.Writer, cache: shmcache.Cache) -> Any:
    writer.apply("pods", [POD])
    return cache["pods"].models()


@pytest.fixture
def pod(pods: Any) -> Any:
    return pods["prod/web-0"]


@pytest.fixture
def widget(writer: shmcache.Writer, cache: shmcache.Cache) -> Any:
    writer.apply("nodes", [WIDGET])
    return cache["nodes"]["prod/w"]


# ---- attributes ----------------------------------------------------------------------------------


def test_attributes_read_the_cache_and_are_none_for_what_is_absent(pod: Any) -> None:
    assert pod.spec.node_name == "node-7"
    assert pod.metadata.labels == {"app": "web"}
    started = pod.status.container_statuses[0].state.running.started_at
    assert started == dt.datetime(2026, 3, 1, 12, 0, 1, tzinfo=dt.UTC)
    assert pod.status.host_ip is None
    assert pod.spec.init_containers is None
    assert [one.image for one in pod.spec.containers] == ["app:1", "log:1"]
    assert type(pod.spec.containers) is ModelList
    with pytest.raises(AttributeError, match="V1PodSpec of kubernetes 37 has no attribute 'nope'"):
        pod.spec.nope
    assert not hasattr(pod, "nodeName")
    assert {"spec", "status", "to_dict"} <= set(dir(pod))


@pytest.mark.parametrize(
    ("library", "path"),
    [
        ("kubernetes==35", "spec.node_name"),
        ("kubernetes.aio", "spec.node_name"),
        ("kubernetes_asyncio", "spec.node_name"),
        ("lightkube", "spec.nodeName"),
    ],
)
def test_each_library_has_its_own_names(
    library: str, path: str, writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.apply("pods", [POD])
    found: Any = cache["pods"].models(library)["prod/web-0"]
    for step in path.split("."):
        found = getattr(found, step)

    assert found == "node-7"


def test_a_word_of_another_kind_is_what_a_view_gives_for_it(roundtrip: Any) -> None:
    view = roundtrip(
        POD | {"spec": "text", "status": {"containerStatuses": {"a": 1}, "phase": None}}
    )
    found = model(view)

    assert found.spec == "text"
    assert found.status.container_statuses == {"a": 1}
    assert found.status.phase is None


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:00:00Z",
        "2026-02-28T23:59:59.5Z",
        "2024-02-29T00:00:00+02:00",
        "2026-03-31T01:02:03.123456Z",
    ],
)
def test_times_are_those_of_the_library(text: str, roundtrip: Any) -> None:
    view = roundtrip(POD | {"metadata": {"name": "a", "creationTimestamp": text}})

    assert model(view).metadata.creation_timestamp == dt.datetime.fromisoformat(text)


@pytest.mark.parametrize("text", ["2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z", "soon", ""])
def test_a_text_other_than_a_time_raises_value_error(text: str, roundtrip: Any) -> None:
    found = model(roundtrip(POD | {"metadata": {"name": "a", "creationTimestamp": text}}))

    with pytest.raises(ValueError, match="[Dd]ate"):
        found.metadata.creation_timestamp


def test_models_go_stale_and_close_as_views_do(pod: Any, cache: shmcache.Cache) -> None:
    cache.close()

    with pytest.raises(shmcache.ClosedError):
        pod.spec
    assert repr(pod) == "<V1Pod: ClosedError>"
    assert "spec" in dir(pod)


# ---- behaviour as a whole ----


def test_nothing_can_be_changed_and_each_refusal_names_a_copy(pod: Any) -> None:
    changes: list[Any] = [
        lambda: setattr(pod.spec, "node_name", "x"),
        lambda: delattr(pod, "spec"),
        lambda: pod.spec.containers.__setitem__(0, None),
        lambda: pod.spec.containers.__iadd__([1]),
        lambda: setattr(pod.spec.containers, "x", 1),
    ]
    for change in changes:
        with pytest.raises(TypeError, match=r"change a copy, \.to_(model|dict|list)\(\)"):
            change()
    with pytest.raises(AttributeError, match=r"read-only, change a \.to_list\(\) of it"):
        pod.spec.containers.append(1)
    with pytest.raises(TypeError, match="has attributes, not items"):
        pod["spec"]


def test_copies_are_the_librarys_own_objects_and_can_be_changed(pod: Any) -> None:
    from kubernetes.client import V1Pod

    for made in (pod.to_model(), copy.deepcopy(pod), pickle.loads(pickle.dumps(pod))):
        assert type(made) is V1Pod
        assert made == pod
        assert pod == made
        made.spec.node_name = "other"
        assert made != pod
    assert pickle.loads(pickle.dumps(pod.spec.containers))[0] == pod.spec.containers[0]
    assert pod.model_dump(by_alias=True) == pod.to_model().model_dump(by_alias=True)


def test_equality_isinstance_and_hash_are_those_of_the_library(pod: Any, pods: Any) -> None:
    from kubernetes.client import V1Node, V1Pod

    assert pod == pods["prod/web-0"]
    assert pod.spec != pod.status
    assert isinstance(pod, V1Pod)
    assert not isinstance(pod, V1Node)
    assert isinstance(pod.spec.containers, list)
    with pytest.raises(TypeError, match="unhashable"):
        hash(pod)


def test_repr_names_the_object_and_str_is_the_librarys(pod: Any) -> None:
    assert repr(pod) == "<V1Pod prod/web-0 rv=7>"
    assert str(pod) == str(pod.to_model())
    assert pod.to_str() == pod.to_model().to_str()


def test_lists_behave_as_lists(pod: Any) -> None:
    found = pod.spec.containers

    assert len(found) == 2
    assert found[-1].name == "log"
    assert [one.name for one in found[::-1]] == ["log", "app"]
    assert found == list(found)
    assert found + [1] == [*found, 1]  # noqa: RUF005 - the operator
    assert found.index(found[1]) == 1
    assert found[0] in found
    assert found.count(found[0]) == 1
    assert [one["name"] for one in found.to_list()] == ["app", "log"]
    with pytest.raises(IndexError):
        found[2]


def test_maps_of_models_behave_as_dicts(roundtrip: Any) -> None:
    schema = {"openAPIV3Schema": {"properties": {"a": {"type": "string"}, "b": {"type": "object"}}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "x"},
        "spec": {"versions": [{"name": "v1", "schema": schema}]},
    }
    found = model(roundtrip(definition)).spec.versions[0].schema.open_apiv3_schema.properties

    assert {key: one.type for key, one in found.items()} == {"a": "string", "b": "object"}
    assert found["a"].type == "string"
    assert found.get("c") is None
    assert "b" in found
    assert list(found) == ["a", "b"]
    assert found.to_dict()["a"]["type"] == "string"
    assert isinstance(found, dict)


def test_classes_that_contain_themselves_are_collected() -> None:
    @dataclasses.dataclass
    class Tree:
        name: str = ""

    from shmcache.models.userclass import ClassDialect

    dialect = ClassDialect(Tree)
    gone = weakref.ref(dialect)
    del dialect
    gc.collect()

    assert gone() is None


# ---- resources of models -------------------------------------------------------------------------


def test_a_resource_of_models_gives_models_everywhere(pods: Any) -> None:
    pod = pods["prod/web-0"]
    results = [
        *pods.list("prod"),
        *pods.by_index("node", "node-7"),
        *pods.values(),
        *(one for _, one in pods.items()),
        *(one for _, one in pods.range()),
        *(one for _, _, one in pods.scan_index("node")),
        pods.get("prod/web-0"),
        pods.get("web-0", namespace="prod"),
    ]

    assert len(results) == 8
    assert all(type(one) is Model and one == pod for one in results)
    assert pods.get("prod/none", 5) == 5
    assert len(pods) == 1
    assert "prod/web-0" in pods
    assert pods.synced is False
    assert "as kubernetes 37" in repr(pods)
    assert copy.copy(pods)["prod/web-0"] == pod
    with pytest.raises(KeyError):
        pods["prod/none"]


def test_attach_and_snapshots_give_models_where_asked(writer: shmcache.Writer, name: str) -> None:
    writer.apply("pods", [POD])
    with shmcache.attach(name, models="lightkube") as cache:
        assert cache["pods"]["prod/web-0"].spec.nodeName == "node-7"
        assert cache.snapshot()["pods"]["prod/web-0"].spec.nodeName == "node-7"
        views: Any = cache["po"]
        assert views.views["prod/web-0"]["spec"]["nodeName"] == "node-7"
    with pytest.raises(ValueError, match="no models of 'nope'"):
        shmcache.attach(name, models="nope")


def test_handlers_and_events_are_given_models(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    import threading

    pods = cache["pods"].models()
    seen: list[Any] = []
    done = threading.Event()

    def changed(*args: Any) -> None:
        seen.append([one.metadata.name if type(one) is Model else one for one in args])
        if len(seen) == 3:
            done.set()

    pods.add_handler(changed, changed, changed)
    cache.start()
    writer.apply("pods", [POD])
    writer.apply("pods", [POD | {"status": {"phase": "Failed"}}])
    writer.delete("pods", "prod/web-0")

    assert done.wait(30)
    assert seen[0][0] == seen[1][0] == seen[1][1] == seen[2][0] == "web-0"

    async def first() -> Any:
        async for event in pods.events():
            return event
        return None

    writer.apply("pods", [POD])
    event = asyncio.run(asyncio.wait_for(first(), 30))
    assert event.object.spec.node_name == "node-7"


def test_a_tombstone_has_attributes_too(pods: Any) -> None:
    found = pods._makes.wrap(shmcache.Tombstone("prod/web-0", "u", "5"))

    assert found.metadata.name == "web-0"
    assert found.metadata.resource_version == "5"
    assert found.spec is None


# ---- custom resources ----------------------------------------------------------------------------


def test_custom_resources_have_attributes_in_both_spellings(widget: Any) -> None:
    found = model(widget)

    assert found.spec.node_name == found.spec.nodeName == "n"
    assert found.spec.parts[0].part_id == "p"
    assert found.spec.from_ == "x"
    assert found.spec["a-b"].c == found.spec.a_b.c == 1
    assert found.spec.absent is None
    assert found.status is None
    assert found.metadata.creation_timestamp == dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    assert repr(found) == "<Widget prod/w>"
    assert not any(hasattr(found.spec, name) for name in ("keys", "items", "append", "__len__"))
    assert found == model(widget)
    assert "node_name" in dir(found.spec)


def test_a_copy_of_a_custom_resource_can_be_changed(widget: Any) -> None:
    found = model(widget)
    for made in (copy.deepcopy(found), pickle.loads(pickle.dumps(found)), found.to_model()):
        assert type(made) is Detached
        assert made == found
        made.spec.node_name = "other"
        made.spec.new_member = [made.metadata]
        assert made.to_dict()["spec"]["nodeName"] == "other"
        assert made.to_dict()["spec"]["newMember"][0]["name"] == "w"
    assert widget.spec.nodeName == "n"


@dataclasses.dataclass
class PartData:
    partID: str


@dataclasses.dataclass
class SpecData:
    node_name: str
    size: int = 1
    parts: list[PartData] = dataclasses.field(default_factory=list)
    missing: str = "default"


@dataclasses.dataclass
class WidgetData:
    spec: SpecData
    status: SpecData | None = None

    @property
    def big(self) -> bool:
        return self.spec.size > 2

    def twice(self) -> int:
        return self.spec.size * 2


@attrs.define
class SpecAttrs:
    node_name: str
    size: str = attrs.field(converter=str)


@attrs.define
class WidgetAttrs:
    spec: SpecAttrs


class SpecStruct(msgspec.Struct):
    node_name: str
    size: int


class WidgetStruct(msgspec.Struct):
    spec: SpecStruct


class SpecModel(pydantic.BaseModel):
    node: str = pydantic.Field(alias="nodeName")
    size: int


class WidgetModel(pydantic.BaseModel):
    spec: SpecModel


class ValidatedSpec(pydantic.BaseModel):
    node: str = pydantic.Field(validation_alias="nodeName")
    size: int


class ValidatedWidget(pydantic.BaseModel):
    spec: ValidatedSpec


@pytest.mark.parametrize(
    "of", [WidgetData, WidgetAttrs, WidgetStruct, WidgetModel, ValidatedWidget]
)
def test_a_users_class_is_read_lazily_or_made_at_once(of: Any, widget: Any) -> None:
    lazy, made = model(widget, of), model(widget, of, validate="at once")

    assert type(lazy) is Model
    assert type(made) is of
    assert getattr(lazy.spec, "node_name", None) == "n" or lazy.spec.node == "n"
    assert str(lazy.spec.size) == str(made.spec.size) == "3"
    assert type(lazy.spec.size) is type(made.spec.size)
    assert lazy == made
    assert lazy.to_model() == copy.deepcopy(lazy) == pickle.loads(pickle.dumps(lazy)) == made
    assert repr(lazy) == f"<{of.__name__} prod/w>"


def test_defaults_methods_and_properties_of_a_users_class_work_on_views(widget: Any) -> None:
    found = model(widget, WidgetData)

    assert found.big
    assert found.twice() == 6
    assert found.spec.missing == "default"
    assert found.status is None
    assert found.spec.parts[0].partID == "p"
    with pytest.raises(AttributeError, match="WidgetData has no attribute 'nope'"):
        found.nope


def test_parts_that_may_be_missing_are_of_their_class(roundtrip: Any) -> None:
    status = {"nodeName": "n", "size": 4, "parts": [{"partID": "q"}]}
    view = roundtrip(WIDGET | {"status": status})
    lazy: Any = model(view, WidgetData)
    made: Any = model(view, WidgetData, validate="at once")

    assert [True, False] == [isinstance(one.status, Model) for one in (lazy, made)]
    assert made.status == SpecData("n", 4, [PartData("q")])
    assert lazy.status == made.status
    assert ("default", "q") == (lazy.status.missing, lazy.status.parts[0].partID)


def test_a_users_class_refuses_values_when_they_are_read_or_at_once(roundtrip: Any) -> None:
    view = roundtrip(WIDGET | {"spec": {"size": "many"}})
    for of in (WidgetStruct, WidgetModel):
        lazy = model(view, of)
        with pytest.raises(ValueError, match="size|int"):
            lazy.spec.size
        with pytest.raises(ValueError, match="is required: the object has no nodeName"):
            lazy.spec.node_name if of is WidgetStruct else lazy.spec.node
        with pytest.raises(ValueError, match="size|node"):
            model(view, of, validate="at once")
    with pytest.raises(ValueError, match="'lazily' or 'at once'"):
        model(view, WidgetData, validate="never")
    with pytest.raises(TypeError, match="cannot be the class of models"):
        model(view, int)


# ---- the extension's own checks ------------------------------------------------------------------


def test_kinds_fields_and_classes_refuse_what_would_confuse_a_read() -> None:
    raw = _hot.ModelKind("raw")
    for how, of in (
        ("list", None),
        ("list", 5),
        ("model", raw),
        ("time", (1,)),
        ("call", 5),
        ("x", None),
    ):
        with pytest.raises(TypeError, match="no kind"):
            _hot.ModelKind(how, of)
    with pytest.raises(TypeError, match="must be ModelFields"):
        _hot.ModelClass("X", None, {"a": 5})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="made of a View"):
        _hot.ModelClass("X", None, {}).wrap({})  # type: ignore[arg-type]


def test_a_dialect_that_gives_no_kind_is_refused(widget: Any) -> None:
    class Wrong:
        def kind(self, _: Any) -> Any:
            return 5

    fields = {"spec": _hot.ModelField("spec", "?")}
    with pytest.raises(TypeError, match="must give a ModelKind, not 5"):
        _hot.ModelClass("X", Wrong(), fields).wrap(widget).spec
