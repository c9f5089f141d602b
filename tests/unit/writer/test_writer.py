"""Invariant tested: each call of the writer takes effect as a whole, or raises and leaves no
trace."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.errors import (
    BusyError,
    CacheFull,
    ClosedError,
    LimitExceeded,
    ShmCacheError,
    UnsupportedValue,
)
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX
from shmcache.settings import Resource
from shmcache.writer.indexing import identity_of

UNLUCKY = "unlucky"


def pod(name: str, node: str = "node-1", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "prod", "name": name, "resourceVersion": "5", "uid": name},
        "spec": {"nodeName": node, **more},
    }


def zones(obj: Any) -> list[str] | None:
    """An index function: letters of the node's name."""
    node = obj["spec"]["nodeName"]
    if node == UNLUCKY:
        raise RuntimeError("no zone")
    return sorted(set(node)) or None


def state_of(cache: shmcache.Cache) -> dict[str, dict[str, Any]]:
    with cache.snapshot() as at:
        return {
            name: {key: obj.to_dict() for key, obj in at[name].items()} for name in at.resources
        }


def test_get_returns_what_put_stored(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    assert writer.put("pods", "prod/web-0", pod("web-0"))

    assert pod("web-0") == cache["pods"]["prod/web-0"].to_dict()
    assert not writer.put("pods", "prod/web-0", pod("web-0"))


def test_apply_takes_key_and_version_from_the_object(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    cursor = cache.follow()
    node = {"metadata": {"name": "node-7", "resourceVersion": "9"}}

    assert 2 == writer.apply("pods", [pod("web-0"), pod("web-1")])
    assert 1 == writer.apply("nodes", iter([node]))

    assert ["prod/web-0", "prod/web-1"] == list(cache["pods"])
    assert ["node-7"] == list(cache["nodes"])
    assert ["5", "5", "9"] == [delta.version for delta in cursor.take()]


def test_put_many_is_one_generation(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    before = cache.latest

    assert 3 == writer.put_many("pods", ((f"k{n}", {"n": n}, str(n)) for n in range(3)))

    assert before + 1 == cache.latest
    assert [{"n": 0}, {"n": 1}, {"n": 2}] == cache["pods"].list()


def test_delete_returns_whether_the_key_existed(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "a", {"x": 1})
    cursor = cache.follow()

    assert writer.delete("pods", "a", "8", unknown=True)
    assert not writer.delete("pods", "a")

    (delta,) = cursor.take()
    assert ("DELETED", "a", "8", True) == (
        delta.kind,
        delta.key,
        delta.version,
        delta.unknown_final_state,
    )
    assert {"x": 1} == delta.old
    assert delta.new is None


def test_a_batch_is_one_generation(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.put("pods", "old", {})
    before = cache.latest

    with writer.batch():
        writer.put("pods", "a", {"x": 1})
        writer.apply("pods", [pod("web-0")])
        writer.delete("pods", "old")
        assert ["old"] == list(cache["pods"])

    assert before + 1 == cache.latest
    assert ["a", "prod/web-0"] == list(cache["pods"])


def test_an_exception_inside_a_batch_leaves_no_trace(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "a", {"x": 1})
    before, latest = state_of(cache), cache.latest

    with pytest.raises(ZeroDivisionError), writer.batch():
        writer.put("pods", "a", {"x": 2})
        writer.delete("pods", "a")
        raise ZeroDivisionError

    assert (before, latest) == (state_of(cache), cache.latest)


def test_a_refused_put_inside_a_batch_leaves_the_rest(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    with writer.batch():
        writer.put("pods", "a", {"x": 1})
        with pytest.raises(UnsupportedValue):
            writer.put("pods", "b", {"x": {1, 2}})
        writer.put("pods", "c", {"x": 3})

    assert ["a", "c"] == list(cache["pods"])


def test_an_index_function_that_is_interrupted_leaves_no_trace(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    def interrupted(_: Any) -> list[str]:
        raise SystemExit

    writer.put("pods", "a", {"n": 1}, "1")
    with pytest.raises(SystemExit):
        writer.add_index("pods", "first", interrupted)
    writer.add_index("pods", "second", lambda obj: [str(obj["n"])])
    writer.put("pods", "b", {"n": 2}, "2")
    assert ["2"] == [str(one["n"]) for one in cache["pods"].by_index("second", "2")]
    assert "first" not in cache["pods"].indices


def test_a_call_that_failed_halfway_ends_the_batch(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    before = state_of(cache)

    with pytest.raises(ShmCacheError, match="half-way"), writer.batch():
        with pytest.raises(UnsupportedValue):
            writer.put_many("pods", [("a", {}, None), ("b", {"x": object()}, None)])
        writer.put("pods", "c", {})

    assert before == state_of(cache)


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"spec": {"a": [1, {"b": {2}}]}}, "at ['spec']['a'][1]['b']"),
        ({"spec": {3: "x"}}, "at ['spec']"),
        ({"x": b"bytes"}, "at ['x']"),
        ({"x": 1 << 64}, "at ['x']"),
        ({"x": "\ud800"}, "at ['x']"),
        ({"x": float}, "at ['x']"),
    ],
)
def test_an_unsupported_value_is_named_by_its_path(
    writer: shmcache.Writer, cache: shmcache.Cache, obj: Any, path: str
) -> None:
    before = state_of(cache), cache.latest

    with pytest.raises((UnsupportedValue, LimitExceeded), match=re.escape(path)):
        writer.put("pods", "a", obj)

    assert before == (state_of(cache), cache.latest)


def test_too_much_depth_hits_a_limit(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    deep: Any = {}
    for _ in range(1100):
        deep = {"x": deep}

    with pytest.raises(LimitExceeded):
        writer.put("pods", "a", deep)

    assert {"pods": {}, "nodes": {}} == state_of(cache)


@pytest.mark.parametrize(
    "broken", [{}, {"metadata": {}}, {"metadata": {"name": 5}}, 7, None], ids=repr
)
def test_an_object_without_a_name_is_refused_and_nothing_applied(
    writer: shmcache.Writer, cache: shmcache.Cache, broken: Any
) -> None:
    with pytest.raises((ShmCacheError, TypeError, ValueError, KeyError)):
        writer.apply("pods", [pod("web-0"), broken])

    assert {"pods": {}, "nodes": {}} == state_of(cache)


def test_replace_is_one_generation_and_deletes_missing_keys(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.apply("pods", [pod("same"), pod("changed"), pod("gone")])
    before, cursor = cache.latest, cache.follow()

    writer.replace("pods", [pod("new"), pod("changed", "node-2"), pod("same")], "77")

    assert before < cache.latest
    assert ["prod/changed", "prod/new", "prod/same"] == list(cache["pods"])
    assert "77" == cache["pods"].version
    assert {("MODIFIED", "prod/changed"), ("ADDED", "prod/new"), ("DELETED", "prod/gone")} == {
        (delta.kind, delta.key) for delta in cursor.take()
    }
    assert ["prod/changed"] == cache["pods"].index_keys("node", "node-2")


def test_staged_content_is_invisible_while_other_changes_go_on(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.apply("pods", [pod("old")])

    with writer.begin_replace("pods") as staged:
        staged.apply([pod("new")])
        writer.put("nodes", "node-1", {})
        assert ["prod/old"] == list(cache["pods"])
        assert ["node-1"] == list(cache["nodes"])

    assert ["prod/new"] == list(cache["pods"])


def test_a_replacement_that_fails_changes_nothing(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.apply("pods", [pod("old")])

    with pytest.raises(ZeroDivisionError), writer.begin_replace("pods") as staged:
        staged.apply([pod("new")])
        raise ZeroDivisionError
    with pytest.raises(UnsupportedValue):
        writer.replace("pods", [pod("new"), pod("bad", x={1})])

    assert {"prod/old": pod("old")} == state_of(cache)["pods"]
    writer.replace("pods", [])
    assert {} == state_of(cache)["pods"]


def test_namespaces_are_replaced_one_by_one_and_at_the_same_time(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put_many("pods", [("a/1", pod("1"), "1"), ("b/1", pod("1"), "1"), ("c", pod("c"), "1")])
    cursor = cache.follow(["pods"])

    with writer.begin_replace("pods", prefix="b/") as late:
        late.put("b/2", pod("2"))
        with writer.begin_replace("pods", "7", prefix="a/") as staged:
            staged.put("a/1", pod("1"), "1")
            staged.put("a/3", pod("3"))
            staged.put("a/4", pod("4"))
            staged.delete("a/4")
        assert ["a/1", "a/3", "b/1", "c"] == list(cache["pods"])
        late.version = "8"

    assert ["a/1", "a/3", "b/2", "c"] == list(cache["pods"])
    assert ["ADDED a/3", "DELETED b/1", "ADDED b/2"] == [
        f"{delta.kind} {delta.key}" for delta in cursor.take()
    ]
    with cache.snapshot() as at:
        assert "8" == at.resource_versions["pods"]


def test_overlapping_replacements_are_refused(writer: shmcache.Writer) -> None:
    with writer.begin_replace("pods", prefix="a/") as staged:
        for prefix in ("", "a/", "a/b"):
            with (
                pytest.raises(BusyError, match="another"),
                writer.begin_replace("pods", prefix=prefix),
            ):
                pass
        with pytest.raises(ValueError, match="'b/1' is not under 'a/'"):
            staged.put("b/1", pod("1"))
        with pytest.raises(ValueError, match="'prod/1' is not under 'a/'"):
            staged.apply([pod("1")])
    with writer.begin_replace("pods"):
        pass


def test_a_version_alone_wakes_no_reader(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    seen = cache.latest

    writer.set_version("pods", "12345678901234567890")

    assert not cache.wait(seen, timeout=0)
    with cache.snapshot() as at:
        assert "12345678901234567890" == at.resource_versions["pods"]


def test_state_and_version_are_published(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.set_state("pods", 2, "1234")

    with cache.snapshot() as at:
        assert {"pods": "1234", "nodes": None} == at.resource_versions
        assert 2 == at["pods"].state
    with pytest.raises(ValueError, match="state"):
        writer.set_state("pods", states.GONE)
    assert 2 == cache["pods"].state


# ---- indices -------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [zones, f"{__name__}:zones"], ids=["callable", "importable"])
def test_an_index_function_runs_in_the_writer(name: str, spec: Any) -> None:
    with (
        shmcache.Writer(
            name, [Resource("pods", {"zone": spec, "node": "spec.nodeName"})]
        ) as writer,
        shmcache.attach(name) as cache,
    ):
        writer.apply("pods", [pod("a", "xy"), pod("b", "yz"), pod("c", "")])
        pods = cache["pods"]

        assert ["x", "y", "z"] == pods.index_values("zone")
        assert ["prod/a", "prod/b"] == pods.index_keys("zone", "y")
        writer.apply("pods", [pod("a", "z")])
        assert ["y", "z"] == pods.index_values("zone")
        writer.delete("pods", "prod/a")
        writer.replace("pods", [pod("c", "w")])
        assert ["w"] == pods.index_values("zone") == pods.index_values("node")
        writer.check()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("['a']", "['b']"),
        ("(lambda: ['a'])()", "(lambda: ['b'])()"),
        ("[one for _ in (1,) for one in (lambda: 'a')()]", "[(lambda: 'b')()]"),
        ("['b' if 'x' in {'y', 'z'} else 'a']", "['b' if 'x' in {'x', 'z'} else 'a']"),
    ],
)
def test_an_index_function_whose_code_has_changed_makes_its_index_again(
    name: str, before: str, after: str
) -> None:
    def resource(body: str) -> Resource:
        there: dict[str, Any] = {"__name__": __name__}
        exec(f"def emit(obj): return {body}", there)  # noqa: S102 - as another release has it
        return Resource("pods", {"letter": there["emit"]})

    with shmcache.Writer(name, [resource(before)]) as first:
        first.put("pods", "k", {})
        first.leave()
    with shmcache.Writer(name, [resource(after)]), shmcache.attach(name) as cache:
        found = {value: list(cache["pods"].index_keys("letter", value)) for value in "ab"}

    assert {"a": [], "b": ["k"]} == found


def test_an_index_function_that_raises_isolates_its_object(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with (
        shmcache.Writer(
            name, [Resource("pods", {"zone": zones, "node": "spec.nodeName"})]
        ) as writer,
        shmcache.attach(name) as cache,
    ):
        writer.apply("pods", [pod("a", "x"), pod("b", UNLUCKY)])

        assert ["x"] == cache["pods"].index_values("zone")
        assert ["prod/b"] == cache["pods"].index_keys("node", UNLUCKY)
        assert 1 == writer.stats()["index_failures"]
    assert "prod/b" in caplog.text


@pytest.mark.parametrize("answer", [5, [5], [None], b"x"])
def test_an_index_function_with_an_invalid_answer_has_failed(name: str, answer: Any) -> None:
    with shmcache.Writer(name, [Resource("pods", {"zone": lambda _: answer})]) as writer:
        writer.put("pods", "a", {})

        assert 1 == writer.stats()["index_failures"]


def test_an_index_function_cannot_use_its_writer(name: str) -> None:
    caught: list[BaseException] = []

    def reenter(_: Any) -> None:
        with pytest.raises(ShmCacheError, match="index function") as error:
            writer.put("pods", "b", {})
        caught.append(error.value)

    with shmcache.Writer(name, [Resource("pods", {"zone": reenter})]) as writer:
        writer.put("pods", "a", {})

    assert 1 == len(caught)


def test_an_index_added_later_is_filled(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.apply("pods", [pod("a", "xy"), pod("b", "yz")])
    before, objects = cache.latest, state_of(cache)

    writer.add_index("pods", "name", "metadata.name")
    writer.add_index("nodes", "zone", zones)

    assert before + 2 == cache.latest
    assert ("node", "name") == cache["pods"].indices
    assert ["prod/b"] == cache["pods"].index_keys("name", "b")
    writer.apply("nodes", [pod("c", "v")])
    assert ["v"] == cache["nodes"].index_values("zone")
    writer.delete("nodes", "prod/c")
    assert objects == state_of(cache)


def test_an_invalid_index_leaves_no_trace(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.put("pods", "a", {})
    for spec in ("no.such.module:f", f"{__name__}:UNLUCKY", "a..b", ""):
        with pytest.raises((ImportError, TypeError, ValueError)):
            writer.add_index("pods", "new", spec)
    with writer.batch(), pytest.raises(ShmCacheError, match="batch"):
        writer.add_index("pods", "new", zones)

    assert ("node",) == cache["pods"].indices
    writer.put("pods", "b", {})


def test_a_function_declared_late_runs_for_each_existing_object(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    for n in range(300):
        writer.put("pods", f"p{n:03}", {"n": n, "metadata": {}}, str(n))
    head = cache.follow()

    writer.add_index("pods", "tens", lambda pod: [f"t{pod['n'] // 10}", "all"])
    writer.add_index("pods", "even", lambda pod: None if pod["n"] % 2 else "yes")

    assert [] == head.take()  # only the index has changed
    assert list(range(40, 50)) == [pod["n"] for pod in cache["pods"].by_index("tens", "t4")]
    assert 300 == len(cache["pods"].by_index("tens", "all"))
    assert 150 == len(cache["pods"].by_index("even", "yes"))
    writer.put("pods", "p040", {"n": 7}, "301")
    assert 7 in [pod["n"] for pod in cache["pods"].by_index("tens", "t0")][7:]
    writer.delete("pods", "p041")
    assert list(range(42, 50)) == [pod["n"] for pod in cache["pods"].by_index("tens", "t4")]
    writer.check()


def test_an_unknown_resource_or_index_is_refused_with_the_known_ones(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    for refused in (
        lambda: writer.put("podz", "a", {}),
        lambda: cache["podz"],
    ):
        with pytest.raises(KeyError, match=r"no resource 'podz'.*pods"):
            refused()
    with pytest.raises(KeyError, match=r"nodes.*node"):
        cache["pods"].by_index("nodes", "x")


def test_a_resource_is_declared_once(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    with pytest.raises(ValueError, match="declared already"):
        writer.add_resource("pods")

    with pytest.raises(ImportError, match="no-such-module"):
        writer.add_resource(Resource("services", {"node": "no-such-module:function"}))
    writer.add_resource("services")  # the refused one left no trace
    writer.put("services", "a", {})

    assert ("pods", "nodes", "services") == cache.resources
    assert {} == cache["services"]["a"]


def test_functions_that_differ_in_a_constant_alone_are_others() -> None:
    """A set has another order in each process, and is the same function."""
    functions: list[Any] = [
        lambda obj: str(obj["size"] in {"a", "b"}),
        lambda obj: str(obj["size"] in {"b", "a"}),
        lambda obj: str(obj["size"] in {"a", "c"}),
        lambda obj: str(obj["size"] == "a"),
        lambda obj: str(obj["size"] == "b"),
    ]
    found = [identity_of(function) for function in functions]

    assert found[0] == found[1]
    assert 4 == len({*found})
    assert all(found)


# ---- the end, and a full arena ---------------------------------------------------------------


def test_use_after_close_is_refused(writer: shmcache.Writer) -> None:
    writer.close()
    writer.close()

    for refused in (
        lambda: writer.put("pods", "a", {}),
        lambda: writer.delete("pods", "a"),
        lambda: writer.apply("pods", []),
        writer.stats,
        writer.check,
    ):
        with pytest.raises(ClosedError, match="closed"):
            refused()


def test_closing_inside_a_batch_is_refused_and_aborts_it(writer: shmcache.Writer) -> None:
    with pytest.raises(ShmCacheError, match="batch"), writer.batch():
        writer.close()
    assert not writer.closed


def test_a_closed_cache_leaves_no_names_and_serves_attached_readers(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "a", {"x": 1})

    writer.close()

    assert [] == SharedMemory().names(PREFIX + writer.name)
    assert {"x": 1} == cache["pods"]["a"]


def test_a_second_writer_is_refused(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    with pytest.raises(BusyError, match=str(os.getpid())):
        shmcache.Writer(writer.name)

    writer.put("pods", "a", {})
    assert "a" in cache["pods"]


def test_a_dropped_writer_releases_everything(name: str) -> None:
    writer = shmcache.Writer(name)
    with pytest.warns(ResourceWarning, match=name):
        del writer
        gc.collect()

    shmcache.Writer(name).close()


def test_a_directory_holds_a_cache(tmp_path: Any) -> None:
    name = str(tmp_path / "pods")
    with shmcache.Writer(name, ["pods"], arena_max="8MiB") as writer:
        writer.put("pods", "a", {"x": 1})
        with shmcache.attach(name) as cache:
            assert {"x": 1} == cache["pods"]["a"]
    assert [] == os.listdir(name)


@pytest.fixture
def small(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods"], arena_max="6MiB", ring_slots=64) as made:
        yield made


def test_a_description_in_a_batch_that_fails_is_written_again(
    small: shmcache.Writer,
) -> None:
    with pytest.raises(KeyError), small.batch():
        small.describe("pods", kind="Pod")
        raise KeyError
    small.describe("pods", kind="Pod")

    with shmcache.attach(small.name) as cache:
        assert "Pod" in str(cache.reader.root().record(0)["settings"])


def test_a_full_arena_names_the_setting_to_raise_and_keeps_the_last_state(
    small: shmcache.Writer, rng: Any
) -> None:
    with shmcache.attach(small.name) as cache:
        small.put("pods", "a", {"x": 1})
        with pytest.raises(CacheFull, match="arena_max") as full:
            for n in range(100):
                small.put("pods", f"k{n}", {"x": f"{rng.getrandbits(400_000):x}"})

        before = state_of(cache)
        assert "6 MiB" in str(full.value)
        assert {"x": 1} == before["pods"]["a"]
        with pytest.raises(CacheFull):
            small.put_many("pods", [(str(n), {"x": f"{n}" * 99_999}, None) for n in range(99)])
        assert before == state_of(cache)
        small.check()

        keys = list(cache["pods"])
    small.drop_window()
    small.reclaim()
    for key in keys:
        small.delete("pods", key)
        small.reclaim()
    small.drop_window()
    small.reclaim()
    small.put("pods", "again", {"x": "y" * 100_000})
    small.check()


def test_threads_take_turns(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for n in range(100):
            with writer.batch():
                writer.put("pods", f"{number}/{n}", {"n": n})
                writer.put("pods", f"{number}/last", {"n": n})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 404 == len(cache["pods"])


def test_duties_run_without_a_call(writer: shmcache.Writer) -> None:
    """The pin of a reader that died without leaving is released."""
    # the heartbeat is in DATA only: the test shows that tending never fails
    assert writer._tend()
    writer.close()
    assert not writer._tend()


def test_an_unclosed_writer_leaves_nothing_when_python_ends(name: str) -> None:
    code = f"""
import shmcache
writer = shmcache.Writer({name!r}, resources=["pods"])
cycle = [writer]
cycle.append(cycle)
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )

    assert (0, "") == (answer.returncode, answer.stderr)
    assert not SharedMemory().names(PREFIX + name)


class Thing:
    """An object whose attributes are a dict that shares its keys with the class's other objects."""

    def __init__(self, number: int) -> None:
        self.name = f"thing {number}"
        self.number = number


def layouts(number: int) -> Iterator[dict[str, Any]]:
    """Dicts in CPython's layouts: small, large, with gaps, of an instance, once with an int."""
    yield {}
    yield {"a": number}
    yield {f"key {i}": i for i in range(number * 40)}
    gaps = {f"key {i}": [i, str(i)] for i in range(60)}
    for i in range(number, 60, 3):
        del gaps[f"key {i}"]
    yield gaps
    yield {**gaps, "at the end": number}
    yield vars(Thing(number))
    mixed: dict[Any, Any] = {1: 1, "a": "1", "b": None, "c": {"d": number}}
    del mixed[1]
    yield mixed
    yield dict(reversed(gaps.items()))


def test_every_layout_of_a_dict_is_walked(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    """Each next to each: the previous value determines how a dict is compared."""
    versions = [found for number in (1, 2, 7) for found in layouts(number)]
    for before in versions:
        for after in versions:
            writer.put("pods", "prod/web-0", {"is": before})
            writer.put("pods", "prod/web-0", {"is": after})
            found = cache["pods"]["prod/web-0"].to_dict()["is"]
            assert list(found.items()) == list(after.items())
