"""Writes: names, versions, subresources, finalizers, namespaces, definitions, dry runs."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from asking import Stream, ask

from shmcache.protocol.failures import Failure
from shmcache.testing import ApiServer

Json = dict[str, Any]

PODS = "/api/v1/namespaces/prod/pods"


def pod(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "prod"}, "spec": {}, **more}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        started.create("namespaces", {"metadata": {"name": "prod"}})
        yield started


def test_names_are_generated_on_request(server: ApiServer) -> None:
    obj = {"metadata": {"generateName": "web-", "namespace": "prod"}}

    names = {server.create("pods", obj)["metadata"]["name"] for _ in range(20)}

    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


def test_each_object_has_a_uid_of_its_own_and_a_generation(server: ApiServer) -> None:
    first = server.create("pods", pod("a"))["metadata"]
    server.delete("pods", "a", "prod")
    second = server.create("pods", pod("a"))["metadata"]

    assert first["uid"] != second["uid"]
    assert first["generation"] == second["generation"] == 1
    assert first["creationTimestamp"].endswith("Z")


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a.", "x" * 254])
def test_invalid_names_are_refused(server: ApiServer, name: str) -> None:
    answer = ask(server, PODS, "POST", pod(name))

    assert (answer.status, answer.json["reason"]) == (422, "Invalid")


@pytest.mark.parametrize("name", ["a", "0", "a-b.c", "x" * 253])
def test_valid_names_are_taken(server: ApiServer, name: str) -> None:
    assert ask(server, PODS, "POST", pod(name)).status == 201


def test_a_namespace_must_exist(server: ApiServer) -> None:
    obj = {"metadata": {"name": "a"}}

    answer = ask(server, "/api/v1/namespaces/other/pods", "POST", obj)

    assert answer.status == 404
    assert answer.json["message"] == 'namespaces "other" not found'


def test_a_namespace_takes_its_contents_along(server: ApiServer) -> None:
    server.create("pods", pod("a"))
    server.create("deployments.apps", pod("d"))
    with Stream(server, f"/api/v1/pods?watch=1&resourceVersion={server.version}") as stream:
        server.wait_for_watches()
        server.delete("namespaces", "prod")

        assert stream.next_event() == ("DELETED", "a")
    assert server.list("deployments.apps") == []


def test_fields_that_the_server_has_written_stay(server: ApiServer) -> None:
    made = server.create("pods", pod("a"))
    mine = {**made["metadata"], "uid": None, "creationTimestamp": "2000-01-01T00:00:00Z"}

    changed = server.update("pods", {**made, "metadata": mine, "spec": {"nodeName": "n"}})

    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert changed["metadata"]["generation"] == 2


def test_status_and_the_rest_are_written_apart(server: ApiServer) -> None:
    server.create("pods", pod("a", status={"phase": "Pending"}))

    spec = server.update("pods", pod("a", spec={"nodeName": "n"}, status={"phase": "Lost"}))
    obj = pod("a", spec={"nodeName": "other"}, status={"phase": "Running"})
    status = ask(server, f"{PODS}/a/status", "PUT", obj).json

    assert (spec["spec"], spec["status"]) == ({"nodeName": "n"}, {"phase": "Pending"})
    assert (status["spec"], status["status"]) == ({"nodeName": "n"}, {"phase": "Running"})
    assert status["metadata"]["generation"] == spec["metadata"]["generation"]


def test_finalizers_hold_an_object_until_they_are_gone(server: ApiServer) -> None:
    obj = pod("a")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    server.create("pods", obj)
    with Stream(server, f"{PODS}?watch=1&resourceVersion={server.version}") as stream:
        server.wait_for_watches()
        held = ask(server, f"{PODS}/a", "DELETE").json
        again = ask(server, f"{PODS}/a", "DELETE").json
        patch = {"metadata": {"finalizers": None}}
        kind = {"Content-Type": "application/merge-patch+json"}
        ask(server, f"{PODS}/a", "PATCH", patch, kind)

        assert stream.next_events(2) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert "deletionTimestamp" in held["metadata"]
    assert again == held
    assert ask(server, f"{PODS}/a").status == 404


def test_a_deletion_can_be_for_one_version_or_uid_only(server: ApiServer) -> None:
    made = server.create("pods", pod("a"))["metadata"]
    server.update("pods", pod("a", spec={"nodeName": "n"}))
    for wanted in ({"resourceVersion": made["resourceVersion"]}, {"uid": "another"}):
        answer = ask(server, f"{PODS}/a", "DELETE", {"preconditions": wanted})
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert "Precondition failed" in answer.json["message"]

    assert ask(server, f"{PODS}/a", "DELETE", {"preconditions": {"uid": made["uid"]}}).status == 200


def test_a_deletion_answers_with_a_status_or_the_pod(server: ApiServer) -> None:
    made = server.create("configmaps", {"metadata": {"name": "m", "namespace": "prod"}})
    server.create("pods", pod("a"))

    status = ask(server, "/api/v1/namespaces/prod/configmaps/m", "DELETE").json

    assert status["status"] == "Success"
    assert status["details"]["uid"] == made["metadata"]["uid"]
    assert ask(server, f"{PODS}/a", "DELETE").json["kind"] == "Pod"


def test_dry_runs_write_nothing(server: ApiServer) -> None:
    server.create("pods", pod("a"))
    before = server.version

    created = ask(server, f"{PODS}?dryRun=All", "POST", pod("b"))
    updated = ask(server, f"{PODS}/a?dryRun=All", "PUT", pod("a", spec={"nodeName": "n"}))
    deleted = ask(server, f"{PODS}/a?dryRun=All", "DELETE")

    assert (created.status, updated.status, deleted.status) == (201, 200, 200)
    assert updated.json["spec"] == {"nodeName": "n"}
    assert server.version == before


def test_foreign_bodies_are_refused(server: ApiServer) -> None:
    wrong_kind = ask(server, PODS, "POST", {"kind": "Node", "metadata": {"name": "a"}})
    wrong_namespace = ask(server, PODS, "POST", {"metadata": {"name": "a", "namespace": "x"}})
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}

    assert wrong_kind.status == wrong_namespace.status == 400
    assert ask(server, PODS, "POST", b"[]").status == 400
    assert ask(server, PODS, "POST", b"k8s\0", protobuf).status == 415


def test_a_definition_brings_its_resource_in_each_version_that_it_serves(
    server: ApiServer,
) -> None:
    versions = [
        {"name": "v1", "served": True, "storage": True},
        {"name": "v1beta1", "served": True, "storage": False},
        {"name": "v0", "served": False, "storage": False},
    ]
    spec = {"group": "example.com", "scope": "Cluster", "versions": versions}
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    crd = {"metadata": {"name": "widgets.example.com"}, "spec": {**spec, "names": names}}
    assert ask(server, "/apis/example.com/v1/widgets").status == 404
    server.create("crd", crd)
    server.create("widgets.example.com", {"metadata": {"name": "w"}, "spec": {"size": 1 << 53}})

    found = {
        version: ask(server, f"/apis/example.com/{version}/widgets")
        for version in ("v1", "v1beta1", "v0")
    }

    assert [answer.status for answer in found.values()] == [200, 200, 404]
    (item,) = found["v1beta1"].json["items"]
    assert (item["apiVersion"], item["spec"]) == ("example.com/v1beta1", {"size": 1 << 53})
    group = next(g for g in ask(server, "/apis").json["groups"] if g["name"] == "example.com")
    assert [row["version"] for row in group["versions"]] == ["v1", "v1beta1"]


def test_a_loaded_object_keeps_its_metadata_and_its_version(server: ApiServer) -> None:
    metadata = {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "1000"}
    metadata["managedFields"] = [{"manager": "m"}]  # type: ignore[assignment]

    loaded = server.load("pods", {"metadata": metadata})

    assert loaded["metadata"] == metadata
    assert server.version == "1000"
    with pytest.raises(ValueError, match="version 1000 is past"):
        server.load("pods", {"metadata": metadata})


def test_python_callers_get_failures_with_the_status(server: ApiServer) -> None:
    with pytest.raises(Failure, match='pods "nobody" not found') as failed:
        server.get("pods", "nobody", "prod")
    with pytest.raises(KeyError, match="no resource 'gadgets'"):
        server.list("gadgets")

    assert failed.value.status["details"] == {"name": "nobody", "kind": "pods"}


def test_denials_name_user_verb_and_resource_and_can_be_taken_back() -> None:
    with ApiServer(tokens={"t": "jane"}) as server:
        headers = {"Authorization": "Bearer t"}
        server.access.deny("jane", "list", "pods")
        refused = ask(server, "/api/v1/pods", headers=headers)

        assert refused.status == 403
        assert 'User "jane" cannot list resource "pods"' in refused.json["message"]
        assert ask(server, "/api/v1/nodes", headers=headers).status == 200
        server.access.allow("jane", "list", "pods")
        assert ask(server, "/api/v1/pods", headers=headers).status == 200


def test_it_serves_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    with ApiServer(tls=tls, certificate_authority=str(file)) as server:
        client = ssl.create_default_context(cafile=str(file))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=client)
        connection.request("GET", "/readyz")
        assert connection.getresponse().read() == b"ok"
        connection.close()
        assert str(file) in Path(server.kubeconfig(str(tmp_path / "k"))).read_text("utf-8")
