"""Opens the sources of plans that an etcd cluster answers: one for the plans of each stream.

Importing this module costs nothing: gRPC is imported when a connection is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shmcache.engine.plans import Plan, PlanError
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reflector.backoff import BackoffSettings
from shmcache.reflector.machine import ReflectorSettings
from shmcache.source.base import Source

if TYPE_CHECKING:
    from shmcache.engine.config.timing import Timing
    from shmcache.source.etcd.access import EtcdAccess
    from shmcache.source.etcd.source import EtcdSource
    from shmcache.writer.writer import Writer

PAGE_KEYS = 2000
BROKEN = BackoffSettings(initial=0.05, cap=1.0, jitter=0.25, reset_after=5.0)
"""Between a watch that broke and the search for another member, which asks each for its status."""


class EtcdOpener:
    """An open_source.Opener, whose sources follow several plans at a time."""

    def __init__(
        self, access: EtcdAccess, *, together: bool = False, list_silence: float = 70.0
    ) -> None:
        """`together`: all plans in one stream, not only those under the same parent."""
        from shmcache.source.etcd.connection import EtcdConnection

        self.origin = access.origin
        self._connection = EtcdConnection(access)
        self._together = together
        self._list_silence = list_silence

    def groups(self, plans: Sequence[Plan]) -> list[list[Plan]]:
        """The plans that share a stream, and with it their generations."""
        from shmcache.source.etcd.keys import KeyPattern, parent_of

        found: dict[bytes, list[Plan]] = {}
        for plan in plans:
            parent = b"" if self._together else parent_of(KeyPattern(plan.keys))
            found.setdefault(parent, []).append(plan)
        return list(found.values())

    def open_joint(self, plans: Sequence[Plan], history: str = "") -> EtcdSource:
        """The source of a group. `history`: stored by an earlier life."""
        from shmcache.source.etcd.history import ClusterHistory
        from shmcache.source.etcd.keys import EtcdResource, KeyPattern
        from shmcache.source.etcd.source import EtcdSource

        resources = [
            EtcdResource(plan.name, KeyPattern(plan.keys), plan.value, plan.revisions)
            for plan in plans
        ]
        known = ClusterHistory(history)
        self._connection.expect(known.cluster)
        return EtcdSource(
            self._connection,
            resources,
            matches=matching(plans),
            list_silence=self._list_silence,
            history=known,
        )

    def settings(self, timing: Timing) -> ReflectorSettings:
        """Of a joint feed: etcd has no watch-lists, and selects nothing."""
        return ReflectorSettings(
            use_watch_list=False,
            page_size=PAGE_KEYS,
            silence=timing.silence,
            short_watch=0.0,  # a watch that breaks at once: a member left, no version is old
            backoff=timing.backoff,
            broken=BROKEN,
        )

    def is_namespaced(self, plan: Plan) -> bool:
        """Namespaces are a part of the keys; none is followed by itself."""
        del plan
        return False

    def open(self, plan: Plan, namespace: str) -> Source:
        """The source of one plan alone."""
        del namespace
        return self.open_joint([plan])

    def open_metadata(self, plan: Plan, namespace: str, *, direct: bool = False) -> None:
        """A history is known by its cluster, its revision and its term (source/etcd/history.py)."""

    def open_beside(self, plan: Plan, namespace: str) -> None:
        """Nothing is repaired that nothing can contradict."""

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def last_written(writer: Writer, plans: Sequence[Plan]) -> tuple[bytes, int] | None:
    """The key of etcd, and the revision, of the object that was written last; None: unknown."""
    from shmcache.source.etcd.keys import KeyPattern

    found: tuple[bytes, int] | None = None
    for plan in plans:
        pattern = KeyPattern(plan.keys)
        if plan.transform is not None:
            continue  # its objects may have any metadata
        for key, obj in writer.objects(plan.name):
            revision = int(obj["metadata"]["resourceVersion"])
            if found is None or revision > found[1]:
                found = pattern.raw_key_of(key), revision
    return found


def matching(plans: Sequence[Plan]) -> Callable[[str, bytes], bool] | None:
    """Selects the objects of each resource by its plan's selectors; None: all."""
    selectors = {
        plan.name: (LabelSelector.parse(plan.labels), FieldSelector.parse(plan.fields))
        for plan in plans
        if plan.labels or plan.fields
    }
    if not selectors:
        return None

    def matches(resource: str, text: bytes) -> bool:
        import orjson

        found = selectors.get(resource)
        if found is None:
            return True
        try:
            obj = orjson.loads(text)
        except ValueError:
            return True  # the writer refuses it, and says why
        return all(selector.matches(obj) for selector in found)

    return matches


def check_etcd(plan: Plan) -> None:
    """PlanError for what an etcd source cannot do."""
    if plan.namespaces or plan.metadata_only:
        key = "namespaces" if plan.namespaces else "metadata_only"
        raise PlanError(
            f"{plan.name}: {key} is for API servers; in etcd, name the prefix of one namespace"
        )
