"""Invariants tested: Airflow's watcher and triggers learn from the cache what Airflow's own learn
from the API server; and they learn of ends that come while they are away."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import own_tests
import pytest
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils as watching
from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
from airflow.providers.cncf.kubernetes.triggers import pod as waiting
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

import shmcache
from shmcache.integrations import airflow as adapter
from shmcache.testing import Cluster

OWN_WATCHER = watching.KubernetesJobWatcher
SECONDS = 60.0


def task(name: str, phase: str = "Running", worker: str = "7") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "airflow",
            "name": name,
            "labels": {"airflow-worker": worker},
            "annotations": {
                "dag_id": "dag",
                "task_id": name,
                "run_id": "manual",
                "try_number": "1",
            },
        },
        "spec": {"nodeName": "node-0", "containers": [{"name": "base", "image": "i"}]},
        "status": status(phase),
    }


def status(phase: str) -> dict[str, Any]:
    states: dict[str, Any] = {
        "Running": {"running": {"startedAt": "2026-11-19T08:00:00Z"}},
        "Succeeded": {"terminated": {"exitCode": 0}},
        "Failed": {"terminated": {"exitCode": 3, "reason": "Error"}},
    }
    state = states.get(phase, {"waiting": {"reason": "ContainerCreating"}})
    container = {"name": "base", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": phase, "containerStatuses": [{**container, "state": state}]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cluster]:
    with Cluster(graceful_pods=True) as started:
        started.create(task("first"), task("other", worker="8"))
        where = "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
        monkeypatch.setattr(where, started.kubeconfig)  # read from the environment at its import
        monkeypatch.setenv("AIRFLOW__SHMCACHE__DIRECTORY", str(tmp_path))
        yield started


@pytest.fixture
def cache(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> shmcache.Cache:
    cache = cluster.reflect("pods")
    monkeypatch.setenv("AIRFLOW__SHMCACHE__NAME", cache.name)
    return cache


class Watch:
    """A watcher in a thread, and what it puts into its queue."""

    def __init__(self, kind: Any, cluster: Cluster, job: str = "7") -> None:
        self.found: queue.Queue[Any] = queue.Queue()
        settings = SimpleNamespace(
            kube_client_request_args={}, worker_pod_pending_fatal_container_state_reasons=[]
        )
        self.watcher = kind(
            namespace="airflow",
            watcher_queue=self.found,
            resource_version="0",
            scheduler_job_id=job,
            kube_config=settings,
        )
        api = kubernetes_client.CoreV1Api(
            kubernetes_config.new_client_from_config(cluster.kubeconfig)
        )
        arguments = (api, "0", job, settings)
        self.ended: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self.thread.start()

    def _run(self, *arguments: Any) -> None:
        try:
            self.watcher._run(*arguments)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.ended = error

    def next(self) -> tuple[str, Any, str]:
        """(pod, state, task) of the next result."""
        one = self.found.get(timeout=SECONDS)
        return one.pod_name, one.state, one.annotations["task_id"]


def change(cluster: Cluster, name: str, **parts: Any) -> None:
    """Merges into the pod: metadata, status."""
    pod = cluster.server.get("pods", name, "airflow")
    for part, value in parts.items():
        pod = {**pod, part: value if part == "status" else {**pod[part], **value}}
    cluster.server.update("pods", pod, subresource="status" if "status" in parts else "")


STORY: list[tuple[str, tuple[str, Any, str]]] = [
    ("succeeds", ("first", None, "first")),
    ("is done", ("first", "adopted", "first")),
    ("fails", ("second", "failed", "second")),
    ("is deleted", ("third", "failed", "third")),
]


def tell(cluster: Cluster, what: str) -> None:
    if what == "succeeds":
        change(cluster, "first", status=status("Succeeded"))
    elif what == "is done":  # the executor's own label: the pod leaves the selection
        labels = {"airflow-worker": "7", "airflow_executor_done": "True"}
        change(cluster, "first", metadata={"labels": labels})
    elif what == "fails":
        cluster.create(task("second", "Pending"))
        change(cluster, "second", status=status("Failed"))
    else:
        cluster.create(task("third"))
        cluster.server.delete("pods", "third", "airflow")  # its grace begins
        cluster.server.delete("pods", "third", "airflow", gracePeriodSeconds=0)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", [OWN_WATCHER, adapter.CachedJobWatcher])
def test_a_watcher_reports_what_airflows_own_reports(cluster: Cluster, kind: Any) -> None:
    watches = cluster.server.requests["watch", "pods"]
    watch = Watch(kind, cluster)
    for what, expected in STORY:
        tell(cluster, what)
        pod, state, name = watch.next()
        assert (pod, getattr(state, "value", state), name) == expected, what
    own = cluster.server.requests["watch", "pods"] - watches
    assert own == (1 if kind is OWN_WATCHER else 0), "a cached watcher watches nothing itself"
    assert watch.ended is None
    assert watch.found.empty()


@pytest.mark.usefixtures("cache")
def test_a_watcher_that_comes_back_learns_of_the_ends_that_it_missed(cluster: Cluster) -> None:
    """Airflow's own starts at version 0 again, and never hears of them."""
    kwargs = {"label_selector": "airflow-worker=7,airflow_executor_done!=True"}
    made = adapter.CachedJobWatcher(
        namespace="airflow",
        watcher_queue=queue.Queue(),
        resource_version="0",
        scheduler_job_id="7",
        kube_config=SimpleNamespace(),
    )
    events = made._pod_events(None, kwargs)
    assert next(events)["object"].metadata.name == "first"
    cluster.create(task("second"))
    assert next(events)["object"].metadata.name == "second"  # the first one is acknowledged
    events.close()

    cluster.server.delete("pods", "first", "airflow", gracePeriodSeconds=0)
    cluster.settle()

    events = made._pod_events(None, kwargs)
    found = [
        (event["type"], event["object"].metadata.name) for event in (next(events), next(events))
    ]
    assert sorted(found) == [("ADDED", "second"), ("DELETED", "first")]
    events.close()


def test_without_a_cache_the_watcher_is_airflows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SHMCACHE__NAME", "no-such-cache")
    watch = Watch(adapter.CachedJobWatcher, cluster)
    tell(cluster, "succeeds")

    assert watch.next() == ("first", None, "first")
    assert cluster.server.requests["watch", "pods"] == 1


@pytest.mark.usefixtures("cache")
def test_without_a_directory_for_its_place_the_watcher_is_airflows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Another user may have made the usual one."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRFLOW__SHMCACHE__DIRECTORY", str(tmp_path / "file"))
    watches = cluster.server.requests["watch", "pods"]
    watch = Watch(adapter.CachedJobWatcher, cluster)
    tell(cluster, "succeeds")

    assert watch.next() == ("first", None, "first")
    assert cluster.server.requests["watch", "pods"] == watches + 1


# ---- triggers ------------------------------------------------------------------------------------


def trigger(kind: Any, **options: Any) -> Any:
    return kind(
        pod_name="first",
        pod_namespace="airflow",
        trigger_start_time=datetime.now(UTC),
        base_container_name="base",
        poll_interval=0.05,
        in_cluster=False,
        startup_check_interval=0.05,
        log_events_on_startup=False,
        **options,
    )


@pytest.mark.usefixtures("cache")
def test_a_trigger_without_a_deadline_sleeps(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator states None for a task that has no execution_timeout."""
    no_connections(monkeypatch)
    made = trigger(adapter.CachedPodTrigger, trigger_kwargs={"_execution_deadline": None})

    async def run() -> Any:
        sleeping = asyncio.ensure_future(made._wait_for_container_completion())
        await asyncio.to_thread(change, cluster, "first", status=status("Succeeded"))
        async with asyncio.timeout(SECONDS):
            return await sleeping

    assert asyncio.run(run()).payload["status"] == "success"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("kind", [waiting.KubernetesPodTrigger, adapter.CachedPodTrigger])
def test_a_trigger_fires_as_airflows_own_does(
    cluster: Cluster,
    cache: shmcache.Cache,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    phase: str,
) -> None:
    """And asks the API server for nothing."""
    no_connections(monkeypatch)
    waits: list[str] = []
    wait = type(cache["pods"]).wait_until_async

    async def waited(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        waits.append(key)
        return await wait(self, key, *args, **kwargs)

    monkeypatch.setattr(type(cache["pods"]), "wait_until_async", waited)

    async def run() -> Any:
        async with asyncio.timeout(SECONDS):
            fired = asyncio.ensure_future(anext(trigger(kind).run()))
            while not waits and kind is adapter.CachedPodTrigger and not fired.done():
                await asyncio.sleep(0)  # until it sleeps
            await asyncio.to_thread(change, cluster, "first", status=status(phase))
            return await fired

    before = cluster.server.requests["get", "pods"]
    event = asyncio.run(run())

    assert event.payload["status"] == ("success" if phase == "Succeeded" else "failed")
    asked = cluster.server.requests["get", "pods"] - before
    assert asked == 0 if kind is adapter.CachedPodTrigger else asked > 0


@pytest.mark.usefixtures("cache")
def test_a_trigger_of_another_connection_asks_the_api_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_connections(monkeypatch)
    change(cluster, "first", status=status("Succeeded"))
    cluster.settle()
    before = cluster.server.requests["get", "pods"]
    made = trigger(adapter.CachedPodTrigger, connection_extras={"namespace": "airflow"})

    event = asyncio.run(anext(made.run()))

    assert event.payload["status"] == "success"
    assert cluster.server.requests["get", "pods"] > before


def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Airflow's database, the kubeconfig is used instead of a connection."""

    async def extras(_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(AsyncKubernetesHook, "get_conn_extras", extras)


# ---- its own tests -------------------------------------------------------------------------------

PROVIDER = "apache-airflow-providers-cncf-kubernetes"
UNIT = "tests/unit/cncf/kubernetes"


@pytest.mark.parametrize(
    ("tests", "options", "least"),
    [
        (f"{UNIT}/triggers/test_pod.py", [], 35),
        (f"{UNIT}/executors/test_kubernetes_executor.py", ["-k", "Watcher or Scheduler"], 55),
    ],
)
def test_its_own_tests(tests: str, options: list[str], least: int) -> None:
    """Their helper package tests_common is not on PyPI in this version: plugins/ has the part."""
    confcut = f"--confcutdir={own_tests.sources(PROVIDER)}/tests/unit"
    own_tests.check(PROVIDER, [tests], "adopt_airflow_plugin", confcut, *options, least=least)
