"""Invariant tested: a column holds the values of the objects, or names the one that does not fit;
a parent reads what its forked children write into shared columns."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import shmcache

numpy = pytest.importorskip("numpy", reason="needs numpy: pip install 'shmcache[analysis]'")


def pod(number: int, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"web-{number}", "namespace": "prod", "uid": str(number)},
        "spec": {"nodeName": f"node-{number % 3}", "priority": number},
        "status": {"containers": [{"restarts": number * 2}], **status},
    }


@pytest.fixture
def pods(writer: shmcache.Writer, cache: shmcache.Cache) -> shmcache.CachedResource:
    writer.apply("pods", [pod(number, ready=number % 2 == 0) for number in range(9)])
    return cache["pods"]


def test_each_column_has_the_values_of_its_path_in_the_order_of_the_keys(
    pods: shmcache.CachedResource,
) -> None:
    table = shmcache.columns(
        pods,
        node="spec.nodeName",
        restarts="status.containers[*].restarts",
        ready="status.ready",
        half=lambda obj: obj["spec"]["priority"] / 2,
    )

    assert [f"prod/web-{number}" for number in range(9)] == table.keys_of
    assert ["node", "restarts", "ready", "half"] == list(table)
    assert [f"node-{number % 3}" for number in range(9)] == table["node"].tolist()
    assert [number * 2 for number in range(9)] == table["restarts"].tolist()
    assert [number / 2 for number in range(9)] == table["half"].tolist()
    assert ["U", "i", "b", "f"] == [array.dtype.kind for array in table.values()]


def test_missing_values_are_an_empty_text_or_nan_without_a_flag(
    writer: shmcache.Writer, pods: shmcache.CachedResource
) -> None:
    writer.apply("pods", [{"metadata": {"name": "bare", "namespace": "prod"}}])

    table = shmcache.columns(pods, node="spec.nodeName", priority="spec.priority", none="a.b[*].c")

    assert "" == table["node"][0]
    assert numpy.isnan(table["priority"][0])
    assert list(range(9)) == table["priority"][1:].tolist()
    assert numpy.isnan(table["none"]).all()
    with pytest.raises(TypeError, match="ready: prod/bare has no value"):
        shmcache.columns(pods, ready="status.ready")


def test_mixed_or_unsupported_columns_are_refused_by_name(
    writer: shmcache.Writer, pods: shmcache.CachedResource
) -> None:
    with pytest.raises(TypeError, match="column spec: prod/web-0 has a View"):
        shmcache.columns(pods, spec="spec")
    writer.apply("pods", [pod(3, ready="yes")])
    with pytest.raises(TypeError, match="ready: flags and texts in one column"):
        shmcache.columns(pods, ready="status.ready")
    with pytest.raises(shmcache.InvalidSelector):
        shmcache.columns(pods, ready="status..ready")
    writer.apply("pods", [pod(3, ready=True, big=2**63)])
    with pytest.raises(OverflowError):
        shmcache.columns(pods.list(fields="metadata.name=web-3"), big="status.big")


def test_a_list_is_a_source_and_arrays_outlive_their_cache(
    writer: shmcache.Writer, pods: shmcache.CachedResource
) -> None:
    table = shmcache.columns(pods.list(fields="spec.nodeName=node-1"), name="metadata.name")
    empty = shmcache.columns([], name="metadata.name")
    writer.close()

    assert ["prod/web-1", "prod/web-4", "prod/web-7"] == table.keys_of
    assert ["web-1", "web-4", "web-7"] == table["name"].tolist()
    assert 0 == len(empty["name"])


@pytest.fixture
def forking() -> Iterator[None]:
    """sharedmem needs children that are forked, which is not the default from Python 3.14 on."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.usefixtures("forking")
def test_forked_children_work_on_shared_columns_in_parallel(
    pods: shmcache.CachedResource,
) -> None:
    sharedmem = pytest.importorskip(
        "sharedmem", reason="needs sharedmem: pip install 'shmcache[analysis]'"
    )
    with warnings.catch_warnings(action="ignore"):  # sharedmem's, about what NumPy 2 deprecates
        table = shmcache.columns(
            pods, shared=True, priority="spec.priority", result="spec.priority"
        )

        def work(part: int) -> int:
            table["result"][part::3] = table["priority"][part::3] ** 2
            return os.getpid()

        with sharedmem.MapReduce(np=2) as pool:
            pids = pool.map(work, range(3))

    assert os.getpid() not in pids
    assert [number**2 for number in range(9)] == table["result"].tolist()
    assert type(table["result"]) is numpy.ndarray
    assert table["result"].tolist() == pickle.loads(pickle.dumps(table["result"])).tolist()  # noqa: S301
