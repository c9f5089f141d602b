"""`make release`: everything but the upload.

    python release/release.py [--check]

1. All files name one version, which has a section in CHANGELOG.md. `--check` ends here. The tree
   is committed, and the version has no tag yet.
2. `make wheels`: the sdist and a wheel for each CPython, installed and used; two builds have one
   hash. An interpreter that cannot be had ends the release, unless WHEELS leaves it out.
3. The site, the man pages, the chart and the manifests of deploy/ as archives, which are the same
   bytes for the same commit.
4. dist/NOTES.md has the section of the changelog and names the wheels, dist/SHA256SUMS has the hash
   of each file.

The commands that publish are printed, never run.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
ARCHIVES = {"chart": "deploy/helm/shmcache", "manifests": "deploy", "man": "docs/man"}
"""Folders that are released as archives."""


class NotReady(Exception):
    """Its text names the missing part."""


def version_of(root: Path) -> str:
    """The version of the package."""
    found = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return str(found)


VERSIONS: dict[str, str] = {
    "shmcache/__init__.py": r'^__version__ = "(.+)"$',
    "deploy/helm/shmcache/Chart.yaml": r"^version: (.+)$",
    "deploy/kustomize/example/kustomization.yaml": r"newTag: ([0-9.]+)",
    "release/conda/recipe.yaml": r'^  version: "(.+)"$',
    "docs/man/shmcache.1": r'"shmcache ([0-9.]+)"',
}
"""Files that repeat the version, and where."""


def check_versions(root: Path) -> str:
    """The version, which all files have. NotReady names the one that differs."""
    version = version_of(root)
    for name, pattern in VERSIONS.items():
        found = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
        if found != [version]:
            raise NotReady(f"{name} has the version {found}, pyproject.toml {version}")
    return version


def notes_of(root: Path, version: str) -> str:
    """The section of the changelog. NotReady if it is missing or empty."""
    text = (root / "CHANGELOG.md").read_text()
    found = re.search(
        rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    if found is None or not found[1].strip():
        raise NotReady(f"CHANGELOG.md has no section ## {version} with changes")
    return found[1].strip() + "\n"


def wheels_of(folder: Path) -> str:
    """A line for each wheel: `* CPython 3.12, manylinux_2_34_x86_64`."""
    names = sorted(file.stem.split("-") for file in folder.glob("*.whl"))
    lines = [
        f"* CPython {python[2]}.{python[3:]}, {platform.partition('.')[0]}\n"
        for _, _, python, _, platform in names
    ]
    return "".join(lines)


def git(root: Path, *words: str) -> str:
    """The output of a command of git."""
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def check_tree(root: Path, version: str) -> None:
    """NotReady with uncommitted changes, or if the version was released already."""
    if changed := git(root, "status", "--porcelain"):
        raise NotReady(f"the tree has changes that are not committed:\n{changed}")
    if git(root, "tag", "--list", f"v{version}"):
        raise NotReady(f"the tag v{version} exists: raise the version")


def archive(source: Path, target: Path, top: str, moment: int) -> None:
    """A .tar.gz whose bytes depend on names, modes and contents alone."""
    import gzip

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(one for one in source.rglob("*") if one.is_file()):
            if "__pycache__" in file.parts:
                continue
            entry = tarfile.TarInfo(f"{top}/{file.relative_to(source).as_posix()}")
            entry.size, entry.mtime, entry.mode = file.stat().st_size, moment, 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)
    with target.open("wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=moment) as packed:
        packed.write(raw.getvalue())


def sums(folder: Path) -> str:
    """The lines of SHA256SUMS: `sha256sum --check` reads them."""
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name != "SHA256SUMS"
    ]
    return "".join(lines)


def steps(version: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each step that makes something, and its name."""
    python = sys.executable
    moment = int(git(ROOT, "log", "-1", "--format=%ct"))

    def packages() -> None:
        shutil.rmtree(DIST, ignore_errors=True)
        run("make", "--no-print-directory", "wheels", f"VENV={sys.prefix}")

    def site() -> None:
        shutil.rmtree(ROOT / "build" / "site", ignore_errors=True)
        run(python, "release/documentation.py", "build/site")
        archive(ROOT / "build" / "site", DIST / f"shmcache-{version}-site.tar.gz", "site", moment)

    def archives() -> None:
        for name, folder in ARCHIVES.items():
            target = DIST / f"shmcache-{version}-{name}.tar.gz"
            archive(ROOT / folder, target, "shmcache" if name == "chart" else name, moment)

    def notes() -> None:
        text = f"{notes_of(ROOT, version)}\n### Wheels\n\n{wheels_of(DIST)}"
        (DIST / "NOTES.md").write_text(text)
        (DIST / "SHA256SUMS").write_text(sums(DIST))

    yield "packages: sdist and wheels", packages
    yield "documentation as a site", site
    yield "chart, manifests and man pages", archives
    yield "notes and checksums", notes


def run(*command: str) -> None:
    """Runs a command in the project. NotReady if it fails."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise NotReady(f"{' '.join(command)} ended with status {done.returncode}")


def main(arguments: list[str]) -> int:
    """The whole release; its exit status."""
    try:
        version = check_versions(ROOT)
        notes_of(ROOT, version)
        if arguments == ["--check"]:
            print(f"{version} is named everywhere, and has notes")
            return 0
        check_tree(ROOT, version)
        for name, step in steps(version):
            print(f"== {name}", flush=True)
            step()
    except NotReady as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    files = "\n".join(f"    {file.name}" for file in sorted(DIST.iterdir()))
    print(
        f"\nshmcache {version} is in dist/:\n{files}\n\nTo publish it:\n"
        f"    git tag --sign --message 'shmcache {version}' v{version}\n"
        f"    git push origin v{version}\n"
        f"    {sys.executable} -m twine upload dist/*.whl dist/shmcache-{version}.tar.gz\n"
        "    make site SITE=FOLDER        # adds this version to the published site"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
