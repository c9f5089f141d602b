"""Invariant tested: the chart renders with Go's templates, and its objects agree in themselves.

Helm is not in any package registry. Its engine, Go's text/template with Sprig, is: py-go-template.
Where helm itself is in PATH, it renders the chart as well, and lints it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install jsonschema")
pytest.importorskip("go_template", reason="needs Go's templates: pip install py-go-template")
import manifests  # noqa: E402 - imports yaml
from workers import Worker  # noqa: E402

import shmcache  # noqa: E402
from shmcache.engine import config  # noqa: E402

APPLICATION = {
    "container": {
        "name": "web",
        "image": "web:7",
        "env": [{"name": "PORT", "value": "8000"}],
        "volumeMounts": [{"name": "cache", "mountPath": "/other"}],
    }
}
CASES: dict[str, dict[str, Any]] = {
    "node": {},
    "sidecar": {"mode": "sidecar", "application": APPLICATION},
    "settings": {
        "resources": {
            "widgets.example.com/v1": {"labels": "tier in (a,b)", "max_bytes": "5MiB"},
            "nodes": {"metadata_only": True, "indices": {"zone": "metadata.labels.zone"}},
        },
        "configuration": {"namespaces": ["shop", "billing"], "max_age": 300, "log_level": "debug"},
        "cache": {"name": "other", "directory": "/srv/x", "user": 1000, "mode": "0644"},
        "definitions": True,
        "image": {"tag": "9"},
        "node": {"nodeSelector": {"disk": "a b"}, "priorityClassName": ""},
        "reflector": {"extraArgs": ["--log-level", "debug"]},
        "metricsPort": 9999,
    },
}
KIND = {"node": "DaemonSet", "sidecar": "Deployment", "settings": "DaemonSet"}
SCHEMA = json.loads((manifests.CHART / "values.schema.json").read_text())


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=manifests.ENGINES)
def objects(
    case: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    place = tmp_path_factory.mktemp("chart")
    return manifests.documents(manifests.rendered(place, CASES[case], request.param))


def test_each_object_is_rendered_once(case: str, objects: list[dict[str, Any]]) -> None:
    kinds = sorted(each["kind"] for each in objects)

    assert (
        sorted([KIND[case], "ClusterRole", "ClusterRoleBinding", "ConfigMap", "ServiceAccount"])
        == kinds
    )


def test_no_field_is_unknown_to_kubernetes(objects: list[dict[str, Any]]) -> None:
    assert [] == [
        (each["kind"], place) for each in objects for place in manifests.dropped_by_the_models(each)
    ]


@pytest.mark.parametrize("name", CASES)
def test_shmcache_accepts_the_configuration(name: str, tmp_path: Path) -> None:
    values = manifests.merged(
        manifests.values(CASES[name]), {"cache": {"directory": str(tmp_path)}}
    )
    objects = manifests.documents(manifests.rendered(tmp_path, values))
    file = tmp_path / "shmcache.toml"
    file.write_text(manifests.only(objects, "ConfigMap")["data"]["shmcache.toml"])

    loaded = config.load(str(file), {}, {})

    assert f"{tmp_path}/{values['cache']['name']}" == loaded.name
    assert sorted(values["resources"]) == sorted(plan.name for plan in loaded.plans)
    assert f":{values['metricsPort']}" == loaded.listen
    assert int(values["cache"]["mode"], 8) == loaded.memory.mode


def test_settings_of_resources_reach_the_reflector(tmp_path: Path) -> None:
    objects = manifests.documents(manifests.rendered(tmp_path, CASES["settings"]))
    settings = manifests.configuration(objects)

    over = CASES["settings"]["resources"]
    assert over["nodes"] == settings["resources"]["nodes"]
    assert over["widgets.example.com/v1"] == settings["resources"]["widgets.example.com/v1"]
    assert ["shop", "billing"] == settings["namespaces"]
    assert {"pods", "deployments.apps", "nodes", "widgets.example.com"} == manifests.allowed(
        objects
    )
    rules = manifests.only(objects, "ClusterRole")["rules"]
    assert {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["get"],
    } in rules


def test_pods_and_reflector_agree(case: str, objects: list[dict[str, Any]]) -> None:
    pod, values = manifests.pod_of(objects, KIND[case]), manifests.values(CASES[case])
    containers = {each["name"]: each for each in (*pod["initContainers"], *pod["containers"])}
    reflector, user = containers["reflector"], values["cache"]["user"]
    account = manifests.only(objects, "ServiceAccount")["metadata"]["name"]
    [subject] = manifests.only(objects, "ClusterRoleBinding")["subjects"]

    assert account == pod["serviceAccountName"] == subject["name"]
    assert user == reflector["securityContext"]["runAsUser"]
    assert values["metricsPort"] == reflector["ports"][0]["containerPort"]
    places = {each["name"]: each["mountPath"] for each in reflector["volumeMounts"]}
    assert values["cache"]["directory"] == places["cache"]
    labels = manifests.only(objects, KIND[case])["spec"]
    assert labels["selector"]["matchLabels"] == labels["template"]["metadata"]["labels"]
    assert values["reflector"]["extraArgs"] == reflector["args"][5:]


def test_a_changed_configuration_restarts_the_pods(tmp_path: Path) -> None:

    def note(over: dict[str, Any]) -> Any:
        objects = manifests.documents(manifests.rendered(tmp_path, over))
        return manifests.only(objects, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]

    assert note({}) == note({})
    assert note({}) != note({"resources": {"pods": {"labels": "a=b"}}})


def test_the_application_gets_the_cache_and_keeps_its_own_settings(tmp_path: Path) -> None:
    objects = manifests.documents(manifests.rendered(tmp_path, CASES["sidecar"]))
    pod = manifests.pod_of(objects, "Deployment")
    [web], [reflector] = pod["containers"], pod["initContainers"]

    assert "Always" == reflector["restartPolicy"]
    assert APPLICATION["container"]["image"] == web["image"]
    assert [
        {"name": "PORT", "value": "8000"},
        {"name": "SHMCACHE_NAME", "value": manifests.configuration(objects)["name"]},
    ] == web["env"]
    assert [
        {"name": "cache", "mountPath": "/other"},
        {"name": "cache", "mountPath": "/run/shmcache"},
    ] == web["volumeMounts"]


@pytest.mark.parametrize("mode", ["node", "sidecar"])
def test_the_notes_name_the_cache(mode: str, tmp_path: Path) -> None:
    text = manifests.notes(tmp_path, {"mode": mode})

    wanted = (
        'attach("/run/shmcache/cluster", trusted_uids=[65532])' if mode == "node" else "attach()"
    )
    assert wanted in text


@pytest.mark.parametrize("name", CASES)
def test_the_schema_accepts_values(name: str) -> None:
    jsonschema.validate(manifests.values(CASES[name]), SCHEMA)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"mode": "both"}, "both"),
        ({"mode": "sidecar"}, "name"),
        ({"cache": {"directory": "run/x"}}, "run/x"),
        ({"cache": {"mode": 416}}, "416"),
        ({"cache": {"user": 0}}, "0"),
        ({"resource": {}}, "resource"),
        ({"resources": {"Pods": {}}}, "Pods"),
        ({"metricsPort": "9102"}, "9102"),
    ],
)
def test_the_schema_refuses_mistakes(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=word):
        jsonschema.validate(manifests.values(wrong), SCHEMA)


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    project = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == chart["version"] == chart["appVersion"]


def become(user: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def write(pipe: Connection, name: str, mode: int, user: int) -> None:
    """The reflector's part, as its user; until the other end has read."""
    become(user, [])
    with shmcache.Writer(name, resources=["pods"], mode=mode) as writer:
        writer.apply("pods", [{"metadata": {"namespace": "shop", "name": "web-0"}}])
        pipe.send("written")
        pipe.recv()


def read(pipe: Connection, name: str, group: int, trusted: int) -> None:
    """A worker's part: a user of its own, with the group of the cache."""
    become(4242, [group])
    with shmcache.attach(name, trusted_uids=[trusted]) as cache:
        pipe.send(list(cache["pods"]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: three users share a directory")
def test_a_pod_of_the_node_reads_what_the_reflector_wrote(tmp_path: Path) -> None:
    """As rendered: root prepares the directory, user 65532 writes, user 4242 of its group reads."""
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)  # noqa: S103 - other users pass through it
        place = Path(top) / "node"
        place.mkdir(mode=0o755)
        over = {"cache": {"directory": str(place)}}
        objects = manifests.documents(manifests.rendered(tmp_path, over))
        pod = manifests.pod_of(objects, "DaemonSet")
        [first], [reflector] = pod["initContainers"], pod["containers"]
        command = [sys.executable, *first["command"][1:], *first["args"]]
        subprocess.run(command, check=True, timeout=60)
        state = place.stat()
        assert (65532, 65532, 0o2770) == (state.st_uid, state.st_gid, state.st_mode & 0o7777)

        settings = manifests.configuration(objects)
        name, mode = settings["name"], int(settings["memory"]["mode"], 8)
        user = reflector["securityContext"]["runAsUser"]
        group = reflector["securityContext"]["runAsGroup"]
        with Worker("fork", write, name, mode, user) as writing:
            assert "written" == writing.hear()
            with Worker("fork", read, name, group, user) as reading:
                assert ["shop/web-0"] == reading.hear()
            writing.tell("done")
