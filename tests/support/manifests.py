"""Manifests of deploy/, rendered by kubectl and by Go's template engine, and compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "shmcache"
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")
HELM = shutil.which("helm")
ENGINES = ["go", "helm"] if HELM else ["go"]
"""The engines of this machine that render the chart."""

_RENDER = """
import json, sys
from pathlib import Path
import go_template
[file, values] = sys.argv[1:]
sys.stdout.buffer.write(go_template.render(Path(file), json.loads(values)))
"""

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    """The objects of a YAML text."""
    return [each for each in yaml.safe_load_all(text) if each]


def kustomized(overlay: str) -> list[Manifest]:
    """A folder of deploy/kustomize, built by kubectl."""
    assert KUBECTL is not None
    command = [KUBECTL, "kustomize", str(DEPLOY / "kustomize" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return documents(done.stdout)


def merged(base: Any, over: Any) -> Any:
    """Values over the defaults, as Helm merges them: tables by their keys."""
    if isinstance(base, dict) and isinstance(over, dict):
        keys = {**base, **over}
        return {key: merged(base.get(key), over.get(key, base.get(key))) for key in keys}
    return over


def values(over: Manifest) -> Manifest:
    """The values of the chart: its defaults, and these."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    found: Manifest = merged(defaults, over)
    return found


def rendered(place: Path, over: Manifest, engine: str = "go") -> str:
    """The chart's objects as text, of the release `web` in the namespace `shop`."""
    return _by_helm(place, over) if engine == "helm" else _by_go(place, over)


def _by_helm(place: Path, over: Manifest) -> str:
    """By Helm itself, which also lints the chart."""
    file = place / "values.yaml"
    file.write_text(yaml.safe_dump(over))
    _helm("lint", "--strict", str(CHART), "-f", str(file))
    return _helm("template", "web", str(CHART), "-n", "shop", "-f", str(file))


def _helm(*words: str) -> str:
    command = [str(HELM), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr), done.stdout + done.stderr
    return done.stdout


def _by_go(place: Path, over: Manifest) -> str:
    """By Go's text/template with Sprig, in a process of its own.

    Helm is not in any package registry, its engine is. The chart keeps to functions that both have.
    """
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {
        "Values": values(over),
        "Release": {"Name": "web", "Namespace": "shop", "Service": "Helm"},
        "Chart": {
            "Name": chart["name"],
            "Version": chart["version"],
            "AppVersion": chart["appVersion"],
        },
    }
    names = (CHART / "templates" / "_names.tpl").read_text()
    texts = []
    for file in sorted((CHART / "templates").glob("*.yaml")):
        whole = place / file.name
        whole.write_text(names + file.read_text())
        texts.append(_go(whole, scope))
    return "---\n".join(texts)


def notes(place: Path, over: Manifest) -> str:
    """The text that Helm prints after an installation."""
    (place / "NOTES.txt").write_text((CHART / "templates" / "NOTES.txt").read_text())
    return _go(place / "NOTES.txt", {"Values": values(over)})


def _go(file: Path, scope: Manifest) -> str:
    command = [sys.executable, "-c", _RENDER, str(file), json.dumps(scope)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (done.returncode, done.stderr), f"{file.name}: {done.stderr}"
    return done.stdout


def only(objects: list[Manifest], kind: str) -> Manifest:
    """The one object of a kind."""
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def allowed(objects: list[Manifest]) -> set[str]:
    """The resources that the ClusterRole lets the reflector list and watch."""
    return {
        resource + (f".{group}" if group else "")
        for rule in only(objects, "ClusterRole")["rules"]
        if rule["verbs"] == ["list", "watch"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def configuration(objects: list[Manifest]) -> Manifest:
    """The reflector's configuration, from its ConfigMap."""
    return tomllib.loads(only(objects, "ConfigMap")["data"]["shmcache.toml"])


def pod_of(objects: list[Manifest], kind: str) -> Manifest:
    """The specification of the Pods that a workload makes."""
    found: Manifest = only(objects, kind)["spec"]["template"]["spec"]
    return found


def dropped_by_the_models(obj: Manifest) -> list[str]:
    """Fields that the official models do not have; a server would drop them silently."""
    from kubernetes.client import ApiClient

    from shmcache.models.decoding import to_model

    with ApiClient() as client:
        return _missing(obj, client.sanitize_for_serialization(to_model(obj)))


def _missing(obj: Any, kept: Any, path: str = "") -> list[str]:
    if isinstance(obj, dict) and isinstance(kept, dict):
        return [
            place
            for key, value in obj.items()
            for place in _missing(value, kept.get(key), f"{path}.{key}")
        ]
    if isinstance(obj, list) and isinstance(kept, list) and len(obj) == len(kept):
        return [
            place
            for number, (one, other) in enumerate(zip(obj, kept, strict=True))
            for place in _missing(one, other, f"{path}[{number}]")
        ]
    return [] if obj == kept or not (obj or kept) else [path]
