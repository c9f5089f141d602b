"""SkyPilot's function "all pods of SkyPilot": through its client, and through the cache.

    make adopt-skypilot

Both are timed to the end of reading node, requests and labels of each pod, in turns; the API
server is another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sky.provision.constants import TAG_SKYPILOT_CLUSTER_NAME
from sky.provision.kubernetes.utils import get_skypilot_pods
from sky.utils.plugin_extensions import PodInfoSource

import shmcache
from benchmarks.scenes import objects
from shmcache.integrations.skypilot import pods_of
from shmcache.memory.contexts import context_name

PODS, ROUNDS, MUST = 2_000, 3, 50.0
CONTEXT = "testing"


def labelled(number: int) -> list[bytes]:
    """The corpus, each pod of which belongs to SkyPilot."""
    found = []
    for body in objects.pods(number):
        del body["metadata"]["resourceVersion"], body["metadata"]["uid"]  # the server gives its own
        body["metadata"]["labels"][TAG_SKYPILOT_CLUSTER_NAME] = "one"
        found.append(json.dumps({"apiVersion": "v1", "kind": "Pod", **body}).encode())
    return found


@contextlib.contextmanager
def programs(place: Path) -> Iterator[shmcache.Cache]:
    """An API server with the pods, and a reflector of it."""
    bodies, config = place / "pods.json", place / "kubeconfig"
    bodies.write_bytes(b"\n".join(labelled(PODS)))
    name = context_name(f"bench-{os.getpid()}", CONTEXT)
    server = [sys.executable, "-m", "shmcache.testing.apiserver", "--load", str(bodies)]
    keeper = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name, "--no-keep"]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(ended([*server, "--kubeconfig", str(config)]))
        while not config.exists():
            if process.poll() is not None:
                raise ChildProcessError("the API server does not start")
            time.sleep(0.05)
        os.environ["KUBECONFIG"] = str(config)
        stack.enter_context(ended([*keeper, "--kubeconfig", str(config)]))
        cache = stack.enter_context(shmcache.attach(name, timeout=60))
        if not cache["pods"].wait_synced(60):
            raise TimeoutError("the first list is not stored")
        yield cache


@contextlib.contextmanager
def ended(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def asked(context: str) -> tuple[float, list[Any]]:
    """Seconds of one answer that is read to its end, and what was read."""
    begin = time.perf_counter()
    found = [
        (pod.spec.node_name, pod.spec.containers[0].resources.requests, pod.metadata.labels)
        for pod in get_skypilot_pods(context)
    ]
    return time.perf_counter() - begin, found


def main() -> int:
    with tempfile.TemporaryDirectory() as place, programs(Path(place)):
        import yaml

        context = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["current-context"]
        provider = pods_of(f"bench-{os.getpid()}")
        times: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            PodInfoSource.register(lambda _: None)
            theirs, one = asked(context)
            PodInfoSource.register(lambda _: provider(CONTEXT))
            ours, other = asked(context)
            assert sorted(map(repr, one)) == sorted(
                repr((node, dict(requests), dict(labels))) for node, requests, labels in other
            )
            times.append((theirs, ours))
    ratio = statistics.median(theirs / ours for theirs, ours in times)
    theirs, ours = (statistics.median(one) for one in zip(*times, strict=True))
    print(
        f"SkyPilot, {PODS:,} pods: {ours * 1e3:.1f} ms through the cache, {theirs:.2f} s through "
        f"its client, ratio {ratio:,.0f} (must reach {MUST:g})"
    )
    return 0 if ratio >= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
