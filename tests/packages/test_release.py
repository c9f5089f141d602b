"""Invariant tested: a release is refused unless every place agrees; its archives are reproducible,
and its bill of materials is valid. (`make release` builds the whole of it.)"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")

ROOT = Path(__file__).resolve().parents[2]
RELEASE = runpy.run_path(str(ROOT / "release" / "release.py"))
SBOM = runpy.run_path(str(ROOT / "release" / "sbom.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NotReady = RELEASE["NotReady"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that name the version."""
    for name in ("pyproject.toml", "CHANGELOG.md", *RELEASE["VERSIONS"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_place_names_one_version(tree: Path) -> None:
    assert PROJECT["version"] == RELEASE["check_versions"](tree)
    assert RELEASE["notes_of"](tree, PROJECT["version"]).startswith("[docs/upgrading.md]")


@pytest.mark.parametrize("name", RELEASE["VERSIONS"])
def test_a_place_with_another_version_is_found(name: str, tree: Path) -> None:
    file = tree / name
    file.write_text(file.read_text().replace(PROJECT["version"], "9.9.9"))

    with pytest.raises(NotReady, match=re.escape(name)):
        RELEASE["check_versions"](tree)


@pytest.mark.parametrize("text", ["## 0.1.0\n\nOld.\n", "## 9.9.9\n\n## 0.1.0\n\nOld.\n"])
def test_a_release_needs_notes(text: str, tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(text)

    with pytest.raises(NotReady, match="no section"):
        RELEASE["notes_of"](tree, "9.9.9")


def test_notes_name_each_wheel(tmp_path: Path) -> None:
    for tags in (
        "cp39-cp39-manylinux_2_34_x86_64",
        "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64",
    ):
        (tmp_path / f"shmcache-0.2.0-{tags}.whl").touch()

    assert RELEASE["wheels_of"](tmp_path) == (
        "* CPython 3.12, manylinux_2_17_x86_64\n* CPython 3.9, manylinux_2_34_x86_64\n"
    )


def test_a_changed_tree_and_a_used_version_are_refused(tree: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tree), *who, *words], check=True, capture_output=True)

    git("init")
    with pytest.raises(NotReady, match="not committed"):
        RELEASE["check_tree"](tree, "0.2.0")
    git("add", "-A")
    git("commit", "-m", "all")
    RELEASE["check_tree"](tree, "0.2.0")
    git("tag", "v0.2.0")
    with pytest.raises(NotReady, match="exists"):
        RELEASE["check_tree"](tree, "0.2.0")


def test_archives_depend_on_contents_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "deploy" / "kustomize", copy)
    (copy / "base" / "rbac.yaml").touch()

    RELEASE["archive"](ROOT / "deploy" / "kustomize", first, "kustomize", 7)
    RELEASE["archive"](copy, second, "kustomize", 7)

    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert "kustomize/base/rbac.yaml" in archive.getnames()


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    (tmp_path / "SHA256SUMS").write_text(RELEASE["sums"](tmp_path))
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]

    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "two").write_text("3")
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 1


# ---- the bill of materials -----------------------------------------------------------------------


def document(*requirements: str) -> dict[str, Any]:
    text = SBOM["text"]("shmcache", "0.2.0", "Apache-2.0", list(requirements))
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_bill_of_materials_is_valid() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = SBOM["text"]("shmcache", "0.2.0", "Apache-2.0", PROJECT["dependencies"])

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    wrong = text.replace('"library"', '"libary"')
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(wrong) is not None


def test_the_bill_of_materials_names_each_dependency() -> None:
    found = document("cffi>=1.16", "posix_ipc>=1.1", 'x[y]>=1; python_version < "4"')

    assert ["cffi", "posix-ipc", "x"] == [one["name"] for one in found["components"]]
    [own, *_] = found["dependencies"]
    assert ["pkg:pypi/cffi", "pkg:pypi/posix-ipc", "pkg:pypi/x"] == own["dependsOn"]
    assert document("a", "b") == document("b", "a")
    assert document("a")["serialNumber"] != document("b")["serialNumber"]


# ---- the conda recipe ----------------------------------------------------------------------------


def test_the_conda_recipe_agrees_with_the_project() -> None:
    recipe = yaml.safe_load((ROOT / "release" / "conda" / "recipe.yaml").read_text())
    needs = recipe["requirements"]

    def plain(one: str) -> str:
        return one.partition(";")[0].replace(" ", "").lower()

    assert PROJECT["version"] == recipe["context"]["version"]
    assert PROJECT["license"] == recipe["about"]["license"]
    assert sorted(map(plain, PROJECT["dependencies"])) == sorted(
        plain(one) for one in needs["run"] if one != "python"
    )
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(map(plain, build)) <= {plain(one) for one in needs["host"]}
    extras = {plain(one) for some in PROJECT["optional-dependencies"].values() for one in some}
    assert {plain(one) for one in needs["run_constraints"]} <= extras
    commands = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert commands == recipe["build"]["python"]["entry_points"]
