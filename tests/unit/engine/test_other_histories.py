"""Invariant tested: a server that has another history than the cache, or lags behind what was shown
before, cannot make a consistent read lie (CONFIRM10, CONFIRM11).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confirmed_reads import Running, eventually, pod, running

import shmcache
from shmcache.engine import scope_way
from shmcache.engine.evidence import FORGET_SECONDS, Evidence, LatestShown, Refusal
from shmcache.engine.proof import Prover
from shmcache.protocol.items import Identity, Item
from shmcache.testing import ManualClock


def shown(pods: Any) -> dict[str, str]:
    return {key: obj["metadata"]["resourceVersion"] for key, obj in pods}


def of_server(run: Running) -> dict[str, str]:
    found = [obj["metadata"] for obj in run.server.list("pods")]
    return {f"{one['namespace']}/{one['name']}": one["resourceVersion"] for one in found}


def listed(run: Running) -> dict[str, str]:
    found = run.pods.list("prod", consistent=True)
    return shown((f"prod/{one['metadata']['name']}", one) for one in found)


# ---- a history that was cut, and is longer by now ------------------------------------------------


@pytest.mark.parametrize("pages", [1, 3])
@pytest.mark.parametrize("restored", [True, False])
def test_a_restored_server_that_overtook_the_cache_confirms_only_what_it_has(
    name: str, monkeypatch: pytest.MonkeyPatch, *, restored: bool, pages: int
) -> None:
    """CONFIRM11: by versions alone, all events up to the server's version have come."""
    monkeypatch.setattr(Prover, "_check", lambda *_: None)  # the reader is faster than it
    monkeypatch.setattr(scope_way, "FEW_OBJECTS", 2)
    monkeypatch.setattr(scope_way, "PAGE", 10 // pages)
    with running(name, objects=6, bookmark_seconds=0.05) as run:
        backup = run.server.backup()
        run.server.update("pods", pod("web-0", undone="yes"))
        run.server.delete("pods", "web-1", "prod")
        eventually(lambda: shown(run.pods.items()) == of_server(run), "it does not follow")
        ours = int(run.server.version)
        run.server.go_down()
        if restored:
            run.server.restore(backup)
        run.server.advance(ours + 100)
        run.server.come_back()
        eventually(lambda: run.pods.version == run.server.version, "it does not come back")
        wrong = shown(run.pods.items()) != of_server(run)
        assert wrong == restored

        if restored:
            with pytest.raises(shmcache.UnconfirmedError, match="not the server's"):
                listed(run)
            eventually(lambda: shown(run.pods.items()) == of_server(run), "it is not repaired")
        assert of_server(run) == listed(run)


# ---- servers that disagree about the present -----------------------------------------------------


class Member:
    """A server whose state stays what it was, as another one goes on: a replica that lags."""

    def __init__(self, run: Running) -> None:
        self._items = run.server.list("pods")
        self._version = run.server.version

    def answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on this one gives the evidence."""
        monkeypatch.setattr(Evidence, "version", lambda _: self._version)
        monkeypatch.setattr(Evidence, "contents", self._contents)
        monkeypatch.setattr(Evidence, "identity", self._identity)

    def _contents(self, take: Any, limit: int, *, whole: bool = False) -> str | None:
        del limit, whole
        take([item_of(obj) for obj in self._items])
        return self._version

    def _identity(self, namespace: str, name: str) -> Identity | None:
        for found in map(item_of, self._items):
            if found.key == f"{namespace}/{name}":
                return Identity(found.uid or "", found.version or "")
        return None


def item_of(obj: Any) -> Item:
    of = obj["metadata"]
    key = f"{of['namespace']}/{of['name']}"
    return Item("LISTED", key, of["resourceVersion"], of["uid"], None, None, b"{}")


READS: dict[str, Callable[[Running], object]] = {
    "get": lambda run: run.pods.get("prod/web-9", consistent=True, timeout=2.0),
    "list": lambda run: run.pods.list(consistent=True, timeout=2.0),
}


@pytest.mark.parametrize("second", READS)
@pytest.mark.parametrize("first", READS)
def test_a_replica_that_lags_behind_what_was_shown_confirms_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """CONFIRM10: the server has shown a new object, and a member that lags does not have it."""
    with running(name) as run:
        member = Member(run)
        with run.deaf():
            run.server.create("pods", pod("web-9"))
            with pytest.raises(shmcache.UnconfirmedError, match="in time"):
                READS[first](run)
            with monkeypatch.context() as patches:
                member.answers(patches)
                with pytest.raises(shmcache.UnconfirmedError, match=r"in time|behind \d+ before"):
                    READS[second](run)
        eventually(lambda: "prod/web-9" in run.pods, "it does not follow")
        READS[second](run)


def test_a_server_that_was_behind_is_compared_before_it_is_believed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM11: it is ahead again, perhaps in another history."""
    monkeypatch.setattr(scope_way, "FEW_OBJECTS", 2)
    with running(name, objects=6, bookmark_seconds=0.05) as run:
        [feed] = run.engine._kept[0].feeds

        def unproved() -> bool:
            return feed.unproved is not None

        assert not unproved()
        with monkeypatch.context() as patches:
            patches.setattr(Evidence, "version", lambda _: "1")
            with pytest.raises(shmcache.UnconfirmedError, match="behind"):
                run.pods.list(consistent=True)
        assert unproved()
        listed = len(run.server.log)
        run.pods.list(consistent=True)
        assert not unproved()
        assert any(one.query.get("limit") == str(scope_way.PAGE) for one in run.server.log[listed:])


def test_versions_that_were_shown_are_forgotten_with_their_history() -> None:
    clock = ManualClock()
    latest = LatestShown(clock)
    latest.begin("", "90")
    latest.check("100")
    latest.show("", "99")
    latest.show("", "98")
    assert "99" == latest.object("")
    with pytest.raises(Refusal, match="behind 100"):
        latest.check("95")
    latest.begin("", "80")  # the feed has listed a server that was restored
    assert latest.object("") is None
    latest.check("85")


def test_a_server_that_stays_behind_counts_as_restored_in_the_end() -> None:
    clock = ManualClock()
    latest = LatestShown(clock)
    latest.check("100")
    latest.show("", "99")
    with pytest.raises(Refusal):
        latest.check("95")
    clock.advance(FORGET_SECONDS / 2)
    latest.check("101")  # another member
    with pytest.raises(Refusal):
        latest.check("96")
    clock.advance(FORGET_SECONDS - 1)
    with pytest.raises(Refusal):
        latest.check("97")
    clock.advance(1)
    assert latest.object("") is None
    latest.check("97")
    latest.check("98")
