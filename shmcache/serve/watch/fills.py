"""First objects of watches, for newcomers that come together: one state, and each page made once.

FILL1  newcomers of the same SECONDS begin at the same state, unless one needs a later version.
They go on along the ring from its position, as every watch does (WATCHER2).
FILL2  a page is kept as the bytes that are sent, compressed or not, under the key after which it
begins. BYTES are kept for each resource, the pages used last; they go SECONDS after the last
newcomer.
FILL3  a watch holds no page: a page that is gone is made again from the state that it holds.
FILL4  no newcomer begins at a state of before a gap in the ring (CHANNEL3): it would go on along
the ring, which does not tell what changed within the gap.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from shmcache._hot import Root

SECONDS = 1.0
BYTES = 16 << 20
ENTRY = 1024
"""Bytes that a page counts for beyond its data."""


class Fill(NamedTuple):
    """A state that newcomers begin at."""

    number: int
    root: Root
    position: int
    """In the ring, of the first change after the state."""
    version: str
    """The version of the bookmark that ends the objects."""
    reached: int
    """The same as a number."""
    until: float


class FirstPage(NamedTuple):
    """The next objects, as bytes; empty where none of them is selected."""

    data: bytes
    after: str | None
    done: bool
    shown: bool
    """Whether the watch has shown an event by then."""


class Fills:
    """The fills of one resource. Used only in the loop's thread."""

    __slots__ = ("_bytes", "_clock", "_fill", "_number", "_pages")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._fill: Fill | None = None
        self._number = 0
        self._pages: OrderedDict[Hashable, FirstPage] = OrderedDict()
        self._bytes = 0

    def fill(
        self, root: Root, position: int, version: str, reached: int, *, least: int, shared: bool
    ) -> Fill:
        """The fill of a newcomer: that of now, or one that others began with a moment ago."""
        now, found = self._clock(), self._fill
        if (
            shared
            and found is not None
            and found.until > now
            and found.reached >= least
            and found.root.instance == root.instance
            and found.root.valid
        ):
            return found
        self.drop()
        self._number += 1
        made = Fill(self._number, root, position, version, reached, now + SECONDS)
        if shared:
            self._fill = made
        return made

    def page(self, fill: Fill, key: Hashable) -> FirstPage | None:
        """A page that another newcomer has made."""
        found = self._pages.get((fill.number, key))
        if found is not None:
            self._pages.move_to_end((fill.number, key))
        return found

    def keep(self, fill: Fill, key: Hashable, page: FirstPage) -> None:
        """Keeps a page for the others."""
        if fill is not self._fill:
            return
        self._pages[fill.number, key] = page
        self._bytes += len(page.data) + ENTRY
        while self._bytes > BYTES:
            self._bytes -= len(self._pages.popitem(last=False)[1].data) + ENTRY

    def tidy(self) -> None:
        """Drops what nobody needs any more."""
        if self._fill is not None and self._fill.until + SECONDS <= self._clock():
            self.drop()

    def drop(self) -> None:
        """Drops everything: the state, and its pages."""
        self._fill = None
        self._pages.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pages)
