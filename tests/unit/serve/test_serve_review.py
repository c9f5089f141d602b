"""An API server, queried over HTTPS, decides who may read; without its answer no client may."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
import trustme
from served import Asked, pod, serving

from shmcache.serve.auth import review
from shmcache.serve.auth.access import Access
from shmcache.serve.auth.review import STRANGE_AT_ONCE, Poster, Review
from shmcache.serve.auth.threads import Workers
from shmcache.serve.http import listening
from shmcache.serve.http.listening import peer_of
from shmcache.serve.http.loop import Loop
from shmcache.serve.http.shares import Shares
from shmcache.serve.limits import Limits
from shmcache.serve.server import Serving
from shmcache.source.base import SourceFailed
from shmcache.source.config import ServerSettings, open_server
from shmcache.testing import ApiServer

PODS = "/api/v1/namespaces/default/pods"
KEEP = 10.0
REVIEWER, ANN, BOB = "r-token", "a-token", "b-token"
IDENTITY = {"uid": "7", "groups": ["dev", "ops"], "extra": {"scopes": ["a", "b"]}}


class Delegated:
    """A server that reviews clients at another one; `now` is the clock of its memory."""

    def __init__(self, asked: Asked, api: ApiServer) -> None:
        self.asked = asked
        self.api = api
        self.now = 1000.0

    def get(self, token: str = ANN, path: str = PODS) -> int:
        return self.asked.get(path, Authorization=f"Bearer {token}").code

    def reviews(self) -> list[str]:
        """The kinds of the reviews since the last call."""
        found = [review["kind"] for review in self.api.access.reviews]
        self.api.access.reviews.clear()
        return found


@contextlib.contextmanager
def delegated(tmp_path: Path, *, reviewer: str = REVIEWER) -> Iterator[Delegated]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tokens = {reviewer: "reviewer", ANN: "ann", BOB: "bob"}
    with ApiServer(
        tls=context, certificate_authority=str(tmp_path / "ca.pem"), tokens=tokens
    ) as api:
        api.access.identities["ann"] = IDENTITY
        settings = ServerSettings(kubeconfig=api.kubeconfig(str(tmp_path / "config")))
        with serving(
            {"pods": [pod(number) for number in range(3)]}, resources=("pods", "namespaces")
        ) as asked:
            at = Delegated(asked, api)
            post = Poster(open_server(settings))
            review = Review(asked.serve.server.loop, post, keep_seconds=KEEP, clock=lambda: at.now)
            asked.serve.server.access = Access(review=review)
            try:
                yield at
            finally:
                review.close()
                post.close()


def test_review_names_user_groups_extra_and_request(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        assert at.get(path=f"{PODS}/p-0001") == 200
        token, access = at.api.access.reviews

    assert token == {"kind": "TokenReview", "spec": {"token": ANN}}
    assert access["spec"] == {
        "user": "ann",
        "groups": ["dev", "ops", "system:authenticated"],
        "uid": "7",
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "verb": "get", "group": "", "version": "v1", "resource": "pods", "subresource": "",
            "namespace": "default", "name": "p-0001",
        },
    }  # fmt: skip


@pytest.mark.parametrize(("path", "verb", "namespace", "name"), [
    (f"{PODS}?fieldSelector=metadata.name%3Dp-0001", "list", "default", "p-0001"),
    (f"{PODS}?fieldSelector=spec.nodeName!=x,metadata.name==p-0001&watch=1&timeoutSeconds=1",
     "watch", "default", "p-0001"),
    ("/api/v1/pods?fieldSelector=metadata.name=p-0001", "list", "", "p-0001"),
    (f"{PODS}?fieldSelector=metadata.name!=p-0001", "list", "default", ""),
    (f"{PODS}?fieldSelector=metadata.name=a%252Fb", "list", "default", ""),
    (f"{PODS}?fieldSelector=metadata.name=..", "list", "default", ""),
    (f"{PODS}?fieldSelector=metadata.name=", "list", "default", ""),
    (f"{PODS}?fieldSelector=metadata.name", "list", "default", ""),
    (f"{PODS}/p-0001?fieldSelector=metadata.name=p-0002", "get", "default", "p-0001"),
    ("/api/v1/namespaces/other", "get", "other", "other"),
    ("/api/v1/namespaces?fieldSelector=metadata.name=other", "list", "", "other"),
])  # fmt: skip
def test_the_review_has_the_attributes_that_the_server_itself_would_check(
    tmp_path: Path, path: str, verb: str, namespace: str, name: str
) -> None:
    """So a rule that names objects, or one of a namespace, decides the same here."""
    with delegated(tmp_path) as at:
        assert at.get(path=path) in {200, 400, 404}
        attributes = at.api.access.reviews[1]["spec"]["resourceAttributes"]

    found = (attributes["verb"], attributes["namespace"], attributes["name"])
    assert found == (verb, namespace, name)


def test_a_list_of_one_name_that_was_allowed_allows_no_other(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        for path in ("metadata.name=p-0001", "metadata.name=p-0002", ""):
            assert at.get(path=f"{PODS}?fieldSelector={path}") == 200
        assert at.reviews() == ["TokenReview", *["SubjectAccessReview"] * 3]


def test_a_refusal_names_the_object(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        at.api.access.deny("ann")
        headers = {"Authorization": f"Bearer {ANN}"}
        one = at.asked.get(f"{PODS}/p-0001", **headers).json
        every = at.asked.get(PODS, **headers).json

    assert one["message"].startswith('pods "p-0001" is forbidden: User "ann" cannot get resource')
    assert one["details"] == {"name": "p-0001", "kind": "pods"}
    assert every["message"].startswith('pods is forbidden: User "ann" cannot list resource')
    assert every["details"] == {"kind": "pods"}


def test_refusal_of_the_server_applies_to_users_and_groups(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        at.api.access.deny("group:ops", "list", "pods")
        at.api.access.deny("bob", "get", "pods")
        assert [at.get(ANN), at.get(ANN, f"{PODS}/p-0001")] == [403, 200]
        assert [at.get(BOB), at.get(BOB, f"{PODS}/p-0001")] == [200, 403]
        assert at.get(ANN, f"{PODS}?watch=1&timeoutSeconds=1") == 200
        at.api.access.deny("ann", "watch", "pods")
        at.now += KEEP + 1
        assert at.get(ANN, f"{PODS}?watch=1&timeoutSeconds=1") == 403


@pytest.mark.parametrize("token", ["", "unknown", f"{ANN} {ANN}", ANN[:-1]])
def test_a_token_unknown_to_the_server_is_refused(tmp_path: Path, token: str) -> None:
    with delegated(tmp_path) as at:
        assert at.get(token) == 401
        assert at.asked.get(PODS).code == 401
        assert at.asked.get(PODS, Authorization=f"Basic {ANN}").code == 401
        assert at.asked.get("/api", Authorization=f"Bearer {token}").code == 401
        assert at.asked.get("/livez").code == 200
        assert "SubjectAccessReview" not in at.reviews()


@pytest.mark.parametrize("name", ["User", "Group", "Uid", "Extra-scopes"])
def test_impersonating_request_is_not_answered_from_the_cache(tmp_path: Path, name: str) -> None:
    """Only the server can decide whether the impersonation is allowed (ACCESS4)."""
    with delegated(tmp_path) as at:
        asked = at.asked
        paths = (PODS, f"{PODS}/p-0001", f"{PODS}?watch=1&timeoutSeconds=1", "/api/v1", "/version")
        for path in paths:
            headers = {"Authorization": f"Bearer {ANN}", f"Impersonate-{name}": "bob"}
            answer = asked.get(path, **headers)
            assert (answer.code, answer.json["reason"]) == (403, "Forbidden"), path
            assert "Impersonate-" in answer.json["message"]
        assert "SubjectAccessReview" not in at.reviews()
        assert asked.get("/livez", **{f"Impersonate-{name}": "bob"}).code == 401
        assert at.get(ANN) == 200


def test_an_answer_is_kept_for_its_time_in_both_directions(tmp_path: Path) -> None:
    both = ["TokenReview", "SubjectAccessReview"]
    with delegated(tmp_path) as at:
        at.api.access.deny("bob")
        for token, code in ((ANN, 200), (BOB, 403)):
            assert [at.get(token) for _ in range(3)] == [code] * 3
            assert at.reviews() == both
        at.api.access.allow("bob")
        at.api.access.deny("ann")
        at.now += KEEP - 1
        assert [at.get(ANN), at.get(BOB)] == [200, 403]
        assert at.reviews() == []
        at.now += 2
        assert [at.get(ANN), at.get(BOB)] == [403, 200]
        assert at.reviews() == both * 2


def test_nothing_new_is_allowed_while_the_server_is_unreachable(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        assert at.get(ANN) == 200
        at.api.go_down()
        assert at.get(ANN) == 200  # it was decided
        assert at.get(BOB) == 503
        assert at.get(ANN, f"{PODS}/p-0001") == 503
        at.now += KEEP + 1
        assert at.get(ANN) == 503
        at.api.come_back()
        assert [at.get(ANN), at.get(BOB)] == [200, 200]


def test_a_kept_connection_that_was_reset_costs_no_request(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        for _ in range(5):
            assert at.get(ANN) == 200
            at.api.abort_connections()
            at.now += KEEP + 1


def test_without_permission_to_review_no_client_is_admitted(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        at.api.access.deny("reviewer", "create", "subjectaccessreviews.authorization.k8s.io")
        assert at.get(ANN) == 503
        at.api.access.deny("reviewer", "create", "tokenreviews.authentication.k8s.io")
        at.now += KEEP + 1
        assert at.get(ANN) == 503
        del at.api.access.tokens[REVIEWER]
        assert at.get(ANN) == 503


@pytest.mark.parametrize("answer", [
    {}, {"status": {}}, {"status": {"authenticated": True}}, {"status": {"authenticated": "yes"}},
    {"status": {"authenticated": True, "user": {"groups": ["system:masters"]}}}, [], None,
])  # fmt: skip
def test_a_senseless_answer_admits_no_client(answer: Any) -> None:
    with serving({"pods": [pod(1)]}) as asked:
        review = Review(asked.serve.server.loop, lambda _path, _body: answer)
        asked.serve.server.access = Access(review=review)
        assert asked.get(PODS, Authorization="Bearer x").code in {401, 503}
        review.close()


def test_simultaneous_requests_share_one_review(tmp_path: Path) -> None:
    with delegated(tmp_path) as at:
        codes: list[int] = []
        together = threading.Barrier(8)

        def ask() -> None:
            together.wait(30)
            codes.append(at.get(ANN))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert codes == [200] * 8
        assert sorted(at.reviews()) == ["SubjectAccessReview", "TokenReview"]


# ---- reviews that clients without a valid token can cause ---------------------------------------


class Reviewer:
    """Counts reviews; tokens that begin with `good` are valid until they are revoked."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.revoked: set[str] = set()
        self.fails = False
        self.held: dict[str, threading.Event] = {}
        """Tokens whose review takes until then."""

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.fails:
            raise OSError("no API server")
        if "tokenreviews" not in path:
            return {"status": {"allowed": True}}
        token = body["spec"]["token"]
        self.tokens.append(token)
        if token in self.held:
            self.held[token].wait(30)
        valid = token.startswith("good") and token not in self.revoked
        return {"status": {"authenticated": valid, "user": {"username": token}}}


@contextlib.contextmanager
def reviewed(clock: Any = None, **limits: int) -> Iterator[tuple[Asked, Reviewer]]:
    reviewer = Reviewer()
    options = {} if clock is None else {"clock": clock}
    pods = {"pods": [pod(number) for number in range(3)]}
    with serving(pods, Serving(limits=Limits(**limits))) as asked:
        server = asked.serve.server
        review = Review(server.loop, reviewer, most=server.limits.waiting, **options)
        asked.serve.server.access = Access(review=review)
        yield asked, reviewer


def until(fact: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def code(asked: Asked, token: str) -> int:
    return asked.get(PODS, Authorization=f"Bearer {token}").code


def test_a_peer_causes_so_many_reviews_of_unknown_tokens_and_no_more() -> None:
    at = [1000.0]
    with reviewed(lambda: at[0]) as (asked, reviewer):
        assert code(asked, "good-old") == 200
        codes = [code(asked, f"bad-{number}") for number in range(100)]
        assert set(codes) == {401, 429}
        assert len(reviewer.tokens) <= 1 + STRANGE_AT_ONCE

        at[0] += 11  # the good token's answer has gone; its review costs nothing
        before = len(reviewer.tokens)
        assert code(asked, "good-old") == 200
        assert len(reviewer.tokens) == before + 1
        at[0] += 10
        assert code(asked, "good-new") == 200  # the allowance has come back


def test_a_client_with_many_addresses_is_one_peer() -> None:
    with reviewed() as (asked, reviewer):
        for number in range(40):
            source = (f"127.0.1.{number + 1}", 0)
            with socket.create_connection(
                ("127.0.0.1", asked.serve.port), timeout=30, source_address=source
            ) as sock:
                sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"
                             b"Authorization: Bearer bad-%d\r\n\r\n" % number)  # fmt: skip
                assert sock.recv(12) in {b"HTTP/1.1 401", b"HTTP/1.1 429"}
        assert len(reviewer.tokens) <= STRANGE_AT_ONCE


@pytest.mark.parametrize(("address", "peer"), [
    ("127.8.9.10", "127.0.0.1"), ("::1", "::1"), ("10.1.2.3", "10.1.2.3"),
    ("2001:db8:1:2:aaaa::1", "2001:0db8:0001:0002::/64"),
    ("2001:db8:1:2:bbbb::2%eth0", "2001:0db8:0001:0002::/64"),
])  # fmt: skip
def test_the_addresses_that_one_client_can_have_are_one_peer(address: str, peer: str) -> None:
    assert peer_of((address, 1)) == peer


@pytest.mark.parametrize("stay", [False, True])
def test_requests_that_wait_for_an_unknown_token_keep_no_known_user_out(*, stay: bool) -> None:
    at = [1000.0]
    with reviewed(lambda: at[0]) as (asked, reviewer), contextlib.ExitStack() as stack:
        review: Any = asked.serve.server.access._review
        review._strangers = review._strangers._replace(waiting=Shares(4))
        assert code(asked, "good") == 200
        at[0] += 11  # its answer has gone
        answered = reviewer.held["bad"] = threading.Event()
        stack.callback(answered.set)
        for number in range(20):
            sock = socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30)
            stack.callback(sock.close)
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"
                         b"Authorization: Bearer bad\r\n\r\n")  # fmt: skip
            if stay and number >= 3:
                assert sock.recv(12) == b"HTTP/1.1 429"
            elif not stay:
                sock.close()
        assert code(asked, "good") == 200


def test_the_smallest_server_asks_for_one_unknown_token_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "peer_of", lambda address: address[0])

    def send(source: str, token: bytes) -> socket.socket:
        sock = socket.create_connection(
            ("127.0.0.1", asked.serve.port), timeout=30, source_address=(source, 0)
        )
        stack.callback(sock.close)
        sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"
                     b"Authorization: Bearer %b\r\n\r\n" % token)  # fmt: skip
        return sock

    with reviewed(connections=8) as (asked, reviewer), contextlib.ExitStack() as stack:
        answered = reviewer.held["bad"] = threading.Event()
        stack.callback(answered.set)
        first = send("127.0.1.1", b"bad")
        until(lambda: reviewer.tokens)
        assert send("127.0.1.2", b"good").recv(12) == b"HTTP/1.1 429"
        answered.set()
        assert first.recv(12) == b"HTTP/1.1 401"
        assert send("127.0.1.2", b"good").recv(12) == b"HTTP/1.1 200"


def test_the_threads_of_reviews_end_with_their_server() -> None:
    before = set(threading.enumerate())

    def workers() -> list[threading.Thread]:
        return [one for one in {*threading.enumerate()} - before if one.name == "serve-worker"]

    with reviewed() as (asked, _):
        assert code(asked, "good") == 200
        assert len(workers()) >= 2  # one asks for users, one for what they may do
    until(lambda: not workers())


def test_refused_tokens_push_no_valid_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmcache.serve.auth.review.REFUSED", 5)
    with reviewed() as (asked, reviewer):
        review: Any = asked.serve.server.access._review
        assert code(asked, "good") == 200
        for number in range(15):
            code(asked, f"bad-{number}")
        count = len(reviewer.tokens)
        assert code(asked, "good") == 200
        assert len(reviewer.tokens) == count
        assert len(review._refused) == 5


def test_one_user_causes_so_many_checks_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmcache.serve.auth.review.CHECKS_AT_ONCE", 10.0)
    monkeypatch.setattr("shmcache.serve.auth.review.CHECKS_PER_SECOND", 0.0)
    with reviewed() as (asked, _):
        paths = [f"/api/v1/namespaces/n-{number}/pods" for number in range(20)]
        codes = [asked.get(path, Authorization="Bearer good").code for path in paths]
        assert codes == [200] * 10 + [429] * 10


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers each POST with the next of `answers`: a head and a body.

    Without one the connection ends; where `drips` is set, a byte follows now and then, for ever.
    """

    protocol_version = "HTTP/1.1"
    answers: ClassVar[list[bytes | None]] = []
    asked: ClassVar[list[str]] = []
    drips = False

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        answer = self.answers.pop(0)
        if answer is not None:
            self.wfile.write(b"HTTP/1.1 " + answer)
        self.close_connection = answer is None
        with contextlib.suppress(OSError):
            while self.drips:
                time.sleep(0.02)
                self.wfile.write(b"1")

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def answering(*answers: bytes | None) -> Iterator[Poster]:
    """None: the connection ends without an answer."""
    Upstream.answers, Upstream.asked = list(answers), []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        poster = Poster(open_server(ServerSettings(url=f"http://127.0.0.1:{server.server_port}")))
        try:
            yield poster
        finally:
            poster.close()
            server.shutdown()


def framed(body: bytes, status: bytes = b"201 Created", more: bytes = b"") -> bytes:
    head = b"%b\r\nContent-Type: application/json\r\n%b" % (status, more)
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


FOUND = framed(b'{"status": {"allowed": true}}')


def test_a_redirect_of_a_review_is_an_answer_and_is_not_followed() -> None:
    """The HTTP library may follow redirects by itself, and the request carries callers' tokens."""
    away = framed(b"{}", b"307 Temporary Redirect", b"Location: /elsewhere\r\n")
    with answering(away, FOUND) as poster:
        with pytest.raises(SourceFailed, match="HTTP 307"):
            poster("/apis/x", {"spec": {"token": "secret"}})
        assert Upstream.asked == ["/apis/x"]


def test_a_review_on_a_kept_connection_that_has_ended_is_repeated_once() -> None:
    with answering(FOUND, None, FOUND, None, None) as poster:
        assert [poster("/x", {}) for _ in range(2)] == [{"status": {"allowed": True}}] * 2
        assert len(Upstream.asked) == 3
        with pytest.raises(SourceFailed):
            poster("/x", {})
        assert len(Upstream.asked) == 5


@pytest.mark.parametrize("body", [
    b"", b"[]", b"null", b"{}", b'{"status": null}', b'{"status": "Failure"}', b"{" * 100_000,
    b'{"status": {"allowed": true}, "x": "%b"}' % (b"y" * review.ANSWER_BYTES),
])  # fmt: skip
def test_other_answers_than_reviews_are_failures(body: bytes) -> None:
    with answering(framed(body)) as poster, pytest.raises(SourceFailed):
        poster("/x", {})


@pytest.mark.parametrize("beginning", [b"20", b"200 OK\r\n", framed(b"y" * 5000)[:-5000]])
def test_a_review_is_answered_within_a_time(
    beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REVIEW4: also by a server that sends a byte now and then (LINE1)."""
    monkeypatch.setattr(review, "SECONDS", 1.0)
    monkeypatch.setattr(Upstream, "drips", True)
    late = pytest.raises(SourceFailed, match="the answer is not whole after 1 s")
    with answering(beginning) as poster, late:
        poster("/x", {})


@pytest.mark.parametrize("odd", ["true", "false", 1, {}, ["x"]])
def test_only_true_is_true(odd: Any) -> None:
    user = {"username": "ann"}
    assert review._user({"status": {"authenticated": odd, "user": user}}) is None
    assert not review._allowed({"status": {"allowed": odd}})


# ---- watches of a user whose token is revoked ---------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmcache.serve.auth.permit.RECHECK_SECONDS", 0.05)


@contextlib.contextmanager
def watch(asked: Asked, token: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", asked.serve.port, timeout=30)
    path = "/api/v1/pods?watch=1&resourceVersion=100"
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    try:
        with connection.getresponse() as answer:
            yield answer
    finally:
        connection.close()


@pytest.mark.usefixtures("soon")
def test_a_watch_ends_when_its_token_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmcache.serve.auth.review.KEEP_SECONDS", 0.01)
    at = [1000.0]

    def clock() -> float:
        at[0] += 1000.0  # no answer is kept
        return at[0]

    with (
        reviewed(clock) as (asked, reviewer),
        watch(asked, "good-one") as stays,
        watch(asked, "good-two") as ends,
    ):
        reviewer.revoked.add("good-two")
        event = orjson.loads(ends.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 401)
        assert ends.readline() == b""

        asked.apply(pod(7, version=101), "101")
        assert orjson.loads(stays.readline())["type"] == "ADDED"


@pytest.mark.usefixtures("soon")
def test_a_watch_outlives_a_short_failure_of_reviews_and_no_long_one() -> None:
    at = [1000.0]

    def clock() -> float:
        at[0] += 1000.0
        return at[0]

    with reviewed(clock) as (asked, reviewer), watch(asked, "good") as opened:
        permits = asked.serve.server.lasting
        count = len(reviewer.tokens)
        reviewer.fails = True
        event = orjson.loads(opened.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 503)
        assert opened.readline() == b""
        assert len(reviewer.tokens) >= count
        assert permits.taken == 0


def test_the_stated_time_covers_a_look_a_kept_answer_and_a_slow_one() -> None:
    from shmcache.serve.auth import permit

    looks = permit.RECHECK_SECONDS + review.KEEP_SECONDS
    assert looks + review.SECONDS <= permit.REVOKED_SECONDS


def test_slow_reviews_of_unknown_tokens_delay_no_known_user() -> None:
    at = [1000.0]
    with reviewed(lambda: at[0]) as (asked, reviewer), contextlib.ExitStack() as stack:
        assert code(asked, "good") == 200
        at[0] += 11  # its answers have gone
        answered = threading.Event()
        stack.callback(answered.set)
        for number in range(12):
            reviewer.held[f"bad-{number}"] = answered
            sock = socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30)
            stack.enter_context(sock)
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"
                         b"Authorization: Bearer bad-%d\r\n\r\n" % number)  # fmt: skip
        assert code(asked, "good") == 200
        assert not answered.is_set()


def test_holders_have_their_turns_in_a_thread() -> None:
    loop = Loop()
    workers, order, begun, go_on = Workers(loop, 1), [], threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    def note(name: str) -> None:
        order.append(name)

    workers.run(hold, lambda *_: None, holder="a")
    assert begun.wait(30)
    for number in range(5):
        workers.run(partial(note, f"a{number}"), lambda *_: None, holder="a")
    for name in ("b", "c"):
        workers.run(partial(note, name), lambda *_: None, holder=name)
    go_on.set()
    deadline = time.monotonic() + 30
    while len(order) < 7:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    workers.close()
    loop.close()
    assert order == ["a0", "b", "c", "a1", "a2", "a3", "a4"]
