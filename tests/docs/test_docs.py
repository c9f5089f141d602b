"""Invariant tested: every command and program in README and docs/ runs and does as described."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pages import OURS, ROOT, Block, World, blocks_of, renamed

from shmcache.__main__ import COMMANDS
from shmcache.cli.arguments import Parser
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place
from shmcache.testing import ApiServer
from shmcache.testing.apiserver.__main__ import load

# Pages fork, too.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

PAGES = sorted((ROOT / "docs").glob("*.md"))
RUN = [page for page in PAGES if blocks_of(page)]
LINKED = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
TUTORIAL = ROOT / "docs" / "tutorial.md"
ROW = re.compile(r"R-[A-Z]{2}-\d\d")
LINK = re.compile(r"\]\((?!http)([^)#]*)(#[^)]*)?\)")


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
    assert [] == SharedMemory().names(PREFIX + OURS), "an earlier page left its cache"
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    with World(place, kubeconfig) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SHMCACHE_NAME", raising=False)
        yield made
    Place(OURS).unlink()


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
@pytest.mark.parametrize("page", sorted({*RUN} - {TUTORIAL}), ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, world: World) -> None:
    if page.stem == "etcd" and shutil.which("etcd") is None:
        pytest.skip("needs etcd: apt install etcd-server")
    done(page, world)


@pytest.mark.slow
def test_the_tutorial_needs_nothing_but_itself(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a server nor a kubeconfig: it starts the one, and exports the other."""
    del alone
    with world_in(tmp_path, monkeypatch) as world:
        done(TUTORIAL, world)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_page_and_an_anchor(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in LINK.findall(text):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor[1:] in anchors(file), f"{page.name} links to {target}{anchor}"


def anchors(page: Path) -> set[str]:
    """Those that a page's headings have where it is shown, and those that it sets itself."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return {*plain, *re.findall(r'<a id="([^"]+)"', page.read_text())}


def test_each_row_of_behaviour_that_is_cited_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "behaviour.md").read_text()
    sources = [file for place in ("shmcache", "tests") for file in (ROOT / place).rglob("*.py")]
    cited = {row for file in sources for row in ROW.findall(file.read_text())}

    assert sorted(cited) == sorted(re.findall(rf"^\| ({ROW.pattern}) \|", page, re.MULTILINE))
    decisions = (ROOT / "docs" / "decisions").glob("*.md")
    assert {row for each in decisions for row in ROW.findall(each.read_text())} <= cited


PATH = re.compile(r"`((?:csrc|shmcache|tests|benchmarks|docs|deploy|examples)/[\w/.-]+)`")


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_a_page_exists(page: Path) -> None:
    assert [] == [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]


def test_the_architecture_is_read_in_ten_minutes_and_names_functions_where_they_are() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    stops = re.findall(r"`((?:csrc|shmcache)/[\w/]+\.\w+)` `(\w+)", text)

    assert len(text.splitlines()) <= 250
    assert len(text.encode()) <= 14 << 10
    assert len(stops) > 15
    missing = [
        stop for stop in stops if not re.search(rf"\b{stop[1]}\b", (ROOT / stop[0]).read_text())
    ]
    assert [] == missing


def test_the_track_record_names_tests_that_exist() -> None:
    named = re.findall(r"`(\w+\.(?:py|c|pml))`", (ROOT / "docs" / "track-record.md").read_text())
    there = {file.name for file in (ROOT / "tests").rglob("*")}

    assert named
    assert set() == set(named) - there


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OTHERS = {  # of docker, gunicorn, uvicorn, etcd, kubectl, helm, API servers
    "--advertise-client-urls", "--bind", "--chunk-size", "--cluster", "--data-dir",
    "--experimental-watch-progress-notify-interval", "--listen-client-urls", "--listen-peer-urls",
    "--load", "--raw", "--server-print", "--set", "--shm-size", "--storage-media-type",
    "--subresource", "--system", "--uds", "--watch-cache", "--worker-class",
}  # fmt: skip
OLD_NAMES = {"commands.md", "upgrading.md", "track-record.md"}
"""Pages that explain earlier names."""


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_a_page_names_options_as_the_help_does(page: Path) -> None:
    known = {option for name in COMMANDS if name != "help" for option in options_of(name)}
    assert "--listen" in known
    assert "--address" not in known
    if page.name not in OLD_NAMES:
        text = re.sub(r"\bcurl .*", "", page.read_text())
        assert set() == set(OPTION.findall(text)) - known - OTHERS


def options_of(command: str) -> list[str]:
    module = importlib.import_module(f"shmcache.cli.commands.{command}")
    parser = Parser(command, module.HELP)
    module.add_arguments(parser)
    return parser.options()


def test_every_page_is_in_the_index() -> None:
    text = (ROOT / "docs" / "README.md").read_text()
    listed = {target for target, _ in LINK.findall(text)}

    assert {page.name for page in PAGES} - {"README.md"} <= listed


def test_only_names_of_caches_are_replaced() -> None:
    kept = '{"labels": {"app": "web"}} attach("web-small") curl http://web/ prod/web -l app=web'

    assert kept == renamed(kept)
    for text in ("--name web ", "--cache web", 'attach("web")', 'hooks("pods", name="web")'):
        assert OURS in renamed(text)
    assert f'name = "{OURS}"' == renamed('name = "web"')


def test_a_block_of_a_kind_that_nobody_runs_is_refused(world: World) -> None:
    with pytest.raises(AssertionError, match="nobody knows how to run"):
        world.run(Block("ruby", "", ROOT / "README.md", 1))
    with pytest.raises(AssertionError, match="false"):
        world.run(Block("sh", "false", ROOT / "false", 1))


@pytest.mark.slow
def test_the_indented_blocks_of_the_readme_work_too(world: World) -> None:
    """A command, and lines for a program that has a cache."""
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^    (shmcache run .*)$", text, re.MULTILINE)
    program = re.search(
        r"^    cache = shmcache\.attach\(.*?(?=^\S)", text, re.DOTALL | re.MULTILINE
    )
    assert program is not None
    page = ROOT / "README.md"
    lines = re.sub(r"^    ", "", program[0], flags=re.MULTILINE).replace("=...", "=handler")

    world.run(Block("sh", f"{command} --cache {OURS} &", page, 1))
    world.run(Block("python", PROLOGUE + lines.replace('"shmcache"', repr(OURS)), page, 1))
    world.run(Block("python", "cache.close()", page, 1))


PROLOGUE = """
import shmcache
def handler(*_): pass
with shmcache.attach("web", timeout=60) as first:
    assert all(first[name].wait_synced(60) for name in first.resources)
    written = first["pods"]["prod/web-0"].to_dict()
"""
