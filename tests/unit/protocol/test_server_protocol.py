"""The server's half of the protocol: parameters, tokens, chunks, times, paths, patches."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from shmcache.protocol import framing, paths, tokens, validation, watching
from shmcache.protocol.failures import Failure
from shmcache.protocol.options import ListOptions
from shmcache.protocol.tables import printing
from shmcache.testing.apiserver.merging import json_merge, json_patch, strategic_merge

Json = dict[str, Any]

NEEDS_MATCH = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
NEEDS_INITIAL = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
NEEDS_VERSION = "resourceVersionMatch is forbidden unless resourceVersion is provided"
NEEDS_GATE = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
NO_CONTINUE = "resourceVersionMatch is forbidden when continue is provided"


def options(**words: str) -> Json:
    names = {"match": "resourceVersionMatch", "initial": "sendInitialEvents"}
    names["version"] = "resourceVersion"
    return {names.get(key.rstrip("_"), key.rstrip("_")): value for key, value in words.items()}


REFUSED: list[tuple[Json, list[str]]] = [
    (options(watch="1", match="NotOlderThan"), [NEEDS_INITIAL]),
    (options(watch="1", initial="true"), [NEEDS_MATCH]),
    (options(watch="1", initial="false"), [NEEDS_MATCH]),
    (
        options(watch="1", initial="true", match="Exact"),
        [NEEDS_MATCH, 'value: "Exact": supported values: "NotOlderThan"'],
    ),
    (
        options(watch="1", initial="true", match="NotOlderThan", continue_="x"),
        [NO_CONTINUE],
    ),
    (options(match="Exact"), [NEEDS_VERSION]),
    (options(match="NotOlderThan", version="1", continue_="x"), [NO_CONTINUE]),
    (options(match="Exact", version="0"), ['is forbidden for resourceVersion "0"']),
    (options(match="x", version="1"), ['supported values: "Exact", "NotOlderThan", ""']),
    (options(initial="true"), ["sendInitialEvents is forbidden for list"]),
]
ACCEPTED: list[Json] = [
    {},
    options(watch="1"),
    options(watch="1", version="0"),
    options(watch="1", initial="true", match="NotOlderThan"),
    options(watch="1", initial="false", match="NotOlderThan", version="7"),
    options(version="7", match="Exact"),
    options(version="0", match="NotOlderThan"),
    options(version="7", limit="5"),
    options(continue_="x", limit="5"),
    options(continue_="x", version="0"),
]


@pytest.mark.parametrize(("query", "texts"), REFUSED)
def test_options_that_are_refused_name_each_cause(query: Json, texts: list[str]) -> None:
    with pytest.raises(Failure) as failed:
        validation.parse_options(query)

    causes = failed.value.status["details"]["causes"]
    assert failed.value.code == 422
    assert len(causes) == len(texts)
    for cause, text in zip(causes, texts, strict=True):
        assert cause["message"].endswith(text)
        assert f"{cause['field']}: {cause['message']}" in failed.value.status["message"]


@pytest.mark.parametrize("query", ACCEPTED)
def test_options_that_are_accepted(query: Json) -> None:
    asked = validation.parse_options(query)

    assert asked.watch == ("watch" in query)
    assert asked.resource_version == query.get("resourceVersion", "")


def test_without_watch_list_any_initial_events_option_is_refused() -> None:
    query = options(watch="1", initial="false", match="NotOlderThan")

    with pytest.raises(Failure, match=NEEDS_GATE):
        validation.parse_options(query, watch_list=False)


def test_options_survive_the_way_to_a_server_and_back() -> None:
    asked = ListOptions(watch=True, resource_version="7", allow_bookmarks=True, timeout_seconds=3)
    query = dict(pair.split("=") for pair in asked.query().split("&"))

    assert validation.parse_options(query) == asked


@pytest.mark.parametrize("version", ["-1", "1.5", "x", " 1", "٣", str(1 << 64)])
def test_invalid_version_is_a_bad_request(version: str) -> None:
    with pytest.raises(Failure, match="invalid resource version") as failed:
        validation.numeric(version)

    assert failed.value.code == 400


@pytest.mark.parametrize("key", ["a", "ns/a", "ünï", 'a"b', ""])
@pytest.mark.parametrize("version", [1, 1 << 62, tokens.LATEST])
def test_a_token_holds_the_position_to_continue(key: str, version: int) -> None:
    assert tokens.decode(tokens.encode(version, key)) == (version, f"{key}\0", "")


def written(version: str, start: str) -> str:
    """A token with these texts in it."""
    text = f'{{"v":"{tokens.FORMAT}","rv":{version},"start":{start}}}'
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        *("", "%", "abc", "ü", "e30", "W10", tokens.encode(0, "a"), tokens.encode(1, "../a")),
        *(
            written(version, '"/a"')
            for version in ("true", "1.0", "null", str(1 << 63), "9" * 5000)
        ),
        *(written("1", start) for start in (r'"/a\ud800"', r'"/../\udfff"', "1")),
        written("1", "[" * 10_000),
    ],
)
def test_invalid_token_is_a_bad_request(token: str) -> None:
    with pytest.raises(Failure, match="invalid continue token") as failed:
        tokens.decode(token)

    assert failed.value.code == 400


def test_refusal_of_a_token_can_be_encoded() -> None:
    with pytest.raises(Failure) as failed:
        tokens.decode(written("1", r'"/..\ud800"'))

    assert b"invalid start key: /..?" in framing.encode(failed.value.status)


def test_a_token_equals_that_of_the_real_server() -> None:
    theirs = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjQyLCJzdGFydCI6Ii9hXHUwMDAwIn0"

    assert tokens.encode(242, "a") == theirs


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([], []),
        ([10], [10]),
        ([2048], [2048]),
        ([2049], [2049]),
        ([5000], [5000]),
        ([100, 5000], [2048, 3052]),
        ([100, 2000], [2048, 52]),
        ([700, 700, 700], [2048, 52]),
        ([100, 2048 - 100, 1], [2048, 1]),
        ([3000, 10], [3000, 10]),
    ],
)
def test_small_writes_are_collected_and_large_ones_are_not(
    sizes: list[int], chunks: list[int]
) -> None:
    chunker = framing.Chunker()
    found = [chunk for size in sizes for chunk in chunker.write(b"x" * size)]
    found += chunker.flush()

    assert list(map(len, found)) == chunks


def test_strings_are_escaped_as_go_does() -> None:
    assert framing.encode({"a": "<&>\u2028é"}) == '{"a":"\\u003c\\u0026\\u003e\\u2028é"}'.encode()


def test_bookmarks_are_due_each_minute_and_shortly_before_the_end() -> None:
    assert watching.next_bookmark(0, 1000) == 60
    assert watching.next_bookmark(970, 1000) == 998
    assert watching.next_bookmark(998, 1000) == 1058
    assert watching.next_bookmark(0, 1000, 5) == 5


def test_a_watch_lives_as_long_as_asked_or_half_an_hour_to_an_hour() -> None:
    luck = random.Random(1)

    assert watching.lifetime(ListOptions(watch=True, timeout_seconds=7), luck) == 7
    for _ in range(100):
        assert 1800 <= watching.lifetime(ListOptions(watch=True), luck) < 3600
    luck.random = lambda: 0.0  # type: ignore[method-assign]
    assert watching.lifetime(ListOptions(watch=True), luck) == 1800


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (131, "2m11s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert printing.human(seconds) == text


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/pods", ("", "v1", "pods", "", "", "")),
        ("/api/v1/namespaces", ("", "v1", "namespaces", "", "", "")),
        ("/api/v1/namespaces/a", ("", "v1", "namespaces", "", "a", "")),
        ("/api/v1/namespaces/a/status", ("", "v1", "namespaces", "", "a", "status")),
        ("/api/v1/namespaces/a/pods/", ("", "v1", "pods", "a", "", "")),
        ("/api/v1/namespaces/a/pods/b/log", ("", "v1", "pods", "a", "b", "log")),
        ("/apis/apps/v1/deployments", ("apps", "v1", "deployments", "", "", "")),
        ("/apis/rbac/v1/roles/a%3Ab", ("rbac", "v1", "roles", "", "a:b", "")),
        ("/api/v1", None),
        ("/apis/apps/v1", None),
        ("/version", None),
        ("/api/v1/pods/a/b/c", None),
        ("/api/v1/namespaces//pods", None),
    ],
)
def test_a_path_leads_to_its_target(path: str, target: tuple[str, ...] | None) -> None:
    assert paths.parse(path) == target


MERGES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"a": "foo"}, {"b": {"c": None}}, {"a": "foo", "b": {}}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("obj", "patch", "merged"), MERGES)
def test_json_merge(obj: Json, patch: Json, merged: Json) -> None:
    assert json_merge(obj, patch) == merged


@pytest.mark.parametrize(
    ("operations", "patched"),
    [
        ([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "replace", "path": "/a", "value": 3}], {"a": 3}),
        ([{"op": "replace", "path": "/a/1", "value": 3}], {"a": [1, 3]}),
        ([{"op": "move", "from": "/a/0", "path": "/b"}], {"a": [2], "b": 1}),
        ([{"op": "copy", "from": "/a", "path": "/~1~0"}], {"a": [1, 2], "/~": [1, 2]}),
        ([{"op": "test", "path": "/a/0", "value": 1}], {"a": [1, 2]}),
    ],
)
def test_json_patch(operations: list[Json], patched: Json) -> None:
    assert json_patch({"a": [1, 2]}, operations) == patched


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/a/7", "value": 1},
        {"op": "other", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_a_json_patch_that_cannot_be_done_is_refused_whole(operation: Json) -> None:
    obj = {"a": [1]}

    with pytest.raises(Failure) as failed:
        json_patch(obj, [{"op": "add", "path": "/c", "value": 1}, operation])

    assert failed.value.code == 422
    assert obj == {"a": [1]}


STRATEGIC = [
    (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "a", "image": "2"}]},
        {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]},
    ),
    (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}]},
        {"containers": [{"name": "b"}]},
    ),
    (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c"}],
        },
        {"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]},
    ),
    ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
    (
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    ({"strategy": {"a": 1, "b": 2}}, {"strategy": {"$retainKeys": ["a"]}}, {"strategy": {"a": 1}}),
    ({"x": {"a": 1}}, {"x": {"$patch": "replace", "b": 2}}, {"x": {"b": 2}}),
    ({"x": 1, "y": 2}, {"x": None}, {"y": 2}),
    (
        {"ports": [{"containerPort": 80}]},
        {"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]},
        {"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]},
    ),
]


@pytest.mark.parametrize(("obj", "patch", "merged"), STRATEGIC)
def test_strategic_merge(obj: Json, patch: Json, merged: Json) -> None:
    assert strategic_merge(obj, patch) == merged


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000])
@pytest.mark.parametrize("name", ["limit", "timeoutSeconds", "resourceVersion"])
def test_a_number_that_does_not_fit_is_refused(name: str, text: str) -> None:
    if name == "resourceVersion" and len(text) < 100:
        text = "18446744073709551616"
    with pytest.raises(Failure, match="value out of range") as refused:
        validation.parse_options({name: text})
    assert refused.value.code == 400
    assert validation.parse_options({"limit": str((1 << 63) - 1)}).limit == (1 << 63) - 1


@pytest.mark.parametrize(
    "text", ["", "plain", "a<b>&c", "\u2028", "x\u2029\u2028y", "–…\u2027\u202a", "é<"]
)
def test_exactly_the_characters_that_go_escapes_are_escaped(text: str) -> None:
    found = framing.encode([text]).decode()
    assert found == '["' + "".join(
        f"\\u{ord(char):04x}" if char in "<>&\u2028\u2029" else char for char in text
    ) + '"]'  # fmt: skip
