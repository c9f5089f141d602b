"""The scope of a list or a watch: namespace and selectors."""

from __future__ import annotations

from shmcache.errors import InvalidSelector
from shmcache.protocol import failures, validation, watching
from shmcache.protocol.kinds import Kind
from shmcache.protocol.options import ListOptions
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.testing.apiserver.stored import Stored, StoredChange


class RequestScope:
    """The objects of a request; a Failure (400) of an invalid selector."""

    def __init__(
        self, kind: Kind, namespace: str, asked: ListOptions, *, sharding: bool = True
    ) -> None:
        try:
            self._labels = LabelSelector.parse(asked.label_selector)
            self._fields = FieldSelector.parse(asked.field_selector, kind.selectable, kind.made)
        except InvalidSelector as error:
            raise failures.bad_request(str(error)) from error
        self.namespace = namespace
        self.shard = validation.shard_of(asked) if sharding else None
        self.selects = bool(self._labels or self._fields or self.shard)

    def matches(self, stored: Stored | None) -> bool:
        """Whether the state of an object is within; None, an object that is not there, is not."""
        if stored is None:
            return False
        if self.namespace and stored.namespace != self.namespace:
            return False
        if not self.selects:
            return True
        if self.shard is not None and not self.shard.matches(stored.obj):
            return False
        return self._labels.matches(stored.obj) and self._fields.matches(stored.obj)

    def event(self, change: StoredChange) -> str | None:
        """The event that a watch of this scope shows of a change, if any."""
        return watching.transition(
            deleted=change.new is None,
            matched=self.matches(change.old),
            matches=self.matches(change.new),
        )
