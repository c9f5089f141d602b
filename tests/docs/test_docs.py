"""Invariant tested: whatever README and docs/ show can be done, and does what is said beside it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pages import ROOT, Block, World, blocks_of

from shmcache.locations import SharedMemory
from shmcache.segments import PREFIX, Place
from shmcache.testing import ApiServer
from shmcache.testing.apiserver.__main__ import load

# Pages fork, too.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

PAGES = sorted((ROOT / "docs").glob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorial.md"
NAME = "web"
"""Of the cache of every page."""
ROW = re.compile(r"R-[A-Z]{2}-\d\d")
LINK = re.compile(r"\]\((?!http)([^)#]+)(#[^)]*)?\)")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of objects that the tutorial makes, and that all pages speak of."""
    place = tmp_path_factory.mktemp("cluster")
    (made,) = [block for block in blocks_of(TUTORIAL) if "> cluster.json" in block.text]
    World(place).run(made)
    return place / "cluster.json"


@pytest.fixture
def server(cluster: Path) -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        load(started, str(cluster))
        yield started


@pytest.fixture
def alone() -> Iterator[None]:
    """The pages' cache has a name that readers can copy: one run of them at a time."""
    with open(Path(tempfile.gettempdir()) / f"shmcache-docs-{os.getuid()}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def world_in(place: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: str = "") -> Iterator[World]:
    if shutil.which("curl") is None:
        pytest.skip("needs curl: apt install curl")
    assert [] == SharedMemory().names(PREFIX + NAME), "a cache of this name is in use"
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    with World(place, kubeconfig) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SHMCACHE_NAME", raising=False)
        yield made
    Place(NAME).unlink()


@pytest.fixture
def world(
    tmp_path: Path, alone: None, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    del alone
    kubeconfig = server.kubeconfig(str(tmp_path / ".kubeconfig"))
    with world_in(tmp_path, monkeypatch, kubeconfig) as made:
        yield made


def done(page: Path, world: World) -> None:
    for block in blocks_of(page):
        try:
            world.run(block)
        except Exception as error:
            raise AssertionError(f"{block}: {error!r}") from error


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({*PAGES} - {TUTORIAL}), ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, world: World) -> None:
    done(page, world)


@pytest.mark.slow
def test_the_tutorial_needs_nothing_but_itself(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a server nor a kubeconfig: it starts the one, and exports the other."""
    del alone
    with world_in(tmp_path, monkeypatch) as world:
        done(TUTORIAL, world)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target, _ in LINK.findall(text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_each_row_of_behaviour_that_is_cited_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "behaviour.md").read_text()
    sources = [file for place in ("shmcache", "tests") for file in (ROOT / place).rglob("*.py")]
    cited = {row for file in sources for row in ROW.findall(file.read_text())}

    assert sorted(cited) == sorted(re.findall(rf"^\| ({ROW.pattern}) \|", page, re.MULTILINE))
    assert set(ROW.findall((ROOT / "ARCHITECTURE.md").read_text())) <= cited


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
