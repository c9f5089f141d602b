"""A record states the delta from which the window has a resource's changes as they happened
(PUBLISH5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import shmcache

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 64


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], ring_slots=SLOTS) as made:
        yield made
        made.check()


def pod(number: int, version: int) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": f"p-{number}", "resourceVersion": str(version)}
    return {"metadata": metadata}


def place(cache: shmcache.Cache, number: int = 0) -> tuple[int, int]:
    root = cache.reader.root()
    return root.record(number)["unbroken"], root.head


def test_single_changes_break_nothing(writer: shmcache.Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        for number in range(5):
            writer.apply("pods", [pod(number, number + 1)])

        assert place(cache) == (0, 5)


def test_a_list_breaks_the_row_after_its_own_deltas(writer: shmcache.Writer) -> None:
    writer.apply("pods", [pod(1, 1), pod(2, 2)])
    with shmcache.attach(writer.name) as cache:
        writer.replace("pods", [pod(2, 2), pod(3, 7)], "9")
        assert place(cache) == (4, 4)
        writer.apply("pods", [pod(4, 10)])
        assert place(cache) == (4, 5)
        assert place(cache, 1) == (0, 5), "the other resource was not listed"


def test_a_list_of_another_version_breaks_the_row_without_a_difference(
    writer: shmcache.Writer,
) -> None:
    writer.replace("pods", [pod(1, 1)], "5")
    writer.apply("nodes", [{"metadata": {"name": "n"}}])
    with shmcache.attach(writer.name) as cache:
        writer.replace("pods", [pod(1, 1)], "8")
        assert place(cache) == (2, 2)
        before = cache.reader.root().record(0)["breaks"]
        writer.replace("pods", [pod(1, 1)], "9")
        assert place(cache) == (2, 2)
        assert cache.reader.root().record(0)["breaks"] == before + 1
        assert cache.reader.root().record(0)["listed"] == "9"


def test_a_relist_breaks_the_row(writer: shmcache.Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        writer.apply("pods", [pod(number, number + 1) for number in range(SLOTS)])
        assert place(cache) == (1, 1)


def test_a_list_that_is_undone_breaks_nothing(writer: shmcache.Writer) -> None:
    writer.apply("pods", [pod(1, 1)])
    with shmcache.attach(writer.name) as cache:
        with pytest.raises(RuntimeError, match="given up"), writer.begin_replace("pods") as staged:
            staged.apply([pod(2, 2)])
            raise RuntimeError("given up")
        writer.apply("pods", [pod(3, 3)])

        assert place(cache) == (0, 2)
        assert cache.reader.root().record(0)["listed"] is None
