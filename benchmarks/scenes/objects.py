"""The objects every benchmark uses: deterministic by seed, in the manner of recorded real pods.

`pods()` is the corpus: pods of Deployments, two containers, about 6 KB of compact JSON, 1 to 50
pods per owner. Each has its own name, uid, addresses, node, times and container ids; labels,
environment, probes and volumes are equal within an owner and alike between owners. Every object
is decoded from its own JSON, so that no two of them share a Python object, as after a LIST.

    python -m benchmarks.scenes.objects        prints the sizes and one pod
"""

from __future__ import annotations

import datetime as dt
import functools
import gzip
import itertools
import os
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.scenes import template

Object = dict[str, Any]

PODS_PER_OWNER_MAX = 50
PODS_PER_NODE = 40
FIRST_VERSION = 1_000_000
FIRST_UPDATE_VERSION = 1_000_000_000
EPOCH = dt.datetime(2026, 3, 1)
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
TRACES = Path(__file__).resolve().parents[2] / "tests" / "conformance" / "traces"
KEPT = "SHMCACHE_BENCH_CORPORA"
"""The variable that names a directory for objects that later questions read again."""
RECORDED_PAGES = tuple(f"a-list-pods-limit500-page{page}.body.gz" for page in (1, 2, 3))


class NoTraces(Exception):
    """The recorded pages are missing; the text names the searched places."""


def key_of(thing: Object) -> str:
    """The key of an object in the cache: namespace/name."""
    metadata = thing["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def version_of(thing: Object) -> str:
    return str(thing["metadata"]["resourceVersion"])


def encode(things: Iterable[Object]) -> list[bytes]:
    """Compact JSON, as the API server would send it."""
    return [orjson.dumps(thing) for thing in things]


def pods(count: int, seed: int = 1, *, token_volumes: bool = False) -> Iterator[Object]:
    """`count` pods; `token_volumes` names the projected token volume differently in each pod.

    An API server does that for pods that mount the token of their service account; it makes the
    volumes and the mounts of every pod different from those of its siblings.
    """
    name = f"pods-{count}-{seed}-{token_volumes:d}"
    return _kept(name, functools.partial(_pods, count, seed, token_volumes=token_volumes))


def _kept(name: str, make: Callable[[], Iterator[Object]]) -> Iterator[Object]:
    """Objects that this run makes now or has made before, decoded from their JSON."""
    place = os.environ.get(KEPT)
    if not place:
        yield from make()
        return
    path = Path(place) / name
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        with unfinished.open("wb") as file:
            file.writelines(orjson.dumps(thing) + b"\n" for thing in make())
        unfinished.replace(path)
    with path.open("rb") as file:
        for line in file:
            yield orjson.loads(line)


def _pods(count: int, seed: int, *, token_volumes: bool) -> Iterator[Object]:
    rng = random.Random(seed)
    nodes = _nodes(max(4, count // PODS_PER_NODE))
    made = 0
    for number in itertools.count():
        owner = template.owner(rng, number, _suffix(rng, 10), _uid(rng))
        suffixes: set[str] = set()
        for _ in range(rng.randint(1, PODS_PER_OWNER_MAX)):
            if made == count:
                return
            suffix = _suffix(rng, 5)
            while suffix in suffixes:
                suffix = _suffix(rng, 5)
            suffixes.add(suffix)
            own = _own_fields(rng, made, nodes)
            own["suffix"] = suffix
            own["token"] = "kube-api-access-" + (_suffix(rng, 5) if token_volumes else "x7k2p")
            yield orjson.loads(orjson.dumps(template.pod(owner, own)))
            made += 1


def pods_unlike(count: int, seed: int = 1) -> Iterator[Object]:
    """Pods with the keys of `pods()` in which every string and number is random."""
    return _kept(f"unlike-{count}-{seed}", functools.partial(_pods_unlike, count, seed))


def _pods_unlike(count: int, seed: int) -> Iterator[Object]:
    rng = random.Random(seed ^ 0x5EED)
    for number, thing in enumerate(pods(count, seed)):
        unlike: Object = _scramble(thing, rng)
        unlike["metadata"]["resourceVersion"] = str(FIRST_VERSION + number)
        yield unlike


def config_maps(count: int, seed: int = 1) -> Iterator[Object]:
    """ConfigMaps of 0.5 to 8 KB: a few long strings and little structure."""
    rng = random.Random(seed ^ 0xC0F1)
    for number in range(count):
        lines = (
            f"option_{line} = {rng.getrandbits(64):016x}" for line in range(rng.randint(4, 60))
        )
        thing = {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {
                "name": f"settings-{number}",
                "namespace": f"team-{number % 20}",
                "uid": _uid(rng),
                "resourceVersion": str(FIRST_VERSION + number),
                "creationTimestamp": time_of(rng.randrange(2_000_000)),
                "labels": {"app.kubernetes.io/part-of": f"system-{number % 7}"},
            },
            "data": {
                "config.ini": "\n".join(lines),
                "level": rng.choice(("debug", "info", "warn")),
                **{f"key-{key}": f"{rng.getrandbits(400):x}" for key in range(rng.randint(0, 60))},
            },
        }
        yield orjson.loads(orjson.dumps(thing))


def custom_resources(count: int, seed: int = 1) -> Iterator[Object]:
    """Objects of an operator: a spec of numbers, short texts and lists, and a status.

    About 2 KB; a tenth as much alike as pods are.
    """
    rng = random.Random(seed ^ 0xC05)
    for number in range(count):
        steps = [_step(rng, step) for step in range(rng.randint(3, 9))]
        started = rng.randrange(2_500_000)
        thing = {
            "kind": "Pipeline",
            "apiVersion": "example.com/v1",
            "metadata": {
                "name": f"pipeline-{number}",
                "namespace": f"team-{number % 20}",
                "uid": _uid(rng),
                "resourceVersion": str(FIRST_VERSION + number),
                "generation": rng.randint(1, 30),
                "creationTimestamp": time_of(started),
                "labels": {"example.com/owner": f"owner-{rng.randrange(200)}"},
            },
            "spec": {
                "schedule": f"{rng.randrange(60)} {rng.randrange(24)} * * *",
                "timeoutSeconds": rng.choice((60, 600, 3_600)),
                "threshold": round(rng.random(), 4),
                "paused": rng.random() < 0.1,
                "steps": steps,
            },
            "status": {
                "phase": rng.choice(("Pending", "Running", "Succeeded", "Failed")),
                "observedGeneration": rng.randint(1, 30),
                "lastRun": time_of(started + rng.randrange(100_000)),
                "steps": [
                    {"name": step["name"], "exitCode": 0, "seconds": round(rng.random() * 900, 2)}
                    for step in steps
                ],
            },
        }
        yield orjson.loads(orjson.dumps(thing))


def _step(rng: random.Random, step: int) -> Object:
    return {
        "name": f"step-{step}",
        "image": f"registry.example.internal/tools/{rng.choice(('git', 'build', 'test'))}:v1",
        "command": ["run", f"--input=s3://bucket-{rng.randrange(50)}/{rng.getrandbits(64):016x}"],
        "resources": {"cpu": rng.choice((1, 2, 4)), "memory": rng.choice(("1Gi", "4Gi"))},
    }


def recorded_pods(
    directory: str | Path | None = None, *, managed_fields: bool = False
) -> list[Object]:
    """The pods of the recorded LIST pages, by default without managedFields.

    Raises NoTraces if the pages are missing.
    """
    place = Path(directory or os.environ.get("SHMCACHE_TRACES") or TRACES)
    missing = [page for page in RECORDED_PAGES if not (place / page).is_file()]
    if missing:
        raise NoTraces(f"no {missing[0]}; name its directory with --traces or SHMCACHE_TRACES")
    found: list[Object] = []
    for page in RECORDED_PAGES:
        found += orjson.loads(gzip.decompress((place / page).read_bytes()))["items"]
    for thing in () if managed_fields else found:
        thing["metadata"].pop("managedFields", None)
    return found


def status_update(pod: Object, n: int, *, in_place: bool = False) -> Object:
    """The pod's next version, with another status only: one condition, one container."""
    changed = _next_version(pod, n, in_place=in_place)
    ready = n % 2 == 0
    status = changed["status"]
    condition = status["conditions"][2]
    condition["status"] = "True" if ready else "False"
    condition["lastTransitionTime"] = time_of(3_000_000 + n)
    status["containerStatuses"][0]["ready"] = ready
    return changed


def update(pod: Object, n: int, *, in_place: bool = False) -> Object:
    """The pod's next version, with all of its own fields changed, but for name and uid.

    The node, a label and an annotation are among them, so that two of three indices change.
    """
    changed = _next_version(pod, n, in_place=in_place)
    own = _own_fields(random.Random(n), n, _nodes(64))
    changed["metadata"]["labels"]["topology.kubernetes.io/zone"] = f"zone-{n % 5}"
    changed["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = own["times"][0]
    changed["spec"]["nodeName"] = own["node"]
    images = [(entry["image"], entry["imageID"]) for entry in pod["status"]["containerStatuses"]]
    changed["status"] = template.status(images, own)
    return changed if in_place else _decoded(changed)


def _decoded(thing: Object) -> Object:
    """A copy that shares no Python object with the original, as if it had come from the server."""
    found: Object = orjson.loads(orjson.dumps(thing))
    return found


def _next_version(pod: Object, n: int, *, in_place: bool) -> Object:
    changed = pod if in_place else _decoded(pod)
    changed["metadata"]["resourceVersion"] = str(FIRST_UPDATE_VERSION + n)
    return changed


def _own_fields(rng: random.Random, number: int, nodes: list[tuple[str, str]]) -> Object:
    """The fields that no two pods share."""
    node, host = rng.choice(nodes)
    address = number * 2_654_435_761 % (1 << 22)  # odd factor: no address twice
    start = rng.randrange(2_500_000)
    ready = start + rng.randint(3, 60)
    return {
        "uid": _uid(rng),
        "version": str(FIRST_VERSION + number),
        "node": node,
        "host": host,
        "address": f"10.{64 + (address >> 16)}.{address >> 8 & 255}.{address & 255}",
        "times": (time_of(start), time_of(start + rng.randint(1, 2)), time_of(ready)),
        "containers": [f"containerd://{rng.getrandbits(256):064x}" for _ in range(3)],
        "restarts": 1 if rng.random() < 0.03 else 0,
    }


@functools.lru_cache(maxsize=4)
def _nodes(count: int) -> list[tuple[str, str]]:
    return [
        (f"node-{number:04d}.pool-{'abc'[number % 3]}.example.internal",
         f"10.20.{number >> 8}.{number & 255}")
        for number in range(count)
    ]  # fmt: skip


def _suffix(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(SUFFIX_LETTERS, k=length))


def _uid(rng: random.Random) -> str:
    bits = f"{rng.getrandbits(128):032x}"
    return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"


def time_of(seconds: int) -> str:
    return (EPOCH + dt.timedelta(seconds=seconds)).isoformat() + "Z"


def _scramble(value: Any, rng: random.Random) -> Any:
    match value:
        case dict():
            return {key: _scramble(item, rng) for key, item in value.items()}
        case list():
            return [_scramble(item, rng) for item in value]
        case str():
            size = len(value)
            return f"{rng.getrandbits(4 * size):0{size}x}" if size else value
        case bool() | None:
            return value
        case int():
            digits = len(str(value))
            return rng.randrange(10 ** (digits - 1), 10**digits)
    return value


def _print_sizes() -> None:
    some = list(pods(2_000))
    try:
        recorded = recorded_pods()
    except NoTraces as reason:
        recorded = []
        print(f"recorded pods skipped: {reason}")
    kinds = {
        "pods": some,
        "pods_unlike": list(pods_unlike(500)),
        "config_maps": list(config_maps(500)),
        "custom_resources": list(custom_resources(500)),
        "recorded_pods": recorded,
    }
    for name, things in kinds.items():
        sizes = [len(body) for body in encode(things)] or [0]
        mean = statistics.mean(sizes)
        print(f"{name:14} {len(things):5}  bytes {min(sizes)} to {max(sizes)}, mean {mean:.0f}")
    print(orjson.dumps(some[0], option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    _print_sizes()
