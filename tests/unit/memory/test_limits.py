"""Invariant tested: a cache grows only into memory that its cgroups leave it; a refusal names the
cgroup, the amount and the remedy, changes nothing, and holds only as long as its reason (G43)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache.errors import CacheFull
from shmcache.memory import limits

MIB = 1 << 20
V1 = "36 30 0:31 {root} {mount} rw,relatime shared:9 - cgroup cgroup rw,cpu,memory"
V2 = "29 23 0:26 {root} {mount} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
OTHER = """23 28 0:22 / /proc rw,relatime - proc proc rw
30 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"""

LAYOUTS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "a container": ("0::/", V2.format(root="/", mount="/cg"), [("2", "/cg")]),
    "a unit of the host": (
        "0::/system.slice/x.service",
        V2.format(root="/", mount="/cg"),
        [("2", "/cg/system.slice/x.service"), ("2", "/cg/system.slice"), ("2", "/cg")],
    ),
    "a container that is shown its host's path": (
        "9:pids:/docker/ab\n5:memory,hugetlb:/docker/ab",
        V1.format(root="/docker/ab", mount="/cg/memory"),
        [("1", "/cg/memory")],
    ),
    "a group in such a container": (
        "5:memory:/docker/ab/mine",
        V1.format(root="/docker/ab", mount="/cg/memory"),
        [("1", "/cg/memory/mine"), ("1", "/cg/memory")],
    ),
    "both versions": (
        "4:memory:/a\n1:name=systemd:/b\n0::/c",
        V1.format(root="/", mount="/cg/memory") + "\n" + V2.format(root="/", mount="/cg/unified"),
        [("1", "/cg/memory/a"), ("1", "/cg/memory"), ("2", "/cg/unified/c"), ("2", "/cg/unified")],
    ),
    "outside of what is mounted": (
        "0::/../other",
        V2.format(root="/", mount="/cg"),
        [("2", "/cg")],
    ),
    "a sibling of what is mounted": (
        "0::/docker/abc",
        V2.format(root="/docker/ab", mount="/cg"),
        [("2", "/cg")],
    ),
    "a mount with a space": ("0::/", V2.format(root="/", mount=r"/c\040g"), [("2", "/c g")]),
    "mounted twice": (
        "0::/a",
        V2.format(root="/", mount="/one") + "\n" + V2.format(root="/", mount="/two"),
        [("2", "/one/a"), ("2", "/one")],
    ),
    "nothing that counts memory": ("3:cpu:/a", OTHER, []),
    "not mounted": ("0::/a", OTHER, []),
}


def place_process(
    directory: Path, monkeypatch: pytest.MonkeyPatch, cgroup: str, mount: str
) -> None:
    (directory / "cgroup").write_text(cgroup + "\n")
    (directory / "mountinfo").write_text(f"{OTHER}\n{mount}\n")
    monkeypatch.setattr(limits, "PROCESS", str(directory))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_groups_are_found_from_the_inside_out(
    layout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup, mount, expected = layout
    place_process(tmp_path, monkeypatch, cgroup, mount)
    assert expected == limits.groups()


def test_a_system_without_cgroups_limits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROCESS", str(tmp_path / "nothing"))
    assert [] == limits.groups()
    assert limits.GrowthLimits().refusal() is None


class Group:
    """A container's cgroup, as files of ours."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def says(self, limit: int | str, used: int) -> None:
        (self.directory / "memory.max").write_text(f"{limit}\n")
        (self.directory / "memory.current").write_text(f"{used}\n")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    mount = tmp_path / "group"
    mount.mkdir()
    place_process(tmp_path, monkeypatch, "0::/", V2.format(root="/", mount=mount))
    return Group(mount)


def content(cache: shmcache.Cache) -> dict[str, Any]:
    with cache.snapshot() as at:
        return {key: view.to_dict() for key, view in at["pods"].items()}


def is_explained(error: CacheFull, group: Group, *numbers: str) -> bool:
    words = ("memory.max", str(group.directory), "in use", "needed", "limits.memory", *numbers)
    return all(word in str(error) for word in words)


def fill(writer: shmcache.Writer) -> tuple[dict[str, Any], CacheFull]:
    stored: dict[str, Any] = {}
    for number in range(1000):
        obj = {"text": f"{number:04d}" * 4000}
        try:
            writer.put("pods", f"k{number}", obj)
        except CacheFull as full:
            return stored, full
        stored[f"k{number}"] = obj
    raise AssertionError("nothing is refused")


def test_g43_a_group_at_its_limit_refuses_growth_and_nothing_else(name: str, group: Group) -> None:
    group.says(64 * MIB, 40 * MIB)
    with (
        shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64) as writer,
        shmcache.attach(name) as cache,
    ):
        writer.put("pods", "first", {})
        group.says(64 * MIB, 60 * MIB)
        stored, full = fill(writer)
        stored["first"] = {}
        assert is_explained(full, group, "is 64 MiB", "60 MiB are in use"), full
        for _ in range(2):
            with pytest.raises(CacheFull, match=r"memory\.max"):
                writer.put("pods", "large", {"text": "x" * 3_000_000})
            assert stored == content(cache)
            writer.check()
        writer.delete("pods", "first")  # which needs no more memory than there is
        del stored["first"]
        assert stored == content(cache)

        group.says(96 * MIB, 60 * MIB)
        large = {"text": "x" * 3_000_000}
        writer.put("pods", "large", large)
        assert stored | {"large": large} == content(cache)
        writer.check()


def test_g43_the_limit_also_holds_after_a_takeover(name: str, group: Group) -> None:
    group.says("max", 0)
    options: Any = {"arena_max": "64MiB", "ring_slots": 64}
    first = shmcache.Writer(name, ["pods"], **options)
    first.put("pods", "a", {"n": 1})
    first.leave()
    group.says(64 * MIB, 61 * MIB)
    with shmcache.Writer(name, ["pods"], **options) as writer, shmcache.attach(name) as cache:
        assert "pods" in writer.inherited
        stored, full = fill(writer)
        assert is_explained(full, group), full
        assert stored | {"a": {"n": 1}} == content(cache)


def test_g43_a_cache_that_may_not_even_begin_leaves_nothing(name: str, group: Group) -> None:
    group.says(2 * MIB, 2 * MIB - 100_000)
    for _ in range(2):
        with pytest.raises(CacheFull) as full:
            shmcache.Writer(name, ["pods"])
        assert is_explained(full.value, group, "is 2 MiB", "more are needed"), full.value
        place = shmcache.memory.segments.Place(name)
        assert [] == place.location.names(place.stem)
    group.says(64 * MIB, MIB)
    shmcache.Writer(name, ["pods"]).close()


def test_a_ring_that_may_not_grow_is_blamed_for_nothing(name: str, group: Group) -> None:
    group.says("max", 0)
    with shmcache.Writer(name, ["pods"], arena_max="8MiB", ring_bytes=200_000) as writer:
        stored, full = fill(writer)
        assert "arena_max = 8 MiB" in str(full)
        group.says(64 * MIB, 64 * MIB)
        for key in list(stored)[:100]:
            writer.delete("pods", key)
        for number in range(9):  # the window releases deleted objects
            writer.put("pods", "small", {"n": number})
        with writer.batch():  # more than the ring has memory for
            for number in range(600):
                writer.put("pods", f"small{number}", {"n": number})
        assert 1 == writer.stats()["relists"]
        with pytest.raises(CacheFull, match="arena_max = 8 MiB"):
            writer.put("pods", "large", {"text": "x" * 7_000_000})
        writer.check()


def test_a_short_ring_has_its_memory_from_the_start(name: str, group: Group) -> None:
    group.says("max", 0)
    options: Any = {"arena_max": "64MiB", "ring_slots": 16384, "ring_bytes": "1MiB"}
    with shmcache.Writer(name, ["pods"], **options) as writer:
        writer.put("pods", "large", {"text": "x" * 6_000_000})
        for number in range(4):  # which the window releases: room for later ones
            writer.put("pods", "large", {"text": f"{number}" * 700_000})
        for number in range(10):
            writer.put("pods", "small", {"n": number})
        group.says(64 * MIB, 64 * MIB)
        head = writer.stats()["head"]
        with writer.batch():
            for number in range(600):
                writer.put("pods", f"small{number}", {"n": number})
        assert (head + 600, 0) == (writer.stats()["head"], writer.stats()["relists"])


def test_an_arena_that_is_full_is_not_blamed_on_the_group(name: str, group: Group) -> None:
    group.says(64 * MIB, 40 * MIB)
    with shmcache.Writer(name, ["pods"], arena_max="5MiB", ring_slots=64) as writer:
        group.says(64 * MIB, 62 * MIB)
        assert is_explained(fill(writer)[1], group)
        group.says("max", 62 * MIB)
        assert "arena_max = 5 MiB" in str(fill(writer)[1])
