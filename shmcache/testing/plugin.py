"""The pytest plugin: fixtures for an API server, a kubeconfig, and caches, new for each test.

It is loaded by its entry point where shmcache is installed, and imports nothing of shmcache before
a test uses a fixture. docs/pytest.md describes the fixtures.

    @pytest.mark.shmcache("pods", objects=[POD])
    def test_it(shmcache_cache): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from shmcache.reader.cache import Cache
    from shmcache.testing.apiserver import ApiServer
    from shmcache.testing.apiserver.faults import Faults
    from shmcache.testing.cluster import Cluster
    from shmcache.testing.incident import Incident

MARKER = "shmcache"
_MARKER_HELP = (
    "shmcache(*resources, objects=(), indices=None, record='', **server): what the fixtures "
    "shmcache_* of a test have: cached resources, objects that exist at the start, indices, the "
    "directory of a flight record, options of ApiServer."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The resources that shmcache_cache has where no marker names some."""
    parser.addini(
        "shmcache_resources",
        "resources of the fixture shmcache_cache, unless a marker names others",
        type="args",
        default=["pods"],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker, for --strict-markers."""
    config.addinivalue_line("markers", _MARKER_HELP)


class Wish:
    """The cluster that a test wants: its markers, from the module's to its own."""

    def __init__(self, node: Any) -> None:
        self.resources: list[str] = []
        self.objects: list[Any] = []
        self.indices: dict[str, Any] = {}
        self.server: dict[str, Any] = {}
        self.record = ""
        for mark in reversed(list(node.iter_markers(MARKER))):
            options = dict(mark.kwargs)
            self.resources += mark.args
            self.objects += options.pop("objects", ())
            self.indices.update(options.pop("indices", None) or {})
            self.record = str(options.pop("record", self.record))
            self.server.update(options)

    def start(self) -> Cluster:
        """A cluster that has its objects."""
        from shmcache.testing.cluster import Cluster

        cluster = Cluster(**self.server).start()
        try:
            cluster.create(*self.objects)
        except BaseException:
            cluster.stop()
            raise
        return cluster


@pytest.fixture
def shmcache_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of this test alone: `server`, `kubeconfig`, `create()`, `reflect()`."""
    cluster = Wish(request.node).start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def shmcache_server(shmcache_cluster: Cluster) -> ApiServer:
    """The API server of this test."""
    return shmcache_cluster.server


@pytest.fixture
def shmcache_faults(shmcache_cluster: Cluster) -> Faults:
    """Faults of this test's API server, on demand."""
    return shmcache_cluster.server.faults


@pytest.fixture
def shmcache_kubeconfig(shmcache_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a kubeconfig for this test's API server, also in KUBECONFIG during the test."""
    monkeypatch.setenv("KUBECONFIG", shmcache_cluster.kubeconfig)
    for inside_a_pod in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(inside_a_pod, raising=False)
    return shmcache_cluster.kubeconfig


@pytest.fixture
def shmcache_cache(
    request: pytest.FixtureRequest, shmcache_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Cache:
    """A cache of this test's API server, attached; SHMCACHE_NAME leads to it during the test."""
    wish = Wish(request.node)
    resources = [*wish.resources, *wish.indices]
    if not resources:
        resources = list(request.config.getini("shmcache_resources"))
    cache = shmcache_cluster.reflect(*resources, indices=wish.indices)
    monkeypatch.setenv("SHMCACHE_NAME", cache.name)
    return cache


@pytest.fixture
def shmcache_incident(
    request: pytest.FixtureRequest, shmcache_cluster: Cluster
) -> Iterator[Incident]:
    """The incident of the marker's `record`: the cluster of this test has its first state."""
    from shmcache.testing.incident import Incident

    wish = Wish(request.node)
    if not wish.record:
        pytest.fail("name a flight record: @pytest.mark.shmcache(record='tests/records/outage')")
    record = request.config.rootpath / wish.record
    with Incident(str(record), cluster=shmcache_cluster) as incident:
        yield incident


@pytest.fixture(scope="session")
def shmcache_session_cluster() -> Iterator[Cluster]:
    """A cluster of the whole session (of a worker of xdist), for fixtures of wider scopes."""
    from shmcache.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
