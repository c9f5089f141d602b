"""Followers of a server without shmcache: by hand (urllib3, orjson, a dict), and a SharedInformer.

Both take the same commands as our workers: ("expect", version), ("reached",), ("own",) and
("cpu",).
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

from benchmarks.scenes.children import Pipe
from benchmarks.scenes.following import READY_S, own

BY_HAND, INFORMER = "python-urllib3", "OpenAPI-Generator"
"""The User-Agents by which the server knows them."""
PATH = "/api/v1/pods"
READ = 1 << 16


class ByHand:
    """One process, one dict of dicts: list, then watch."""

    def __init__(self, url: str, *, collector: bool, paged: bool) -> None:
        import orjson
        import urllib3

        self._loads = orjson.loads
        self._pool = urllib3.PoolManager()
        self._url = url + PATH
        self._paged = paged
        self._collector = collector
        self.pods: dict[str, Any] = {}
        self.calls = 0
        self._end = _End()
        self.expect, self.reached = self._end.expect, self._end.reached

    def start(self) -> None:
        """Lists, and watches from then on in a thread."""
        if not self._collector:
            gc.disable()
        version = self._list()
        if not self._collector:
            gc.freeze()
            gc.enable()
        threading.Thread(target=self._watch, args=(version,), daemon=True).start()

    def _list(self) -> str:
        token = ""
        while True:
            query = f"?limit=500&continue={token}" if token else "?limit=500"
            found = self._loads(
                self._pool.request("GET", self._url + (query if self._paged else "")).data
            )
            for pod in found["items"]:
                metadata = pod["metadata"]
                self.pods[f"{metadata['namespace']}/{metadata['name']}"] = pod
            token = found["metadata"].get("continue", "")
            if not token:
                return str(found["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        url = f"{self._url}?watch=true&resourceVersion={version}"
        response = self._pool.request("GET", url, preload_content=False)
        rest, loads, pods, end = b"", self._loads, self.pods, self._end
        for data in response.stream(READ):
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                event = loads(line)
                pod = event["object"]
                metadata = pod["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                if event["type"] == "DELETED":
                    pods.pop(key, None)
                else:
                    pods[key] = pod
                pod["spec"]["nodeName"]
                if metadata["resourceVersion"] == end.version:
                    end.now()


class Informer:
    """SharedInformer of the `kubernetes` package, with a handler that reads one field."""

    def __init__(self, url: str) -> None:
        from kubernetes import client
        from kubernetes.informer import SharedInformer

        configuration = client.Configuration(host=url)
        api = client.CoreV1Api(client.ApiClient(configuration))
        self._informer = SharedInformer(api.list_pod_for_all_namespaces)
        self._informer.add_event_handler("MODIFIED", self._seen)
        self.calls = 0
        self._end = _End()
        self.expect, self.reached = self._end.expect, self._end.reached

    def start(self) -> None:
        self._informer.start()

    def _seen(self, pod: Any) -> None:
        self.calls += 1
        if pod.metadata.resource_version == self._end.version:
            self._end.now()


class _End:
    """The version that ends a measurement, and its time of arrival."""

    def __init__(self) -> None:
        self.version = ""
        self._reached = threading.Event()
        self._at = 0.0

    def expect(self, version: str) -> None:
        self._reached.clear()
        self.version = version

    def now(self) -> None:
        self._at = time.monotonic()
        self._reached.set()

    def reached(self) -> float:
        if not self._reached.wait(READY_S):
            raise TimeoutError(f"{self.version} never came")
        return self._at


def follow_by_hand(pipe: Pipe, url: str, collector: bool, paged: bool) -> None:
    _obey(pipe, ByHand(url, collector=collector, paged=paged))


def follow_by_informer(pipe: Pipe, url: str) -> None:
    _obey(pipe, Informer(url))


def _obey(pipe: Pipe, peer: Any) -> None:
    pipe.ready()
    peer.start()
    while True:
        command, *arguments = pipe.next()
        if command == "own":
            pipe.answer({**own(), "calls": peer.calls})
        elif command == "cpu":
            pipe.answer(time.process_time())
        else:
            pipe.answer(getattr(peer, command)(*arguments))
