"""What do lists, selections, differences and a new worker cost, against dicts of a process's own?

The peer of an index is a dict of keys by value, in order, whose objects come from a dict by key: an
informer's indexer, sorted beforehand. The peer of a scan is a comprehension over decoded dicts.
Each loop is one list; figures are per list. Attaching is measured in new processes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, Timing, at_most, ratio_of
from benchmarks.scenes import objects
from benchmarks.scenes.shared import RESOURCE, Corpus, directory, fill, filled, open_writer

OBJECTS, FEWER = 10_000, 2_000
"""In the last two questions a quick run has fewer."""
FEW, SOME, MANY = "pod-template-hash", "app.kubernetes.io/name", "topology.kubernetes.io/zone"
ALL = "app.kubernetes.io/managed-by"


def run(quick: bool) -> list[Row]:
    rounds = 3 if quick else 31
    corpus = Corpus("pods", OBJECTS)
    with filled(corpus) as name, shmcache.attach(name) as cache:
        decoded = {key: orjson.loads(body) for key, body in sorted(corpus.bodies().items())}
        rows = [
            *_indexed(cache[RESOURCE], decoded, rounds),
            *_scans(cache[RESOURCE], decoded, rounds),
            *_lists(cache[RESOURCE], decoded, rounds),
            *_attach(name, 5 if quick else 21),
        ]
    count = FEWER if quick else OBJECTS
    return [*rows, _namespace(rounds, count), _difference(rounds, count)]


def _indexed(pods: Any, decoded: dict[str, Any], rounds: int) -> list[Row]:
    index: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, pod in decoded.items():
        for label in pod["metadata"]["labels"].items():
            index[label].append(key)
    rows = []
    first = next(iter(decoded.values()))["metadata"]["labels"]
    for label in (FEW, SOME, MANY):
        keys, text = index[label, first[label]], f"{label}={first[label]}"
        assert len(pods.list(labels=text)) == len(keys)
        rows.append(
            _row(
                f"select by label, indexed, {len(keys):,} of {OBJECTS:,} pods",
                partial(pods.list, labels=text),
                partial(_look_up, decoded, index, (label, first[label])),
                "dict index",
                3.0,
                rounds,
                20_000 // len(keys),
            )
        )
    return rows


def _scans(pods: Any, decoded: dict[str, Any], rounds: int) -> list[Row]:
    questions: list[tuple[str, dict[str, str], Callable[[Any], bool]]] = [
        (
            "labels, 2 requirements",
            {"labels": "tier!=batch,app.kubernetes.io/name notin (api-gateway)"},
            lambda pod: (
                pod["metadata"]["labels"].get("tier") != "batch"
                and pod["metadata"]["labels"].get("app.kubernetes.io/name") != "api-gateway"
            ),
        ),
        (
            "one field, few match",
            {"fields": "status.phase=Pending"},
            lambda pod: pod["status"].get("phase") == "Pending",
        ),
    ]
    rows = []
    for question, asked, test in questions:
        found = len(pods.list(**asked))
        assert found == sum(map(test, decoded.values()))
        rows.append(
            _row(
                f"scan by {question}, {found:,} of {OBJECTS:,} pods",
                partial(pods.list, **asked),
                partial(_filter, decoded, test),
                "the same over dicts",
                2.0,
                rounds,
            )
        )
    return rows


def _look_up(
    decoded: dict[str, Any], index: dict[tuple[str, str], list[str]], label: tuple[str, str]
) -> list[Any]:  # fmt: skip
    return [decoded[key] for key in index[label]]


def _filter(decoded: dict[str, Any], test: Callable[[Any], bool]) -> list[Any]:
    return [pod for pod in decoded.values() if test(pod)]


def _lists(pods: Any, decoded: dict[str, Any], rounds: int) -> list[Row]:
    value = f"{ALL}=Helm"
    by_value = {value: {key: decoded[key] for key in decoded}}
    assert len(pods.by_index("labels", value)) == OBJECTS
    return [
        _row(
            f"list {OBJECTS:,} views of an index value",
            lambda: pods.by_index("labels", value),
            lambda: [pod for pod in by_value[value].values()],  # noqa: C416 - as built by a caller
            "list from a dict of dicts",
            2.0,
            rounds,
        )
    ]


def _namespace(rounds: int, count: int) -> Row:
    """All pods in one namespace, of several."""
    with directory() as name, open_writer(name) as writer, shmcache.attach(name) as cache:
        spaces: dict[str, dict[str, Any]] = {}
        for number, pod in enumerate(objects.pods(count + count // 5)):
            pod["metadata"]["namespace"] = space = "big" if number < count else "small"
            spaces.setdefault(space, {})[objects.key_of(pod)] = pod
        for things in spaces.values():
            fill(writer, things.values())
        pods = cache[RESOURCE]
        assert len(pods.list("big")) == len(spaces["big"])
        return _row(
            f"list {len(spaces['big']):,} views of a namespace",
            lambda: pods.list("big"),
            lambda: [pod for pod in spaces["big"].values()],  # noqa: C416
            "list from a dict of dicts",
            2.0,
            rounds,
        )


def _difference(rounds: int, count: int) -> Row:
    """The figure of resynchronising by difference, without the handlers' share."""
    with directory() as name, open_writer(name) as writer, shmcache.attach(name) as cache:
        pods = list(objects.pods(count))
        writer.apply(RESOURCE, pods)
        old = cache.snapshot()
        writer.apply(RESOURCE, [objects.status_update(pod, 3) for pod in pods[::100]])
        new = cache.snapshot()
        assert len(new.diff(old, RESOURCE).modified) == count // 100
        time = harness.measure(
            {"ours": (lambda _: new.diff(old, RESOURCE), lambda: None)}, 1, rounds
        )["ours"]
        return Row(
            question=f"difference of two snapshots, {count:,} objects, {count // 100} changed",
            ours=str(time),
            peer="",
            must="≤ 20 ms",
            met=time.ns <= 20e6,
        )


CHILD = """
import sys, time
def private():
    total, mine = 0, False
    for line in open("/proc/self/smaps"):
        first, *rest = line.split()
        if not first.endswith(":"):
            mine = rest[0].endswith("p")
        elif mine and first in ("Private_Clean:", "Private_Dirty:"):
            total += int(rest[0]) << 10
    return total
name, key = sys.argv[1:]
before = private()
start = time.perf_counter_ns()
import shmcache
cache = shmcache.attach(name)
found = cache["pods"][key]["spec"]["nodeName"]
took = time.perf_counter_ns() - start
print(took, private() - before)
"""


def _attach(name: str, rounds: int) -> list[Row]:
    with shmcache.attach(name) as cache:
        key = next(iter(cache[RESOURCE]))
    answers = []
    for _ in range(rounds + 1):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, name, key], capture_output=True, text=True, check=True
        )
        answers.append(tuple(map(int, done.stdout.split())))
    took = statistics.median(took for took, _ in answers[1:])
    size = statistics.median(size for _, size in answers[1:])
    question = "import + attach + first get in a new process"
    return [
        Row(
            question=question, ours=harness.show_ns(took), peer="", must="≤ 40 ms", met=took <= 40e6
        ),
        Row(
            question=f"{question}, private memory",
            ours=harness.show_bytes(size),
            peer="",
            must="≤ 5 MB",
            met=size <= 5_000_000,
        ),
    ]


def _row(
    question: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    name: str,
    limit: float,
    rounds: int,
    repeats: int = 1,
) -> Row:
    def loop(ask: Callable[[], object]) -> Callable[[Any], None]:
        def repeat(_: Any) -> None:
            for _ in nothing:
                ask()

        return repeat

    nothing = [None] * repeats
    times: dict[str, Timing] = harness.measure(
        {"ours": (loop(ours), lambda: None), "peer": (loop(peer), lambda: None)}, repeats, rounds
    )
    return Row(
        question=question,
        ours=str(times["ours"]),
        peer=f"{name} {times['peer']}",
        **at_most(limit, ratio_of(times["ours"], times["peer"])),
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
