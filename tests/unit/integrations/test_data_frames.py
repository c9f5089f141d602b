"""Frames and groups against plain Python over dicts, and through the packages that take Arrow."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import shmcache
from shmcache import states
from shmcache.integrations.frames import total

CPU = "spec.containers[*].resources.requests.cpu"
QUANTITIES = [
    "250m",
    "1",
    "1.5",
    "0.1",
    "2Gi",
    "0.5Mi",
    "3e3",
    "1E2",
    "5k",
    "100n",
    "7u",
    "1e-3",
    "1E",
]
DECIMAL = zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
SCALES = {
    **{letter: Fraction(10) ** power for letter, power in DECIMAL},
    **{f"{letter}i": Fraction(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip


def worth(text: str) -> Fraction:
    """A quantity, by the grammar of apimachinery."""
    for suffix in sorted(SCALES, key=len, reverse=True):
        if text.endswith(suffix):
            return Fraction(Decimal(text.removesuffix(suffix))) * SCALES[suffix]
    return Fraction(Decimal(text))


def pod(number: int, version: int, rng: random.Random) -> dict[str, Any]:
    containers = [
        {"name": f"c{n}", "resources": {"requests": {"cpu": rng.choice(QUANTITIES)}}}
        for n in range(rng.randrange(4))
    ]
    spec: dict[str, Any] = {"containers": containers, "priority": rng.randrange(3)}
    if rng.random() < 0.9:
        spec["nodeName"] = f"node-{rng.randrange(5)}" + rng.choice(["", "-with-a-long-näme"])
    if rng.random() < 0.5:
        spec["hostNetwork"] = rng.random() < 0.5
    return {
        "metadata": {
            "namespace": rng.choice(["a", "b"]) if not number else "a",
            "name": f"p{number}",
            "uid": str(number),
            "resourceVersion": str(version),
            "labels": {"app": rng.choice(["web", "db"])},
        },
        "spec": spec,
        "status": {
            "load": rng.choice([0, 0.25, 2.5, 2**63, 1 << 50]),
            "phase": rng.choice(["Running", "Pending", None]),
        },
    }


def cpu_of(obj: Any) -> list[Fraction]:
    return [worth(one["resources"]["requests"]["cpu"]) for one in obj["spec"]["containers"]]


def test_a_frame_equals_a_comprehension(
    writer: shmcache.Writer, cache: shmcache.Cache, rng: random.Random
) -> None:
    writer.apply("pods", [pod(number, 1, rng) for number in range(700)])
    objects = [one.to_dict() for one in cache["pods"].list()]

    frame = cache["pods"].frame(
        {
            "name": "metadata.name",
            "node": "spec.nodeName",
            "priority": "spec.priority",
            "host": "spec.hostNetwork",
            "load": "status.load",
            "phase": "status.phase",
            "first": "spec.containers[*].name",
            "cpu": total(CPU),
            "nothing": "spec.nothing.there",
        }
    )

    expected = {
        "name": [one["metadata"]["name"] for one in objects],
        "node": [one["spec"].get("nodeName") for one in objects],
        "priority": [one["spec"]["priority"] for one in objects],
        "host": [one["spec"].get("hostNetwork") for one in objects],
        "load": [float(one["status"]["load"]) for one in objects],
        "phase": [one["status"]["phase"] for one in objects],
        "first": ["c0" if one["spec"]["containers"] else None for one in objects],
        "cpu": [float(sum(found)) if (found := cpu_of(one)) else None for one in objects],
        "nothing": [None] * len(objects),
    }
    lists = frame.to_dict()
    assert lists.pop("cpu") == pytest.approx(expected.pop("cpu"))
    assert lists == expected
    assert len(frame) == 700
    assert frame.columns == (*list(expected)[:7], "cpu", "nothing")
    # the same through others, by Arrow
    table = frame.pyarrow()
    table.validate(full=True)
    assert {name: table[name].to_pylist() for name in expected} == expected
    frame_of_polars = frame.polars()
    assert {name: frame_of_polars[name].to_list() for name in expected} == expected
    assert pa.types.is_dictionary(table.schema.field("node").type)
    assert frame_of_polars.group_by("node").len().height == len(set(expected["node"]))


def test_arrays_outlive_the_frame_and_are_released_by_any_thread(
    writer: shmcache.Writer, cache: shmcache.Cache, rng: random.Random
) -> None:
    writer.apply("pods", [pod(number, 1, rng) for number in range(50)])
    held: list[Any] = [cache["pods"].frame({"name": "metadata.name"}).pyarrow()]
    held.append(pl.DataFrame(cache["pods"].frame({"name": "metadata.name"})))
    array = pa.array(cache["pods"].frame({"name": "metadata.name"})._arrow)
    names = [key.partition("/")[2] for key in cache["pods"]]
    writer.apply("pods", [pod(number, 2, rng) for number in range(50, 400)])
    assert held[0]["name"].to_pylist() == held[1]["name"].to_list() == names
    assert [one["name"] for one in array.to_pylist()] == names

    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    unused = cache["pods"].frame({"name": "metadata.name"})
    assert unused.__arrow_c_stream__()  # capsules that nobody takes release themselves
    assert unused.__arrow_c_array__()


def test_a_frame_of_a_selection_and_of_a_snapshot(
    writer: shmcache.Writer, cache: shmcache.Cache, rng: random.Random
) -> None:
    writer.apply("pods", [pod(number, 1, rng) for number in range(200)])
    pods = cache["pods"]
    web = [one.metadata.name for one in pods.list(labels="app=web", namespace="a")]
    assert pods.frame({"n": "metadata.name"}, labels="app=web", namespace="a").to_dict() == {
        "n": web
    }
    with cache.snapshot() as at:
        writer.delete("pods", "a/p7")
        assert len(at["pods"].frame({"n": "metadata.name"})) == 200
        assert sum(at["pods"].group_by("spec.nodeName").count().values()) == 200
        with pytest.raises(ValueError, match="never changes"):
            at["pods"].group_by("spec.nodeName").live()
    assert len(pods.frame({"n": "metadata.name"})) == 199


def test_a_frame_of_nothing(cache: shmcache.Cache) -> None:
    frame = cache["pods"].frame({"name": "metadata.name"})
    assert frame.to_dict() == {"name": []}
    assert frame.pyarrow().num_rows == frame.polars().height == 0
    assert cache["pods"].group_by("spec.nodeName").count() == {}


def test_mistakes_get_a_sentence(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    for number, value in enumerate(["text", 7]):
        writer.put("pods", f"a/{number}", {"metadata": {"name": "x"}, "mixed": value, "list": [1]})
    pods = cache["pods"]
    with pytest.raises(TypeError, match="column 'x': its values must be all texts"):
        pods.frame({"x": "mixed"})
    with pytest.raises(TypeError, match="column 'x': its values must be all texts"):
        pods.frame({"x": "list"})
    with pytest.raises(ValueError, match="a frame needs a column"):
        pods.frame({})
    with pytest.raises(TypeError, match="a column must be a name and a path"):
        pods.frame({"x": 7})  # type: ignore[dict-item]


# ---- quantities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0), ("1", 10**9), ("-1.5", -15 * 10**8), ("+2", 2 * 10**9), ("1.", 10**9),
        (".5", 5 * 10**8), ("250m", 25 * 10**7), ("1n", 1), ("0.1n", 1), ("-0.1n", -1),
        ("1Ki", 1024 * 10**9), ("0.5Gi", 2**29 * 10**9), ("7Ei", 7 * 2**60 * 10**9),
        ("9.2E", 92 * 10**26), ("1e3", 10**12), ("1E-3", 10**6), ("12e+2", 12 * 10**11),
        ("000000000000000000000000000000000000001", 10**9),
    ],
)  # fmt: skip
def test_quantities(writer: shmcache.Writer, cache: shmcache.Cache, text: str, nano: int) -> None:
    writer.put("pods", "a/x", {"metadata": {"name": "x"}, "q": text})
    found = cache["pods"].group_by("none").sum("q")[None]
    assert found == (nano // 10**9 if nano % 10**9 == 0 else nano / 10**9)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1x", "1 ", " 1", "1.2.3", "1Mii", "i", "1e", "1e+", "--1", "8Ei", "1e999", "9" * 28],
)
def test_other_texts_are_in_no_sum(
    writer: shmcache.Writer, cache: shmcache.Cache, text: str
) -> None:
    writer.put("pods", "a/x", {"metadata": {"name": "x"}, "q": [text, "1"]})
    live = cache["pods"].group_by("none").live(q="q[*]")
    assert live.sum("q", None) == 1
    assert live.invalid == 1


# ---- groups --------------------------------------------------------------------------------------


def reference(objects: Any) -> tuple[dict[Any, int], dict[Any, float]]:
    counts: Counter[Any] = Counter()
    sums: defaultdict[Any, Fraction] = defaultdict(Fraction)
    for one in objects:
        node = one["spec"].get("nodeName")
        counts[node] += 1
        sums[node] += sum(cpu_of(one))
    return dict(counts), {node: float(found) for node, found in sums.items()}


@pytest.mark.parametrize("selection", [{}, {"labels": "app=web"}, {"namespace": "a"}])
def test_live_groups_equal_a_count_of_all_after_random_changes(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    rng: random.Random,
    selection: dict[str, Any],
) -> None:
    """GROUPS1, GROUPS2, GROUPS3: also over lapses."""
    pods = cache["pods"]
    groups = pods.group_by("spec.nodeName", **selection)
    live = groups.live(cpu=CPU)
    lapses, counts = 0, dict[Any, int]()
    for turn in range(150):
        with writer.batch():
            for _ in range(rng.randrange(30)):
                if rng.random() < 0.3:
                    writer.delete("pods", f"a/p{rng.randrange(60)}")
                else:
                    writer.apply("pods", [pod(rng.randrange(1, 60), turn, rng)])
        if rng.random() < 0.05:
            writer.drop_window()
            lapses += 1
        counts, sums = reference(one.to_dict() for one in pods.list(**selection))
        assert live.counts() == groups.count() == counts
        assert live.sums("cpu") == pytest.approx(sums)
        assert groups.sum(CPU) == live.sums("cpu")
        assert set(live) == set(counts)
    assert live.count("node-1") == counts.get("node-1", 0)
    assert live.count("no such node") == live.sum("cpu", "no such node") == 0
    assert 1 <= live.fills <= lapses + 1


def test_groups_of_changing_values_keep_no_memory(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    live = cache["pods"].group_by("metadata.uid").live()
    for number in range(3000):
        writer.put("pods", "a/x", {"metadata": {"name": "x", "uid": f"uid-{number}"}})
        assert live.counts() == {f"uid-{number}": 1}
    assert live.fills == 1


def test_live_groups_move_to_the_next_instance_when_it_is_listed(name: str) -> None:
    def node(number: int) -> dict[str, Any]:
        return {"metadata": {"name": f"x{number}", "namespace": "a"}, "kind": "K"}

    with shmcache.Writer(name, ["pods"]) as first, shmcache.attach(name) as cache:
        first.apply("pods", [node(1), node(2)])
        first.set_state("pods", states.SYNCED, "1")
        live = cache["pods"].group_by("kind").live()
        assert live.count("K") == 2
        first.close()
        with shmcache.Writer(name, ["pods"], fresh=True) as second:
            second.set_state("pods", states.LISTING)
            assert live.count("K") == 2
            second.apply("pods", [node(1)])
            second.set_state("pods", states.SYNCED, "2")
            assert live.count("K") == 1


def test_groups_by_numbers_and_flags(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    for number, value in enumerate([1, 1, 2.5, True, False, "1", None, [1], {"a": 1}]):
        writer.put("pods", f"a/{number}", {"metadata": {"name": "x"}, "v": value})
    groups = cache["pods"].group_by("v")
    assert groups.count() == {1: 3, 2.5: 1, False: 1, "1": 1, None: 3}
    assert groups.live().counts() == groups.count()
    assert set(groups.live()) == set(groups.count())
