"""The pytest plugin: its fixtures in a pytest of their own, alone and under xdist."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shmcache
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX
from shmcache.testing import ApiServer, Cluster

REGISTERED = any(
    each.value == "shmcache.testing.plugin"
    for each in importlib.metadata.entry_points(group="pytest11")
)
"""Not in an environment that was installed before the plugin was there."""
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "prod"}}

INNER = """
import asyncio
import os

import pytest

import shmcache

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "prod"},
       "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}}
LABELLED = {**POD, "metadata": {"name": "web-1", "namespace": "prod"}}


@pytest.mark.shmcache(objects=[POD])
class TestCache:
    @pytest.mark.shmcache("pods", "deployments.apps", indices={"pods": {"node": "spec.nodeName"}},
                          objects=[LABELLED])
    def test_markers_add_up(self, shmcache_cluster, shmcache_cache):
        assert list(shmcache_cache["pods"]) == ["prod/web-0", "prod/web-1"]
        assert list(shmcache_cache["deployments.apps"]) == []
        assert len(shmcache_cache["pods"].by_index("node", "node-1")) == 2
        assert shmcache.attach().name == shmcache_cache.name == os.environ["SHMCACHE_NAME"]

    def test_the_next_test_has_a_cluster_of_its_own(self, shmcache_server, shmcache_cache):
        assert shmcache_cache.resources == ("pods", "nodes")
        assert len(shmcache_cache["pods"]) == 1
        shmcache_server.delete("pods", "web-0", "prod")
        shmcache_server.create("pods", {"metadata": {"name": "other"}})


@pytest.mark.shmcache(objects=[POD])
def test_a_fault_delays_the_cache_and_settle_waits_for_it(shmcache_cluster, shmcache_faults):
    fault = shmcache_faults.slow(0.3, resource="pods")
    cache = shmcache_cluster.reflect("pods", wait=False)
    assert not cache["pods"].synced
    shmcache_cluster.settle()
    assert fault.happened == fault.met == 1
    assert len(cache["pods"]) == 1


@pytest.mark.shmcache(objects=[POD], tokens={"secret": "alice"})
def test_official_client(shmcache_kubeconfig, shmcache_server):
    from kubernetes import client, config

    assert os.environ["KUBECONFIG"] == shmcache_kubeconfig
    with client.ApiClient(config.load_kube_config() or None) as api:
        found = client.CoreV1Api(api).list_namespaced_pod("prod")
    assert [pod.metadata.name for pod in found.items] == ["web-0"]
    assert shmcache_server.requests["list", "pods"] == 1


@pytest.mark.shmcache(objects=[POD])
def test_lightkube(shmcache_kubeconfig):
    from lightkube import Client
    from lightkube.resources.core_v1 import Pod

    assert [pod.metadata.name for pod in Client().list(Pod, namespace="prod")] == ["web-0"]


@pytest.mark.shmcache(objects=[POD])
@pytest.mark.filterwarnings("ignore:Kubernetes version")
def test_kr8s(shmcache_kubeconfig):
    import kr8s

    api = kr8s.api(kubeconfig=shmcache_kubeconfig)
    assert [pod.name for pod in api.get("pods", namespace="prod")] == ["web-0"]


def test_the_session_has_one_more(shmcache_session_cluster, shmcache_cluster):
    assert shmcache_session_cluster is not shmcache_cluster
    shmcache_session_cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})


def test_the_session_cluster_stays(shmcache_session_cluster):
    cache = shmcache_session_cluster.reflect("nodes")
    assert "SHMCACHE_NAME" not in os.environ
    assert "KUBECONFIG" not in os.environ
    shmcache_session_cluster.expect(lambda: "n" in cache["nodes"] or os.environ.get(
        "PYTEST_XDIST_WORKER"))
"""


def inner(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_inner.py").write_text(INNER)
    (directory / "pytest.ini").write_text("[pytest]\nshmcache_resources = pods nodes\n")
    plugin = () if REGISTERED else ("-p", "shmcache.testing.plugin")
    # clients of others leave sockets to the collector; ours are tested in this process, below
    strict = ("-W", "error", "-W", "ignore::ResourceWarning")
    command = [sys.executable, *strict, "-m", "pytest", "--strict-markers", *plugin]
    return subprocess.run(
        [*command, "-q", *arguments, str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=directory,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "passed"),
    [([], 8), (["-n", "2", "-k", "not official and not lightkube and not kr8s"], 5)],
    ids=["alone", "xdist"],
)
def test_fixtures_in_a_pytest_of_their_own(
    tmp_path: Path, arguments: list[str], passed: int
) -> None:
    done = inner(tmp_path, *arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{passed} passed", done.stdout, re.MULTILINE), done.stdout


def test_discovery_takes_no_requests_unless_faults_wait_for_them() -> None:
    with Cluster() as cluster:
        cluster.reflect("pods", "deployments.apps")
        paths = {record.path for record in cluster.server.log}
        assert paths == {"/api/v1/pods", "/apis/apps/v1/deployments"}
        fault = cluster.server.faults.slow(0.0, resource="/api/v1")
        cluster.reflect("nodes")
        assert fault.met == 1


def test_a_cluster_leaves_nothing_behind() -> None:
    with Cluster() as cluster:
        cluster.create(POD)
        cache = cluster.reflect("pods", indices={"nodes": {"zone": "metadata.labels.zone"}})
        assert set(cache.resources) == {"pods", "nodes"}
        name, kubeconfig = cache.name, Path(cluster.kubeconfig)
        assert kubeconfig.exists()
    assert cache.closed
    assert not kubeconfig.exists()
    assert not [each for each in SharedMemory().names(PREFIX) if name in each]
    with pytest.raises(shmcache.SegmentNotFound):
        shmcache.attach(name)


def test_a_cluster_states_what_it_lacks() -> None:
    with Cluster() as cluster:
        with pytest.raises(ValueError, match=r"name the resources to cache, such as reflect"):
            cluster.reflect()
        with pytest.raises(ValueError, match="needs an apiVersion and a kind"):
            cluster.create({"metadata": {"name": "x"}})
        with pytest.raises(ValueError, match=r"reflect\(\) first"):
            cluster.expect(lambda: True)
        cache = cluster.reflect("pods")
        with pytest.raises(TimeoutError, match="it is not so after"):
            cluster.expect(lambda: len(cache["pods"]) == 1, timeout=0.02)
        cluster.server.faults.slow(0.2, resource="nodes")
        late = cluster.reflect("nodes", wait=False)
        cluster.settle()  # an empty resource counts when its first list is stored
        assert late["nodes"].synced
        cluster.server.go_down()
        cluster.create(POD)
        with pytest.raises(TimeoutError, match="pods does not equal the server's"):
            cluster.settle(timeout=0.02)
    with ApiServer() as server, pytest.raises(ValueError, match="options seed belong to the"):
        Cluster(server, seed=1)


def test_the_plugin_loads_no_more_than_the_package() -> None:
    """Each run of pytest pays for it where shmcache is installed."""
    code = (
        "import sys, pytest, shmcache; before = set(sys.modules); import shmcache.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["shmcache.testing", "shmcache.testing.plugin"]
