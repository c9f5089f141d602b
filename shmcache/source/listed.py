"""The keys of one list, as far as it takes to see that the list goes on.

A server that follows its own tokens in a circle, or lists the same objects again and again, could
keep a list for ever; so could white space between two objects.

LISTED1  a list fails after IDLE_PAGES pages in a row, or IDLE_OBJECTS objects in a row, without an
object that is new in it, and after MOST_TEXT bytes without any object. Single empty pages, as some
servers send where a selector finds nothing, do no harm.
LISTED2  the memory is fixed: a bit for each hash of a key, in 1 MiB (a short list touches little
of it). A key with the bit of another one counts as listed before, so that there is an end to new
objects, too; a list would need 25 million objects in pages of 500, or seven million in pages of
one, to be mistaken for a circle.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmcache.protocol.items import Item

IDLE_PAGES = 100
IDLE_OBJECTS = 1000
MOST_TEXT = 128 << 20
"""Twice the longest object."""
SIZE = 1 << 20
_MASK = SIZE - 1


class ListedKeys:
    """Takes the items of a list as they come. ValueError: the list does not go on (LISTED1)."""

    __slots__ = ("_bits", "_idle_objects", "_idle_pages", "_is_new", "_text")

    def __init__(self) -> None:
        self._bits = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._idle_objects = self._idle_pages = self._text = 0
        self._is_new = False  # an object of this page

    def take(self, items: list[Item], size: int) -> None:
        """Some items of a page, which came in a text of this size."""
        if not items:
            self._text += size
            if self._text > MOST_TEXT:
                raise ValueError(f"{self._text} bytes of it hold no object")
            return
        self._text = 0
        if self._note(items):
            self._is_new, self._idle_objects = True, 0
            return
        self._idle_objects += len(items)
        if self._idle_objects > IDLE_OBJECTS:
            raise ValueError(f"{self._idle_objects} objects in a row were listed before")

    def _note(self, items: list[Item]) -> bool:
        """Whether one of them is new."""
        bits, found = self._bits, False
        for _, key, _, _, _, _, raw in items:
            number = hash(key or raw)  # some objects have no name
            at, bit = number >> 3 & _MASK, 1 << (number & 7)
            if not bits[at] & bit:
                bits[at] |= bit
                found = True
        return found

    def end_page(self) -> None:
        """A page has ended, and leads to another one."""
        self._idle_pages = 0 if self._is_new else self._idle_pages + 1
        self._is_new = False
        if self._idle_pages > IDLE_PAGES:
            raise ValueError(f"{self._idle_pages} pages in a row have no object that is new")
