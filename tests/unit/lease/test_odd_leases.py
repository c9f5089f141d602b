"""Invariants tested: whatever a server answers about Leases, nobody leads by mistake, no thread
ends, and no request follows a refusal at once (LEASEREPLY1, SPREAD8)."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import shmcache
from shmcache.lease.candidate import candidates_of
from shmcache.lease.election import Election, LeaseReply, LeaseRequest, ReplyKind, Verb
from shmcache.lease.elector import Elector
from shmcache.lease.holders import Holders
from shmcache.lease.record import LeaseRecord, empty_lease
from shmcache.lease.requests import LeaseRequests
from shmcache.lease.sharing import Holdings, Sharing
from shmcache.lease.slots import ANNOTATION, SLOTS, SlotTable
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ManualClock

TEN = shmcache.LeaseSettings("demo", duration=10.0, renew_deadline=6.0, retry_period=2.0)
NESTED = b'{"metadata": ' + b"[" * 100_000


class Parrot:
    """A server that gives the same answer to every request."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        parrot = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(parrot.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(parrot.body)))
                self.end_headers()
                self.wfile.write(parrot.body)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.http.server_port}"
        self.connection = ApiConnection(lambda: ServerAccess(url=url))


@pytest.fixture
def parrot() -> Iterator[Parrot]:
    found = Parrot()
    yield found
    found.http.shutdown()
    found.http.server_close()


def lease_text(**spec: Any) -> bytes:
    metadata = {"name": "demo", "namespace": "default", "resourceVersion": "7"}
    return json.dumps({"metadata": metadata, "spec": spec}).encode()


ODD = {
    "empty": (200, b"{}"),
    "no object": (200, b"[]"),
    "no JSON": (200, b"<html>sign in</html>"),
    "deep": (200, NESTED),
    "no name": (200, b'{"metadata": {"resourceVersion": "7"}, "spec": {}}'),
    "no version": (200, b'{"metadata": {"name": "demo"}, "spec": {}}'),
    "metadata": (200, b'{"metadata": [1], "items": [{"metadata": 7}]}'),
    "items": (200, b'{"metadata": {}, "items": 5}'),
    "a status": (200, b'{"kind": "Status", "metadata": {}, "status": "Success"}'),
    "nobody, for ever": (200, lease_text(holderIdentity="")),
    "another one": (200, lease_text(holderIdentity="other", leaseDurationSeconds=10)),
    "another one, enormous": (200, lease_text(holderIdentity="x" * 1_000_000)),
    "a long duration": (200, lease_text(holderIdentity="other", leaseDurationSeconds=10**400)),
    "conflict": (409, b"{}"),
    "too many": (429, b"{}"),
    "failure": (500, b"no"),
}


@pytest.mark.parametrize("odd", ODD)
def test_nobody_leads_by_an_odd_answer(parrot: Parrot, odd: str) -> None:
    parrot.status, parrot.body = ODD[odd]
    connection = parrot.connection
    elector = Elector(TEN, identity="me", server=connection)
    requests = LeaseRequests(connection, "default", "demo", timeout=5.0, label="a=b")
    try:
        for _ in range(3):
            assert not drive(elector.election.attempt(), requests.ask)
            assert not elector.election.leads
            assert elector.election.rest() > 0.0
        holders = Holders(TEN, "http://me:1", 2, connection, lambda _: None, rng=Random(1))
        assert holders.round() > 0.0
        assert holders.standing is None or not holders.standing.holds
        listed = requests.ask(LeaseRequest(Verb.LIST))
        assert listed.kind in {ReplyKind.FAILED, ReplyKind.CONFLICT}
        holders.stop()
        assert candidates_of(connection, 5.0) in {None, ""}
    finally:
        elector.close()
        requests.close()


def drive(steps: Any, ask: Callable[[LeaseRequest], LeaseReply]) -> Any:
    reply = None
    try:
        while True:
            reply = ask(steps.send(reply))
    except StopIteration as ended:
        return ended.value


@pytest.mark.parametrize("seconds", [10**400, -(10**400), 2**31, "15", None, 1.5])
def test_a_duration_that_no_lease_can_have_is_none(seconds: Any) -> None:
    record = LeaseRecord.of({"spec": {"holderIdentity": "a", "leaseDurationSeconds": seconds}})
    assert (record.holder, record.seconds) == ("a", 0)


TABLES = {
    "no text": 7,
    "no JSON": "{",
    "deep": "[" * 100_000,
    "no object": "[]",
    "no slots": '{"epoch": 1}',
    "slots": '{"epoch": 1, "slots": []}',
    "bits": '{"epoch": 1, "slots": {"a": 7}}',
    "negative": '{"epoch": 1, "slots": {"a": "-1"}}',
    "beyond": json.dumps({"epoch": 1, "slots": {"a": "f" * 65}}),
    "many": json.dumps({"epoch": 1, "slots": {f"m{n}": "0" for n in range(20_000)}}),
    "leaving": '{"epoch": 1, "slots": {}, "leaving": "abc"}',
    "leaves": '{"epoch": 1, "slots": {}, "leaving": [{}]}',
    "infinite": '{"epoch": Infinity, "slots": {}}',
    "half": '{"epoch": 1.5, "slots": {}}',
    "before": '{"epoch": -1, "slots": {}}',
    "enormous": json.dumps({"epoch": 10**30, "slots": {}}),
    "long": json.dumps({"epoch": 1, "slots": {"a": "z" * 200_000}}),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_malformed_table_gives_nobody_a_slot_and_a_short_message(table: str) -> None:
    member = LoneMember()
    member.looks()
    member.looks()
    assert member.sharing.held == set(range(SLOTS))
    member.table["metadata"]["annotations"] = {ANNOTATION: TABLES[table]}
    assert member.looks() == TEN.retry_period / 4
    assert not member.sharing.held
    assert ANNOTATION in member.sharing.failure
    assert len(member.sharing.failure) < 300


def test_annotations_that_are_no_object_are_malformed() -> None:
    with pytest.raises(ValueError, match=ANNOTATION):
        SlotTable.of({"metadata": {"annotations": [1]}})


def test_a_refused_table_is_not_asked_for_again_at_once() -> None:
    """SPREAD8: not by 20 requests a second while a right is missing, or the server has no time."""
    for refusal, least in (
        (LeaseReply(ReplyKind.FAILED, None, "403"), TEN.retry_period / 4),
        (LeaseReply(ReplyKind.FAILED, None, "429", 30.0), 30.0),
        (LeaseReply(ReplyKind.FAILED, None, "429", 1e9), 120.0),
    ):
        for verb in (Verb.LIST, Verb.CREATE):
            member = LoneMember()
            member.refusals = {verb: refusal}
            assert member.looks() == least
            assert member.sharing.failure == refusal.message
    member = LoneMember()
    member.refusals = {Verb.CREATE: LeaseReply(ReplyKind.CONFLICT)}
    assert member.looks() < TEN.retry_period / 4


class LoneMember:
    """A member that leads, and its table, without a server."""

    def __init__(self) -> None:
        self.clock = clock = ManualClock()
        self.table: dict[str, Any] = {}
        self.refusals: dict[Verb, LeaseReply] = {}
        election = Election(TEN, "me", "default", Random(1), clock=clock, wall=clock)
        self.sharing = Sharing(election, "demo", "default", Holdings(), clock=clock)
        assert drive(election.attempt(), self._answer)
        self.table = {}

    def looks(self) -> float:
        """Seconds until the next look."""
        self.clock.advance(TEN.retry_period / 4)
        return float(drive(self.sharing.round(), self._answer))

    def _answer(self, request: LeaseRequest) -> LeaseReply:
        if request.verb in self.refusals:
            return self.refusals[request.verb]
        if request.verb is Verb.LIST:
            return LeaseReply(ReplyKind.DONE, {"items": [self.table] if self.table else []})
        if request.verb is Verb.READ:
            return LeaseReply(ReplyKind.MISSING)
        self.table = {**empty_lease("demo", "default"), **(request.body or {})}
        self.table["metadata"] = {**self.table["metadata"], "resourceVersion": "7"}
        return LeaseReply(ReplyKind.DONE, self.table)
