"""The documentation as a site: every page, every link, no request to another host, a search."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import runpy
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shmcache.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("material", reason="pip install mkdocs-material")


RELEASE = runpy.run_path(str(ROOT / "release" / "documentation.py"))
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of all versions: this one was added to older ones, without a warning."""
    place = tmp_path_factory.mktemp("site")
    for name in ("0.1.0", "0.0.9", "notes"):
        (place / name).mkdir()
        (place / name / "index.html").write_text(f"<title>{name}</title>")
    argv = [sys.executable, str(ROOT / "release" / "documentation.py"), str(place)]
    told = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return place


@pytest.fixture(scope="module")
def site(sites: Path) -> Path:
    """The pages of this version."""
    return sites / str(VERSION)


class Loads(HTMLParser):
    """Everything that a browser loads for a page by itself, and every link."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in {"script", "img", "iframe"} and found.get("src"):
            self.loads.append(found["src"] or "")
        if tag == "link" and found.get("rel") in {"stylesheet", "icon", "preconnect", "preload"}:
            self.loads.append(found.get("href") or "")
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")


def pages(site: Path) -> Iterator[tuple[Path, Loads]]:
    for page in sorted(site.rglob("*.html")):
        found = Loads()
        found.feed(page.read_text())
        yield page, found


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    for page, found in pages(site):
        assert [one for one in found.loads if re.match(r"(?:https?:)?//", one)] == [], page


def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    broken = []
    for page, found in pages(site):
        if page.name == "404.html":
            continue  # its links are absolute: it is shown at any address
        for link in {*found.links, *found.loads}:
            path = link.partition("#")[0].partition("?")[0]
            if path and ":" not in path and not (page.parent / path).resolve().exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_every_page_of_the_documentation_is_in_the_navigation(site: Path) -> None:
    told = (site / "llms.txt").read_text()
    missing = [
        page.name
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name != "README.md" and f"{page.stem}.html" not in told
    ]
    assert missing == []


def test_the_command_line_is_generated_from_the_parsers(site: Path) -> None:
    text = (site / "reference" / "cli.html").read_text()
    for command in set(COMMANDS) - {"help"}:
        assert f"usage: shmcache {command}" in text


def test_a_page_with_commands_has_the_start_that_they_need(site: Path) -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name in {"README.md", "index.md", "tutorial.md"}:
            continue
        shown = re.sub("<[^>]*>", "", (site / f"{page.stem}.html").read_text())
        needs = "\n```sh\n" in page.read_text()
        assert needs == ("Before you start:" in shown), page.name
        assert not needs or "shmcache.testing.apiserver --load cluster.json" in shown, page.name


def test_the_search_knows_the_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {one["location"].partition("#")[0] for one in index["docs"]}
    assert {"tutorial.html", "migration.html", "reference/cli.html"} <= places


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "benchmarks" / "pictures").iterdir()), ids=lambda file: file.stem
)
def test_a_drawing_follows_the_colours_of_its_reader(picture: Path) -> None:
    assert ".svg" == picture.suffix
    assert "prefers-color-scheme: dark" in picture.read_text()


def test_a_site_lists_its_versions_and_the_newest_is_latest(sites: Path) -> None:
    told = json.loads((sites / "versions.json").read_text())
    assert [one["version"] for one in told] == [VERSION, "0.1.0", "0.0.9"]
    assert [one["aliases"] for one in told] == [["latest"], [], []]
    for name in ("index.html", "tutorial.html", "search/search_index.json"):
        assert (sites / "latest" / name).read_bytes() == (sites / VERSION / name).read_bytes()
    for name in ("index.html", "versions.html"):
        found = Loads()
        found.feed((sites / name).read_text())
        assert found.links
        assert [link for link in found.links if not (sites / link).is_file()] == []
    assert "url=latest/index.html" in (sites / "index.html").read_text()


def test_versions_are_ordered_by_number(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "latest", "1.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "2.0").mkdir()  # has no pages
    assert RELEASE["versions"](tmp_path) == ["1.0", "0.10.0", "0.9.0"]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server with this folder."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.mark.slow
def test_a_reader_goes_from_one_version_to_another(sites: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("apt-get install chromium")
    with served(sites) as address, api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address)
        page.wait_for_url("**/latest/index.html")
        menu = page.locator(".md-version")
        menu.locator(".md-version__current", has_text=VERSION).focus()
        menu.get_by_role("link", name="0.1.0").click()
        page.wait_for_url("**/0.1.0/**")
        assert page.title() == "0.1.0"
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault_of_accessibility(sites: Path, scheme: str) -> None:
    """Of each kind of page: home, code with tables, wide tables."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python"
    )
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("apt-get install chromium")
    with served(sites) as address, api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(color_scheme=scheme)
        for name in ("index", "integrations", "reference/benchmarks"):
            page.goto(f"{address}/latest/{name}.html")
            page.wait_for_timeout(300)
            serious = [
                (one["id"], one["nodes"][0]["html"][:200])
                for one in axe.Axe().run(page).response["violations"]
                if one["impact"] in {"serious", "critical"}
            ]
            assert serious == [], name
        browser.close()
