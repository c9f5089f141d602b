"""Apache Airflow: the Kubernetes executor's job watcher and the pod trigger, from the cache.

    # airflow_local_settings.py of the scheduler and the triggerer
    from shmcache.integrations.airflow import adopt

    adopt()           # shmcache run pods --cache airflow

    # airflow.cfg, or AIRFLOW__SHMCACHE__NAME and so on
    [shmcache]
    name = airflow                          # the cache
    connections = kubernetes_default        # of the cluster that it shows
    max_age = 120                           # older data is left to the API server

A watcher is a durable consumer of the cache: it misses no end of a pod, also while it restarts, and
lists nothing. A trigger sleeps until its pod changes instead of asking the API server every other
second. Where the cache cannot answer, both do what Airflow does.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils as watching
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import ALL_NAMESPACES
from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
from airflow.providers.cncf.kubernetes.triggers import pod as waiting

from shmcache.errors import ShmCacheError
from shmcache.handlers.tombstone import Tombstone
from shmcache.integrations.reads import MAX_AGE, CacheReads
from shmcache.memory.contexts import context_name
from shmcache.models.dialect import dialect_of
from shmcache.reasons import reason_at

if TYPE_CHECKING:
    from collections.abc import Generator

    from shmcache.handlers.consumer import ConsumedEvent, Consumer
    from shmcache.reader.resources import CachedResource

    Watched = Generator[dict[str, Any], None, None]

TURN_SECONDS = 30.0
"""How often a sleeper looks whether the cache is too old."""

_ENDED = (waiting.ContainerState.TERMINATED, waiting.ContainerState.FAILED)
_reads: dict[str, CacheReads] = {}


def adopt() -> None:
    """Makes the cache the first source of watchers and triggers of this process."""
    watching.KubernetesJobWatcher = CachedJobWatcher
    waiting.KubernetesPodTrigger = CachedPodTrigger


def pods_of(namespace: str, labels: str = "", context: str | None = None) -> CachedResource | None:
    """The cache's pods; None if it cannot answer for this namespace and selector now."""
    name = conf.get("shmcache", "name", fallback="shmcache")
    if context:
        name = context_name(name, context)
    reads = _reads.get(name)
    if reads is None:
        max_age = conf.getfloat("shmcache", "max_age", fallback=MAX_AGE)
        reads = _reads[name] = CacheReads(name, max_age=max_age)
    return reads.resource("", "v1", "pods", namespace=namespace, labels=labels)


# ---- the executor --------------------------------------------------------------------------------


class CachedJobWatcher(watching.KubernetesJobWatcher):
    """Airflow's watcher, with the events of the cache."""

    def _pod_events(self, kube_client: Any, query_kwargs: dict[str, Any]) -> Any:
        consumer = self._consumer(query_kwargs)
        if consumer is None:
            return super()._pod_events(kube_client=kube_client, query_kwargs=query_kwargs)
        return self._cached_events(consumer, query_kwargs)

    def _pods(self, query_kwargs: dict[str, Any]) -> CachedResource | None:
        return pods_of(self._namespace, query_kwargs["label_selector"])

    @property
    def _namespace(self) -> str:
        return "" if self.namespace == ALL_NAMESPACES else str(self.namespace)

    def _consumer(self, query_kwargs: dict[str, Any]) -> Consumer | None:
        """Its position in the cache's changes; None if the API server has to be watched."""
        pods = self._pods(query_kwargs)
        if pods is None:
            return None
        try:
            return pods.consumer(
                f"airflow-{self.scheduler_job_id}-{self._namespace or 'all'}",
                _directory(),
                labels=query_kwargs["label_selector"],
                namespace=self._namespace or None,
            )
        except (OSError, ShmCacheError) as error:  # a directory of another user, say
            self.log.warning("the API server is watched, not the cache: %s", reason_at(error))
            return None

    def _cached_events(self, consumer: Consumer, query_kwargs: dict[str, Any]) -> Watched:
        """As a watch gives them, until the cache is too old."""
        last: dict[str, dict[str, Any]] = {}
        with consumer:
            while self._pods(query_kwargs) is not None:
                for event in consumer.take(timeout=TURN_SECONDS):
                    yield from self._watched(event, last)
                    consumer.acknowledge(event)

    def _watched(self, event: ConsumedEvent, last: dict[str, dict[str, Any]]) -> Watched:
        """The event in the form of the client's watch. `last` has the living pods, by key."""
        wrap = dialect_of("kubernetes").wrap
        if event.type in {"ADDED", "MODIFIED"}:
            last[event.key] = _remembered(event.new)
            yield {"type": event.type, "object": wrap(event.new), "raw_object": event.new}
            return
        known = last.pop(event.key, None)
        if not isinstance(event.old, Tombstone):
            yield {"type": "DELETED", "object": wrap(event.old), "raw_object": event.old}
        elif event.new is not None:
            yield {"type": "DELETED", "object": wrap(event.new), "raw_object": event.new}
        elif known is not None:  # its end was found, not seen
            ended = _ended(known)
            model = dialect_of("kubernetes").decode("V1Pod", ended)
            yield {"type": "DELETED", "object": model, "raw_object": ended}
        else:
            self.log.warning("pod %s ended while nobody watched: its task is unknown", event.key)


def _directory() -> str:
    """Where the files of consumers are: they outlive a watcher, not its machine."""
    directory = conf.get("shmcache", "directory", fallback="")
    if not directory:
        directory = os.path.join(tempfile.gettempdir(), f"shmcache-airflow-{os.getuid()}")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return str(directory)


def _remembered(pod: Any) -> dict[str, Any]:
    """The members of a pod that the watcher reads."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    names = ("name", "namespace", "resourceVersion")
    found: dict[str, Any] = {name: metadata.get(name) for name in names}
    for name in ("labels", "annotations"):
        found[name] = dict(metadata.get(name) or {})
    return {"metadata": found, "status": {"phase": status.get("phase")}}


def _ended(known: dict[str, Any]) -> dict[str, Any]:
    """A pod that does not exist any more, in its last known state."""
    known["metadata"]["deletionTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return known


# ---- the triggerer -------------------------------------------------------------------------------


class CachedHook(AsyncKubernetesHook):
    """Airflow's hook, with pods of the cache: copies, as the client's models."""

    def pods(self, namespace: str) -> CachedResource | None:
        """The cache's pods, if the hook leads to the cache's cluster."""
        known = conf.get("shmcache", "connections", fallback=AsyncKubernetesHook.default_conn_name)
        names = [None, *(name.strip() for name in known.split(","))]
        if self.config_dict or self._extras or self.conn_id not in names:
            return None
        return pods_of(namespace, context=self.cluster_context)

    async def get_pod(self, name: str, namespace: str) -> Any:
        """The pod, from the API server if the cache does not have it."""
        pods = self.pods(namespace)
        view = None if pods is None else pods.get(f"{namespace}/{name}")
        if view is None:
            return await super().get_pod(name, namespace)
        return dialect_of("kubernetes_asyncio").wrap(view).to_model()


class CachedPodTrigger(waiting.KubernetesPodTrigger):
    """Airflow's trigger, asleep until its pod has ended. It is stored under Airflow's name."""

    @cached_property
    def hook(self) -> CachedHook:
        """The hook of its connection."""
        return CachedHook(
            conn_id=self.kubernetes_conn_id,
            in_cluster=self.in_cluster,
            config_dict=self.config_dict,
            cluster_context=self.cluster_context,
            connection_extras=self.connection_extras,
        )

    async def _wait_for_container_completion(self) -> Any:
        if self.logging_interval is None:  # else Airflow's own loop also brings the logs
            await self._sleep_until_ended()
        return await super()._wait_for_container_completion()

    async def _sleep_until_ended(self) -> None:
        """Returns when there is something to do for Airflow's loop."""
        stated = self.trigger_kwargs.get("_execution_deadline")
        deadline = math.inf if stated is None else stated
        wrap = dialect_of("kubernetes_asyncio").wrap
        while (left := deadline - time.time()) > 0 and (pods := self._cached_pods()) is not None:
            try:
                if await pods.wait_until_async(
                    f"{self.pod_namespace}/{self.pod_name}",
                    lambda view: self.define_pod_container_state(wrap(view)) in _ENDED,
                    min(left, TURN_SECONDS),
                ):
                    return
            except ShmCacheError:  # the pod was deleted, for one: it asks the API server
                return

    def _cached_pods(self) -> CachedResource | None:
        hook: Any = self.hook  # a subclass, or a test, may have another one
        return hook.pods(self.pod_namespace) if isinstance(hook, CachedHook) else None
