"""Builds this version into a site of all versions: python release/documentation.py FOLDER.

    FOLDER/0.2.0/           the pages of one version; folders of other versions stay as they are
    FOLDER/latest/          a copy of the newest one
    FOLDER/versions.json    the list for the menu in each page's head
    FOLDER/versions.html    the same list for readers without JavaScript
    FOLDER/index.html       leads to latest/

No network is needed: FOLDER may be a checkout of the published site, or an empty directory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"\d+(?:\.\d+)+")
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">{head}
<title>shmcache: {title}</title>
<h1>{title}</h1>
{body}
</html>
"""


def build(folder: Path, version: str) -> None:
    """The pages of this version; those of a former build are removed."""
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    subprocess.run(
        [*argv, "--site-dir", folder.resolve() / version],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )


def versions(folder: Path) -> list[str]:
    """The versions that the site has, the newest first."""
    found = [
        one.name
        for one in folder.iterdir()
        if VERSION.fullmatch(one.name) and (one / "index.html").is_file()
    ]
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def join(folder: Path) -> None:
    """Everything that is about several versions: latest/, and the lists."""
    names = versions(folder)
    shutil.rmtree(folder / "latest", ignore_errors=True)
    shutil.copytree(folder / names[0], folder / "latest")
    rows = [
        {"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []}
        for name in names
    ]
    (folder / "versions.json").write_text(json.dumps(rows, indent=1) + "\n")
    links = [f'<li><a href="{name}/index.html">{name}</a></li>' for name in names]
    links[0] = links[0].replace("</li>", ', also as <a href="latest/index.html">latest</a></li>')
    body = "\n".join(["<ul>", *links, "</ul>"])
    (folder / "versions.html").write_text(PAGE.format(head="", title="all versions", body=body))
    head = '\n<meta http-equiv="refresh" content="0; url=latest/index.html">'
    body = (
        '<p><a href="latest/index.html">Documentation</a>, <a href="versions.html">versions</a></p>'
    )
    (folder / "index.html").write_text(PAGE.format(head=head, title="documentation", body=body))


def main(folder: Path) -> None:
    """The site with this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder.mkdir(parents=True, exist_ok=True)
    build(folder, project["version"])
    join(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
