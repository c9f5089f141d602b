"""Repairs single keys of a feed's content that evidence of the server contradicts.

An event that was lost on its way leaves one object wrong, and no later event mends it. Comparisons
(comparing.py) find such keys; the feed repairs them between two batches, without a list of all.

Invariants
    REPAIR1  evidence decides, and the present of the server: a key is removed only if its object is
        still the one that the server did not have; anything else becomes what the server answers
        now to a question about this key alone.
    REPAIR2  the feed's thread repairs, while nothing is read from the watch, and then goes on with
        a watch from the version of its content: every event after the repair is applied after it.
    REPAIR3  an object is stored only if its version is one that the content has reached. A later
        one is left to its event, which is still to come.
    REPAIR4  a repair is visible as a change whose version does not rise: handlers receive it like
        any other, watches of `serve` and questions about past versions treat it as a gap.
    REPAIR5  more than MOST_KEYS keys, an object that is older at the server than in the cache, and
        a repair that fails, lead to a list of everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from shmcache.engine.evidence import Refusal
from shmcache.protocol.items import Identity
from shmcache.protocol.options import ListOptions
from shmcache.protocol.versions import number_of

if TYPE_CHECKING:
    from shmcache.engine.comparing import Disagreement
    from shmcache.engine.content import Content
    from shmcache.engine.plans import Plan
    from shmcache.engine.shown import FeedContent
    from shmcache.protocol.items import Item
    from shmcache.source.base import Source

logger = logging.getLogger(__name__)

MOST_KEYS = 100
"""At four milliseconds each, while the watch waits."""
SHOWN = 5
"""Keys that a line of the log names."""


def is_beyond_repair(found: list[Disagreement]) -> bool:
    """REPAIR5."""
    return len(found) > MOST_KEYS or any(one.backward for one in found)


def names_of(found: Iterable[Disagreement]) -> str:
    """For people: the first few, and how many there are."""
    each = list(map(str, found))
    more = f", and {len(each) - SHOWN} more" if len(each) > SHOWN else ""
    return "; ".join(each[:SHOWN]) + more


class Repair(NamedTuple):
    """The work on some keys."""

    items: list[Item]
    gone: list[str]
    left: list[str]
    """Keys that are right by now, or whose event is still to come."""


def repair(
    label: str,
    content: Content,
    shown: FeedContent,
    found: list[Disagreement],
    fetch: Callable[[str], Item | None],
) -> int:
    """Repairs these keys of a feed; how many were wrong. In the feed's thread (REPAIR2).

    `shown`: the content now. `fetch` asks the server for one object. SourceFailed, Refusal.
    """
    if shown.version != content.version:
        raise Refusal("readers do not see the content of this process")
    todo = Repair([], [], [])
    for one in found:
        _plan(todo, one, shown, fetch)
    if todo.items or todo.gone:
        content.repair(todo.items, todo.gone)
    for item in todo.items:
        logger.error("%s: repaired %s: version %s was lost", label, item.key, item.version)
    for key in todo.gone:
        logger.error("%s: repaired %s: its deletion was lost", label, key)
    if todo.left:
        logger.info("%s: no repair needed of %s", label, ", ".join(todo.left[:SHOWN]))
    return len(todo.items) + len(todo.gone)


def _plan(
    todo: Repair,
    one: Disagreement,
    shown: FeedContent,
    fetch: Callable[[str], Item | None],
) -> None:
    ours = shown.identity(one.key)
    if one.theirs is None:
        (todo.gone if ours == one.ours else todo.left).append(one.key)  # REPAIR1
        return
    item = fetch(one.key)
    theirs = None if item is None else Identity(item.uid or "", item.version or "")
    if item is None or theirs == ours or number_of(item.version) > number_of(shown.version):
        todo.left.append(one.key)  # REPAIR3
    elif ours is not None and number_of(ours.version) > number_of(item.version):
        raise Refusal(f"{one.key} went back to version {item.version} at the server")
    else:
        todo.items.append(item)


def fetch_one(source: Source, plan: Plan, key: str) -> Item | None:
    """One object of a plan, as the server has it now; `source`: of its namespace. SourceFailed."""
    name = key.rpartition("/")[2]
    fields = ",".join(filter(None, [plan.fields, f"metadata.name={name}"]))
    options = ListOptions(label_selector=plan.labels, field_selector=fields)
    found = None
    with source.page(options) as page:
        for items in page:
            found = next((item for item in items if item.key == key), found)
    return found
