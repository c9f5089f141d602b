"""The weight of a resource's objects, and its limit.

The weight is that of the JSON text as the server sends it: exact, the same on each machine, and an
upper bound of nearly all caches' memory. A size for each key is kept only where there is a bound.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from shmcache.errors import CacheFull
from shmcache.protocol.items import Item
from shmcache.settings import format_size


class OverBudget(CacheFull):
    """A resource's objects are more than its max_bytes; the last good state is still served."""


class Budget:
    """The weight of all feeds of a resource together."""

    __slots__ = ("_lock", "limit", "resource", "total")

    def __init__(self, resource: str, limit: int) -> None:
        self.resource = resource
        self.limit = limit
        """0 weighs nothing."""
        self.total = 0
        self._lock = threading.Lock()

    def move(self, difference: int) -> None:
        """One of the feeds became so much heavier."""
        with self._lock:
            self.total += difference

    def check(self, total: int) -> None:
        """OverBudget if that is more than the limit."""
        if total > self.limit:
            raise OverBudget(
                f"{self.resource}: its objects need more than {format_size(total)} of JSON, and "
                f"max_bytes is {format_size(self.limit)}: raise it, narrow the selectors, or cache "
                "metadata only"
            )


class Weights:
    """Bytes of JSON by key of one feed, in the cache and in the staging area.

    Without a limit nothing is weighed. Used by that feed's thread alone.
    """

    __slots__ = ("_budget", "_sizes", "_staged", "_staged_total", "total")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._sizes: dict[str, int] = {}
        self._staged: dict[str, int] = {}
        self._staged_total = 0
        self.total = 0

    def check(self, items: list[Item]) -> None:
        """OverBudget if the resource were too heavy with these changes."""
        if self._budget.limit:
            last = {item.key: _weight(item) for item in items}
            growth = sum(size - self._sizes.get(key, 0) for key, size in last.items())
            if growth > 0:
                self._budget.check(self._budget.total + growth)

    def count(self, items: list[Item]) -> None:
        """These changes were made."""
        if self._budget.limit:
            self._move(self.total + _take_in(self._sizes, items))

    def forget(self, keys: list[str]) -> None:
        """These were removed."""
        if self._budget.limit:
            self._move(self.total - sum(self._sizes.pop(key, 0) for key in keys))

    def go_on(self, content: Iterable[tuple[str, int]]) -> None:
        """These were there before: (key, bytes as JSON)."""
        if self._budget.limit:
            self._sizes = dict(content)
            self._move(sum(self._sizes.values()))

    def begin(self) -> None:
        """A new content is staged."""
        self._staged, self._staged_total = {}, 0

    def stage(self, items: list[Item]) -> None:
        """These were staged. OverBudget if, instead of the old content, they are too heavy."""
        if self._budget.limit:
            self._staged_total += _take_in(self._staged, items)
            self._budget.check(self._budget.total - self.total + self._staged_total)

    def finish(self) -> None:
        """The staged content becomes the content."""
        self._sizes, self._staged = self._staged, {}
        self._move(self._staged_total)
        self._staged_total = 0

    def cancel(self) -> None:
        """Forgets the staged content."""
        self._staged, self._staged_total = {}, 0

    def _move(self, total: int) -> None:
        self._budget.move(total - self.total)
        self.total = total


def _weight(item: Item) -> int:
    return 0 if item.type == "DELETED" else len(item.raw)


def _take_in(sizes: dict[str, int], items: list[Item]) -> int:
    """Puts the weights of these items in; by how much the sum changed."""
    change = 0
    for item in items:
        size = _weight(item)
        change += size - sizes.pop(item.key, 0)
        if size:
            sizes[item.key] = size
    return change
