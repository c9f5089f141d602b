"""Invariant tested: readers know a custom resource as its definition states it (DEF1, DEF2), and a
start asks for each thing once (FLIGHT1 to FLIGHT3)."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import shmcache
from shmcache import states
from shmcache.engine import engine as engine_module
from shmcache.engine.config.timing import Timing
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.protocol import failures
from shmcache.protocol.describing import builtins
from shmcache.protocol.tables import printing
from shmcache.reader import resolving
from shmcache.serve.server import Serving
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 60.0
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
READY = '.status.conditions[?(@.type=="Ready")].status'


def definition(plural: str = "widgets", group: str = "example.com", **version: Any) -> Any:
    kind = plural.removesuffix("s").capitalize()
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "shortNames": [plural[:2]],
                "categories": ["all"],
            },
            "versions": [{"name": "v1", "served": True, "storage": True, **version}],
        },
    }


COLUMNS = [
    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
    {"name": "Ready", "type": "string", "jsonPath": READY},
    {"name": "Deep", "type": "integer", "jsonPath": ".spec.deep", "priority": 1},
]
WIDGETS = definition(
    additionalPrinterColumns=COLUMNS, selectableFields=[{"jsonPath": ".spec.color"}]
)


def widget(name: str, color: str) -> Any:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"color": color, "deep": 3},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


@contextlib.contextmanager
def engine_of(
    server: ApiServer, name: str, plans: list[Plan], timing: Timing | None = None
) -> Iterator[None]:
    """A cache that an engine keeps as these plans say."""
    opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
    with shmcache.Writer(name, [plan.resource_at("", ()) for plan in plans]) as writer:
        engine = Engine(writer, plans, opener, pace=Pace(1000.0), timing=timing)
        engine.start()
        try:
            assert engine.ready.wait(DEADLINE)
            yield
        finally:
            assert engine.stop()


@contextlib.contextmanager
def cached(server: ApiServer, name: str, *resources: str) -> Iterator[shmcache.Cache]:
    """A cache that an engine keeps of these resources."""
    plans = [Plan(name=one) for one in resources]
    with engine_of(server, name, plans), shmcache.attach(name) as cache:
        eventually(lambda: all(described(cache, one) for one in resources))
        yield cache


def eventually(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def described(cache: shmcache.Cache, name: str) -> Any:
    return (cache[name].record()["settings"] or {}).get("plural")


def titles(cache: shmcache.Cache, name: str) -> list[str]:
    return [one.name for one in printing.columns(resolving.kinds(cache)[name])]


def ask(serve: ServeThread, path: str, accept: str = "application/json") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", serve.port, timeout=DEADLINE)
    connection.request("GET", path, headers={"Accept": accept})
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    return response.status, found


def test_a_custom_resource_is_served_with_its_columns_and_selectable_fields(
    server: ApiServer, name: str
) -> None:
    server.create("customresourcedefinitions", WIDGETS)
    for each, color in (("a", "red"), ("b", "blue")):
        server.create("widgets.example.com", widget(each, color))
    path = "/apis/example.com/v1/namespaces/default/widgets"

    with (
        cached(server, name, "widgets.example.com") as cache,
        ServeThread(cache, Serving(fresh_seconds=0.01)) as serve,
    ):
        _, table = ask(serve, path, TABLE)
        selected = ask(serve, path + "?fieldSelector=spec.color%3Dblue")
        refused = ask(serve, path + "?fieldSelector=spec.deep%3D3")
        assert resolving.find(cache, "wi") == ("widgets.example.com",)
        assert resolving.find(cache, "all") == ("widgets.example.com",)
        assert len(cache["widget"]) == 2

    assert [(one["name"], one["priority"]) for one in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Color", 0),
        ("Ready", 0),
        ("Deep", 1),
    ]
    assert [row["cells"] for row in table["rows"]] == [
        ["a", "red", "True", 3],
        ["b", "blue", "True", 3],
    ]
    assert [one["metadata"]["name"] for one in selected[1]["items"]] == ["b"]
    assert (refused[0], refused[1]["message"]) == (400, "field label not supported: spec.deep")


def test_a_namespace_whose_first_list_was_not_found_is_not_shown_empty(
    server: ApiServer, name: str
) -> None:
    """As where one member of a control plane does not have a new definition yet."""
    server.create("customresourcedefinitions", WIDGETS)
    for namespace in ("one", "two"):
        obj = widget("a", "red")
        obj["metadata"]["namespace"] = namespace
        server.create("widgets.example.com", obj)
    for verb, times in (("watch", 2), ("list", 1)):  # a list follows a watch that is refused
        server.faults.refuse(failures.no_resource(), verb, "widgets.example.com", times=times)
    plan = Plan(name="widgets.example.com", namespaces=("one", "two"))
    patient = Timing(backoff_initial=3600.0, backoff_cap=3600.0)
    base = "/apis/example.com/v1/namespaces"

    with (
        engine_of(server, name, [plan], patient),
        shmcache.attach(name) as cache,
        ServeThread(cache) as serve,
    ):
        eventually(lambda: len(cache["widgets.example.com"]) == 1)
        record = cache["widgets.example.com"].record()
        paths = [f"{base}/{one}/widgets{rest}" for one in ("one", "two") for rest in ("", "/a")]
        answers = [ask(serve, path)[0] for path in paths]

    assert record["state"] == states.ABSENT
    assert answers == [429] * 4


def test_the_columns_are_those_of_the_version_that_is_cached(server: ApiServer, name: str) -> None:
    found = definition()
    found["spec"]["versions"] = [
        {"name": "v1", "served": True, "storage": False, "additionalPrinterColumns": COLUMNS[:1]},
        {"name": "v2", "served": True, "storage": True, "additionalPrinterColumns": COLUMNS[1:2]},
    ]
    server.create("customresourcedefinitions", found)

    with cached(server, name, "widgets.example.com/v1", "widgets.example.com/v2") as cache:
        assert titles(cache, "widgets.example.com/v1") == ["Name", "Color"]
        assert titles(cache, "widgets.example.com/v2") == ["Name", "Ready"]


def test_a_definition_that_changes_is_read_again_when_its_watch_begins_again(
    server: ApiServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "DESCRIBE_SECONDS", 0.0)
    server.create("customresourcedefinitions", WIDGETS)

    with cached(server, name, "widgets.example.com") as cache:
        assert titles(cache, "widgets.example.com") == ["Name", "Color", "Ready", "Deep"]
        changed = server.get("customresourcedefinitions", "widgets.example.com")
        changed["spec"]["versions"][0]["additionalPrinterColumns"] = COLUMNS[:1]
        server.update("customresourcedefinitions", changed)
        server.end_watches()

        eventually(lambda: titles(cache, "widgets.example.com") == ["Name", "Color"])


def test_a_definition_that_may_not_be_read_costs_its_columns_and_nothing_else(
    server: ApiServer, name: str
) -> None:
    server.create("customresourcedefinitions", WIDGETS)
    server.create("widgets.example.com", widget("a", "red"))
    server.access.deny("*", "get", "customresourcedefinitions.apiextensions.k8s.io")

    with cached(server, name, "widgets.example.com") as cache:
        assert titles(cache, "widgets.example.com") == ["Name", "Age"]
        assert resolving.find(cache, "wi") == ("widgets.example.com",)
        assert list(cache["widgets.example.com"]) == ["default/a"]


@pytest.mark.parametrize("aggregated", [True, False])
def test_a_start_of_sixty_resources_makes_no_request_twice(aggregated: bool, name: str) -> None:
    with ApiServer(seed=1, aggregated_discovery=aggregated) as server:
        _start_sixty(server, name)


def _start_sixty(server: ApiServer, name: str) -> None:
    for number in range(24):
        plural, group = f"{chr(97 + number)}things", f"group{number % 6}.example.com"
        server.create("customresourcedefinitions", definition(plural, group))
    kinds = [*builtins().values()]
    names = [kind.key for kind in kinds if kind.resource != "secrets"][:36]
    names += [f"{chr(97 + n)}things.group{n % 6}.example.com" for n in range(24)]
    groups = {one.partition(".")[2] for one in names}

    with cached(server, name, *names):
        asked = Counter((one.path, one.query.get("watch", "")) for one in server.log)

    definitions = [path for path, _ in asked if "/customresourcedefinitions/" in path]
    assert len(names) == 60
    assert not {one: count for one, count in asked.items() if count > 1}
    assert len(definitions) == 24
    assert asked.total() <= len(groups) + len(names) + 5 + len(definitions)
