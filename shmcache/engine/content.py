"""The content of one feed in the cache: items go in, generations come out.

A feed that has the resource for itself replaces it as a whole; one of several namespaces replaces
the keys under its own prefix only. Objects with a transform are decoded here and stored as dicts;
all others stay JSON text until the core reads them.

A call that raises CacheFull leaves the state that readers see as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from shmcache.engine.budget import Weights
from shmcache.errors import LimitExceeded, UnsupportedValue
from shmcache.handlers.distinct import is_due

if TYPE_CHECKING:
    from shmcache.engine.transforms import Transforming
    from shmcache.protocol.items import Item
    from shmcache.writer.staging import Staged
    from shmcache.writer.writer import Writer

logger = logging.getLogger(__name__)

BATCH = 500  # decoded objects in one generation or one turn of the writer


class Cancelled(Exception):
    """Leaves a replacement without finishing it."""


class Content:
    """The objects of one feed in the cache. Used by that feed's thread alone."""

    def __init__(
        self,
        writer: Writer,
        resource: str,
        weights: Weights,
        version: str | None = None,
        *,
        namespace: str = "",
        transforming: Transforming | None,
        advance: Callable[[str], str | None],
        marks: Callable[[], str] = str,
        turn: AbstractContextManager[object],
    ) -> None:
        """`advance` takes this feed's version and returns that of the resource.

        `marks` says how far all feeds are, for the next life.

        `turn` is the resource's: its feeds learn its version and publish it one after another, or
        one of them could put an earlier version over a later one, and nobody would notice until
        something changes.
        """
        self.version = version
        """Up to which everything of this feed is in the cache."""
        self._refused = 0
        self._writer = writer
        self._resource = resource
        self._weights = weights
        self._prefix = namespace and namespace + "/"
        self._transforming = transforming
        self._advance = advance
        self._marks = marks
        self._turn = turn
        self._replacing: AbstractContextManager[Staged] | None = None
        self._staged: Staged | None = None
        self._count = 0

    @property
    def refused(self) -> int:
        """Objects that the transform failed on, or made what cannot be stored."""
        return self._refused + (self._transforming.failures if self._transforming else 0)

    # ---- a whole new content ---------------------------------------------------------------

    @property
    def staging(self) -> bool:
        """Whether a new content is being staged."""
        return self._staged is not None

    def begin(self) -> None:
        """Opens a staging area; what another one held is forgotten."""
        self.cancel()
        self._replacing = self._writer.begin_replace(self._resource, prefix=self._prefix)
        self._staged = self._replacing.__enter__()
        self._weights.begin()
        self._count = 0

    def stage(self, items: list[Item]) -> None:
        """Puts items into the staging area. OverBudget as soon as they are too much."""
        staged = self._staged
        if staged is None:
            raise RuntimeError(f"{self._resource}: nothing is being staged")
        self._weights.stage(items)
        self._count += len(items)
        if self._transforming is None:
            staged.apply_items(items)
            return
        for item, obj in self._transforming.each(items):
            if obj is None:
                staged.delete(item.key)
            else:
                self._try(item, staged.put, item.key, obj, item.version)

    def refuse(self, key: str, why: str) -> None:
        """Leaves out an object that the source could not make; its key stays as it was (G3)."""
        self._refused += 1
        if self._staged is not None:
            self._staged.keep(key)
        if is_due(self._refused):  # a whole resource may be encoded otherwise
            logger.error("%s: %s is refused: %s", self._resource, key, why)
            if self._refused > 1:
                logger.error("%s: refused %d values so far", self._resource, self._refused)

    def take_back(self, version: str | None) -> None:
        """A batch around the last calls was undone: this feed is at `version`, as before it."""
        with self._turn:
            self._advance(version or "")
        self.version = version

    def finish(self, version: str) -> int:
        """Makes the staged content visible, at once; how many objects were staged."""
        staged, replacing = self._staged, self._replacing
        if staged is None or replacing is None:
            raise RuntimeError(f"{self._resource}: nothing is being staged")
        with self._turn:
            staged.version = self._advance(version)
            staged.marks = self._marks()
            try:
                replacing.__exit__(None, None, None)
            except BaseException:
                self._advance(self.version or "")
                raise
            finally:
                self._staged = self._replacing = None
        self._weights.finish()
        self.version = version
        return self._count

    def cancel(self) -> None:
        """Forgets the staging area, if there is one."""
        replacing, self._replacing, self._staged = self._replacing, None, None
        self._weights.cancel()
        if replacing is not None:
            try:
                replacing.__exit__(Cancelled, Cancelled(), None)
            except Cancelled:
                pass

    # ---- changes -----------------------------------------------------------------------------

    def apply(self, items: list[Item], version: str) -> None:
        """Makes changes visible as one generation. OverBudget if they are too much: nothing is."""
        self._weights.check(items)
        with self._turn:
            whole, marks = self._advance(version), self._marks()
            try:
                if self._transforming is None and not marks:
                    self._writer.apply_items(self._resource, items, version=whole)
                else:
                    self._apply_marked(items, whole, marks)
            except BaseException:
                self._advance(self.version or "")
                raise
        self._weights.count(items)
        self.version = version

    def repair(self, items: list[Item], gone: list[str]) -> None:
        """Puts single objects right, and removes keys, in one generation; the version stays.

        Readers of the ring see changes whose versions do not rise: a gap (REPAIR4).
        """
        self._weights.check(items)
        with self._turn, self._writer.batch():
            if items:
                self._writer.apply_items(self._resource, items)
            for key in gone:
                self._writer.delete(self._resource, key, self.version, unknown=True)
        self._weights.count(items)
        self._weights.forget(gone)

    def advance(self, version: str) -> None:
        """Nothing changed up to this version."""
        with self._turn:
            whole, marks = self._advance(version), self._marks()
            if marks:
                self._apply_marked([], whole, marks)
            elif whole:
                self._writer.set_version(self._resource, whole)
        self.version = version

    def _apply_marked(self, items: list[Item], version: str | None, marks: str) -> None:
        """Objects, version and marks in one generation: none of them is true without the others."""
        writer, resource = self._writer, self._resource
        with writer.batch():
            if self._transforming is not None:
                self._apply_decoded(self._transforming, items)
            elif items:
                writer.apply_items(resource, items)
            if version:
                writer.set_version(resource, version)
            if marks:
                writer.set_marks(resource, marks)

    def _apply_decoded(self, transforming: Transforming, items: list[Item]) -> None:
        writer, resource = self._writer, self._resource
        for item, obj in transforming.each(items):
            if obj is None:
                unseen = item.type != "DELETED"
                writer.delete(resource, item.key, item.version, unknown=unseen)
            else:
                self._try(item, writer.put, resource, item.key, obj, item.version)

    def _try(self, item: Item, store: Callable[..., object], *arguments: Any) -> None:
        """A bad object is left out, and the others go on."""
        try:
            store(*arguments)
        except (UnsupportedValue, LimitExceeded) as error:
            self._refused += 1
            logger.warning("%s: %s is left out: %s", self._resource, item.key, error)
