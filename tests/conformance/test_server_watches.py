"""Watches of a server, case by case as the API server's own storage tests have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from asking import Stream, ask

from shmcache.testing import ApiServer

Json = dict[str, Any]
Seen = tuple[str, str]

ALL = "/api/v1/pods"


def pod(name: str, namespace: str = "ns-1", node: str = "", **labels: str) -> Json:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1, fresh_seconds=0.01) as started:
        yield started


def end_of(stream: Stream, server: ApiServer) -> list[Seen]:
    """Everything that a watch still has to show."""
    server.end_watches()
    found = []
    while (seen := stream.next_event()) is not None:
        found.append(seen)
    return found


# ---- selectors -----------------------------------------------------------------------------------

TRANSITIONS: dict[str, tuple[list[Json | None], list[str]]] = {
    "comes within": ([pod("p", a="yes")], ["ADDED"]),
    "comes outside": ([pod("p", a="no")], []),
    "comes outside, goes within": ([pod("p", a="no"), pod("p", a="yes")], ["ADDED"]),
    "stays within": ([pod("p", a="yes"), pod("p", a="yes", b="1")], ["ADDED", "MODIFIED"]),
    "leaves": ([pod("p", a="yes"), pod("p", a="no")], ["ADDED", "DELETED"]),
    "leaves and comes back": (
        [pod("p", a="yes"), pod("p", a="no"), pod("p", a="yes")],
        ["ADDED", "DELETED", "ADDED"],
    ),
    "stays outside": ([pod("p", a="no"), pod("p", a="never")], []),
    "is deleted within": ([pod("p", a="yes"), None], ["ADDED", "DELETED"]),
    "is deleted outside": ([pod("p", a="yes"), pod("p", a="no"), None], ["ADDED", "DELETED"]),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_an_object_and_a_selector(server: ApiServer, name: str) -> None:
    states, expected = TRANSITIONS[name]
    path = f"{ALL}?watch=1&resourceVersion={server.version}&labelSelector=a%3Dyes"
    with Stream(server, path) as stream:
        server.wait_for_watches()
        for number, state in enumerate(states):
            if state is None:
                server.delete("pods", "p", "ns-1")
            else:
                (server.update if number else server.create)("pods", state)
        seen = end_of(stream, server)

    assert seen == [(kind, "p") for kind in expected]


def test_leaving_a_selector_shows_the_old_state_under_the_new_version(server: ApiServer) -> None:
    server.create("pods", pod("p", a="yes"))
    with Stream(server, f"{ALL}?watch=1&labelSelector=a%3Dyes") as stream:
        stream.next()
        changed = server.update("pods", pod("p", a="no"))
        event = stream.next()

    assert event is not None
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"a": "yes"}
    version = event["object"]["metadata"]["resourceVersion"]
    assert version == changed["metadata"]["resourceVersion"]


def test_a_deletion_carries_the_last_state_under_its_own_version(server: ApiServer) -> None:
    made = server.create("pods", pod("p"))
    with Stream(server, f"{ALL}?watch=1&resourceVersion={server.version}") as stream:
        server.delete("pods", "p", "ns-1")
        event = stream.next()

    assert event is not None
    found = event["object"]["metadata"]
    assert found["resourceVersion"] == server.version
    assert int(found["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert found["uid"] == made["metadata"]["uid"]


Scope = tuple[str, str, str, list[str]]
"""The requested namespace, name and node, and the objects within."""

SCOPES: list[Scope] = [
    ("", "", "", ["ns-1/a", "ns-1/b", "ns-2/a", "ns-2/b"]),
    ("", "", "n-1", ["ns-1/a", "ns-2/a"]),
    ("", "a", "", ["ns-1/a", "ns-2/a"]),
    ("", "a", "n-1", ["ns-1/a", "ns-2/a"]),
    ("", "a", "n-2", []),
    ("ns-1", "", "", ["ns-1/a", "ns-1/b"]),
    ("ns-1", "", "n-2", ["ns-1/b"]),
    ("ns-1", "b", "", ["ns-1/b"]),
    ("ns-1", "b", "n-2", ["ns-1/b"]),
    ("ns-1", "b", "n-1", []),
    ("ns-3", "", "", []),
    ("ns", "", "", []),
]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
@pytest.mark.parametrize("live", [False, True], ids=["there", "to come"])
def test_a_scope(server: ApiServer, scope: Scope, live: bool) -> None:
    namespace, name, node, expected = scope
    terms = [f"metadata.name={name}"] * bool(name) + [f"spec.nodeName={node}"] * bool(node)
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else ALL
    query = f"watch=1&resourceVersion={server.version}&fieldSelector={','.join(terms)}"
    if not live:
        make_four(server)
    with Stream(server, f"{path}?{query}") as stream:
        server.wait_for_watches()
        if live:
            make_four(server)
        server.end_watches()
        found = []
        while (event := stream.next()) is not None:
            metadata = event["object"]["metadata"]
            found.append(f"{metadata['namespace']}/{metadata['name']}")

    assert found == expected


def make_four(server: ApiServer) -> None:
    for namespace in ("ns-1", "ns-2"):
        server.create("pods", pod("a", namespace, "n-1"))
        server.create("pods", pod("b", namespace, "n-2"))


# ---- how a watch begins --------------------------------------------------------------------------


class Row(NamedTuple):
    """One row of the table: the request, and the events of two pods and a later third."""

    bookmarks: bool
    initial: bool | None
    version: str
    """A resourceVersion, or "now": that of the two pods."""
    expected: str
    """s: both pods, as they are or as they came; e: the end bookmark; then always the third."""


SEMANTICS = [
    Row(True, True, "", "se"),
    Row(True, False, "", ""),
    Row(False, False, "", ""),
    Row(False, True, "", "s"),
    Row(True, True, "0", "se"),
    Row(True, False, "0", ""),
    Row(False, False, "0", ""),
    Row(False, True, "0", "s"),
    Row(True, True, "1", "se"),
    Row(True, False, "1", "s"),
    Row(False, False, "1", "s"),
    Row(False, True, "1", "s"),
    Row(True, True, "now", "se"),
    Row(True, False, "now", ""),
    Row(False, False, "now", ""),
    Row(False, True, "now", "s"),
    Row(False, None, "0", "s"),
    Row(False, None, "", "s"),
    Row(True, None, "0", "se"),
    Row(True, None, "", "se"),
]


@pytest.mark.parametrize("row", SEMANTICS, ids=str)
def test_how_a_watch_begins(server: ApiServer, row: Row) -> None:
    server.create("pods", pod("a"))
    server.create("pods", pod("b"))
    query = f"watch=1&allowWatchBookmarks={row.bookmarks}"
    query += f"&resourceVersion={server.version if row.version == 'now' else row.version}"
    if row.initial is not None:
        query += f"&sendInitialEvents={row.initial}&resourceVersionMatch=NotOlderThan"
    with Stream(server, f"{ALL}?{query}") as stream:
        server.wait_for_watches()
        server.create("pods", pod("c"))
        seen = end_of(stream, server)

    first = {"s": [("ADDED", "a"), ("ADDED", "b")], "e": [("BOOKMARK", "end")]}
    assert seen == [*(event for part in row.expected for event in first[part]), ("ADDED", "c")]


@pytest.mark.parametrize("version", ["", "0"])
def test_without_watch_list_an_old_watch_has_no_end_bookmark(version: str) -> None:
    with ApiServer(watch_list=False) as server:
        server.create("pods", pod("a"))
        path = f"{ALL}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        with Stream(server, path) as stream:
            server.wait_for_watches()
            assert end_of(stream, server) == [("ADDED", "a")]


def test_the_end_bookmark_carries_the_version_of_the_whole_server(server: ApiServer) -> None:
    server.create("pods", pod("a"))
    server.create("configmaps", {"metadata": {"name": "later", "namespace": "ns-1"}})
    path = f"{ALL}?watch=1&allowWatchBookmarks=true"
    with Stream(server, path) as stream:
        events = [stream.next(), stream.next()]

    assert events[1] is not None
    assert events[1]["object"]["metadata"]["resourceVersion"] == server.version


def test_a_watch_list_of_one_name(server: ApiServer) -> None:
    make_four(server)
    path = f"/api/v1/namespaces/ns-1/pods?watch=1&allowWatchBookmarks=true&{WATCH_LIST}"
    with Stream(server, f"{path}&fieldSelector=metadata.name%3Da") as stream:
        assert stream.next_events(2) == [("ADDED", "a"), ("BOOKMARK", "end")]
        server.update("pods", pod("b", x="1"))
        server.update("pods", pod("a", x="1"))
        assert stream.next_event() == ("MODIFIED", "a")


WATCH_LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


def test_a_watch_of_the_server_from_a_version_shows_only_later_changes(server: ApiServer) -> None:
    first = server.create("pods", pod("a"))
    server.update("pods", pod("a", x="1"))
    server.delete("pods", "a", "ns-1")
    version = first["metadata"]["resourceVersion"]
    with Stream(server, f"{ALL}?watch=1&resourceVersion={version}") as stream:
        server.wait_for_watches()
        assert end_of(stream, server) == [("MODIFIED", "a"), ("DELETED", "a")]


def test_a_watch_of_the_server_from_the_future_waits_for_later_changes(server: ApiServer) -> None:
    future = int(server.version) + 3  # the namespace comes first
    with Stream(server, f"{ALL}?watch=1&resourceVersion={future}") as stream:
        server.wait_for_watches()
        for name in "abcd":
            server.create("pods", pod(name))
        assert end_of(stream, server) == [("ADDED", "c"), ("ADDED", "d")]


@pytest.mark.parametrize(("offset", "status"), [(-1, 410), (0, None), (1, None)])
def test_the_window_begins_right_after_the_compacted_version(
    server: ApiServer, offset: int, status: int | None
) -> None:
    server.create("pods", pod("a"))
    version = int(server.compact())
    server.create("pods", pod("b"))
    server.create("pods", pod("c"))
    with Stream(server, f"{ALL}?watch=1&resourceVersion={version + offset}") as stream:
        event = stream.next()

    assert event is not None
    assert event["object"].get("code") == status
    assert event["type"] == ("ERROR" if status else "ADDED")


def test_nothing_follows_an_error(server: ApiServer) -> None:
    server.create("pods", pod("a"))
    server.compact()
    answer = ask(server, f"{ALL}?watch=1&resourceVersion=1")

    assert [event["type"] for event in answer.events] == ["ERROR"]
    assert not answer.cut


# ---- bookmarks -----------------------------------------------------------------------------------


def test_bookmarks_never_go_back_and_never_cover_undelivered_changes(server: ApiServer) -> None:
    path = f"{ALL}?watch=1&allowWatchBookmarks=true&resourceVersion={server.version}"
    seen = int(server.version)
    with Stream(server, path) as stream:
        server.wait_for_watches()
        for number in range(20):
            server.create("pods", pod(f"p-{number}"))
            server.create("configmaps", {"metadata": {"name": f"c-{number}", "namespace": "ns-1"}})
            server.send_bookmarks()
        shown: list[str] = []
        while len(shown) < 20:
            event = stream.next()
            assert event is not None
            version = int(event["object"]["metadata"]["resourceVersion"])
            if event["type"] == "BOOKMARK":
                assert version >= seen
            else:
                assert version > seen
                shown.append(event["object"]["metadata"]["name"])
            seen = version

    assert shown == [f"p-{number}" for number in range(20)]


def test_bookmarks_come_unprompted_if_the_client_allows_them() -> None:
    with ApiServer(bookmark_seconds=0.001) as server:
        path = f"{ALL}?watch=1&resourceVersion={server.version}"
        with Stream(server, f"{path}&allowWatchBookmarks=true") as asked:
            assert asked.next_events(3) == [("BOOKMARK", "")] * 3
        with Stream(server, path) as silent:
            server.wait_for_watches(1)
            server.create("pods", pod("a"))
            assert silent.next_event() == ("ADDED", "a")


@pytest.mark.parametrize(
    ("resource", "cached"), [("events", True), ("events", False), ("pods", False)]
)
def test_a_watch_that_no_watch_cache_serves_gets_no_bookmarks(
    resource: str, *, cached: bool
) -> None:
    """As recorded of 1.36 (g-nocache-watch-bookmarks); the end of a watch-list is marked still."""
    path = f"/api/v1/{resource}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
    initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    with ApiServer(bookmark_seconds=0.001, watch_cache=cached) as server:
        quiet = ask(server, f"{path}&resourceVersion={server.version}")
        listed = ask(server, path + initial)

    assert (quiet.status, quiet.body) == (200, b"")
    assert listed.body.count(b"BOOKMARK") == listed.body.count(b"initial-events-end") == 1


def test_a_watch_ends_cleanly_at_its_timeout(server: ApiServer) -> None:
    answer = ask(server, f"{ALL}?watch=1&resourceVersion={server.version}&timeoutSeconds=1")

    assert (answer.status, answer.body, answer.cut) == (200, b"", False)


# ---- several clients -----------------------------------------------------------------------------


def test_a_client_that_does_not_read_delays_no_others(server: ApiServer) -> None:
    path = f"{ALL}?watch=1&resourceVersion={server.version}"
    with Stream(server, path) as reader, Stream(server, path):
        server.wait_for_watches(2)
        for number in range(200):
            server.create("pods", pod(f"p-{number:03}", note="x" * 50_000))

        assert reader.next_events(200) == [("ADDED", f"p-{number:03}") for number in range(200)]


def test_a_client_that_reads_late_gets_everything_in_order(server: ApiServer) -> None:
    with Stream(server, f"{ALL}?watch=1&resourceVersion={server.version}") as stream:
        for number in range(200):
            server.create("pods", pod(f"p-{number:03}", note="x" * 50_000))

        assert stream.next_events(200) == [("ADDED", f"p-{number:03}") for number in range(200)]


def test_a_watch_ends_when_its_client_goes(server: ApiServer) -> None:
    with Stream(server, f"{ALL}?watch=1&resourceVersion=1"):
        server.wait_for_watches(1)

    server.wait_for_watches(0)


def test_a_resource_that_is_defined_again_has_no_past(server: ApiServer) -> None:
    names = {"plural": "widgets", "kind": "Widget"}
    versions = [{"name": "v1", "served": True, "storage": True}]
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": versions}
    crd = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
    path = "/apis/example.com/v1/widgets?watch=1&resourceVersion="
    server.create("crd", crd)
    server.create("widgets", {"metadata": {"name": "old"}})
    before = server.version
    server.delete("crd", "widgets.example.com")
    server.create("crd", crd)
    server.create("widgets", {"metadata": {"name": "new"}})

    (event,) = ask(server, path + before).events

    assert event["object"]["code"] == 410
