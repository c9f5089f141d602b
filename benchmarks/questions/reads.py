"""What does a read cost a worker, against a dict of its own and against JSON in LMDB?

Keys come in random order from a list made beforehand; keys are equal to the stored ones, not the
same Python objects. "First" is the first field read of each of many views, "again" the same read
of one view, each against the same reads of decoded dicts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, Timing, at_least, at_most, ratio_of, show_ns
from benchmarks.peers import redis_lists
from benchmarks.peers.dicts import DictStore
from benchmarks.peers.lmdb_store import LmdbStore
from benchmarks.peers.redis_store import RedisStore
from benchmarks.scenes.shared import Corpus, SharedStore, filled, recorded

VIEWS = 10_000
DECODES = 1_000


def run(quick: bool) -> list[Row]:
    rounds = 2 if quick else 11
    corpora = [Corpus("pods", 10_000)]
    if not quick:
        corpora += [Corpus("pods", 100_000), *filter(None, [recorded()])]
    rows: list[Row] = []
    for corpus in corpora:
        with filled(corpus) as name:
            rows += _questions(name, corpus, rounds)
    if quick:
        rows += harness.not_asked("the same of 100,000 pods, and of recorded ones")
    return rows


def _questions(name: str, corpus: Corpus, rounds: int) -> list[Row]:
    bodies = corpus.bodies()
    keys = list(bodies)
    random.Random(7).shuffle(keys)
    ours = SharedStore(name)
    decoded = DictStore(bodies.items())
    stored = LmdbStore(bodies.items())
    try:
        return [
            _get(ours, decoded, keys, rounds, f"get, {corpus}"),
            _get_field(ours, stored, keys[:VIEWS], rounds, corpus),
            *_undecoded(ours, stored, keys[:VIEWS], rounds, corpus),
            _redis(ours, bodies, keys[:DECODES], rounds, corpus),
            *_fields(ours, decoded, keys[:VIEWS], rounds, f"{corpus}"),
            *_whole(ours, decoded, bodies, keys[:DECODES], rounds, f"{corpus}"),
        ]
    finally:
        stored.close()
        ours.close()


def _get(
    ours: SharedStore, peer: DictStore, keys: list[str], rounds: int, question: str
) -> Row:  # fmt: skip
    our_keys, peer_keys = ours.ready(keys), peer.ready(keys)
    times = harness.measure(
        {"ours": (ours.get, lambda: our_keys), "peer": (peer.get, lambda: peer_keys)},
        len(keys),
        rounds,
        lambda: harness.empty_loop(our_keys),
    )
    return _row(question, times, "dict", 2.0)


def _get_field(
    ours: SharedStore, peer: LmdbStore, keys: list[str], rounds: int, corpus: Corpus
) -> Row:  # fmt: skip
    our_keys, peer_keys = ours.ready(keys), peer.ready(keys)
    times = harness.measure(
        {"ours": (ours.get_field, lambda: our_keys), "peer": (peer.get_field, lambda: peer_keys)},
        len(keys),
        rounds,
        lambda: harness.empty_loop(our_keys),
    )
    faster = 1 / ratio_of(times["ours"], times["peer"])
    return Row(
        question=f'get + ["spec"]["nodeName"], {corpus}',
        ours=str(times["ours"]),
        peer=f"LMDB + orjson {times['peer']}",
        note=_empty(times),
        **at_least(30 if corpus.count >= 100_000 else 60, faster),
    )


def _undecoded(
    ours: SharedStore, peer: LmdbStore, keys: list[str], rounds: int, corpus: Corpus
) -> list[Row]:
    """LMDB once more, with less of an object decoded, or nothing."""
    our_keys, peer_keys = ours.ready(keys), peer.ready(keys)
    loops: dict[str, Callable[[Any], None]] = {
        "LMDB + msgspec, six fields": peer.get_projected,
        "LMDB, raw bytes": peer.get,
    }
    rows = []
    for label, loop in loops.items():
        times = harness.measure(
            {"ours": (ours.get_field, lambda: our_keys), "peer": (loop, lambda: peer_keys)},
            len(keys),
            rounds,
        )
        rows.append(
            Row(
                question=f'get + ["spec"]["nodeName"], {corpus}, against {label}',
                ours=str(times["ours"]),
                peer=f"{label} {times['peer']}",
                ratio=ratio_of(times["ours"], times["peer"]),
            )
        )
    return rows


def _redis(
    ours: SharedStore, bodies: dict[str, bytes], keys: list[str], rounds: int, corpus: Corpus
) -> Row:
    """In wall-clock time: most of it is waiting for a server. It holds only some of the objects."""
    question = f'get + ["spec"]["nodeName"], {corpus}, against Redis + orjson'
    if not redis_lists.is_here():
        return Row(question=question, ours="", peer=redis_lists.MISSING)
    with redis_lists.server() as socket:
        peer = RedisStore(socket, ((key, bodies[key]) for key in keys))
        sides = {"ours": (ours.get_field, ours.ready(keys)), "peer": (peer.get_field, keys)}
        took: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (loop, given) in sides.items():
                start = time.perf_counter_ns()
                loop(given)
                took[name].append((time.perf_counter_ns() - start) / len(given))
        peer.close()
    times = {name: harness.timing(each) for name, each in took.items()}
    return Row(
        question=question,
        ours=str(times["ours"]),
        peer=f"Redis + orjson {times['peer']}",
        ratio=ratio_of(times["ours"], times["peer"]),
        note=f"time on the wall, of {len(keys):,} objects",
    )


def _fields(
    ours: SharedStore, peer: DictStore, keys: list[str], rounds: int, corpus: str
) -> list[Row]:  # fmt: skip
    def views() -> list[Any]:
        return [ours.pods[key] for key in keys]

    def dicts() -> list[Any]:
        return [peer.objects[key] for key in keys]

    first = harness.measure(
        {"ours": (_read_all, views), "peer": (_read_all, dicts)}, len(keys), rounds
    )
    number = 100_000
    one_view, one_dict = ours.pods[keys[0]], peer.objects[keys[0]]
    nothing = [None] * number
    again = harness.measure(
        {
            "ours": (_read_one(nothing), lambda: one_view),
            "peer": (_read_one(nothing), lambda: one_dict),
        },
        number,
        rounds,
    )
    return [
        _row(
            f"field, first read on {len(keys):,} views, {corpus}",
            first,
            "dicts",
            3.0,
            f"again on one dict {show_ns(again['peer'].ns)}",
        ),
        _row(f"field, again on one view, {corpus}", again, "dict", 2.0),
    ]


def _read_all(things: Sequence[Any]) -> None:
    for thing in things:
        thing["spec"]["nodeName"]


def _read_one(nothing: Sequence[None]) -> Callable[[Any], None]:
    def loop(thing: Any) -> None:
        for _ in nothing:
            thing["spec"]["nodeName"]

    return loop


def _whole(
    ours: SharedStore,
    peer: DictStore,
    bodies: dict[str, bytes],
    keys: list[str],
    rounds: int,
    corpus: str,
) -> list[Row]:
    views = [ours.pods[key] for key in keys]
    texts = [bodies[key] for key in keys]
    dicts = [peer.objects[key] for key in keys]
    decode = harness.measure(
        {"ours": (_to_dicts, lambda: views), "peer": (_decode, lambda: texts)}, len(keys), rounds
    )
    encode = harness.measure(
        {"ours": (_to_json, lambda: views), "peer": (_encode, lambda: dicts)}, len(keys), rounds
    )
    return [
        _row(f"to_dict(), {corpus}", decode, "orjson.loads", 0.75),
        _row(f"json(), {corpus}", encode, "orjson.dumps", 1.2),
    ]


def _to_dicts(views: Sequence[Any]) -> None:
    for view in views:
        view.to_dict()


def _to_json(views: Sequence[Any]) -> None:
    for view in views:
        view.json()


def _decode(texts: Sequence[bytes]) -> None:
    loads = orjson.loads
    for text in texts:
        loads(text)


def _encode(dicts: Sequence[Any]) -> None:
    dumps = orjson.dumps
    for thing in dicts:
        dumps(thing)


def _row(
    question: str, times: dict[str, Timing], peer: str, limit: float, note: str = ""
) -> Row:  # fmt: skip
    return Row(
        question=question,
        ours=str(times["ours"]),
        peer=f"{peer} {times['peer']}",
        note=", ".join(filter(None, (note, _empty(times)))),
        **at_most(limit, ratio_of(times["ours"], times["peer"])),
    )


def _empty(times: dict[str, Timing]) -> str:
    return f"empty loop {times['ours'].empty:.1f} ns"


if __name__ == "__main__":
    harness.main(__doc__, run)
