"""LIST: which state, which of its objects, in which pieces.

A list is walked over one root while it is sent: its memory is a page, whatever its length. Values
needed before the head is written (version, continue, remaining) come from the keys alone.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.protocol import tokens
from shmcache.protocol.selectors.shards import ShardSelector
from shmcache.protocol.versions import LONGEST, number_of
from shmcache.reader import listing
from shmcache.reader.resources import CachedResource
from shmcache.serve.http.weights import DIFFERENCE
from shmcache.serve.read.past_states import State

if TYPE_CHECKING:
    from shmcache._hot import View
    from shmcache.reader.listing import Selection, Way

ENOUGH = 160 << 10
"""Bytes of a page."""
BLOCK = 64
"""Objects of a page that are looked up one by one."""
STREAM = 1024
"""Bytes of a walk over one value of an index, with the objects that it holds."""
EVERYTHING = listing.Way("everything")


class ListForm(NamedTuple):
    """How objects are written: see pypage.c."""

    keep: str = "all"
    first: bytes = b""
    lead: bytes = b""
    enough: int = 0
    lean: bool = False


class Cut(NamedTuple):
    """Where a list with a limit ends."""

    objects: int
    last: str = ""
    """The key after which the next page begins; empty if this is the last page."""
    remaining: int | None = None


class Walk:
    """One list over one state."""

    def __init__(self, state: State, wanted: Selection, after: str | None, limit: int) -> None:
        self._state = state
        self._wanted = wanted
        self._after = after
        self.limit = limit
        self._way = self._plan()
        self._merged = bool(state.changed or self._way.key is not None or self._way.values[1:])
        """Whether no single walk over the root shows the list: see _merge()."""

    @property
    def weight(self) -> int:
        """Bytes that it keeps while it is sent."""
        return DIFFERENCE * len(self._state.changed) + STREAM * len(self._way.values[1:])

    def _plan(self) -> Way:
        wanted, state = self._wanted, self._state
        if wanted.where is None or state.changed:
            return EVERYTHING
        resource = CachedResource(state.root.reader, state.number, state.root)
        return listing.plan(resource, wanted).way

    # ---- before sending ------------------------------------------------------------------------

    def cut(self) -> Cut:
        """How many objects there will be, and whether more stand behind them."""
        keys = self._keys()
        if len(keys) < self.limit or not self.limit:
            return Cut(len(keys))
        rest = self._behind(keys[-1])
        if not rest:
            return Cut(len(keys))
        return Cut(len(keys), keys[-1], None if self._wanted.selects else rest)

    def _keys(self) -> list[str]:
        if self._merged or self._wanted.sift is not None:
            return [key for found in self._items() for key, _ in found]
        found: list[str] = self._ask("keys", self._after, self.limit)
        return found

    def _behind(self, key: str) -> int:
        """How many objects of the list's scope stand behind a key, selected or not; at least."""
        root, number, changed = *self._state[:2], self._state.changed
        prefix = self._wanted.prefix
        if self._wanted.selects and not changed:
            return len(root.scan(number, prefix=prefix, after=key, limit=1, want="keys"))
        keys = set(root.scan(number, prefix=prefix, after=key, want="keys"))
        for one, view in changed.items():
            if view is None:
                keys.discard(one)
            elif one.startswith(prefix or "") and one.encode() > key.encode():
                keys.add(one)
        return len(keys)

    # ---- sending -------------------------------------------------------------------------------

    def pages(self, form: ListForm, lead: bytes = b"") -> Iterator[bytes]:
        """The items as JSON text with commas between them, `lead` in front; a page at a time.

        The pages together are the text; the first one is there even if it has no items.
        """
        if self._merged or self._wanted.sift is not None:
            yield from self._item_pages(form, lead)
            return
        after, left, more = self._after, self.limit, True
        while more:
            text, count, last, more = self._page(form, lead, after, left)
            if count:
                lead = b","
            elif text:
                lead = b""
            if text:
                made = [text]
                del text
                yield made.pop()  # nothing of it is kept here (HOLD4)
            after = last or after
            left -= count if self.limit else 0

    def views(self) -> Iterator[list[View]]:
        """The objects themselves, some at a time."""
        for found in self._items():
            yield [view for _, view in found]

    def _items(self) -> Iterator[list[tuple[str, View]]]:
        if self._merged:
            shown = itertools.islice(self._merge(), self.limit or None)
            while block := list(itertools.islice(shown, BLOCK)):
                yield block
            return
        after, left, sift = self._after, self.limit, self._wanted.sift
        while True:
            size = min(BLOCK, left) if self.limit and sift is None else BLOCK
            asked: list[tuple[str, View]] = self._ask("items", after, size)
            after = asked[-1][0] if asked else after
            found = asked if sift is None else [one for one in asked if sift.matches(one[1])]
            if self.limit:
                found = found[:left]
                left -= len(found)
            if found:
                yield found
            if len(asked) < size or (self.limit and left <= 0):
                return

    def _page(
        self, form: ListForm, lead: bytes, after: str | None, left: int
    ) -> tuple[bytes, int, str | None, bool]:
        root, number = self._state[:2]
        wanted, way = self._wanted, self._way
        how = form._replace(lead=lead, enough=ENOUGH)
        if way.index < 0:
            return root.scan_json(
                how, number, prefix=wanted.prefix, after=after, limit=left, where=wanted.where
            )
        where = None if wanted.simple else wanted.where
        return root.by_index_json(
            how, number, way.index, way.values[0], after, left, where=where, prefix=wanted.prefix
        )

    def _ask(self, want: Any, after: str | None, limit: int) -> list[Any]:
        root, number = self._state[:2]
        wanted, way = self._wanted, self._way
        if way.index < 0:
            return root.scan(
                number, prefix=wanted.prefix, after=after, limit=limit, want=want,
                where=wanted.where,
            )  # fmt: skip
        where = None if wanted.simple else wanted.where
        return root.by_index(
            number, way.index, way.values[0], after, limit, want, where, wanted.prefix
        )

    def _merge(self) -> Iterator[tuple[str, View]]:
        """A list that no single walk shows, in the order of its keys; one object at a time.

        The walks that it needs go side by side: one for each value of an index, or that over
        the root and one over the objects that were different then. Texts in UTF-8 have the order
        of their characters, so keys are compared as they are.
        """
        changed, wanted, sift = self._state.changed, self._wanted, self._wanted.sift
        after, prefix = self._after, wanted.prefix or ""
        then = sorted(
            key
            for key, view in changed.items()
            if view is not None
            and key.startswith(prefix)
            and (after is None or key > after)
            and self._shows(view)
        )
        walks = [self._walk_of(value) for value in self._way.values or (None,)]
        now = (
            (key, view)
            for key, view in _once(heapq.merge(*walks, key=_key))
            if key not in changed and (sift is None or sift.matches(view))
        )
        before = ((key, view) for key in then if (view := changed[key]) is not None)
        return heapq.merge(now, before, key=_key) if then else now

    def _walk_of(self, value: str | None) -> Iterator[tuple[str, View]]:
        """The objects of one value of the index, or all of them; a few at a time."""
        root, number = self._state[:2]
        wanted, way, after = self._wanted, self._way, self._after
        if way.key is not None:
            if after is None or way.key > after:
                yield from root.scan(number, start=way.key, stop=way.key + "\0", where=wanted.where)
            return
        size = max(BLOCK // max(len(way.values), 1), 1)
        while True:
            if value is None:
                found = root.scan(
                    number, prefix=wanted.prefix, after=after, limit=size, where=wanted.where
                )
            else:
                found = root.by_index(
                    number, way.index, value, after, size, "items", wanted.where, wanted.prefix
                )
            yield from found
            if len(found) < size:
                return
            after = found[-1][0]
            del found

    def _shows(self, view: View) -> bool:
        labels, fields, shard = self._wanted.labels, self._wanted.fields, self._wanted.shard
        if isinstance(shard, ShardSelector) and not shard.matches(view):
            return False
        return (labels is None or labels.matches(view)) and (fields is None or fields.matches(view))

    def _item_pages(self, form: ListForm, lead: bytes) -> Iterator[bytes]:
        texts: list[bytes] = []
        size = 0
        for view in (view for views in self.views() for view in views):
            texts.append(view.json_in(form))
            size += len(texts[-1])
            if size >= ENOUGH:
                yield _joined(lead, texts)
                lead, size = b",", 0
        if texts or lead != b",":
            yield _joined(lead, texts)


def _joined(lead: bytes, texts: list[bytes]) -> bytes:
    """The texts, which are kept no longer."""
    found = lead + b",".join(texts)
    texts.clear()
    return found


def _key(item: tuple[str, View]) -> str:
    return item[0]


def _once(items: Iterator[tuple[str, View]]) -> Iterator[tuple[str, View]]:
    """Without those that follow themselves: an object may have several of the values."""
    last = None
    for item in items:
        if item[0] != last:
            yield item
        last = item[0]


def token(state: State, last: str, prefix: str | None) -> str:
    """That goes on with this very state, in whichever server process is asked.

    Where it is of no generation, the version is exact enough: versions rise strictly then. Tokens
    have versions of 63 bits; any other (objects of a program may have none) is part of the state.
    """
    exactly = "" if state.at is None else f"{state.at[0]:x}.{state.at[1]}"
    version = number_of(state.version)
    if not 0 < version < tokens.SIGNED:
        version = tokens.LATEST
        exactly += f".{state.version}" if exactly and len(state.version) <= LONGEST else ""
    return tokens.encode(version, last.removeprefix(prefix or ""), exactly)


class Generation(NamedTuple):
    """The exact state that a token names."""

    at: tuple[int, int]
    """Instance and generation."""
    version: str


def generation_of(found: tokens.Token) -> Generation | None:
    """The state of a token; None where it names none."""
    instance, dot, rest = found.state.partition(".")
    generation, _, version = rest.partition(".")
    if found.version != tokens.LATEST:
        version = str(found.version)
    try:
        return Generation((int(instance, 16), int(generation)), version or "0") if dot else None
    except ValueError:
        return None
