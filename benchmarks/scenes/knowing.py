"""shmcache's side of footprint.py: a reflector, a worker, and a writer without a server."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from benchmarks.scenes.lean import Pipe


STREAM = 50


def reflector(pipe: Pipe, name: str, url: str) -> None:
    import shmcache.engine.engine
    import shmcache.source.kube
    import shmcache.writer.writer  # noqa: F401
    from benchmarks.scenes.following import Opener, reflecting

    pipe.answer(os.getpid())
    pipe.next()
    with reflecting(name, Opener(url)):
        pipe.answer("full")
        pipe.next()


def worker(pipe: Pipe, name: str) -> None:
    import shmcache

    pipe.answer(os.getpid())
    pipe.next()
    pods = shmcache.attach(name)["pods"]
    pipe.answer("full")
    pipe.next()
    pipe.answer(sum(1 for pod in pods.values() if pod["spec"]["nodeName"]))
    pipe.next()


def writer(pipe: Pipe, name: str, kind: str, count: int) -> None:
    """Fills from the corpus on the parent's command; then reports the length of the JSON."""
    import gc
    import itertools

    import orjson

    from benchmarks.scenes.shared import RESOURCE, Corpus, open_writer

    pipe.answer(os.getpid())
    pipe.next()
    text = 0

    def counted() -> Iterator[Any]:
        nonlocal text
        for thing in Corpus(kind, count).objects():
            text += len(orjson.dumps(thing))
            yield thing

    with open_writer(name) as writer:
        things = counted()
        while batch := list(itertools.islice(things, STREAM)):  # few of its own at a time
            writer.apply(RESOURCE, batch)
        gc.collect()
        pipe.answer("full")
        pipe.next()
        pipe.answer(text)
        pipe.next()
