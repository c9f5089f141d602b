"""Makes the site of the pages: adds what lies outside of docs/, generates references, mends links.

Pages with commands continue the tutorial, so each of them gets the tutorial's start to unfold.

The pages are read on their own as well, so their links lead to files of the repository. Links to
files that the site does not have lead to the repository's address, where one is configured
(`repo_url`), and are plain text otherwise.
"""

from __future__ import annotations

import importlib
import posixpath
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

OUTSIDE = {
    "ARCHITECTURE.md": "reference/architecture.md",
    "CHANGELOG.md": "reference/changes.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "SECURITY.md": "reference/security.md",
    "benchmarks/README.md": "reference/benchmarks.md",
}
"""Pages outside of docs/, and their places in the site."""
ELSEWHERE = {"docs/README.md": "index.md", "README.md": "index.md"}
PICTURES = re.compile(r"\.(?:png|svg)$")
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WITH_START = {"tutorial.md", "index.md"}
"""Pages that have the start of the tutorial, or lead there."""
START = """
??? note "Before you start: the environment and the server of this page"

    The page goes on where the [tutorial](tutorial.md#a-cache) starts its server. In a checkout
    of the sources, in a terminal for commands:

    ```sh
{commands}    ```

    Python runs in `python` in a second terminal, in the same directory and environment. A block
    whose first line is `# name.py` is that file.
"""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages outside of docs/, the pictures of the benchmarks, and generated pages."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    for picture in sorted((ROOT / "benchmarks" / "pictures").glob("*.*")):
        place = f"reference/pictures/{picture.name}"
        files.append(File.generated(config, place, abs_src_path=str(picture)))
    files.append(File.generated(config, "reference/cli.md", content=_commands()))
    files.append(File.generated(config, "llms.txt", content=_overview(config["nav"])))
    icon = (ROOT / "shmcache/serve/ui/static/icon.svg").read_text()
    files.append(File.generated(config, "pictures/icon.svg", content=icon))
    return files


def on_page_markdown(text: str, *, page: Any, config: Any, files: Files) -> str:
    """Makes each link lead to the site's own page, where there is one."""
    here = page.file.src_uri
    source = next((name for name, place in OUTSIDE.items() if place == here), f"docs/{here}")

    def mend(found: re.Match[str]) -> str:
        picture, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = OUTSIDE.get(whole) or ELSEWHERE.get(whole)
        if place is None and whole.startswith("docs/"):
            place = whole.removeprefix("docs/")
        if place is None and PICTURES.search(whole):
            place = f"reference/pictures/{posixpath.basename(whole)}"
        if place is None or files.get_file_from_path(place) is None:
            return f"`{label.strip('`')}`" if not config.get("repo_url") else (
                f"[{label}]({config['repo_url'].rstrip('/')}/blob/main/{whole}{anchor})"
            )  # fmt: skip
        near = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"{picture}[{label}]({near}{anchor})"

    if "/" not in here and here not in WITH_START and SHELL.search(text):
        heading, _, rest = text.partition("\n")
        text = f"{heading}\n{START.format(commands=_start())}{rest}"
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(mend, part) for part in parts)


def _start() -> str:
    """The tutorial's commands up to its server, indented."""
    blocks = SHELL.findall((ROOT / "docs" / "tutorial.md").read_text())
    last = next(number for number, text in enumerate(blocks) if "testing.apiserver" in text)
    return textwrap.indent("\n".join(blocks[: last + 1]), "    ")


def _commands() -> str:
    """Every command with its help, as its parser prints it."""
    from shmcache.__main__ import COMMANDS, EXIT_CODES
    from shmcache.cli.arguments import Parser

    lines = ["# Command line", "", "Generated from the parsers of the commands.", ""]
    for name, about in COMMANDS.items():
        if name == "help":
            continue
        module = importlib.import_module(f"shmcache.cli.commands.{name}")
        parser = Parser(name, module.HELP)
        module.add_arguments(parser)
        lines += [
            f"## shmcache {name}",
            "",
            f"{about}.",
            "",
            "```text",
            parser.format_help(),
            "```",
            "",
        ]
    return "\n".join([*lines, "## Exit statuses", "", "```text", EXIT_CODES, "```", ""])


def _overview(nav: list[dict[str, Any]]) -> str:
    """The pages in one text, for programs that read documentation (llmstxt.org)."""
    lines = [
        "# shmcache",
        "",
        "> One Kubernetes informer cache per machine, not one per process.",
        "",
    ]
    for part in nav:
        for title, pages in part.items():
            some = pages if isinstance(pages, list) else [{title: pages}]
            lines += [f"## {title}", ""]
            lines += [f"- [{name}]({place})" for name, place in _pages(some)]
            lines.append("")
    return "\n".join(lines)


def _pages(nav: list[Any]) -> Iterator[tuple[str, str]]:
    """Names and addresses of pages, in their order."""
    for one in nav:
        for name, place in one.items() if isinstance(one, dict) else [("", one)]:
            if isinstance(place, list):
                yield from _pages(place)
            else:
                address = place.removesuffix(".md").replace("README", "index") + ".html"
                yield name or place.rpartition("/")[2].removesuffix(".md"), address
