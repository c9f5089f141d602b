"""Invariant tested: tables have the columns and cells of a server of 1.36, of every built-in
resource (columns.txt lists the columns that the server's printers declare)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from table_cases import CASES, ENDED, NOW, ago, condition

from shmcache.protocol.builtins import builtin, optional
from shmcache.protocol.describing import builtins
from shmcache.protocol.tables import ages, printing
from shmcache.protocol.tables.ages import human
from shmcache.protocol.tables.columns import Column
from shmcache.protocol.zeros import ZEROS

ROOM = os.path.dirname(__file__)
Object = dict[str, Any]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "now", NOW.timestamp)


def declared() -> dict[str, str]:
    with open(os.path.join(ROOM, "columns.txt"), encoding="utf-8") as file:
        lines = [line.strip().partition(" = ") for line in file if not line.startswith("#")]
    return {key: columns for key, _, columns in lines}


def written(column: Column) -> str:
    kind = "" if column.type == "string" else f":{column.type}"
    form = f"/{column.format}" if column.format else ""
    return column.name.replace(" ", "_") + kind + form + ("+" if column.priority else "")


DECLARED = declared()


@pytest.mark.parametrize("key", sorted(DECLARED))
def test_the_columns_are_those_that_the_server_declares(key: str) -> None:
    assert " ".join(map(written, printing.columns_of(key))) == DECLARED[key]


def test_every_built_in_resource_has_columns_and_every_table_its_resource() -> None:
    assert printing.printed() == builtins().keys()
    assert builtins().keys() == DECLARED.keys()
    assert builtins().keys() >= ZEROS.keys()


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and value:
        for each in value.values():
            yield from _leaves(each)
    else:
        yield value


@pytest.mark.parametrize("key", sorted(ZEROS))
def test_an_empty_object_has_the_zeros_of_go_and_nothing_else(key: str) -> None:
    assert all(leaf in ("", 0, None, {}) for leaf in _leaves(ZEROS[key]))


def test_a_resource_is_on_or_off_by_default_and_listed_once() -> None:
    keys = [kind.key for kind in (*builtin(), *optional())]

    assert sorted(set(keys)) == sorted(keys)
    assert all(kind.version in {"v1", "v2"} for kind in builtin())
    assert not any(kind.version in {"v1", "v2"} for kind in optional())


@pytest.mark.parametrize("key", sorted(DECLARED))
def test_an_object_with_nothing_in_it_has_a_row(key: str) -> None:
    shown = printing.columns_of(key)

    for obj in ({"metadata": {"name": "one"}}, {"metadata": {"name": "one"}} | ZEROS.get(key, {})):
        cells = shown.row(obj)
        assert len(cells) == len(shown)
        assert None not in cells


# ---- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "obj", "expected"), CASES)
def test_a_row_has_the_cells_of_the_server(key: str, obj: Object, expected: Object) -> None:
    shown = printing.columns_of(key)
    cells = shown.row({"metadata": {"name": "one"}} | obj)

    found = dict(zip([column.name for column in shown], cells, strict=True))
    assert {name: found[name] for name in expected} == expected
    assert [type(found[name]) for name in expected] == [type(cell) for cell in expected.values()]


def test_each_table_has_a_case() -> None:
    plain = {key for key, columns in DECLARED.items() if columns.count(" ") == 1}
    bindings = {key for key in DECLARED if "bindings.rbac" in key or "webhook" in key}

    assert DECLARED.keys() - {key for key, _, _ in CASES} - plain - bindings == {"pods"}


# ---- pods ----------------------------------------------------------------------------------------


def terminated(code: int = 0, **more: Any) -> Object:
    return {"terminated": {"exitCode": code, **more}}


def container(state: Object, *, ready: bool = False, **more: Any) -> Object:
    return {"name": "c", "state": state, "ready": ready, **more}


RUNNING: Object = {"running": {}}
COMPLETED = terminated(0, reason="Completed")
PODS: list[tuple[Object, Object, Object]] = [
    ({"containers": [{}, {}]}, {"phase": "Pending"}, {"Ready": "0/2", "Status": "Pending"}),
    ({}, {"phase": "Failed", "reason": "Evicted"}, {"Status": "Evicted"}),
    ({}, {"phase": "Pending", "reason": "Odd", "conditions": [
        condition("PodScheduled", "False", reason="SchedulingGated")]},
     {"Status": "SchedulingGated"}),
    ({"containers": [{}, {}]}, {"phase": "Running", "containerStatuses": [
        container(RUNNING, ready=True, restartCount=2), container(RUNNING, restartCount=1)]},
     {"Ready": "1/2", "Status": "Running", "Restarts": "3"}),
    ({}, {"containerStatuses": [
        container({"waiting": {"reason": "CrashLoopBackOff"}}), container(terminated(1))]},
     {"Status": "CrashLoopBackOff"}),
    ({}, {"containerStatuses": [container(terminated(1)), container(RUNNING, ready=True)]},
     {"Status": "ExitCode:1", "Ready": "1/0"}),
    ({}, {"containerStatuses": [container(terminated(137, signal=9))]}, {"Status": "Signal:9"}),
    ({}, {"containerStatuses": [container(COMPLETED), container(RUNNING, ready=True)],
          "conditions": [condition("Ready")]}, {"Status": "Running"}),
    ({}, {"containerStatuses": [container(COMPLETED), container(RUNNING, ready=True)],
          "conditions": [condition("Ready", "False")]}, {"Status": "NotReady"}),
    ({}, {"containerStatuses": [container(COMPLETED),
                                container(terminated(2, reason="Error")),
                                container(RUNNING, ready=True)]}, {"Status": "Error"}),
    ({}, {"containerStatuses": [container(COMPLETED), container(terminated(2, reason="OOM"))]},
     {"Status": "OOM"}),
    ({}, {"containerStatuses": [container(COMPLETED)]}, {"Status": "Completed"}),
    ({"initContainers": [{"name": "a"}, {"name": "b"}]},
     {"phase": "Pending", "initContainerStatuses": [
         {"name": "a", "state": terminated(0), "restartCount": 1},
         {"name": "b", "state": RUNNING, "restartCount": 2}]},
     {"Status": "Init:1/2", "Restarts": "3"}),
    ({"initContainers": [{"name": "a"}]},
     {"initContainerStatuses": [{"name": "a", "state": terminated(3)}]},
     {"Status": "Init:ExitCode:3"}),
    ({"initContainers": [{"name": "a"}]},
     {"initContainerStatuses": [{"name": "a", "state": terminated(3, reason="Error")}]},
     {"Status": "Init:Error"}),
    ({"initContainers": [{"name": "a"}]},
     {"initContainerStatuses": [
         {"name": "a", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
     {"Status": "Init:ImagePullBackOff"}),
    ({"initContainers": [{"name": "a"}]},
     {"initContainerStatuses": [
         {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}}]},
     {"Status": "Init:0/1"}),
    ({"containers": [{}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]},
     {"initContainerStatuses": [{"name": "s", "started": True, "ready": True, "state": RUNNING,
                                 "restartCount": 4}],
      "containerStatuses": [container(RUNNING, ready=True, restartCount=1)], "phase": "Running"},
     {"Ready": "2/2", "Restarts": "5", "Status": "Running"}),
    ({"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
     {"initContainerStatuses": [{"name": "s", "started": True, "state": RUNNING}],
      "containerStatuses": [container(RUNNING)], "phase": "Running"},
     {"Ready": "0/1", "Restarts": "0"}),
    ({"initContainers": [{"name": "a"}]},
     {"initContainerStatuses": [{"name": "a", "state": RUNNING, "restartCount": 9}],
      "containerStatuses": [container(RUNNING, ready=True)], "phase": "Running",
      "conditions": [condition("Initialized")]},
     {"Status": "Init:0/1", "Ready": "1/0", "Restarts": "0"}),
    ({}, {"phase": "Running", "containerStatuses": [
        container(RUNNING, restartCount=2, lastState=terminated(1, finishedAt=ago(hours=6))),
        container(RUNNING, restartCount=1, lastState=terminated(1, finishedAt=ago(hours=3)))]},
     {"Restarts": "3 (3h ago)"}),
    ({"nodeName": "n", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
     {"podIPs": [{"ip": "1"}, {"ip": "2"}], "podIP": "9", "nominatedNodeName": "m",
      "conditions": [condition("a"), condition("b", "False")]},
     {"IP": "1", "Node": "n", "Nominated Node": "m", "Readiness Gates": "1/2"}),
    ({}, {}, {"IP": "<none>", "Node": "<none>", "Nominated Node": "<none>",
              "Readiness Gates": "<none>", "Restarts": "0", "Age": "<unknown>", "Name": "one"}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "status", "expected"), PODS)
def test_the_cells_of_a_pod_are_those_of_the_server(
    spec: Object, status: Object, expected: Object
) -> None:
    shown = printing.columns_of("pods")
    cells = shown.row({"metadata": {"name": "one"}, "spec": spec, "status": status})

    found = dict(zip([column.name for column in shown], cells, strict=True))
    assert {name: found[name] for name in expected} == expected
    assert [column.cell({"metadata": {"name": "one"}, "spec": spec, "status": status})
            for column in shown] == cells  # fmt: skip


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Failed"}, "Failed"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_a_pod_that_is_being_deleted_terminates_unless_it_has_ended(
    status: Object, state: str
) -> None:
    shown = printing.columns_of("pods")

    assert shown.row(ENDED | {"status": status})[2] == state


# ---- custom resources ----------------------------------------------------------------------------

CUSTOM: Object = {
    "metadata": {"name": "one", "labels": {"app.kubernetes.io/name": "web"}},
    "spec": {
        "text": "t", "whole": 3, "large": 9007199254740993, "real": 2.5, "even": 4.0,
        "truth": True, "lie": False, "list": [1, "b"], "map": {"b": 1, "a": [True]}, "null": None,
        "since": "2026-11-19T11:00:00Z", "no-date": "soon",
    },
    "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "yes"}]},
}  # fmt: skip
READY = '.status.conditions[?(@.type=="Ready")].status'


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("string", ".spec.text", "t"),
        ("string", ".spec.whole", "3"),
        ("string", ".spec.real", "2.5"),
        ("string", ".spec.even", "4"),
        ("string", ".spec.truth", "true"),
        ("string", ".spec.list", '[1,"b"]'),
        ("string", ".spec.map", '{"a":[true],"b":1}'),
        ("string", ".spec.null", None),
        ("string", ".spec.none", None),
        ("string", ".spec.text.deeper", None),
        ("string", READY, "yes"),
        ("string", ".status.conditions[*].status", "no"),
        ("string", ".status.conditions[-1].type", "Ready"),
        ("string", ".spec.list[1]", "b"),
        ("string", r".metadata.labels.app\.kubernetes\.io/name", "web"),
        ("string", r".metadata.labels['app\.kubernetes\.io/name']", "web"),
        ("string", ".spec.no-date", "soon"),
        ("string", ".spec[", None),
        ("integer", ".spec.whole", 3),
        ("integer", ".spec.large", 9007199254740993),
        ("integer", ".spec.real", 2),
        ("integer", ".spec.text", None),
        ("integer", ".spec.truth", None),
        ("number", ".spec.real", 2.5),
        ("number", ".spec.whole", 3),
        ("number", ".spec.truth", None),
        ("number", ".spec.text", None),
        ("boolean", ".spec.truth", True),
        ("boolean", ".spec.lie", False),
        ("boolean", ".spec.whole", None),
        ("date", ".spec.since", "60m"),
        ("date", ".spec.no-date", "<invalid>"),
        ("date", ".spec.whole", None),
        ("date", ".spec.none", None),
        ("odd", ".spec.text", None),
    ],
)
def test_a_column_of_a_definition_shows_the_value_at_its_path(
    kind: str, path: str, cell: Any
) -> None:
    row = {"name": "X", "type": kind, "jsonPath": path}
    shown = printing.columns_of("things.example.com", [row])

    assert shown.row(CUSTOM) == ["one", cell]
    assert type(shown.row(CUSTOM)[1]) is type(cell)


def test_a_column_of_a_definition_has_its_description_format_and_priority() -> None:
    row = {"name": "X", "type": "string", "jsonPath": ".a", "priority": 2, "format": "byte"}
    plain, told = printing.columns_of("x.y", [row, {**row, "description": "Of x."}])[1:]

    assert plain.definition() == {
        "name": "X", "type": "string", "format": "byte", "priority": 2,
        "description": "Custom resource definition column (in JSONPath format): .a",
    }  # fmt: skip
    assert told.definition()["description"] == "Of x."


def test_a_definition_without_columns_shows_the_age() -> None:
    shown = printing.columns_of("things.example.com", [])
    obj = {"metadata": {"name": "one", "creationTimestamp": ago(days=3)}}

    assert [written(column) for column in shown] == ["Name/name", "Age:date"]
    assert shown.row(obj) == ["one", "3d"]


def test_metadata_alone_is_shown_by_name_and_age() -> None:
    shown = printing.columns(builtins()["pods"], bare=True)

    assert shown.row({"metadata": {"name": "one", "creationTimestamp": ago(days=3)}}) == [
        "one",
        "3d",
    ]


# ---- ages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"),
        (599, "9m59s"), (600, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"), (8 * 3600 - 1, "7h59m"), (8 * 3600, "8h"), (2 * 86400 - 1, "47h"),
        (2 * 86400, "2d"), (2 * 86400 + 3600, "2d1h"), (8 * 86400 - 1, "7d23h"), (8 * 86400, "8d"),
        (2 * 365 * 86400 - 1, "729d"), (2 * 365 * 86400, "2y"), (3 * 365 * 86400 - 1, "2y364d"),
        (8 * 365 * 86400 - 1, "7y364d"), (8 * 365 * 86400, "8y"), (9 * 365 * 86400 - 1, "8y"),
    ],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(seconds: int, text: str) -> None:
    assert human(seconds) == text


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z", "5s"),
        ("2026-11-19T11:59:00Z", None, "60s"),
        ("soon", "2026-01-01T00:00:05Z", "<unknown>"),
        ("2026-01-01T00:00:00Z", "later", "<unknown>"),
    ],
)
def test_a_duration_is_unknown_unless_both_ends_are_times(
    start: str, end: str | None, text: str
) -> None:
    assert ages.duration(start, end) == text


def test_times_are_kept_parsed_and_not_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "_MOST_KEPT", 3)
    monkeypatch.setattr(ages, "_parsed", {})
    times = [ago(hours=hours) for hours in range(1, 7)]

    for count, one in enumerate(times[:3], 1):
        ages.since(one)
        assert len(ages._parsed) == count
    for _ in range(2):
        assert [ages.since(one) for one in times] == ["60m", "120m", "3h", "4h", "5h", "6h"]
        assert len(ages._parsed) <= 3


@pytest.mark.parametrize("key", sorted(printing.printed()))
def test_an_object_that_is_not_as_its_kind_has_a_row_all_the_same(key: str) -> None:
    """PRINT1."""
    shown = printing.columns_of(key)
    metadata = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}
    for odd in (None, 5, True, "x", [], [5], [None], {"a": 5}, 1e308):
        for part in ("metadata", "spec", "status", "data", "rules", "subjects", "webhooks"):
            found = printing.cells(shown, {"metadata": metadata, part: odd})
            assert len(found) == len(shown)
            if part != "metadata":
                assert found[[one.name for one in shown].index("Name")] == "a"
