"""The ways in which a worker knows the pods today: each fills a store of its own from a server.

All list in pages of 500 if the client can, and read one field of every object by the store's own
means. Imports come first, by construction, so that they can be separated from the store.
"""

from __future__ import annotations

import gc
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    from benchmarks.scenes.lean import Pipe

    class Holder(Protocol):
        """Imports at its creation, is full after fill(), and counts its reads."""

        def fill(self, url: str, count: int, /) -> None: ...

        def read(self) -> int: ...


READY_S = 600
PATH = "/api/v1/pods?limit=500"


class Dicts:
    """urllib3 and orjson into a dict of dicts."""

    collector = True

    def __init__(self) -> None:
        import orjson
        import urllib3

        self._loads = orjson.loads
        self._pool = urllib3.PoolManager()
        self.pods: dict[str, Any] = {}

    def fill(self, url: str, _count: int = 0) -> None:
        if not self.collector:
            gc.disable()
        for body in self.bodies(url):
            self.keep(body)
        if not self.collector:
            gc.freeze()
            gc.enable()

    def read(self) -> int:
        return sum(1 for pod in self.pods.values() if pod["spec"]["nodeName"])

    def bodies(self, url: str) -> Iterator[bytes]:
        token = ""
        while True:
            query = f"&continue={token}" if token else ""
            body = self._pool.request("GET", f"{url}{PATH}{query}").data
            yield body
            token = self._token(body)
            if not token:
                return

    def _token(self, body: bytes) -> str:
        return str(
            self._loads(body[:200].partition(b',"items"')[0] + b"}")["metadata"].get("continue", "")
        )

    def keep(self, body: bytes) -> None:
        for pod in self._loads(body)["items"]:
            metadata = pod["metadata"]
            self.pods[f"{metadata['namespace']}/{metadata['name']}"] = pod


class TunedDicts(Dicts):
    """The same with the collector off while it fills, and everything frozen after that."""

    collector = False


class RawBytes(Dicts):
    """The bytes of each object's JSON, decoded when it is used."""

    def __init__(self) -> None:
        super().__init__()
        from benchmarks.peers import shapes

        self._page, self._named = shapes.RAW_PAGE, shapes.NAMED

    def read(self) -> int:
        loads = self._loads
        return sum(1 for body in self.pods.values() if loads(body)["spec"]["nodeName"])

    def keep(self, body: bytes) -> None:
        for raw in self._page.decode(body).items:
            known = self._named.decode(raw).metadata
            self.pods[f"{known.namespace}/{known.name}"] = bytes(raw)


class Projection(Dicts):
    """Six fields of each object in msgspec's structures, and nothing else of it."""

    decoder = "PAGE"

    def __init__(self) -> None:
        super().__init__()
        from benchmarks.peers import shapes

        self._page = getattr(shapes, self.decoder)

    def read(self) -> int:
        return sum(1 for pod in self.pods.values() if pod.spec.nodeName)

    def keep(self, body: bytes) -> None:
        for pod in self._page.decode(body).items:
            self.pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod


class ShortProjection(Projection):
    """Six fields that are short strings."""

    decoder = "SHORT_PAGE"


class Informer:
    """SharedInformer of the `kubernetes` package."""

    def __init__(self) -> None:
        from kubernetes import client
        from kubernetes.informer import SharedInformer

        self._client, self._make = client, SharedInformer
        self._informer: Any = None

    def fill(self, url: str, count: int) -> None:
        api = self._client.CoreV1Api(self._client.ApiClient(self._client.Configuration(host=url)))
        self._informer = self._make(api.list_pod_for_all_namespaces)
        self._informer.start()
        _until(lambda: len(self._informer.cache.list()) == count)

    def read(self) -> int:
        return sum(1 for pod in self._informer.cache.list() if pod.spec.node_name)


class AsyncClient:
    """kubernetes_asyncio: its models, in a dict."""

    def __init__(self) -> None:
        import asyncio

        from kubernetes_asyncio import client

        self._run, self._client = asyncio.run, client
        self.pods: dict[str, Any] = {}

    def fill(self, url: str, _count: int = 0) -> None:
        self._run(self._fill(url))

    async def _fill(self, url: str) -> None:
        async with self._client.ApiClient(self._client.Configuration(host=url)) as connection:
            api, token = self._client.CoreV1Api(connection), ""
            while True:
                found = await api.list_pod_for_all_namespaces(limit=500, _continue=token)
                for pod in found.items:
                    self.pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod
                token = found.metadata._continue  # noqa: SLF001
                if not token:
                    return

    def read(self) -> int:
        return sum(1 for pod in self.pods.values() if pod.spec.node_name)


class Lightkube:
    """lightkube: its models, in a dict."""

    def __init__(self) -> None:
        import lightkube
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.config.models import Cluster, User
        from lightkube.resources.core_v1 import Pod

        self._lightkube, self._pod = lightkube, Pod
        self._config: Any = KubeConfig
        self._cluster, self._user = Cluster, User
        self.pods: dict[str, Any] = {}

    def fill(self, url: str, _count: int = 0) -> None:
        config = self._config.from_one(
            cluster=self._cluster(server=url), user=self._user(), namespace="default"
        )
        client = self._lightkube.Client(config=config)
        pod: Any
        for pod in client.list(self._pod, namespace="*", chunk_size=500):
            self.pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod

    def read(self) -> int:
        return sum(1 for pod in self.pods.values() if pod.spec.nodeName)


class Kr8s:
    """kr8s: its objects, in a dict."""

    def __init__(self) -> None:
        import kr8s
        from kr8s.objects import Pod

        self._kr8s, self._pod = kr8s, Pod
        self.pods: dict[str, Any] = {}

    def fill(self, url: str, _count: int = 0) -> None:
        api = self._kr8s.api(url=url)
        pod: Any
        for pod in api.get(self._pod, namespace=self._kr8s.ALL):
            self.pods[f"{pod.namespace}/{pod.name}"] = pod

    def read(self) -> int:
        return sum(1 for pod in self.pods.values() if pod.spec.nodeName)


def _until(fact: Any) -> None:
    import threading

    pause, waited = threading.Event(), 0.0
    while not fact():
        if waited > READY_S:
            raise TimeoutError(f"not full within {READY_S} s")
        pause.wait(0.02)
        waited += 0.02


def hold(pipe: Pipe, kind: str, url: str, count: int) -> None:
    """A worker of its own: imported, full, has read; then it stays until the parent is done."""
    holder: Holder = globals()[kind]()
    pipe.answer(os.getpid())
    pipe.next()
    holder.fill(url, count)
    pipe.answer("full")
    pipe.next()
    pipe.answer(holder.read())
    pipe.next()


def hold_and_fork(pipe: Pipe, url: str) -> None:
    """A master that fills before it forks. A message is a number of workers; they read and stay."""
    holder = TunedDicts()
    pipe.answer(os.getpid())
    pipe.next()
    holder.fill(url)
    pipe.answer("full")
    while True:
        count = pipe.next()
        pipe.answer([_forked(holder) for _ in range(count)])


def _forked(holder: Holder) -> tuple[int, int]:
    """A child that has read: (pid, number of objects). It ends with its master."""
    ours, theirs = os.pipe()
    alive, _ = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, b"%d" % holder.read())
        os.close(theirs)
        os.close(_)
        os.read(alive, 1)
        os._exit(0)
    os.close(theirs)
    count = int(os.read(ours, 32))
    os.close(ours)
    return child, count
