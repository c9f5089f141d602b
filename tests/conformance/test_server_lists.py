"""Lists of a server, case by case as the API server's own storage tests have them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asking import Answer, ask

from shmcache.testing import ApiServer

ALL = "/api/v1/pods"


def pod(name: str, namespace: str = "ns-1", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1, fresh_seconds=0.01) as started:
        yield started


def pages(server: ApiServer, query: str, most: int = 1000) -> list[Answer]:
    """A list to its end."""
    found = [ask(server, f"{ALL}?{query}")]
    while (token := found[-1].json["metadata"].get("continue")) and len(found) < most:
        found.append(ask(server, f"{ALL}?{query}&continue={token}"))
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_make_up_the_whole_list(server: ApiServer, limit: int) -> None:
    for name in ("a", "b", "a.b", "ab", "a-b"):
        server.create("pods", pod(name))

    found = pages(server, f"limit={limit}")

    assert [name for page in found for name in page.names] == ["a", "a-b", "a.b", "ab", "b"]
    assert len(found) == -(-5 // limit)
    left = [page.json["metadata"].get("remainingItemCount") for page in found]
    assert left == [*(5 - limit * n for n in range(1, len(found))), None]


def test_pages_of_a_selector_have_its_objects_and_no_remaining_count(
    server: ApiServer,
) -> None:
    for number in range(10):
        server.create("pods", pod(f"p-{number}", odd=str(number % 2)))

    found = pages(server, "limit=2&labelSelector=odd%3D1")

    assert [page.names for page in found] == [["p-1", "p-3"], ["p-5", "p-7"], ["p-9"]]
    assert all("remainingItemCount" not in page.json["metadata"] for page in found)


def test_a_rare_object_is_found_in_one_page(server: ApiServer) -> None:
    for number in range(500):
        server.create("pods", pod(f"p-{number:03}", rare=str(number == 499)))

    (found,) = pages(server, "limit=1&labelSelector=rare%3DTrue")

    assert found.names == ["p-499"]


def test_the_last_page_of_a_selector_can_be_empty(server: ApiServer) -> None:
    for name, mark in (("a", "x"), ("b", "y")):
        server.create("pods", pod(name, mark=mark))

    found = pages(server, "limit=1&labelSelector=mark%3Dx")

    assert [page.names for page in found] == [["a"], []]


def test_an_expired_page_comes_with_a_token_for_the_rest_as_it_is_now(server: ApiServer) -> None:
    for name in "abcd":
        server.create("pods", pod(name))
    first = ask(server, f"{ALL}?limit=2").json["metadata"]
    server.delete("pods", "c", "ns-1")
    server.create("pods", pod("cc"))
    server.compact()

    expired = ask(server, f"{ALL}?limit=2&continue={first['continue']}")
    token = expired.json["metadata"]["continue"]
    rest = ask(server, f"{ALL}?limit=2&continue={token}")

    assert (expired.status, expired.json["reason"]) == (410, "Expired")
    assert rest.names == ["cc", "d"]
    assert rest.json["metadata"]["resourceVersion"] == server.version


def test_a_namespace_is_not_another_with_the_same_beginning(server: ApiServer) -> None:
    for namespace in ("ns", "ns-1", "ns-10", "ns0"):
        server.create("pods", pod("p", namespace))

    found = ask(server, "/api/v1/namespaces/ns-1/pods").json["items"]

    assert [item["metadata"]["namespace"] for item in found] == ["ns-1"]


WHICH = {
    "resourceVersion=&limit=0": "now",
    "resourceVersion=0": "now",
    "resourceVersion=0&limit=1": "now",
    "resourceVersion=THEN": "now",
    "resourceVersion=THEN&limit=9": "then",
    "resourceVersion=THEN&resourceVersionMatch=NotOlderThan": "now",
    "resourceVersion=THEN&resourceVersionMatch=NotOlderThan&limit=9": "now",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan": "now",
    "resourceVersion=THEN&resourceVersionMatch=Exact": "then",
    "resourceVersion=THEN&resourceVersionMatch=Exact&limit=9": "then",
    "resourceVersion=999999": 504,
    "resourceVersion=999999&resourceVersionMatch=Exact": 504,
    "resourceVersion=0&resourceVersionMatch=Exact": 422,
    "resourceVersionMatch=Exact": 422,
    "resourceVersionMatch=NotOlderThan": 422,
    "resourceVersion=THEN&resourceVersionMatch=Other": 422,
    "resourceVersion=-1": 400,
    "limit=x": 400,
    "continue=x": 400,
    "labelSelector=%21%21": 400,
    "fieldSelector=spec.other%3D1": 400,
}


@pytest.mark.parametrize("query", WHICH)
def test_which_version_is_listed(server: ApiServer, query: str) -> None:
    server.create("pods", pod("a"))
    server.create("pods", pod("b"))
    then = server.version
    server.delete("pods", "a", "ns-1")
    server.create("pods", pod("c"))

    answer = ask(server, f"{ALL}?{query.replace('THEN', then)}")

    if isinstance(WHICH[query], int):
        assert (answer.status, answer.json["code"]) == (WHICH[query], WHICH[query])
        return
    names, version = {"now": (["b", "c"], server.version), "then": (["a", "b"], then)}[
        str(WHICH[query])
    ]
    assert (answer.names, answer.json["metadata"]["resourceVersion"]) == (names, version)


def test_without_watch_cache_limit_holds_at_zero_too() -> None:
    with ApiServer(watch_cache=False) as server:
        for name in "abc":
            server.create("pods", pod(name))

        assert ask(server, f"{ALL}?limit=2&resourceVersion=0").names == ["a", "b"]


def test_a_list_waits_for_a_version_that_is_about_to_come() -> None:
    with ApiServer(fresh_seconds=20) as server:
        server.create("pods", pod("a"))
        wanted = int(server.version) + 1
        answers: list[Answer] = []
        thread = threading.Thread(
            target=lambda: answers.append(ask(server, f"{ALL}?resourceVersion={wanted}"))
        )
        thread.start()
        server.create("pods", pod("b"))
        thread.join()

    assert answers[0].names == ["a", "b"]


def test_every_past_state_can_be_listed_exactly(server: ApiServer, rng: random.Random) -> None:
    states = {server.version: frozenset[str]()}
    alive: set[str] = set()
    for _ in range(200):
        name = f"p-{rng.randrange(12)}"
        if name in alive and rng.random() < 0.5:
            server.delete("pods", name, "ns-1")
            alive.discard(name)
        elif name in alive:
            server.update("pods", pod(name, luck=str(rng.random())[2:]))
        else:
            server.create("pods", pod(name))
            alive.add(name)
        states[server.version] = frozenset(alive)

    for version, names in states.items():
        query = f"resourceVersion={version}&resourceVersionMatch=Exact"
        assert ask(server, f"{ALL}?{query}").names == sorted(names)


def test_metadata_only_has_nothing_else(server: ApiServer) -> None:
    server.create("pods", {**pod("a"), "status": {"phase": "Running"}})
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}

    found = ask(server, ALL, headers=accept).json

    assert found["kind"] == "PartialObjectMetadataList"
    assert set(found["items"][0]) == {"kind", "apiVersion", "metadata"}
    assert found["items"][0]["kind"] == "PartialObjectMetadata"
