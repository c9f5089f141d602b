"""Invariant tested: `get --at`, `diff` and `blame` show the past as `cache.at()` has it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

import shmcache
from shmcache.__main__ import main
from shmcache.engine.instant_writer import InstantWriter
from shmcache.memory.segments import Place


def pod(name: str, version: int, node: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "prod",
            "resourceVersion": str(version),
            "managedFields": [{"manager": f"m-{node}", "operation": "Update"}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i:1"}]},
    }


@pytest.fixture
def scene(name: str) -> Any:
    resource = shmcache.Resource("pods", keep_managed_fields=True)
    with shmcache.Writer(name, [resource], arena_max="64MiB") as writer:
        times = iter([time.monotonic_ns() - 100 * 10**9, time.monotonic_ns()])
        noting = InstantWriter(Place(name), 0o600, lambda: next(times))
        writer.replace("pods", [pod("a", 10, "n-1"), pod("b", 11, "n-1")], version="11")
        noting.note(writer.position())
        for obj, version in ((pod("a", 12, "n-2"), "12"), (pod("c", 14, "n-3"), "14")):
            with writer.batch():
                writer.apply("pods", [obj])
                writer.set_version("pods", version)
        with writer.batch():
            writer.delete("pods", "prod/b", "15")
            writer.set_version("pods", "15")
        noting.note(writer.position())
        noting.close()
        yield name


def shown(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert status == main(list(words)), capsys.readouterr()
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("11", ["pod/a", "pod/b"]),
        ("12", ["pod/a", "pod/b"]),
        ("14", ["pod/a", "pod/b", "pod/c"]),
        ("15", ["pod/a", "pod/c"]),
        ("-60s", ["pod/a", "pod/b"]),
        ("1m", ["pod/a", "pod/b"]),
    ],
)
def test_get_at_shows_the_state_then(
    scene: str, capsys: pytest.CaptureFixture[str], moment: str, expected: list[str]
) -> None:
    text = shown(capsys, "get", "pods", "-A", "-o", "name", "--cache", scene, "--at", moment)
    assert expected == text.split()


def test_get_at_shows_an_object_as_it_was(scene: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = ("-o", "jsonpath={.spec.nodeName}", "-n", "prod", "--cache", scene)
    assert "n-1" == shown(capsys, "get", "pod/a", *path, "--at", "11")
    assert "n-2" == shown(capsys, "get", "pod/a", *path, "--at", "12")


def test_diff_shows_each_change(scene: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "diff", "pods", "--since", "11", "--cache", scene, status=1)
    assert text.splitlines() == [
        "~ pods prod/a",
        '    spec.nodeName: "n-1" -> "n-2"',
        "- pods prod/b",
        "+ pods prod/c",
    ]
    assert "+ pods prod/c" in shown(capsys, "diff", "--since", "-1m", "--cache", scene, status=1)
    assert not shown(capsys, "diff", "--since", "15", "--cache", scene)
    assert not shown(capsys, "diff", "--since", "11", "-n", "other", "--cache", scene)


def test_blame_shows_times_fields_and_managers(
    scene: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (("pods", "prod/a"), ("pod/a", "-n", "prod")):
        text = shown(capsys, "blame", *words, "--cache", scene)
        assert "MODIFIED  version 12  by m-n-2" in text
        assert '    spec.nodeName: "n-1" -> "n-2"' in text
        assert text.startswith("100s ago  ADDED")
        assert re.search(r"^\d\.\d s ago  MODIFIED", text, re.MULTILINE), text
    assert "DELETED  version 15" in shown(capsys, "blame", "pods", "prod/b", "--cache", scene)
    assert 1 == main(["blame", "pods", "prod/none", "--cache", scene])


@pytest.mark.parametrize(
    "words",
    [
        ["get", "pods", "--at", "yesterday"],
        ["get", "pods", "-w", "--at", "11"],
        ["diff", "pods"],
        ["blame", "pods"],
        ["blame", "pods", "a", "b"],
    ],
)
def test_mistakes_are_one_sentence(
    scene: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with (
        pytest.raises(SystemExit)
        if words[-1] in {"yesterday", "pods"} and words[0] != "blame"
        else _none()
    ):
        assert 2 == main([*words, "--cache", scene])
    assert 1 == len(capsys.readouterr().err.strip().splitlines())


def _none() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_a_past_that_is_gone_is_one_sentence(
    scene: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["get", "pods", "--at", "2h", "--cache", scene])
    assert "known for" in capsys.readouterr().err
