"""Opens the sources of plans: an API server's, a recording's; and records what they say."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import Protocol

from shmcache.engine.open_etcd import EtcdOpener
from shmcache.engine.plans import Plan
from shmcache.engine.switching import SwitchingSource
from shmcache.engine.upstreams import Upstreams
from shmcache.source.base import AskedSource, Source
from shmcache.source.client import ApiConnection
from shmcache.source.discovery import ApiResource
from shmcache.source.kube import LIST_SILENCE, KubeSource


class Opener(Protocol):
    """Where the objects of plans come from."""

    def is_namespaced(self, plan: Plan) -> bool:
        """Whether its objects have namespaces. SourceFailed while nobody knows."""

    def open(self, plan: Plan, namespace: str) -> Source:
        """A source of the plan's objects in one namespace, or ("") in all. Asks nothing yet."""

    def open_metadata(
        self, plan: Plan, namespace: str, *, direct: bool = False
    ) -> AskedSource | None:
        """The same with metadata only, to compare; None where nothing can be compared.

        `direct`: relays do not answer, as they do not know the state of now.
        """

    def open_beside(self, plan: Plan, namespace: str) -> Source | None:
        """As open(), for further questions of a feed; None where there is no server."""


def origin_of(opener: Opener) -> str:
    """Whose objects and versions these are: the server's URL.

    "" where nobody can go on with them, as with a recording, which begins with its list.
    """
    match opener:
        case KubeOpener() | EtcdOpener():
            return opener.origin
        case RecordingOpener():
            return origin_of(opener.inner)
        case _:
            return ""


class KubeOpener:
    """Opens sources at an API server, or at several servers of one cluster."""

    def __init__(
        self, server: ApiConnection | Upstreams, *, list_silence: float = LIST_SILENCE
    ) -> None:
        self._server = server
        self._list_silence = list_silence

    @property
    def origin(self) -> str:
        """The server's URL, or those of all of them."""
        if isinstance(self._server, Upstreams):
            return self._server.origin
        return self._server.access().url

    @property
    def upstreams(self) -> Upstreams | None:
        """The several servers, if there are."""
        return self._server if isinstance(self._server, Upstreams) else None

    @property
    def several(self) -> bool:
        """Whether there is another server for one that fails."""
        return isinstance(self._server, Upstreams)

    def close(self) -> None:
        """Ends the looks at several servers."""
        if isinstance(self._server, Upstreams):
            self._server.close()

    def find(self, plan: Plan) -> ApiResource:
        """Its name and properties at the server. SourceFailed."""
        source = self.open(plan, "")
        try:
            return source.resource()
        finally:
            source.close()

    def is_namespaced(self, plan: Plan) -> bool:
        """Whether its objects have namespaces."""
        return self.find(plan).namespaced

    def open(self, plan: Plan, namespace: str) -> KubeSource | SwitchingSource:
        """A source over HTTP."""
        return self._open(plan, namespace, metadata_only=plan.metadata_only)

    def open_metadata(
        self, plan: Plan, namespace: str, *, direct: bool = False
    ) -> KubeSource | SwitchingSource:
        """A source over HTTP."""
        return self._open(plan, namespace, metadata_only=True, direct=direct)

    def open_beside(self, plan: Plan, namespace: str) -> KubeSource | SwitchingSource:
        """A source over HTTP; of several servers, the API server."""
        return self._open(plan, namespace, metadata_only=plan.metadata_only, direct=True)

    def _open(
        self, plan: Plan, namespace: str, *, metadata_only: bool, direct: bool = False
    ) -> KubeSource | SwitchingSource:
        def make(server: ApiConnection) -> KubeSource:
            return self._source(server, plan, namespace, metadata_only=metadata_only)

        if not isinstance(self._server, Upstreams):
            return make(self._server)
        label = f"{plan.name} in {namespace}" if namespace else plan.name
        return SwitchingSource(
            self._server, lambda upstream: make(upstream.server), label, direct=direct
        )

    def _source(
        self, server: ApiConnection, plan: Plan, namespace: str, *, metadata_only: bool
    ) -> KubeSource:
        return KubeSource(
            server,
            plan.name,
            namespace=namespace,
            metadata_only=metadata_only,
            managed_fields=plan.keep_managed_fields,
            list_silence=self._list_silence,
            shard=plan.share,
        )


class ReplayOpener:
    """Opens the recordings of plans, one file for each feed, as fast as they can be read."""

    def __init__(self, path: str, plans: tuple[Plan, ...]) -> None:
        self._path = path
        self._only = is_only(plans)

    def is_namespaced(self, plan: Plan) -> bool:
        """A recording is taken as the plan says."""
        return bool(plan.namespaces)

    def open_metadata(self, plan: Plan, namespace: str, *, direct: bool = False) -> None:
        """A recording has no other answers than those."""

    def open_beside(self, plan: Plan, namespace: str) -> None:
        """A recording has no other answers than those."""

    def open(self, plan: Plan, namespace: str) -> Source:
        """The recording of one feed."""
        from shmcache.source.replay import ReplaySource

        return ReplaySource(file_of(self._path, plan, namespace, only=self._only))


class RecordingOpener:
    """Writes down all that another opener's sources say, one file for each feed."""

    def __init__(self, path: str, plans: tuple[Plan, ...], inner: Opener, stack: ExitStack) -> None:
        """The files are closed with the stack."""
        self._path = path
        self._only = is_only(plans)
        self.inner = inner
        self._stack = stack
        self._lock = threading.Lock()

    def is_namespaced(self, plan: Plan) -> bool:
        """As of the source that is recorded."""
        return self.inner.is_namespaced(plan)

    def open_metadata(
        self, plan: Plan, namespace: str, *, direct: bool = False
    ) -> AskedSource | None:
        """As of the source that is recorded; comparisons are not recorded."""
        return self.inner.open_metadata(plan, namespace, direct=direct)

    def open_beside(self, plan: Plan, namespace: str) -> Source | None:
        """As of the source that is recorded; repairs are not recorded."""
        return self.inner.open_beside(plan, namespace)

    def open(self, plan: Plan, namespace: str) -> Source:
        """The same source, being recorded."""
        from shmcache.source.recording import RecordedSource, Recording

        recording = Recording(file_of(self._path, plan, namespace, only=self._only))
        with self._lock:
            self._stack.callback(recording.close)
        return RecordedSource(self.inner.open(plan, namespace), recording)


def is_only(plans: tuple[Plan, ...]) -> bool:
    """Whether there will be a single feed."""
    return len(plans) == 1 and len(plans[0].namespaces) < 2


def file_of(path: str, plan: Plan, namespace: str, *, only: bool) -> str:
    """The recording of one feed: the path itself if there is but one, else with its name in it.

    run.jsonl.gz becomes run.pods.jsonl.gz, or run.pods.prod.jsonl.gz.
    """
    if only:
        return path
    directory, base = os.path.split(path)
    stem, dot, end = base.partition(".")
    names = [stem, plan.name.replace("/", "_"), *filter(None, [namespace])]
    return os.path.join(directory, ".".join(names) + dot + end)
