"""Uncached objects are never left out silently (G33); unauthorized clients learn nothing (G34)."""

import contextlib
import csv
import http.client
import http.server
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from served import Asked, pod, serving

import shmcache
from shmcache import states
from shmcache.errors import SourceError
from shmcache.serve.auth.access import Access, Tokens
from shmcache.serve.auth.review import Review
from shmcache.serve.process import Options, ServingError
from shmcache.serve.proxy.proxy import Proxy
from shmcache.serve.server import Serving
from shmcache.testing import ApiServer

PODS = "/api/v1/namespaces/default/pods"
ALL = "/api/v1/pods"
EVERYWHERE = "0.0.0.0"  # noqa: S104
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
SETTINGS: dict[str, Any] = {"namespaces": [], "labels": "", "fields": ""}


@contextlib.contextmanager
def scoped(serving_: Serving | None = None, **scope: Any) -> Iterator[Asked]:
    """Pods of which this is cached."""
    keep = scope.pop("managed_fields", True)
    resource = shmcache.Resource("pods", keep_managed_fields=keep, settings={**SETTINGS, **scope})
    with serving({"pods": [pod(1, app="a")]}, serving_, resources=[resource]) as asked:
        asked.writer.set_state("pods", states.SYNCED)
        asked.writer.note("pods", contact_ns=time.monotonic_ns())
        yield asked


def refused(asked: Asked, path: str, *words: str, **headers: str) -> None:
    answer = asked.get(path, **headers)
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden"), answer.body
    for word in words:
        assert word in answer.json["message"]


def test_other_namespaces_than_those_that_are_cached_are_refused_by_name() -> None:
    with scoped(namespaces=["default", "prod"]) as asked:
        assert asked.names(PODS) == ["p-0001"]
        assert asked.names("/api/v1/namespaces/prod/pods") == []
        refused(asked, ALL, "all namespaces", "default, prod")
        refused(asked, "/api/v1/namespaces/other/pods", "'other'", "default, prod")
        refused(asked, "/api/v1/namespaces/other/pods/x", "default, prod")
        refused(asked, f"{ALL}?watch=1", "default, prod")
        assert asked.get(f"{PODS}/none").code == 404


@pytest.mark.parametrize(("scope", "asked_for"), [
    ({"labels": "app=a"}, "labelSelector=app%3Da"),
    ({"fields": "spec.nodeName=node-1"}, "fieldSelector=spec.nodeName%3Dnode-1"),
])  # fmt: skip
def test_a_request_for_more_than_the_selection_is_refused(
    scope: dict[str, str], asked_for: str
) -> None:
    words = next(iter(scope.values()))
    with scoped(None, **scope) as asked:
        assert asked.names(f"{PODS}?{asked_for}") == ["p-0001"]
        assert asked.names(f"{PODS}?{asked_for},metadata.name!=x") == ["p-0001"]
        refused(asked, PODS, words)
        refused(asked, f"{PODS}?labelSelector=other", words)
        refused(asked, f"{PODS}?watch=1", words)
        refused(asked, f"{PODS}/none", words, "may exist")
        assert asked.get(f"{PODS}/p-0001").code == 200


def test_metadata_alone_is_not_shown_as_whole_objects() -> None:
    with scoped(metadata_only=True) as asked:
        refused(asked, PODS, "metadata only")
        refused(asked, f"{PODS}/p-0001", "metadata only")
        assert asked.get(PODS, Accept=PARTIAL).code == 200


@pytest.mark.parametrize("path", [PODS, f"{PODS}/p-0001", f"{PODS}?watch=1&timeoutSeconds=1"])
def test_a_table_of_metadata_alone_claims_nothing_else(path: str) -> None:
    include = f"{path}{'&' if '?' in path else '?'}includeObject="
    with scoped(metadata_only=True) as asked:
        table = json.loads(asked.get(path, Accept=TABLE).body.splitlines()[0])
        table = table.get("object", table)
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
        assert table["rows"][0]["cells"][0] == "p-0001"
        assert len(table["rows"][0]["cells"]) == 2
        assert asked.get(f"{include}None", Accept=TABLE).code == 200
        refused(asked, f"{include}Object", "metadata only", Accept=TABLE)


WATCHED = f"{PODS}?watch=1&timeoutSeconds=1&"


@pytest.mark.parametrize(("query", "count"), [
    ("fieldSelector=metadata.name%3Dp-0001", 1),
    ("fieldSelector=metadata.name!%3Dp-0001", 0),
    ("labelSelector=app%3Da", 1),
    ("labelSelector=!app", 0),
])  # fmt: skip
def test_metadata_alone_is_selected_by_metadata(query: str, count: int) -> None:
    with scoped(metadata_only=True) as asked:
        assert len(asked.get(f"{PODS}?{query}", Accept=PARTIAL).json["items"]) == count


@pytest.mark.parametrize("path", [f"{PODS}?", WATCHED])
def test_objects_of_metadata_are_selected_by_metadata_alone(path: str) -> None:
    with scoped(metadata_only=True) as asked:
        for term in ("spec.nodeName%3Dnode-1", "spec.nodeName!%3Dnode-1"):
            query = f"{path}fieldSelector={term}"
            refused(asked, query, "metadata only", "spec.nodeName", Accept=PARTIAL)
    with scoped(metadata_only=True, fields="spec.nodeName=elsewhere") as asked:
        query = f"{PODS}?fieldSelector=spec.nodeName%3Delsewhere"  # the server has seen to it
        assert len(asked.get(query, Accept=PARTIAL).json["items"]) == 1
        refused(asked, f"{query},spec.nodeName!%3Dx", "metadata only", Accept=PARTIAL)


def test_selecting_by_a_transformed_field_returns_a_warning() -> None:
    with scoped(transform="my:strip", labels="gone=a", fields="spec.nodeName=node-9") as asked:
        query = "fieldSelector=spec.nodeName%3Dnode-9&labelSelector=gone%3Da"
        assert asked.names(f"{PODS}?{query}") == ["p-0001"]  # the server has seen to it
        assert asked.names(f"{PODS}?{query},app") == ["p-0001"]
        warning = asked.get(f"{PODS}?{query},app").headers["Warning"]
        assert warning.startswith('299 - "transformed by my:strip')


def test_altered_objects_are_marked_in_the_headers() -> None:
    with scoped(transform="my:strip", managed_fields=False) as asked:
        form = "transformed by my:strip, without managedFields"
        assert asked.get(PODS).headers["X-Shmcache-Form"] == form
        assert asked.get(f"{PODS}/p-0001").headers["X-Shmcache-Form"] == form
    with scoped() as asked:
        assert "X-Shmcache-Form" not in asked.get(PODS).headers
        assert asked.get(PODS).headers["Age"] == "0"


def test_refusal_names_the_missing_part() -> None:
    with scoped() as asked:
        for path in ("/apis/apps/v1/deployments", f"{PODS}/p-0001/log", "/api/v1/secrets"):
            answer = asked.get(path)
            assert answer.code == 404
            assert b"this cache holds pods" in answer.body


def test_a_missing_first_list_is_429_and_a_silent_server_503() -> None:
    resource = shmcache.Resource("pods", settings=SETTINGS)
    with serving({}, Serving(max_age=0.3), resources=[resource]) as asked:
        assert asked.get(PODS).code == 429
        assert asked.get("/readyz").code == 503
        asked.writer.replace("pods", [pod(1)], version="100")
        asked.writer.set_state("pods", states.SYNCED)
        until(lambda: asked.get(PODS).code == 503)  # the last contact with its server is unknown
        asked.writer.note("pods", contact_ns=time.monotonic_ns() + 0)
        found = set()

        def old() -> bool:
            answer = asked.get(PODS)
            found.add(answer.code)
            return answer.code == 503 and "data from the server" in answer.json["message"]

        until(old)
        answer = asked.get(PODS)
        assert answer.headers["Retry-After"] == "5"


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- access --------------------------------------------------------------------------------------


def test_without_tokens_a_foreign_name_and_a_foreign_page_are_refused() -> None:
    with scoped() as asked:
        assert asked.get(PODS, Host="localhost:8001").code == 200
        assert asked.get(PODS, Host="[::1]:8001").code == 200
        assert asked.get(PODS, Host="evil.example").code == 403
        assert asked.get(PODS, Origin="http://evil.example").code == 403
        assert asked.get(PODS, Origin="http://localhost:3000").code == 200
        assert asked.get(PODS, Origin="null").code == 403
        for strange in ("http://[", "http://]", "http://localhost@evil.example"):
            assert asked.get(PODS, Origin=strange).code == 403
            assert asked.get(f"{PODS}/p-0001", Origin=strange).code == 403
        assert asked.get(PODS, Origin="http://[::1]:3000").code == 200


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text('secret-1,ann,1,"dev,ops"\nsecret-2,bob\n')
    with scoped() as asked:
        asked.serve.server.access = Access(tokens=Tokens(str(file)))
        for sent in ("", "Bearer nope", "Basic secret-1", "Bearer", "Bearer secret-1x"):
            answer = asked.get(PODS, Authorization=sent)
            assert (answer.code, answer.json["message"]) == (401, "Unauthorized")
        assert asked.get("/api").code == 401
        assert asked.get("/version").code == 401
        assert asked.get("/healthz").code == 200
        for token in ("secret-1", "secret-2"):
            answer = asked.get(PODS, Authorization=f"Bearer {token}", Host="any.name")
            assert answer.code == 200


def test_tokens_are_reread_and_kept_if_the_file_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("one,ann\n")
    tokens = Tokens(str(file))
    assert tokens.find("one") is not None
    file.write_text("two,bob,7\n\n")
    tokens._looked = -1e9
    assert tokens.find("one") is None
    found = tokens.find("two")
    assert found is not None
    assert (found.name, found.uid, found.groups) == ("bob", "7", ("system:authenticated",))
    odd = {
        "broken\n": "token,user",
        'three,"ann\ntwo,bob\n': "unexpected end",
        'three,"ann"x\n': "expected after",
        f"three,{'x' * (csv.field_size_limit() + 1)}\n": "field larger",
    }
    for text, why in odd.items():
        file.write_text(text)
        tokens._looked = -1e9
        assert tokens.find("two") is not None
        with pytest.raises(SourceError, match=why):
            Tokens(str(file))


class Reviewer:
    """Accepts the token `good`; records the reviews."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.broken = False

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if self.broken:
            raise OSError("no way there")
        if body["kind"] == "TokenReview":
            known = body["spec"]["token"] == "good"  # noqa: S105
            user = {"username": "ann", "groups": ["dev"], "uid": "7", "extra": {"a": ["b"]}}
            return {"status": {"authenticated": known, "user": user if known else {}}}
        assert path.endswith("subjectaccessreviews")
        may = body["spec"]["resourceAttributes"]["namespace"] == "default"
        return {"status": {"allowed": may}}


def test_reviews_decide_and_are_remembered_and_fail_closed() -> None:
    with scoped() as asked:
        server, reviewer = asked.serve.server, Reviewer()
        review = Review(server.loop, reviewer, keep_seconds=1000)
        server.access = Access(review=review)
        good = {"Authorization": "Bearer good"}
        for _ in range(3):
            assert asked.get(PODS, **good).code == 200
        assert [body["kind"] for body in reviewer.asked] == ["TokenReview", "SubjectAccessReview"]
        spec = reviewer.asked[1]["spec"]
        assert (spec["user"], spec["groups"], spec["uid"]) == ("ann", ["dev"], "7")
        assert spec["extra"] == {"a": ["b"]}
        assert spec["resourceAttributes"] == {
            "verb": "list", "group": "", "version": "v1", "resource": "pods", "subresource": "",
            "namespace": "default", "name": "",
        }  # fmt: skip
        answer = asked.get(ALL, **good)
        assert answer.code == 403
        assert 'User "ann" cannot list resource "pods"' in answer.json["message"]
        assert asked.get(PODS, Authorization="Bearer bad").code == 401
        reviewer.broken = True
        assert asked.get(PODS, Authorization="Bearer other").code == 503
        assert asked.get("/api/v1/namespaces/x/pods", **good).code == 503
        assert asked.get(PODS, **good).code == 200
        review._keep = 0
        review._known._answers.clear()
        assert asked.get(PODS, **good).code == 503
        review.close()


def test_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    pods = [pod(number, text="x" * 300) for number in range(3000)]
    name = f"serving-tls-{os.getpid()}"
    from shmcache.testing.serving import ServeThread

    with shmcache.Writer(name, ["pods"]) as writer:
        writer.replace("pods", pods, version="100")
        with shmcache.attach(name) as cache, ServeThread(cache, tls=context) as serve:
            with socket.create_connection(("127.0.0.1", serve.port), timeout=30) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    assert not plain.recv(100).startswith(b"HTTP")
            raw = socket.create_connection(("127.0.0.1", serve.port), timeout=30)
            with client.wrap_socket(raw, server_hostname="localhost") as sock:
                request = b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"
                sock.sendall(request + b"\r\n" + request + b"Connection: close\r\n\r\n")
                found = b""
                while piece := sock.recv(1 << 16):
                    found += piece
            assert found.count(b'"kind":"PodList"') == 2
            assert found.count(b'"name":"p-') == 6000


@pytest.mark.parametrize(("flags", "words"), [
    ({"host": EVERYWHERE}, "--tokens or --review"),
    ({"host": "10.1.2.3", "tokens": "f"}, "--tls-cert"),
    ({"host": "::"}, "--tokens or --review"),
    ({"host": "some.host"}, "--tokens or --review"),
    ({"certificate": "x"}, "both"),
    ({"processes": 0}, "must be at least 1"),
    ({"proxy": "somewhere"}, "URL"),
    ({"proxy": "https://"}, "URL"),
    ({"proxy": "https://host:99999"}, "URL"),
])  # fmt: skip
def test_unsafe_options_are_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ServingError, match=words):
        Options(name="x", **flags).check()


@pytest.mark.parametrize("flags", [
    {},
    {"host": "127.0.0.5"},
    {"host": "::1"},
    {"host": EVERYWHERE, "unix_socket": "/run/x"},
    {"host": EVERYWHERE, "open_to_all": True},
    {"host": EVERYWHERE, "tokens": "f", "certificate": "c", "key": "k"},
])  # fmt: skip
def test_safe_options_are_accepted(flags: dict[str, Any]) -> None:
    Options(name="x", **flags).check()


# ---- passed on -----------------------------------------------------------------------------------


def test_uncached_requests_are_passed_on_with_the_callers_credentials() -> None:
    with ApiServer(tokens={"theirs": "ann"}) as real, scoped() as asked:
        real.create("configmaps", {"metadata": {"name": "far", "namespace": "default"}})
        asked.serve.server.proxy = Proxy(asked.serve.server.loop, real.url)
        path = "/api/v1/namespaces/default/configmaps"
        assert asked.get(f"{path}/far").code == 403  # always anonymous there
        theirs = {"Authorization": "Bearer theirs"}
        assert asked.get(f"{path}/far", **theirs).json["metadata"]["name"] == "far"
        made = json.dumps({"metadata": {"name": "made"}}).encode()
        answer = asked.get(path, "POST", made, Content_Type="application/json", **theirs)
        assert answer.code == 201
        assert asked.get(f"{path}/made", "DELETE", **theirs).code == 200
        assert asked.names(PODS) == ["p-0001"]  # ours
        assert asked.get("/apis/apps/v1/deployments", **theirs).json["kind"] == "DeploymentList"
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
        assert asked.get(f"{PODS}/p-0001/exec", **upgrade, **theirs).code == 501
        sent = [record.headers for record in real.log]
        assert all("x-forwarded" not in " ".join(headers) for headers in sent)
        assert {headers.get("authorization") for headers in sent} == {None, "Bearer theirs"}


def test_discovery_is_that_of_the_server_that_requests_are_passed_on_to() -> None:
    theirs = {"Authorization": "Bearer theirs"}
    paths = ("/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v3")
    with ApiServer(tokens={"theirs": "ann"}) as real, scoped() as asked:
        ours = [asked.get(path, **theirs).body for path in paths]
        asked.serve.server.proxy = Proxy(asked.serve.server.loop, real.url)
        for path, own in zip(paths, ours, strict=True):
            code, body = directly(real, path, **theirs)
            answer = asked.get(path, **theirs)
            assert (answer.code, answer.body) == (code, body), path
            assert (code, body != own or path == "/api") == (200, True), path
        seen = len(real.log)
        assert [asked.get(path).body for path in ("/healthz", "/livez/", "/readyz")] == [b"ok"] * 3
        assert len(real.log) == seen


def directly(real: ApiServer, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(real.url.removeprefix("http://"), timeout=30)
    connection.request("GET", path, None, headers)
    answer = connection.getresponse()
    found = (answer.status, answer.read())
    connection.close()
    return found


def test_only_the_server_answers_impersonating_requests() -> None:
    """Even for cached objects: it alone can decide whether the impersonation is allowed."""
    with ApiServer() as real, scoped() as asked:
        refused(asked, f"{PODS}/p-0001", "Impersonate-", Impersonate_User="bob")
        refused(asked, "/api", "Impersonate-", Impersonate_Group="ops")
        asked.serve.server.proxy = Proxy(asked.serve.server.loop, real.url)
        assert asked.get(f"{PODS}/p-0001").code == 200
        assert asked.get(f"{PODS}/p-0001", Impersonate_User="bob").code == 404
        (record,) = real.log
        assert record.headers["impersonate-user"] == "bob"


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the head that it got; ends in the middle if it is asked to."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Content-Length", str(len(body) + (10 if "cut" in self.path else 0)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = "cut" in self.path

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def echo() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_headers_of_the_connection_are_dropped() -> None:
    with echo() as url, scoped() as asked:
        asked.serve.server.proxy = Proxy(asked.serve.server.loop, url)
        answer = asked.get("/else", Connection="TE, Keep-Alive", Keep_Alive="timeout=5",
                           X_Other="2", TE="trailers", Impersonate_User="bob")  # fmt: skip
        found = dict(answer.json)
        assert found["x-other"] == "2"
        assert found["impersonate-user"] == "bob"
        assert {"keep-alive", "te", "connection"}.isdisjoint(found)
        assert answer.headers["Set-Cookie"] == "a=b"


def test_an_answer_that_breaks_off_there_breaks_off_here() -> None:
    with echo() as url, scoped() as asked:
        asked.serve.server.proxy = Proxy(asked.serve.server.loop, url)
        answer = asked.raw(b"GET /cut HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert not answer.endswith(b"0\r\n\r\n")


def test_a_server_that_cannot_be_reached_is_503() -> None:
    with scoped() as asked:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        asked.serve.server.proxy = Proxy(asked.serve.server.loop, f"http://127.0.0.1:{port}")
        assert asked.get("/else").code == 503
        assert asked.get("/apis").code == 503
        assert asked.get("/readyz").code == 200
        assert asked.names(PODS) == ["p-0001"]
