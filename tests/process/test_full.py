"""Invariant tested: without room, the error states how much is needed and how to get it, the last
good state stays readable, and with room work resumes as if nothing had happened (G8)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache.errors import CacheFull, LimitExceeded, ShmCacheError

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGNS = ROOT / "tests" / "campaigns"
MOUNT = 'mount -t tmpfs -o size=4m shmcache-test "$1" && shift && exec "$@"'


def in_small_file_system(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", MOUNT, "sh", str(directory), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_full_file_system_harms_nothing_and_is_survived(tmp_path: Path) -> None:
    try:
        tried = in_small_file_system(tmp_path, "true")
    except FileNotFoundError:
        pytest.skip("there is no unshare, to mount a small file system with")
    if tried.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted: {tried.stderr.strip()}")

    script = str(CAMPAIGNS / "full_disk.py")
    done = in_small_file_system(tmp_path, sys.executable, "-W", "error", script, str(tmp_path))

    assert (0, "good\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.fixture
def small(name: str) -> Iterator[shmcache.Writer]:
    pods = shmcache.Resource("pods", {"n": "n"})
    with shmcache.Writer(name, [pods, "nodes"], arena_max="5MiB", ring_slots=64) as made:
        yield made
        made.check()


def everything(cache: shmcache.Cache) -> Any:
    with cache.snapshot() as at:
        objects = {key: view.to_dict() for key, view in at["pods"].items()}
        index = [(value, key) for value, key, _ in at["pods"].scan_index("n")]
        return at.generation, objects, index, list(at["nodes"])


def fill(writer: shmcache.Writer, rng: random.Random, size: int) -> CacheFull:
    for number in range(100_000):
        try:
            writer.put("pods", f"k{number}", {"n": number, "text": f"{rng.getrandbits(size):x}"})
        except CacheFull as full:
            return full
    raise AssertionError("it is never full")


@pytest.mark.parametrize("bits", [400, 40_000, 400_000])
def test_a_full_arena_keeps_its_state_and_recovers(
    small: shmcache.Writer, rng: random.Random, bits: int
) -> None:
    with shmcache.attach(small.name) as cache:
        small.put("nodes", "n", {})
        full = fill(small, rng, bits)
        assert "arena_max = 5 MiB" in str(full)
        before = everything(cache)
        large = {"n": 1, "text": "x" * 5_000_000}

        for refused in (
            lambda: small.put("pods", "large", large),
            lambda: small.put_many("pods", [("small", {}, None), ("large", large, None)]),
            lambda: small.replace("pods", [{"metadata": {"name": "large"}, **large}]),
        ):
            with pytest.raises(CacheFull):
                refused()
            small.check()
            assert before == everything(cache)

        keys = list(before[1])
        small.drop_window()
        small.reclaim()
        for key in keys[: len(keys) // 2]:
            small.delete("pods", key)
            small.reclaim()
        small.drop_window()
        small.reclaim()
        small.put("pods", "again", {"n": 0, "text": f"{rng.getrandbits(bits):x}"})
        assert set(keys[len(keys) // 2 :]) | {"again"} == set(cache["pods"])


def test_a_batch_that_ran_out_of_room_cannot_be_committed(
    small: shmcache.Writer, rng: random.Random
) -> None:
    """Also if the caller ignored the error inside."""
    with shmcache.attach(small.name) as cache:
        small.put("pods", "a", {"n": 1})
        before = everything(cache)

        with pytest.raises(ShmCacheError), small.batch():
            small.put("pods", "b", {"n": 2})
            with pytest.raises(CacheFull):
                fill_in_batch(small, rng)

        small.check()
        assert before == everything(cache)
        small.put("pods", "c", {"n": 3})


def fill_in_batch(writer: shmcache.Writer, rng: random.Random) -> None:
    for number in range(100_000):
        writer.put("pods", f"k{number}", {"n": number, "text": f"{rng.getrandbits(400):x}"})


def test_a_string_that_no_arena_holds_is_refused(small: shmcache.Writer) -> None:
    with shmcache.attach(small.name) as cache:
        small.put("pods", "a", {"n": 1})
        before = everything(cache)
        for key in ("k" * 65_537, "k" * 10_000_000):
            with pytest.raises(LimitExceeded):
                small.put("pods", key, {"n": 1})
        assert before == everything(cache)
        small.put("pods", "k" * 65_536, {"n": 2})
        assert 2 == cache["pods"]["k" * 65_536]["n"]


def test_deleting_from_a_full_arena_needs_no_help(
    small: shmcache.Writer, rng: random.Random
) -> None:
    """A caller that handles deletions has no alternative; nor may one kept view prevent them."""
    with shmcache.attach(small.name) as cache:
        fill(small, rng, 40_000)
        for key in list(cache["pods"]):
            small.delete("pods", key)
        small.put("pods", "again", {"n": 0})
