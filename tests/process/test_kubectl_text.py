"""Invariant tested: `-o yaml` and `-o json` equal kubectl's byte for byte, whatever strings the
objects hold: look-alikes of other types or of indicators, line breaks, emoji, long lines,
quotes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_commands import KUBECTL, needs_kubectl

from shmcache.cli.output import forms, yaml
from shmcache.protocol.describing import called
from shmcache.testing import ApiServer

pytestmark = pytest.mark.slow
CONFIGMAPS = 12
PIECES = [
    "a", "word", "x:y", "#h", "k: v", "- z", "yes", "Off", "1.5", "0x1f", "null", "~", "é", "😀",
    "\u2028", "\xa0", "\t", "\r", "\n", "\n\n", " ", "  ", "'", '"', "\\", "<b>", "&", "%",
    "@", "`", "{", "}", "[", "]", ",", "?", "*", "!", "|", ">", "...", "---", "=", "\x01", "中文",
    "\x1b", "2024-01-01", "2024-02-30", "2024-01-01T10:00:00Z", "12:30", "1_000", ".5", "+1",
    "-1e5", "0o17", "08", "0b1", "<<", ".inf", "-", ":",
]  # fmt: skip
EDGES = [" a", "a ", " a b", "a b ", " ", "a:", ":a", "a #b", "a#b", "-a", "- a", "?a", "? a"]
KEYS = ["a", "a2", "a10", "A", "b.c", "b-c", "b_c", "app.kubernetes.io/name", "true", "12"]
KEYS.append("x" * 130)


def text_of(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(PIECES)
    separator = rng.choice(["", " ", " ", " ", "  "])
    words = ["lorem", "ipsum", "dolor", "sit", "amet"]
    count = rng.choice([2, 3, 5, 10, 25, 60])
    return separator.join(rng.choice(PIECES if rng.random() < 0.4 else words) for _ in range(count))


def value_of(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth < 3 and kind < 0.2:
        return {key: value_of(rng, depth + 1) for key in rng.sample(KEYS, rng.randrange(4))}
    if depth < 3 and kind < 0.35:
        return [value_of(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind < 0.4:
        return rng.choice([None, True, False, 0, -5, 1234567890123])
    return text_of(rng)


class Scene(NamedTuple):
    """The objects as the server sends them, and a kubeconfig for kubectl."""

    objects: list[dict[str, Any]]
    kubeconfig: str

    def kubectl(self, *words: str) -> str:
        command = [str(KUBECTL), "--kubeconfig", self.kubeconfig, "get", "configmaps", *words]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode()


@pytest.fixture
def scene(rng: random.Random, tmp_path: Path) -> Iterator[Scene]:
    with ApiServer() as server:
        for number in range(CONFIGMAPS):
            metadata = {"name": f"c{number:02}", "namespace": "default"}
            data = {key: text_of(rng) for key in rng.sample(KEYS, 6)}
            server.load("configmaps", {"metadata": metadata, "data": data, "x": value_of(rng)})
        edges = {"metadata": {"name": "edges", "namespace": "default"}}
        server.load("configmaps", edges | {"data": {f"e{n}": one for n, one in enumerate(EDGES)}})
        path = f"{server.url}/api/v1/namespaces/default/configmaps"
        with urllib.request.urlopen(path) as got:  # noqa: S310 - http, of this test's server
            items = json.load(got)["items"]
        objects = [{**item, "apiVersion": "v1", "kind": "ConfigMap"} for item in items]
        yield Scene(objects, server.kubeconfig(str(tmp_path / "config")))


def ours(form: str, scene: Scene) -> str:
    kind = called("configmaps")
    assert kind is not None
    made = forms.form_of(form)
    assert made is not None
    return made([(kind, one) for one in scene.objects], alone=False)


@needs_kubectl
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_text_equals_kubectls(scene: Scene, form: str) -> None:
    theirs = scene.kubectl("-o", form)

    assert theirs.splitlines(keepends=True) == ours(form, scene).splitlines(keepends=True)
    assert theirs == ours(form, scene)


@needs_kubectl
def test_json_without_orjson_is_the_same(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ours("json", scene)
    monkeypatch.setitem(sys.modules, "orjson", None)

    assert expected == ours("json", scene)


def test_keys_are_in_natural_order() -> None:
    keys = ["a10", "a2", "B", "a", "b", "_", "1", "10", "2", "a02"]
    lines = yaml.text(dict.fromkeys(keys, "x")).splitlines()

    assert ["_", "1", "2", "10", "B", "a", "a2", "a02", "a10", "b"] == [
        line.partition(":")[0].strip('"') for line in lines
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"), (1e6, "1e+06"), (1234567.5, "1.2345675e+06"), (0.0001, "0.0001"),
        (0.00001, "1e-05"), (100000.0, "100000"), (-2.0, "-2"), (1e21, "1e+21"),
    ],
)  # fmt: skip
def test_floats_are_formatted_as_go_does(value: float, text: str) -> None:
    assert text + "\n" == yaml.text(value)
