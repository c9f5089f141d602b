"""Invariant tested: tests touch no cache, and heed no setting, of the user who runs them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shmcache.engine.config import environment_name

TESTS = Path(__file__).resolve().parents[2]
OPENERS = frozenset({"Writer", "attach", "Place", "CacheReads"})
FOLDERS = ("unit", "process", "conformance", "peers", "model", "docs", "support")


def literal_names(source: str) -> list[str]:
    """Names of caches that are written out where a cache is made or opened."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        call.args[0].value
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in OPENERS
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
        and not call.args[0].value.startswith(("no-such-", "none-such"))
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_of_caches_are_made_for_each_run(folder: str) -> None:
    found = {
        str(file.relative_to(TESTS)): names
        for file in sorted((TESTS / folder).rglob("*.py"))
        if (names := literal_names(file.read_text(encoding="utf-8")))
    }

    assert {} == found


def test_a_written_name_is_found() -> None:
    assert ["web", "pages"] == literal_names('shmcache.Writer("web", a)\nattach("pages")\nPlace(n)')


def test_settings_of_the_user_reach_no_test() -> None:
    users = {environment_name(key): "3" for key in ("seats", "name", "listen")}
    users |= {"KUBECONFIG": "mine", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "SHMCACHE_EXAMPLES": "7"}
    code = "import conftest, os\nfor name in sys.argv[1:]: print(os.environ.get(name))"

    shown = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}", *users],
        env={**os.environ, **users, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert [*["None"] * 5, "7"] == shown.stdout.split()
