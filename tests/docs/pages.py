"""Pages of documentation, and a place where what they say can be done: nothing of it is pretended.

    ```python            runs in the page's one interpreter, after the blocks before it
    ```python  # name.py as its first line: becomes that file, for the commands that follow
    ```toml              is a configuration; with # name.toml as its first line, becomes that file
    ```sh                bash -eu; what it leaves in the background ends with the page
    ```yaml, ```ini      is read by a parser of its kind
    ```text              what something prints, or a drawing: not run

An API server with the tutorial's objects is where KUBECONFIG leads, but for the tutorial, which has
to start its own; the page is in an empty directory, and what it exports stays for its later blocks.
Commands that would change the machine (pip, docker, systemctl ...) are noted instead of done; a
virtual environment that is made is an empty one, so that this one goes on.

The cache of every page is called "web". Here it has the name OURS instead, so that the pages never
touch a cache of the user, nor each other's.
"""

from __future__ import annotations

import configparser
import dataclasses
import os
import re
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shmcache.engine import config as configuration

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
OURS = f"docs-{os.getpid()}"
"""The name of the pages' cache."""
_NAMED = re.compile(
    r"""(--(?:name|cache)[ ]|(?:attach|attached|Writer|lifespan|run|wsgi_app|asgi_app)\("
    |\bname=")web\b(?!-)|(?<=^name[ ]=[ ]")web\b""",
    re.VERBOSE | re.MULTILINE,
)
NOTED = ("python3", "pip", "docker", "systemctl", "useradd", "sudo", "mount", "sysctl")
_TOOL = """#!/bin/sh
echo "{name} $*" >> {place}/.noted
case "{name} $1 $2" in "python3 -m venv") mkdir -p "$3/bin" && : > "$3/bin/activate" ;; esac
"""
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml))\n")


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    text: str
    page: Path
    line: int

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line} ({self.kind})"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found[1], found[2], page, text.count("\n", 0, found.start()) + 2)
        for found in _BLOCK.finditer(text)
    ]


class World:
    """Where the blocks of one page are run. A context manager."""

    def __init__(self, place: Path, kubeconfig: str = "") -> None:
        self.place = place
        self._names: dict[str, Any] = {"__name__": "page"}
        self._started: list[subprocess.Popen[bytes]] = []
        self._log = place / ".log"
        tools = place / ".bin"
        tools.mkdir()
        for name in NOTED:
            tool = tools / name
            tool.write_text(_TOOL.format(name=name, place=place))
            tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        found = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {
            "PATH": found,
            "PYTHONPATH": f"{ROOT}:{place}",
            "HOME": str(place),
            "KUBECONFIG": kubeconfig,
            "PYTHONUNBUFFERED": "1",
        }
        self._exported: dict[str, str] = {}

    def run(self, block: Block) -> None:
        """Does what the block says; an exception names it where it fails."""
        block = dataclasses.replace(block, text=renamed(block.text))
        named = _FILE.match(block.text)
        if named is not None:
            (self.place / named[1]).write_text(block.text)
        match block.kind:
            case "python" if named is not None:
                compile(block.text, str(block), "exec")
            case "python":
                blank = "\n" * (block.line - 1)  # so that tracebacks name the page's lines
                code = compile(blank + block.text, str(block.page), "exec", dont_inherit=True)
                exec(code, self._names)  # noqa: S102
            case "toml":
                self._configuration(block)
            case "sh":
                self._shell(block)
            case "yaml":
                import yaml

                assert list(yaml.safe_load_all(block.text)), block
            case "ini":
                configparser.ConfigParser(strict=False).read_string(block.text)
            case "text":
                pass
            case kind:
                raise AssertionError(f"{block}: nobody knows how to run {kind or 'it'}")

    def _configuration(self, block: Block) -> None:
        file = self.place / ".checked.toml"
        file.write_text(block.text)
        configuration.load(str(file), {}, {})

    def _shell(self, block: Block) -> None:
        """Its background stays, in the session that it began; what it exports, for the next one."""
        exports = self.place / ".exports"
        with self._log.open("ab") as log:
            shell = subprocess.Popen(
                ["bash", "-euc", f"{block.text}\nenv -0 > {exports}"],
                cwd=self.place,
                env={**os.environ, **self._exported},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._started.append(shell)
            assert 0 == shell.wait(PATIENCE), f"{block}:\n{self._log.read_text()}"
        lines = exports.read_text().split("\0")
        self._exported = dict(line.split("=", 1) for line in lines if line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        cache = self._names.get("cache")
        if cache is not None:
            cache.close()
        _end({shell.pid for shell in self._started})


def renamed(text: str) -> str:
    """A block with OURS as the name of the cache, wherever a name of a cache is."""
    return _NAMED.sub(lambda found: (found[1] or "") + OURS, text)


def _end(sessions: set[int]) -> None:
    """Everything in these sessions drains, and has ended when this returns."""
    import psutil

    mine = [each for each in psutil.process_iter() if _session(each.pid) in sessions]
    for each in mine:
        try:
            each.send_signal(signal.SIGTERM)
        except psutil.NoSuchProcess:
            continue
    _, stubborn = psutil.wait_procs(mine, timeout=PATIENCE)
    for each in stubborn:
        each.kill()
    assert not stubborn, f"they do not end: {stubborn}"


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
