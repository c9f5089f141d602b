"""Invariant tested: whatever README and docs/ show can be done, and does what is said beside it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT, Block, World, blocks_of

from shmcache.locations import SharedMemory
from shmcache.segments import PREFIX, Place
from shmcache.testing import ApiServer

# Pages fork, too.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

PAGES = sorted((ROOT / "docs").glob("*.md"))
NAME = "web"
"""Of the cache of every page."""
LINK = re.compile(r"\]\((?!http)([^)#]+)(#[^)]*)?\)")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        for number in range(6):
            pod = {
                "metadata": {
                    "name": f"web-{number}",
                    "namespace": "prod",
                    "labels": {"app": "web", "tier": "a" if number % 2 else "b"},
                },
                "spec": {
                    "nodeName": f"node-{number % 3}",
                    "containers": [{"name": "app", "image": "app:1"}],
                },
                "status": {"phase": "Running", "podIP": f"10.0.0.{number}"},
            }
            started.create("pods", pod)
        started.create(
            "deployments.apps",
            {
                "metadata": {"name": "web", "namespace": "prod"},
                "spec": {
                    "replicas": 6,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
                    },
                },
            },
        )
        yield started


@pytest.fixture
def alone() -> Iterator[None]:
    """The pages' cache has a name that readers can copy: one run of them at a time."""
    with open(Path(tempfile.gettempdir()) / f"shmcache-docs-{os.getuid()}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def world(
    tmp_path: Path, alone: None, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    del alone
    if shutil.which("curl") is None:
        pytest.skip("needs curl: apt install curl")
    assert [] == SharedMemory().names(PREFIX + NAME), "a cache of this name is in use"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with World(tmp_path, server) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SHMCACHE_NAME", raising=False)
        yield made
    Place(NAME).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, world: World) -> None:
    for block in blocks_of(page):
        try:
            world.run(block)
        except Exception as error:
            raise AssertionError(f"{block}: {error!r}") from error


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target, _ in LINK.findall(text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    text = (ROOT / "docs" / "README.md").read_text()
    listed = {target for target, _ in LINK.findall(text)}

    assert {page.name for page in PAGES} - {"README.md"} <= listed


def test_a_block_of_a_kind_that_nobody_runs_is_refused(world: World) -> None:
    with pytest.raises(AssertionError, match="nobody knows how to run"):
        world.run(Block("ruby", "", ROOT / "README.md", 1))
    with pytest.raises(AssertionError, match="false"):
        world.run(Block("sh", "false", ROOT / "false", 1))


@pytest.mark.slow
def test_what_the_readme_shows_without_a_fence_works_too(world: World, server: ApiServer) -> None:
    """The indented blocks: a command, and lines for a program that has a cache."""
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^    (shmcache run .*)$", text, re.MULTILINE)
    program = re.search(
        r"^    cache = shmcache\.attach\(.*?(?=^\S)", text, re.DOTALL | re.MULTILINE
    )
    assert program is not None
    server.create("customresourcedefinitions.apiextensions.k8s.io", WIDGETS)
    page = ROOT / "README.md"
    lines = re.sub(r"^    ", "", program[0], flags=re.MULTILINE).replace("=...", "=handler")

    world.run(Block("sh", f"{command} --name {NAME} &", page, 1))
    world.run(Block("python", PROLOGUE + lines.replace('"shmcache"', repr(NAME)), page, 1))
    world.run(Block("python", "cache.close()", page, 1))


WIDGETS = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True,
                      "schema": {"openAPIV3Schema": {"type": "object"}}}],
    },
}  # fmt: skip
PROLOGUE = """
import shmcache
def handler(*_): pass
with shmcache.attach("web", timeout=60) as first:
    assert all(first[name].wait_synced(60) for name in first.resources)
    written = first["pods"]["prod/web-0"].to_dict()
"""
