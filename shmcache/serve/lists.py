"""LIST: which state, which of its objects, in which pieces.

A list is walked over one root while it is sent: its memory is a page, whatever its length. What is
known before the head is written (version, continue, remaining) is found by keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache import listing
from shmcache.protocol import tokens
from shmcache.resources import CachedResource
from shmcache.serve.past import State

if TYPE_CHECKING:
    from shmcache._hot import View
    from shmcache.listing import Selection, Way

ENOUGH = 160 << 10
"""Bytes of a page."""
BLOCK = 64
"""Objects of a page that are looked up one by one."""
EVERYTHING = listing.Way("everything")


class Form(NamedTuple):
    """How objects are written: see pypage.c."""

    keep: str = "all"
    first: bytes = b""
    lead: bytes = b""
    enough: int = 0


class Cut(NamedTuple):
    """Where a list with a limit ends."""

    objects: int
    last: str = ""
    """The key that the next page begins behind; empty: there is none."""
    remaining: int | None = None


class Walk:
    """One list over one state."""

    def __init__(self, state: State, wanted: Selection, after: str | None, limit: int) -> None:
        self._state = state
        self._wanted = wanted
        self._after = after
        self.limit = limit
        self._way = self._plan()
        self._chosen: list[tuple[str, View]] | None = None
        if state.changed or self._way.key is not None or len(self._way.values) > 1:
            self._chosen = self._choose()

    def _plan(self) -> Way:
        wanted, state = self._wanted, self._state
        if wanted.where is None or state.changed:
            return EVERYTHING
        resource = CachedResource(state.root.reader, state.number, state.root)
        return listing.plan(resource, wanted).way

    # ---- what is known before it is sent -------------------------------------------------------

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
        if self._chosen is not None:
            return [key for key, _ in self._chosen]
        if self._wanted.sift is not None:
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

    # ---- what is sent --------------------------------------------------------------------------

    def pages(self, form: Form, lead: bytes = b"") -> Iterator[bytes]:
        """The items as JSON text with commas between them, `lead` in front; a page at a time.

        The pages together are the text; the first one is there even if it has no items.
        """
        if self._chosen is not None or self._wanted.sift is not None:
            yield from self._chosen_pages(form, lead)
            return
        after, left, more = self._after, self.limit, True
        while more:
            text, count, last, more = self._page(form, lead, after, left)
            if text:
                yield text
            if count:
                lead = b","
            elif text:
                lead = b""
            del text  # its memory is the next page's
            after = last or after
            left -= count if self.limit else 0
            more = more and (left > 0 or not self.limit)

    def views(self) -> Iterator[list[View]]:
        """The objects themselves, some at a time."""
        for found in self._items():
            yield [view for _, view in found]

    def _items(self) -> Iterator[list[tuple[str, View]]]:
        if self._chosen is not None:
            for start in range(0, len(self._chosen), BLOCK):
                yield self._chosen[start : start + BLOCK]
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
        self, form: Form, lead: bytes, after: str | None, left: int
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

    def _choose(self) -> list[tuple[str, View]]:
        """The objects of a list that no single walk shows, in the order of their keys."""
        state, wanted = self._state, self._wanted
        sift = wanted.sift
        found = {
            key: view
            for key, view in self._all()
            if key not in state.changed and (sift is None or sift.matches(view))
        }
        found |= {
            key: view
            for key, view in state.changed.items()
            if view is not None and key.startswith(wanted.prefix or "") and self._shows(view)
        }
        after = self._after.encode() if self._after is not None else b""
        keys = sorted((key for key in found if key.encode() > after), key=str.encode)
        return [(key, found[key]) for key in (keys[: self.limit] if self.limit else keys)]

    def _all(self) -> Iterator[tuple[str, View]]:
        root, number = self._state[:2]
        wanted, way = self._wanted, self._way
        if way.key is not None:
            start, stop = way.key, way.key + "\0"
            yield from root.scan(number, start=start, stop=stop, where=wanted.where)
        elif way.index < 0:
            yield from root.scan(number, prefix=wanted.prefix, where=wanted.where)
        else:
            for value in way.values:
                yield from root.by_index(
                    number, way.index, value, want="items", where=wanted.where,
                    prefix=wanted.prefix,
                )  # fmt: skip

    def _shows(self, view: View) -> bool:
        labels, fields = self._wanted.labels, self._wanted.fields
        return (labels is None or labels.matches(view)) and (fields is None or fields.matches(view))

    def _chosen_pages(self, form: Form, lead: bytes) -> Iterator[bytes]:
        texts: list[bytes] = []
        size = 0
        for view in (view for views in self.views() for view in views):
            texts.append(view.json_in(form))
            size += len(texts[-1])
            if size >= ENOUGH:
                yield lead + b",".join(texts)
                lead, texts, size = b",", [], 0
        if texts or lead != b",":
            yield lead + b",".join(texts)


def token(state: State, version: int, last: str, prefix: str | None) -> str:
    """That goes on with this very state, in whichever server process is asked.

    Where it is of no generation, the version says it all: versions rise strictly then.
    """
    exactly = "" if state.at is None else f"{state.at[0]:x}.{state.at[1]}"
    return tokens.encode(version, last.removeprefix(prefix or ""), exactly)


def generation_of(found: tokens.Token) -> tuple[int, int] | None:
    """Instance and generation of a token; None where it does not say."""
    instance, dot, generation = found.state.partition(".")
    try:
        return (int(instance, 16), int(generation)) if dot else None
    except ValueError:
        return None
