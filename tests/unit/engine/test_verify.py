"""Invariant tested: `shmcache verify` reports what differs between a cache and its server, has it
repaired, and its exit status tells the result (VERIFY1 to VERIFY3).
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from confirmed_reads import DEADLINE, Running, eventually, pod, running

import shmcache
from shmcache.__main__ import main
from shmcache.engine import proof, verifying
from shmcache.engine.comparing import Disagreement
from shmcache.engine.desk import Asked
from shmcache.engine.difference import ServerDifference
from shmcache.engine.plans import Plan
from shmcache.protocol.items import Identity


def lose(run: Running, *changes: Any) -> None:
    """Changes whose events are lost."""
    [feed] = run.engine._kept[0].feeds
    content = feed.parts.content
    applying = content.apply
    content.apply = lambda _, version: content.advance(version)  # type: ignore[method-assign,assignment]
    for change in changes:
        change()
    eventually(lambda: run.pods.version == run.server.version, "the version does not come")
    content.apply = applying  # type: ignore[method-assign]


def report(run: Running, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = main(["verify", *words, "--cache", run.cache.name, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)["resources"]


def test_an_equal_cache_is_equal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with running(name, bookmark_seconds=0.05) as run:
        status, found = report(run, capsys)
        [one] = found["pods"]
        assert (0, 3, [], 0) == (status, one["objects"], one["differences"], one["more"])
        assert run.server.version == one["version"]
        assert 0 == main(["verify", "po", "--cache", name])
        assert "equal" in capsys.readouterr().out


def test_differences_are_named_and_repaired(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """VERIFY2."""
    with running(name, bookmark_seconds=0.05) as run:
        server = run.server
        lose(
            run,
            lambda: server.create("pods", pod("new")),
            lambda: server.update("pods", pod("web-0", lost="yes")),
            lambda: server.delete("pods", "web-1", "prod"),
        )
        status, found = report(run, capsys, "pods")

        assert 1 == status
        [one] = found["pods"]
        by_key = {each["key"]: each for each in one["differences"]}
        assert {"prod/new", "prod/web-0", "prod/web-1"} == set(by_key)
        assert by_key["prod/new"]["cache"] is None
        assert by_key["prod/web-1"]["server"] is None
        changed = by_key["prod/web-0"]
        assert int(changed["server"]["version"]) > int(changed["cache"]["version"])
        eventually(lambda: run.pods.status.counters["repaired"] == 3, "it is not repaired")
        assert 0 == main(["verify", "--cache", name])
        assert 0 == run.pods.status.counters["relists"]
        capsys.readouterr()
        assert 0 == main(["top", "--once", "--cache", name])
        assert 0 == main(["inspect", "--cache", name])
        text = capsys.readouterr().out
        assert 2 == text.count("REPAIRED")


def test_the_table_names_what_differs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with running(name, bookmark_seconds=0.05) as run:
        lose(run, lambda: run.server.delete("pods", "web-1", "prod"))
        assert 1 == main(["verify", "--cache", name])
        text = capsys.readouterr().out
        assert "1 different" in text
        assert "pods: prod/web-1: absent at the server, version" in text


def test_an_incomparable_resource_has_a_status_of_its_own(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(name="pods", transform=lambda obj: {"metadata": obj["metadata"]})
    with running(name, plan) as run:
        status, found = report(run, capsys)
        assert 69 == status
        assert "transform" in found["pods"][0]["error"]


def test_a_server_that_is_down_and_a_reflector_that_ended(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(name) as run:
        run.server.go_down()
        status, found = report(run, capsys)
        assert (69, True) == (status, "error" in found["pods"][0])
    with shmcache.Writer(name, ["pods"]):
        assert 69 == main(["verify", "--cache", name])
        assert "no reflector runs" in capsys.readouterr().out
        assert 1 == main(["verify", "none", "--cache", name])


def test_each_namespace_has_its_report(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(name="pods", namespaces=("prod", "test"))
    with running(name, plan, bookmark_seconds=0.05) as run:
        run.server.create("pods", pod("other", "test"))
        eventually(lambda: "test/other" in run.pods, "it does not follow")
        status, found = report(run, capsys)
        assert 0 == status
        assert {"prod": 3, "test": 1} == {one["namespace"]: one["objects"] for one in found["pods"]}


def test_only_a_few_comparisons_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """VERIFY1."""
    monkeypatch.setattr(proof, "MOST_JOBS", 2)
    with running(name) as run:
        begun, go_on = threading.Event(), threading.Event()

        def slow(_: threading.Event) -> None:
            begun.set()
            go_on.wait(DEADLINE)

        assert run.engine._prover.ask(slow)
        assert begun.wait(DEADLINE)
        answers = list[Any]()
        verifier = run.engine._desk._verifiers["pods"]
        for _ in range(3):
            verifier.submit(Asked("", "", time.monotonic() + DEADLINE, answers.append))
        assert [{"error": "too many comparisons wait"}] == answers
        go_on.set()
        eventually(lambda: len(answers) == 3, "they are forgotten")
        assert ["feeds", "feeds"] == [next(iter(one)) for one in answers[1:]]


def test_a_report_is_bounded() -> None:
    """VERIFY3."""
    key = "n" * 253 + "/" + "o" * 253
    one = Disagreement(key, Identity("u" * 36, "1"), Identity("u" * 36, "2"))
    found = ServerDifference("9", 5000, [one] * 1000, 7)
    text = json.dumps(verifying._report(found, verifying.SHOWN))
    assert len(text) < 100_000
    assert 907 == json.loads(text)["more"]
