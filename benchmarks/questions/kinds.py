"""What do objects cost other than the corpus' pods: real ones, config maps, custom resources?

The same few questions for each kind: the shared data against the JSON; making a new object visible,
next to the cost of decoding it; a get and a field of it, against a dict of dicts; the whole object
as dicts and as JSON, against orjson. Recorded pods appear twice, once with the managedFields that a
reflector drops by default.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, Timing, ratio_of, timing
from benchmarks.peers.dicts import DictStore
from benchmarks.questions.memory import data_row, measured
from benchmarks.questions.writes import put_batch
from benchmarks.scenes import objects
from benchmarks.scenes.shared import Corpus, SharedStore, directory, open_writer

BATCH = 100
WHOLE = 500


def run(quick: bool) -> list[Row]:
    count, rounds = (1_000, 3) if quick else (10_000, 9)
    rows: list[Row] = []
    for corpus in _corpora(count):
        rows.append(data_row(corpus, measured(corpus), None))
        rows += _questions(corpus, rounds)
    return rows


def _corpora(count: int) -> Iterator[Corpus]:
    try:
        recorded = len(objects.recorded_pods())
    except objects.NoTraces as reason:
        print(f"recorded pods skipped: {reason}")
    else:
        yield Corpus("recorded", recorded)
        yield Corpus("managed", recorded)
    yield Corpus("config-maps", count)
    yield Corpus("custom", count)


def _questions(corpus: Corpus, rounds: int) -> list[Row]:
    things = list(corpus.objects())
    ready = [
        (objects.key_of(each), orjson.dumps(each), objects.version_of(each)) for each in things
    ]
    del things
    with directory() as name, open_writer(name) as writer:
        gc.disable()
        put = [put_batch(writer, ready[at : at + BATCH]) for at in range(0, len(ready), BATCH)]
        gc.enable()
        store, peer = SharedStore(name), DictStore((key, body) for key, body, _ in ready)
        rows = [_new(corpus, put), *_reads(corpus, store, peer, ready, rounds)]
        store.close()
    return rows


def _new(corpus: Corpus, put: list[tuple[float, float, float]]) -> Row:
    ours, decoding = timing([each[0] for each in put]), timing([each[1] for each in put])
    return Row(
        question=f"dict to visible: new, batches of {BATCH}, {corpus}",
        ours=str(ours),
        peer=f"orjson.loads {decoding}",
        ratio=ratio_of(ours, decoding),
    )


def _reads(
    corpus: Corpus, store: SharedStore, peer: DictStore, ready: list[Any], rounds: int
) -> list[Row]:
    keys = [key for key, _, _ in ready]
    random.Random(7).shuffle(keys)
    some, bodies = keys[:WHOLE], {key: body for key, body, _ in ready}
    views, dicts = [store.pods[key] for key in some], [peer.objects[key] for key in some]
    texts = [bodies[key] for key in some]
    asked: list[tuple[str, str, Any, Any, Sequence[Any], Sequence[Any]]] = [
        ("get and a field", "dicts", _field(store.pods), _field(peer.objects), keys, keys),
        ("to_dict()", "orjson.loads", _each("to_dict"), _call(orjson.loads), views, texts),
        ("json()", "orjson.dumps", _each("json"), _call(orjson.dumps), views, dicts),
    ]
    rows = []
    for what, other, loop, its, given, its_given in asked:
        times: dict[str, Timing] = harness.measure(
            {"ours": (loop, given.__iter__), "peer": (its, its_given.__iter__)}, len(given), rounds
        )
        rows.append(
            Row(
                question=f"{what}, {corpus}",
                ours=str(times["ours"]),
                peer=f"{other} {times['peer']}",
                ratio=ratio_of(times["ours"], times["peer"]),
            )
        )
    return rows


def _field(store: Any) -> harness.Loop:
    def loop(keys: Sequence[str]) -> None:
        for key in keys:
            store[key]["metadata"]["name"]

    return loop


def _each(method: str) -> harness.Loop:
    def loop(views: Sequence[Any]) -> None:
        for view in views:
            getattr(view, method)()

    return loop


def _call(function: Any) -> harness.Loop:
    def loop(given: Sequence[Any]) -> None:
        for each in given:
            function(each)

    return loop


if __name__ == "__main__":
    harness.main(__doc__, run)
