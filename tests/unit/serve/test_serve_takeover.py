"""A writer with another configuration takes over: nothing of the new content is shown as of the old
scope (G33), whenever the server looks again by itself."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from served import Asked, Stream, pod, serving

import shmcache
from shmcache import Resource, states
from shmcache.serve import catalogue
from shmcache.serve import freshness as standing
from shmcache.serve.read import fast_get as usual

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = "/api/v1/pods"
NEAR, FAR = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"
PODS = [*(pod(number, "a") for number in range(3)), *(pod(number, "b") for number in range(2))]
SETTINGS: dict[str, Any] = {"namespaces": [], "labels": "", "fields": ""}
NEVER = 1e9


def pods(**scope: Any) -> Resource:
    return Resource("pods", keep_managed_fields=True, settings={**SETTINGS, **scope})


def fill(writer: shmcache.Writer, objects: list[dict[str, Any]], version: str) -> None:
    """As the reflector does with a list."""
    with writer.begin_replace("pods", version) as staged:
        staged.apply(objects)
        writer.set_state("pods", states.SYNCED)
    writer.note("pods", contact_ns=time.monotonic_ns())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """A server that has served all pods; its look-ups stay as first seen."""
    for module in (standing, usual):
        monkeypatch.setattr(module, "LOOK_SECONDS", NEVER)
    with serving({"nodes": []}, resources=[pods(), "nodes"]) as made:
        fill(made.writer, PODS, "100")
        assert len(made.names(ALL)) == 5
        assert made.get(f"{FAR}/p-0001").code == 200
        monkeypatch.setattr(catalogue, "LOOK_SECONDS", NEVER)
        yield made


@contextlib.contextmanager
def taken_over(asked: Asked, *resources: Resource | str) -> Iterator[shmcache.Writer]:
    """The writer has gone, this one goes on."""
    asked.writer.leave()
    with shmcache.Writer(asked.writer.name, resources) as writer:
        yield writer


def codes(asked: Asked, *paths: str) -> list[int]:
    return [asked.get(path).code for path in paths]


def test_objects_outside_a_narrower_scope_are_refused_at_once(asked: Asked) -> None:
    with taken_over(asked, pods(namespaces=["a"]), "nodes") as writer:
        fill(writer, PODS[:3], "200")

        found = codes(asked, f"{FAR}/p-0001", ALL, FAR, f"{ALL}?watch=1&timeoutSeconds=1")

        assert found == [403] * 4
        assert asked.names(NEAR) == ["p-0000", "p-0001", "p-0002"]


def test_until_the_new_content_is_listed_nothing_is_shown(asked: Asked) -> None:
    with taken_over(asked, pods(labels="app=a"), "nodes"):
        found = codes(asked, f"{FAR}/p-0001", f"{ALL}?labelSelector=app%3Da", f"{NEAR}/none")

    assert found == [429] * 3


def test_a_watch_is_refused_until_then_too(asked: Asked) -> None:
    with taken_over(asked, pods(namespaces=["a", "b"]), "nodes"):
        found = codes(asked, f"{NEAR}?watch=1&timeoutSeconds=1&resourceVersion=100")

    assert found == [429]


def test_a_ready_state_is_checked_again_with_the_content(asked: Asked) -> None:
    """The same configuration again, of which nothing is listed: another was there between."""
    with taken_over(asked, pods(labels="app=a"), "nodes") as between:
        between.leave()
        with shmcache.Writer(asked.writer.name, [pods(), "nodes"]):
            assert codes(asked, f"{FAR}/p-0001", ALL, f"{NEAR}/none") == [429] * 3


def test_a_resource_that_is_dropped_is_not_shown_empty(asked: Asked) -> None:
    with taken_over(asked, "nodes"):
        for path in (f"{FAR}/p-0001", ALL, f"{FAR}/none", f"{ALL}?watch=1&timeoutSeconds=1"):
            answer = asked.get(path)

            assert answer.code == 404, path
            assert "this cache holds nodes" in answer.json["message"]


def test_nor_one_that_a_new_cache_under_the_name_does_not_have(asked: Asked) -> None:
    with taken_over(asked, "nodes") as between:
        between.leave()
        others = shmcache.Writer(asked.writer.name, ["nodes"], fresh=True)
    with others:
        for path in (f"{FAR}/p-0001", ALL, f"{ALL}?watch=1&timeoutSeconds=1"):
            answer = asked.get(path)

            assert answer.code == 404, path
            assert "this cache holds nodes" in answer.json["message"]


def test_a_request_that_waits_meanwhile_gets_retry_after(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began with the earlier declaration of the resource."""
    server, told = asked.serve.server, asked.serve.server.fresh

    async def late(*asked_for: Any, **named: Any) -> None:
        await told(*asked_for, **named)
        asked.writer.leave()
        others.enter_context(shmcache.Writer(asked.writer.name, ["nodes"]))

    with contextlib.ExitStack() as others:
        monkeypatch.setattr(server, "fresh", late)
        assert codes(asked, ALL) == [429]


def test_pages_of_the_old_content_end_with_it(asked: Asked) -> None:
    token = asked.get(f"{ALL}?limit=2").json["metadata"]["continue"]
    with taken_over(asked, pods(transform="my:strip"), "nodes") as writer:
        fill(writer, PODS, "200")

        answer = asked.get(f"{ALL}?limit=2&continue={token}")

    assert (answer.code, answer.json["reason"]) == (410, "Expired")


def test_the_same_configuration_continues_undisturbed(asked: Asked) -> None:
    with taken_over(asked, pods(), "nodes"):
        assert codes(asked, f"{FAR}/p-0001", ALL, f"{NEAR}/none") == [200, 200, 404]


# ---- watches -------------------------------------------------------------------------------------


def watching(asked: Asked, query: str, path: str = ALL) -> Stream:
    """A watch that is live."""
    stream = Stream(asked, query, path)
    server, deadline = asked.serve.server, time.monotonic() + 30
    while not asked.serve.call(lambda: server.watches.count):
        assert time.monotonic() < deadline
    return stream


def test_a_wider_watch_receives_no_deletions_of_the_rest(asked: Asked) -> None:
    with watching(asked, "resourceVersion=100") as stream, contextlib.ExitStack() as others:
        with asked.held_up():
            writer = others.enter_context(taken_over(asked, pods(namespaces=["a"]), "nodes"))
            fill(writer, PODS[:3], "200")
        event = stream.next()

        assert event is not None
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert stream.next() is None
        assert codes(asked, f"{ALL}?watch=1&timeoutSeconds=1") == [403]


def test_nor_of_a_resource_that_is_dropped(asked: Asked) -> None:
    with watching(asked, "resourceVersion=100") as stream, contextlib.ExitStack() as others:
        with asked.held_up():
            others.enter_context(taken_over(asked, "nodes"))
        event = stream.next()

    assert event is not None
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_watch_that_begins_before_its_channel_has_seen_the_takeover(asked: Asked) -> None:
    """It is of the new declaration; those of the old one end."""
    with watching(asked, "resourceVersion=100", NEAR) as old, contextlib.ExitStack() as others:
        asked.serve.call(lambda: asked.serve.server.bell.remove(asked.serve.server.watches._rung))
        writer = others.enter_context(taken_over(asked, pods(namespaces=["a", "b"]), "nodes"))
        fill(writer, PODS, "200")
        with Stream(asked, "", NEAR) as new:
            event = old.next()
            assert event is not None
            assert event["object"]["code"] == 410
            assert [new.next_event() for _ in range(3)] == [
                ("ADDED", f"p-000{n}") for n in range(3)
            ]
            assert asked.serve.call(
                lambda: [one.separate for _, one in asked.serve.server.watches._channels.values()]
            ) == [True]


def test_a_watch_continues_under_a_writer_of_the_same_configuration(asked: Asked) -> None:
    with (
        watching(asked, "resourceVersion=100") as stream,
        taken_over(asked, pods(), "nodes") as writer,
    ):
        with writer.batch():
            writer.apply("pods", [pod(7, "a", 201)])
            writer.set_version("pods", "201")

        assert stream.next_event() == ("ADDED", "p-0007")


def test_watches_end_when_another_cache_replaces_theirs(asked: Asked) -> None:
    """Positions in two rings cannot be compared: a watch that went on would miss changes."""
    with watching(asked, "resourceVersion=100") as stream:
        asked.writer.close()
        with shmcache.Writer(asked.writer.name, [pods(), "nodes"]) as writer:
            fill(writer, [pod(8, "a", 300)], "300")
            event = stream.next()
            assert event is not None
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert event["object"]["message"] == "too old resource version: 100 (101)"
            assert stream.next() is None
            assert ["p-0008"] == asked.names(ALL)
