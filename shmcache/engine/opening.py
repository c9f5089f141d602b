"""Opens the sources of plans: an API server's, a recording's; and records what they say."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol

from shmcache.engine.plans import Plan
from shmcache.source.base import Source
from shmcache.source.client import Server
from shmcache.source.discovery import Resource
from shmcache.source.kube import KubeSource


class Opener(Protocol):
    """Where the objects of plans come from."""

    def is_namespaced(self, plan: Plan) -> bool:
        """Whether its objects have namespaces. SourceFailed while nobody knows."""

    def open(self, plan: Plan, namespace: str) -> Source:
        """A source of the plan's objects in one namespace, or ("") in all. Asks nothing yet."""


class KubeOpener:
    """Opens sources at one API server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def find(self, plan: Plan) -> Resource:
        """What the server calls it, and what it is like. SourceFailed."""
        source = self.open(plan, "")
        try:
            return source.resource()
        finally:
            source.close()

    def is_namespaced(self, plan: Plan) -> bool:
        """Whether its objects have namespaces."""
        return self.find(plan).namespaced

    def open(self, plan: Plan, namespace: str) -> KubeSource:
        """A source over HTTP."""
        return KubeSource(
            self._server, plan.name, namespace=namespace, metadata_only=plan.metadata_only
        )


class FileOpener:
    """Opens the recordings of plans, one file for each feed."""

    def __init__(
        self, path: str, plans: tuple[Plan, ...], open_file: Callable[[str], Source]
    ) -> None:
        self._path = path
        self._only = len(plans) == 1 and len(plans[0].namespaces) < 2
        self._open_file = open_file

    def is_namespaced(self, plan: Plan) -> bool:
        """A recording is taken as the plan says."""
        return bool(plan.namespaces)

    def open(self, plan: Plan, namespace: str) -> Source:
        """The recording of one feed."""
        return self._open_file(file_of(self._path, plan, namespace, only=self._only))


class RecordingOpener:
    """Writes down all that another opener's sources say, one file for each feed."""

    def __init__(
        self,
        path: str,
        plans: tuple[Plan, ...],
        inner: Opener,
        record: Callable[[Source, str], Source],
    ) -> None:
        self._path = path
        self._only = len(plans) == 1 and len(plans[0].namespaces) < 2
        self._inner = inner
        self._record = record
        self._lock = threading.Lock()

    def is_namespaced(self, plan: Plan) -> bool:
        """As of the source that is recorded."""
        return self._inner.is_namespaced(plan)

    def open(self, plan: Plan, namespace: str) -> Source:
        """The same source, being recorded."""
        file = file_of(self._path, plan, namespace, only=self._only)
        return self._record(self._inner.open(plan, namespace), file)


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
