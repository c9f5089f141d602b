"""The documentation as a site: every page, every link, no request to another host, a search."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shmcache.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("material", reason="pip install mkdocs-material")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    place = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(place)]
    told = subprocess.run(
        argv, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return place


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
