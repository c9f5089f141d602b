"""Invariant tested: what the server contradicts is repaired key by key, never over an event that is
still to come, and nobody takes the repaired history for a whole one (REPAIR1 to REPAIR5).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confirmed_reads import DEADLINE, Running, eventually, pod, running

import shmcache
from shmcache.engine import proving, repairing
from shmcache.engine.comparing import Comparison, Disagreement
from shmcache.engine.evidence import Refusal
from shmcache.engine.repairing import fetch_one, repair
from shmcache.engine.shown import FeedContent, identity_of
from shmcache.protocol.items import Identity, Item
from shmcache.serve.server import Serving
from shmcache.testing.serving import ServeThread


def obj(name: str, version: str, uid: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": uid or name, "resourceVersion": version}
    return {"metadata": metadata}


def item(name: str, version: str, uid: str = "") -> Item:
    raw = json.dumps(obj(name, version, uid)).encode()
    return Item("LISTED", f"prod/{name}", version, uid or name, "Pod", "v1", raw)


class Kept(NamedTuple):
    """Instead of a Content: notes what it is to do."""

    version: str
    done: list[tuple[list[str], list[str]]]

    def repair(self, items: list[Item], gone: list[str]) -> None:
        self.done.append(([one.key for one in items], gone))


@contextmanager
def content(writer: shmcache.Writer, cache: shmcache.Cache) -> Iterator[FeedContent]:
    """a at 5, b at 7, and everything known up to 10."""
    writer.replace("pods", [obj("a", "5"), obj("b", "7")], "10")
    reader, number = cache.locate("pods")
    yield FeedContent(reader.root(), number, "10")


A, B = Identity("a", "5"), Identity("b", "7")


# ---- which keys differ ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([item("a", "5"), item("b", "7")], []),
        ([item("a", "5"), item("b", "7"), item("c", "9")], ["prod/c"]),  # COMPARE1
        ([item("a", "6"), item("b", "7")], ["prod/a"]),
        ([item("a", "5", "other"), item("b", "7")], ["prod/a"]),
        ([item("a", "4"), item("b", "7")], ["prod/a"]),
        ([item("a", "5")], ["prod/b"]),  # COMPARE2
        ([item("a", "5"), item("b", "7"), item("c", "11")], []),  # COMPARE3
        ([item("a", "11"), item("b", "7")], ["prod/a"]),  # the cache has reached 12 by then
    ],
)
def test_a_comparison_finds_what_no_event_can_explain(
    writer: shmcache.Writer, cache: shmcache.Cache, listed: list[Item], expected: list[str]
) -> None:
    with content(writer, cache) as before:
        comparison = Comparison(before)
        comparison.take(listed)
        after = FeedContent(before.root, before.number, "12")

        assert expected == [one.key for one in comparison.finish(after, "12")]


def test_changes_while_the_list_is_on_its_way_are_no_disagreement(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """COMPARE3: deleted, changed and created after the version of the list."""
    with content(writer, cache) as before:
        comparison = Comparison(before)
        comparison.take([item("a", "5"), item("b", "7")])
        writer.delete("pods", "prod/a", "13")
        writer.put("pods", "prod/b", obj("b", "14"), "14")
        writer.put("pods", "prod/c", obj("c", "15"), "15")
        after = FeedContent(cache.reader.root(), before.number, "15")

        assert [] == comparison.finish(after, "12")
        assert not comparison.same(after)


def test_a_comparison_keeps_a_bounded_number_of_keys(
    writer: shmcache.Writer, cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMPARE4."""
    monkeypatch.setattr("shmcache.engine.comparing.MOST", 3)
    with content(writer, cache) as before:
        comparison = Comparison(before)
        comparison.take([item(f"c-{number}", "9") for number in range(10)])
        assert 3 == len(comparison.finish(before, "10"))
        assert 7 + 2 == comparison.more  # a and b are not listed


def test_a_comparison_ends_where_a_list_does_not(
    writer: shmcache.Writer, cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMPARE4."""
    monkeypatch.setattr("shmcache.engine.comparing.MOST_MORE", 20)
    with content(writer, cache) as before, pytest.raises(Refusal, match="more than the cache"):
        comparison = Comparison(before)
        for number in range(1000):
            comparison.take([item(f"c-{number}", "9")])


# ---- the work on them ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "fetched", "expected"),
    [
        (Disagreement("prod/a", A, None), None, ([], ["prod/a"])),
        (Disagreement("prod/a", Identity("a", "3"), None), None, None),  # REPAIR1: changed since
        (Disagreement("prod/a", A, Identity("a", "6")), item("a", "6"), (["prod/a"], [])),
        (Disagreement("prod/c", None, Identity("c", "8")), item("c", "8"), (["prod/c"], [])),
        (Disagreement("prod/c", None, Identity("c", "8")), None, None),  # deleted since
        (Disagreement("prod/a", A, Identity("a", "6")), item("a", "11"), None),  # REPAIR3
        (Disagreement("prod/a", A, Identity("a", "5")), item("a", "5"), None),  # it is right by now
    ],
)
def test_a_repair_is_what_evidence_and_server_say(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    found: Disagreement,
    fetched: Item | None,
    expected: tuple[list[str], list[str]] | None,
) -> None:
    with content(writer, cache) as shown:
        kept = Kept("10", [])
        count = repair("pods", kept, shown, [found], lambda _: fetched)  # type: ignore[arg-type]

        assert ([] if expected is None else [expected]) == kept.done
        assert (expected is not None) == count


def test_an_object_that_went_back_is_beyond_repair(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """REPAIR5."""
    backward = Disagreement("prod/b", B, Identity("b", "6"))
    assert repairing.is_beyond_repair([backward])
    assert not repairing.is_beyond_repair([Disagreement("prod/b", B, Identity("b", "8"))])
    many = [Disagreement(f"prod/{number}", None, None) for number in range(repairing.MOST_KEYS + 1)]
    assert repairing.is_beyond_repair(many)
    with content(writer, cache) as shown, pytest.raises(Refusal, match="went back"):
        found = [Disagreement("prod/b", B, Identity("b", "8"))]
        repair("pods", Kept("10", []), shown, found, lambda _: item("b", "6"))  # type: ignore[arg-type]


# ---- in a running reflector ----------------------------------------------------------------------


def lose(run: Running, change: Callable[[], object]) -> None:
    """A change whose event is lost."""
    [feed] = run.engine._kept[0].feeds
    content = feed.parts.content
    applying = content.apply
    content.apply = lambda _, version: content.advance(version)  # type: ignore[method-assign,assignment]
    change()
    eventually(lambda: run.pods.version == run.server.version, "the version does not come")
    content.apply = applying  # type: ignore[method-assign]


def disagree(run: Running, key: str) -> None:
    """As a comparison would."""
    [feed] = run.engine._kept[0].feeds
    found = run.pods.get(key)
    ours = None if found is None else identity_of(found)
    theirs = [one["metadata"] for one in run.server.list("pods")]
    there = [
        Identity(one["uid"], one["resourceVersion"])
        for one in theirs
        if f"{one['namespace']}/{one['name']}" == key
    ]
    feed.disagree([Disagreement(key, ours, there[0] if there else None)], run.server.version)


def same(run: Running) -> bool:
    ours = {key: found["metadata"]["resourceVersion"] for key, found in run.pods.items()}
    found = [one["metadata"] for one in run.server.list("pods")]
    return ours == {f"{one['namespace']}/{one['name']}": one["resourceVersion"] for one in found}


def test_an_event_that_comes_during_a_repair_is_applied_after_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPAIR2: the object is deleted as soon as it was fetched."""
    with running(name) as run:
        lose(run, lambda: run.server.update("pods", pod("web-0", lost="yes")))

        def fetch(source: Any, plan: Any, key: str) -> Item | None:
            found = fetch_one(source, plan, key)
            run.server.delete("pods", "web-0", "prod")
            return found

        monkeypatch.setattr(proving, "fetch_one", fetch)
        disagree(run, "prod/web-0")
        eventually(lambda: run.pods.status.counters["repaired"] == 1, "it is not repaired")
        eventually(lambda: "prod/web-0" not in run.pods, "the deletion was lost")
        assert same(run)
        assert 0 == run.pods.status.counters["relists"]


def test_a_repair_that_fails_is_a_list_of_everything(name: str) -> None:
    """REPAIR5: the server refuses the question about the key."""
    with running(name) as run:
        lose(run, lambda: run.server.update("pods", pod("web-0", lost="yes")))
        run.server.faults.error(403, "list")
        disagree(run, "prod/web-0")
        eventually(lambda: run.pods.status.counters["relists"] == 1, "it is not listed")
        assert same(run)
        eventually(lambda: run.pods.status.state == "synced", "it is not synced")


def test_a_repair_breaks_the_history(name: str) -> None:
    """REPAIR4: handlers see it; watches of `serve` end with 410; the past before it is unknown."""
    with running(name) as run, ServeThread(run.cache, Serving()) as serve:
        connection = http.client.HTTPConnection("127.0.0.1", serve.port, timeout=DEADLINE)
        connection.request("GET", "/api/v1/namespaces/prod/pods?watch=1")
        answer = connection.getresponse()
        assert {"ADDED"} == {json.loads(answer.readline())["type"] for _ in range(3)}
        lose(run, lambda: run.server.update("pods", pod("web-0", lost="yes")))
        run.server.create("pods", pod("later"))
        assert "later" == json.loads(answer.readline())["object"]["metadata"]["name"]
        before = run.server.version
        seen = list[str]()
        run.pods.add_handler(on_update=lambda _, new: seen.append(new["metadata"]["name"]))
        run.cache.start()

        disagree(run, "prod/web-0")

        eventually(lambda: seen == ["web-0"], "the handler does not see it")
        event = json.loads(answer.readline())
        assert ("ERROR", 410) == (event["type"], event["object"]["code"])
        connection.close()
        with pytest.raises(shmcache.PastUnknown):
            _ = run.cache.at(str(int(before) - 1))["pods"]
        eventually(lambda: run.pods.status.counters["repaired"] == 1, "not counted")
        assert same(run)
