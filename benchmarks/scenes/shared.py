"""shmcache's side of the questions: a filled cache, its writer in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import shmcache
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.objects import Object

RESOURCE = "pods"
INDICES = {
    "node": "spec.nodeName",
    "owner": "metadata.ownerReferences[*].uid",
    "labels": "metadata.labels",
}
BATCH = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """The choice of objects: `kind` is a key of the names below."""

    kind: str
    count: int

    def __str__(self) -> str:
        names = {
            "pods": "pods",
            "unlike": "pods that share nothing but keys",
            "own-token": "pods with token volumes of their own",
            "recorded": "recorded pods",
            "managed": "recorded pods with their managedFields",
            "config-maps": "config maps",
            "custom": "custom resources",
        }
        return f"{self.count:,} {names[self.kind]}"

    def objects(self) -> Iterable[Object]:
        match self.kind:
            case "unlike":
                return objects.pods_unlike(self.count)
            case "own-token":
                return objects.pods(self.count, token_volumes=True)
            case "recorded" | "managed":
                return objects.recorded_pods(managed_fields=self.kind == "managed")
            case "config-maps":
                return objects.config_maps(self.count)
            case "custom":
                return objects.custom_resources(self.count)
        return objects.pods(self.count)

    def bodies(self) -> dict[str, bytes]:
        """JSON by key."""
        found: dict[str, bytes] = {}
        for thing in self.objects():
            found[objects.key_of(thing)] = objects.encode([thing])[0]
        return found


def recorded() -> Corpus | None:
    """The recorded pods; None, with a printed reason, if they are missing."""
    try:
        return Corpus("recorded", len(objects.recorded_pods()))
    except objects.NoTraces as reason:
        print(f"recorded pods skipped: {reason}")
        return None


@contextlib.contextmanager
def directory() -> Iterator[str]:
    """The name of a new cache: a directory in memory, removed afterwards."""
    path = tempfile.mkdtemp(prefix="bench-shmcache-", dir="/dev/shm")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def open_writer(name: str, **options: Any) -> Any:
    resource = shmcache.Resource(RESOURCE, indices=INDICES)
    return shmcache.Writer(name, resources=[resource], arena_max=4 << 30, **options)


def fill(writer: Any, things: Iterable[Object]) -> None:
    pending = iter(things)
    while batch := list(itertools.islice(pending, BATCH)):
        writer.apply(RESOURCE, batch)


def fill_variants(writer: Any, count: int) -> None:
    """`count` pods, each also under two unchanging keys: with and without a change.

    Alternating between the two puts values that are encoded already, see `variants`.
    """
    for n, thing in enumerate(objects.pods(count)):
        key, changed = objects.key_of(thing), objects.status_update(thing, 2 * n + 1)
        for name, value in ((key, thing), (f"{key}.old", thing), (f"{key}.new", changed)):
            writer.put(RESOURCE, name, value, objects.version_of(value))


def variants(cache: Any) -> list[tuple[str, tuple[Any, Any]]]:
    """(key, (view, view after a status-only update)) of each pod of `fill_variants`."""
    pods = cache[RESOURCE]
    keys = [key.removesuffix(".old") for key in pods if key.endswith(".old")]
    return [(key, (pods[f"{key}.old"], pods[f"{key}.new"])) for key in keys]


@contextlib.contextmanager
def filled(corpus: Corpus) -> Iterator[str]:
    """A cache that holds the corpus; its writer is another process and does nothing more."""
    with directory() as name, Children(_fill_and_stay, [(name, corpus)]) as children:
        children.receive()
        yield name


def _fill_and_stay(pipe: Pipe, name: str, corpus: Corpus) -> None:
    with open_writer(name) as writer:
        fill(writer, corpus.objects())
        pipe.ready()


class SharedStore:
    """The reader's side, with the interface of `benchmarks.peers`."""

    name = "shmcache"

    def __init__(self, name: str) -> None:
        self.cache = shmcache.attach(name)
        self.pods = self.cache[RESOURCE]

    def close(self) -> None:
        self.cache.close()

    def ready(self, keys: Sequence[str]) -> list[str]:
        return [key.encode().decode() for key in keys]

    def get(self, keys: Sequence[str]) -> None:
        get = self.pods.get
        for key in keys:
            get(key)

    def get_field(self, keys: Sequence[str]) -> None:
        pods = self.pods
        for key in keys:
            pods[key]["spec"]["nodeName"]
