"""Invariant tested: the command line starts quickly, and flags say what a file would say."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from shmcache.cli import run

HELP = """
import sys
from shmcache.__main__ import main
try:
    main(["--help"])
except SystemExit as end:
    heavy = {"orjson", "urllib3", "kubernetes", "tomllib", "logging", "asyncio", "dataclasses"}
    print(end.code, sorted(heavy & set(sys.modules)))
"""


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return parser.parse_args(arguments)


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    said = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True
    ).stdout

    assert "run" in said
    assert "demo" in said
    assert "0 []" == said.splitlines()[-1]


def test_flags_say_what_a_file_says() -> None:
    options = parsed(
        *("pods", "deployments.apps", "-n", "a,b", "-l", "app=web", "--metadata-only"),
        *("--index", "pods:node=spec.nodeName", "--index", "nodes:zone=metadata.labels"),
        *("--arena-max", "1GiB", "--allow-secrets", "--server", "http://x", "--replay", "f"),
    )

    shared = {"labels": "app=web", "metadata_only": True}
    assert {
        "namespaces": "a,b",
        "allow_secrets": True,
        "server": "http://x",
        "replay": "f",
        "memory": {"arena_max": "1GiB"},
        "resources": {
            "pods": {**shared, "indices": {"node": "spec.nodeName"}},
            "deployments.apps": shared,
            "nodes": {"indices": {"zone": "metadata.labels"}},
        },
    } == run.flags_of(options)


def test_nothing_said_is_nothing_set() -> None:
    assert {"memory": {}, "resources": {}} == run.flags_of(parsed())


@pytest.mark.parametrize("text", ["node", "pods:node", "pods:=x", ":node=x", "pods:node="])
def test_an_index_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RESOURCE:NAME=PATH"):
        run.flags_of(parsed("--index", text))
