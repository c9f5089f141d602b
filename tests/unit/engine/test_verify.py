"""Invariant tested: `shmcache verify` reports what differs between a cache and its server, has it
repaired, and its exit status tells the result (VERIFY1 to VERIFY4).
"""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
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
from shmcache.engine.rate_limit import Pace
from shmcache.engine.verifying import PlanVerifier
from shmcache.protocol.accept import PARTIAL, Shape
from shmcache.protocol.items import Identity
from shmcache.protocol.kinds import Kind
from shmcache.testing.apiserver import lists


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


def test_verify_asks_for_metadata_alone(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(name, bookmark_seconds=0.05) as run:
        pieces, forms = lists.pieces, list[str]()

        def noted(kind: Kind, found: lists.ListPage, shape: Shape) -> list[bytes]:
            forms.append(shape.name)
            return pieces(kind, found, shape)

        monkeypatch.setattr(lists, "pieces", noted)
        assert report(run, capsys)[0] == 0
        assert forms == [PARTIAL.name]


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
        assert ["pods", "-", "2"] == text.splitlines()[1].split()[:3]
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
        assert 0 == main(["verify", "--cache", name])
        rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
        assert [["pods", "prod", "3"], ["pods", "test", "1"]] == sorted(rows)


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
        [kept] = run.engine._kept
        proof_of = run.engine._proofs["pods"]
        for _ in range(3):
            verifier = PlanVerifier(proof_of, lambda: kept.feeds, run.engine._prover.ask)
            verifier.submit(Asked("", "", time.monotonic() + DEADLINE, answers.append))
        assert [{"error": "too many comparisons wait"}] == answers
        go_on.set()
        eventually(lambda: len(answers) == 3, "they are forgotten")
        assert ["feeds", "feeds"] == [next(iter(one)) for one in answers[1:]]


class Prover:
    """Keeps the jobs, until a test does them."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def ask(self, job: Any) -> bool:
        self.jobs.append(job)
        return True

    def work(self) -> None:
        self.jobs.pop(0)(threading.Event())


class Compared:
    """Counts comparisons, of two feeds."""

    def __init__(self) -> None:
        self.count = 0
        self.then = list[Any]()
        self.feeds: Any = [SimpleNamespace(parts=SimpleNamespace(namespace=one)) for one in "ab"]

    def difference(self, *_: Any) -> ServerDifference:
        self.count += 1
        if self.then:
            self.then.pop()()
        return ServerDifference("9", 5, [], 0)

    def correct(self, *_: Any) -> None:
        pass


def test_questions_that_wait_share_a_comparison_that_begins_after_them() -> None:
    """VERIFY4."""
    compared, prover, answers = Compared(), Prover(), list[Any]()
    proof_of: Any = compared
    verifier = PlanVerifier(proof_of, lambda: compared.feeds, prover.ask)

    def ask() -> None:
        verifier.submit(Asked("", "", time.monotonic() + DEADLINE, answers.append))

    for _ in range(1000):
        ask()
    compared.then.append(ask)  # while the comparison is under way
    assert len(prover.jobs) == 1
    prover.work()
    assert (len(answers), compared.count, len(prover.jobs)) == (1000, 2, 1)
    prover.work()
    assert (len(answers), compared.count, prover.jobs) == (1001, 4, [])


def test_nothing_is_compared_for_those_who_have_left() -> None:
    """VERIFY4."""
    compared, prover, answers = Compared(), Prover(), list[Any]()
    proof_of: Any = compared
    verifier = PlanVerifier(proof_of, lambda: compared.feeds, prover.ask)
    lives, until = [True], time.monotonic() + DEADLINE
    verifier.submit(Asked("", "", 0.0, answers.append))
    verifier.submit(Asked("", "", until, answers.append, lives=lambda: lives[0]))
    compared.then.append(lambda: lives.__setitem__(0, False))  # during the first feed
    prover.work()
    assert (compared.count, answers) == (1, [])
    verifier.submit(Asked("", "", until, answers.append, lives=lambda: False))
    prover.work()
    assert (compared.count, answers) == (1, [])


def test_claims_have_their_turns_among_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROOF7: whatever readers ask."""
    monkeypatch.setattr(proof, "LEAST_REST", 30.0)
    monkeypatch.setattr(proof, "MOST_REST", 60.0)
    stop, done = threading.Event(), list[str]()
    prover = proof.Prover(Pace(1e6), stop)
    for name in ("first", "second"):
        prover.ask(lambda _, name=name: done.append(name))  # type: ignore[misc]
    claim: Any = SimpleNamespace(label="pods")
    prover.submit(claim)
    monkeypatch.setattr(prover, "_check", lambda found: done.append(found.label))
    monkeypatch.setattr(proof, "Claim", SimpleNamespace)
    thread = threading.Thread(target=prover.run)
    thread.start()
    eventually(lambda: len(done) == 2, "the claim waits")
    stop.set()
    prover.end()
    thread.join(DEADLINE)
    assert done == ["first", "pods"]


def test_a_report_is_bounded() -> None:
    """VERIFY3."""
    key = "n" * 253 + "/" + "o" * 253
    one = Disagreement(key, Identity("u" * 36, "1"), Identity("u" * 36, "2"))
    found = ServerDifference("9", 5000, [one] * 1000, 7)
    text = json.dumps(verifying._report(found, verifying.SHOWN))
    assert len(text) < 100_000
    assert 907 == json.loads(text)["more"]
