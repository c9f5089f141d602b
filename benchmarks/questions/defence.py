"""What does it cost a reader that it trusts no byte?

The extension is built once more, without range checks, without the validation after reading and
with loads that a compiler may join (csrc/defence.h). Two workers, one with each build, answer in
turns, about one cache of 10,000 pods. Each also queries a dict of its own: the target is about the
core's figure against that, with all defences on. The build takes half a minute: a quick run has no
row of it before a full run has built it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import random
import runpy
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, Timing, ratio_of
from benchmarks.peers.dicts import DictStore
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, Corpus, filled

BUILD = harness.ROOT / "build" / "undefended"
BUILT = BUILD / f"_hot{sysconfig.get_config_var('EXT_SUFFIX')}"
COUNT = 10_000
WHOLE = 1_000
AGAIN = 100_000
SCANNED = {"labels": "tier!=batch,app.kubernetes.io/name notin (api-gateway)"}


@dataclasses.dataclass(frozen=True)
class Question:
    """A loop over our objects and the same over the dict's, of `number` operations each."""

    ours: Callable[[], Any]  # makes the loop's argument
    peer: Callable[[], Any]
    loop: Callable[[Any], object]
    peer_loop: Callable[[Any], object]
    number: int


LIMITS: dict[str, float] = {
    "get": 2.0,
    "field, first read on each of 10,000 views": 3.0,
    "field, again on one view": 2.0,
    "scan of 10,000 pods by labels, 2 requirements": 2.0,
    "to_dict(), against orjson.loads": 0,  # see reads.py
}


def run(quick: bool) -> list[Row]:
    if quick and not _is_built():
        why = "not asked in a quick run before a full one has built the other extension"
        return [Row(question=question, ours="", peer=why) for question in LIMITS]
    rounds = 3 if quick else 25
    took: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_undefended())
        name = stack.enter_context(filled(Corpus("pods", COUNT)))
        sides = {"with": stack.enter_context(_asking(name)),
                 "without": stack.enter_context(_asking(name, place))}  # fmt: skip
        for turn in range(rounds + 1):
            for side, children in sides.items():
                children.send("a turn")
                for question, times in children.receive()[0].items():
                    for who, ns in times.items():
                        found = took.setdefault(question, {}).setdefault(f"{who} {side}", [])
                        found += [ns] if turn else []  # the first one warms up
    return [_row(question, {who: harness.timing(ns) for who, ns in times.items()})
            for question, times in took.items()]  # fmt: skip


def _row(question: str, times: dict[str, Timing]) -> Row:
    on, off = (ratio_of(times[f"ours {how}"], times[f"peer {how}"]) for how in ("with", "without"))
    price = ratio_of(times["ours with"], times["ours without"])
    return Row(
        question=question,
        ours=str(times["ours with"]),
        peer=f"undefended {times['ours without']}",
        ratio=price,
        must=f"≤ {LIMITS[question]:g} × a dict" if LIMITS[question] else "",
        met=on <= LIMITS[question] if LIMITS[question] else None,
        note=f"against a dict {on:.2f}, undefended {off:.2f}",
    )


# ---- the second build ----------------------------------------------------------------------------


@contextlib.contextmanager
def _undefended() -> Iterator[str]:
    """The directory of the package with an extension that trusts every byte."""
    module = _built()
    with tempfile.TemporaryDirectory(prefix="bench-undefended-") as place:
        package = Path(shmcache.__file__).parent
        ours = shutil.ignore_patterns("_hot*.so", "__pycache__")
        shutil.copytree(package, Path(place) / "shmcache", ignore=ours)
        shutil.copy(module, Path(place) / "shmcache")
        yield place


def _built() -> Path:
    """The extension, rebuilt if a source has changed."""
    if not _is_built():
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as place:
            _build(place)
            (Path(place) / "shmcache" / BUILT.name).replace(BUILT)
    return BUILT


def _is_built() -> bool:
    sources = [*(harness.ROOT / "csrc").rglob("*.[ch]"), harness.ROOT / "shmcache" / "_build.py"]
    newest = max(source.stat().st_mtime for source in sources)
    return BUILT.exists() and BUILT.stat().st_mtime >= newest


def _build(place: str) -> None:
    from setuptools import Distribution, Extension

    with contextlib.chdir(harness.ROOT):
        build = runpy.run_path("shmcache/_build.py")
        extension = Extension(
            "shmcache._hot",
            sources=build["core_sources"]() + build["hot_sources"](),
            include_dirs=["csrc"],
            extra_compile_args=[*build["COMPILE_ARGS"], "-DSHMC_NO_DEFENCE"],
            extra_link_args=build["LINK_ARGS"],
        )
        command: Any = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = place, f"{place}/objects"
        command.ensure_finalized()
        command.run()


@contextlib.contextmanager
def _asking(name: str, place: str | None = None) -> Iterator[Children]:
    """A worker, with the package of `place` instead of ours."""
    path = list(sys.path)
    sys.path[:0] = [place] if place else []  # which a spawned process starts with
    try:
        children = Children(_ask, [(name, place is None)])
    finally:
        sys.path[:] = path
    with children:
        children.receive()
        yield children


# ---- in a worker ---------------------------------------------------------------------------------


def _ask(pipe: Pipe, name: str, defended: bool) -> None:
    from shmcache import _hot

    assert _hot.defended is defended, "the wrong build"
    with shmcache.attach(name) as cache:
        questions = _questions(cache[RESOURCE])
        gc.collect()
        gc.freeze()
        gc.disable()
        pipe.ready()
        while True:
            pipe.answer({name: _times(question) for name, question in questions.items()})
            pipe.next()


def _times(question: Question) -> dict[str, float]:
    return {
        "ours": _time(question.loop, question.ours, question.number),
        "peer": _time(question.peer_loop, question.peer, question.number),
    }


def _time(loop: Callable[[Any], object], made: Callable[[], Any], number: int) -> float:
    loop(made())  # untimed: the caches as it leaves them itself
    given = made()
    start = time.thread_time_ns()
    loop(given)
    return (time.thread_time_ns() - start) / number


def _questions(pods: Any) -> dict[str, Question]:
    bodies = Corpus("pods", COUNT).bodies()
    store = DictStore(bodies.items())
    decoded = store.objects
    keys = store.ready(list(bodies))
    random.Random(7).shuffle(keys)
    one, one_dict = pods[keys[0]], decoded[keys[0]]
    some, texts = keys[:WHOLE], [bodies[key] for key in keys[:WHOLE]]
    found = len(pods.list(**SCANNED))
    assert found == len(_select(decoded))
    made = [
        Question(lambda: keys, lambda: keys, partial(_get, pods.get), store.get, COUNT),
        Question(lambda: [pods[key] for key in keys], lambda: [decoded[key] for key in keys],
                 _fields, _fields, COUNT),
        Question(lambda: one, lambda: one_dict, _field_again, _field_again, AGAIN),
        Question(lambda: pods, lambda: decoded, _scan, _select, COUNT),
        Question(lambda: [pods[key] for key in some], lambda: texts, _plain, _loads, WHOLE),
    ]  # fmt: skip
    return dict(zip(LIMITS, made, strict=True))


def _get(get: Any, keys: list[str]) -> None:
    for key in keys:
        get(key)


def _fields(things: list[Any]) -> None:
    for thing in things:
        thing["spec"]["nodeName"]


def _field_again(thing: Any) -> None:
    for _ in range(AGAIN):
        thing["spec"]["nodeName"]


def _scan(pods: Any) -> None:
    pods.list(**SCANNED)


def _select(decoded: dict[str, Any]) -> list[Any]:
    return [
        pod
        for pod in decoded.values()
        if pod["metadata"]["labels"].get("tier") != "batch"
        and pod["metadata"]["labels"].get("app.kubernetes.io/name") != "api-gateway"
    ]


def _plain(views: list[Any]) -> None:
    for view in views:
        view.to_dict()


def _loads(texts: list[bytes]) -> None:
    loads = orjson.loads
    for text in texts:
        loads(text)


if __name__ == "__main__":
    harness.main(__doc__, run)
