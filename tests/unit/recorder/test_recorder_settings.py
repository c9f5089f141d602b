"""Invariant tested: a recorder that cannot be meant is refused before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shmcache.engine import several
from shmcache.engine.config import load
from shmcache.engine.config.keys import ConfigurationError

PODS: dict[str, Any] = {"resources": {"pods": {}}}


def test_the_bounds_of_a_recorder_come_from_each_place(tmp_path: Path) -> None:
    path = tmp_path / "cache.toml"
    path.write_text('recorder = "/a"\nrecorder_keep = "2h"\n[resources.pods]\n')
    found = load(str(path), {"recorder_bytes": "2MiB"}, {"SHMCACHE_RECORDER": "/b"})
    assert (found.recorder, found.recorder_keep, found.recorder_bytes) == ("/b", 7200.0, 2 << 20)
    without = load(None, PODS, {})
    assert (without.recorder, without.recorder_keep, without.recorder_bytes) == ("", 86400, 1 << 30)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"recorder": __file__}, "is not a directory"),
        ({"recorder": "/a", "recorder_keep": "1s"}, "--recorder-keep must be at least 60s"),
        ({"recorder": "/a", "recorder_bytes": "4KiB"}, "--recorder-bytes must be at least 1 MiB"),
        ({"recorder": "/a", "recorder_keep": "a day"}, "must be a duration"),
    ],
)
def test_bounds_that_cannot_be_meant_are_refused(flags: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(None, PODS | flags, {})


def test_secrets_are_never_recorded() -> None:
    flags = {"resources": {"secrets": {}}, "allow_secrets": True}
    load(None, flags, {})
    with pytest.raises(ConfigurationError, match="Secrets are never written to disk"):
        load(None, flags | {"recorder": "/a"}, {})


def test_each_context_has_a_directory_of_its_own() -> None:
    found = load(None, PODS | {"recorder": "/a", "contexts": ["prod", "arn:aws:x"]}, {})
    directories = [each.recorder for each in several.each_context(found)]
    assert directories[0] == "/a/shmcache-prod"
    assert directories[1].startswith("/a/shmcache-arn-aws-x-")
