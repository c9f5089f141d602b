"""Who may read is decided by an API server, asked over HTTPS; where it says nothing, nobody may."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from served import Asked, pod, serving

from shmcache.serve.access import Access
from shmcache.serve.review import Poster, Review
from shmcache.source.config import ServerSettings, open_server
from shmcache.testing import ApiServer

PODS = "/api/v1/namespaces/default/pods"
KEEP = 10.0
REVIEWER, ANN, BOB = "r-token", "a-token", "b-token"
IDENTITY = {"uid": "7", "groups": ["dev", "ops"], "extra": {"scopes": ["a", "b"]}}


class Delegated:
    """A server that asks another one who may read; `now` is the clock of what it remembers."""

    def __init__(self, asked: Asked, api: ApiServer) -> None:
        self.asked = asked
        self.api = api
        self.now = 1000.0

    def get(self, token: str = ANN, path: str = PODS) -> int:
        return self.asked.get(path, Authorization=f"Bearer {token}").code

    def reviews(self) -> list[str]:
        """The kinds of what was asked since the last call."""
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


def test_the_server_is_told_who_asks_for_what_with_groups_and_extra(tmp_path: Path) -> None:
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
def test_the_server_is_asked_about_what_it_would_ask_about_itself(
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


def test_what_the_server_refuses_is_refused_to_users_and_their_groups(tmp_path: Path) -> None:
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
def test_nobody_without_a_token_that_the_server_knows(tmp_path: Path, token: str) -> None:
    with delegated(tmp_path) as at:
        assert at.get(token) == 401
        assert at.asked.get(PODS).code == 401
        assert at.asked.get(PODS, Authorization=f"Basic {ANN}").code == 401
        assert at.asked.get("/api", Authorization=f"Bearer {token}").code == 401
        assert at.asked.get("/livez").code == 200
        assert "SubjectAccessReview" not in at.reviews()


@pytest.mark.parametrize("name", ["User", "Group", "Uid", "Extra-scopes"])
def test_nobody_is_shown_what_he_may_see_as_somebody_else(tmp_path: Path, name: str) -> None:
    """Whether he may be taken for him is for the server to say (A4)."""
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


def test_where_the_server_cannot_be_asked_nothing_new_is_allowed(tmp_path: Path) -> None:
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


def test_one_who_may_not_review_lets_nobody_in(tmp_path: Path) -> None:
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
def test_an_answer_without_sense_lets_nobody_in(answer: Any) -> None:
    with serving({"pods": [pod(1)]}) as asked:
        review = Review(asked.serve.server.loop, lambda _path, _body: answer)
        asked.serve.server.access = Access(review=review)
        assert asked.get(PODS, Authorization="Bearer x").code in {401, 503}
        review.close()


def test_many_who_ask_at_once_are_one_review(tmp_path: Path) -> None:
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
