"""What the reflector is told and what it wants done: the words between source, machine and cache.

The reflector (reflector.py) is a state machine: step(event) returns actions, and the engine that
carries them out says what came of it as further events. Neither reads a clock nor sleeps by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from shmcache.protocol.items import Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.source.base import Failure

# ---- events: what happened ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The engine runs; nothing was asked yet. `version`: where an earlier life of ours ended.

    `word`: when the server was last heard in that life, by the clock of step().
    """

    version: str | None = None
    word: float | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A LIST page was received and all its items were staged."""

    meta: ListMeta


@dataclass(frozen=True, slots=True)
class Opened:
    """The watch was accepted (its headers came)."""


@dataclass(frozen=True, slots=True)
class Received:
    """Items of the open watch, in their order."""

    items: list[Item]


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the watch cleanly."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The list or watch under way ended otherwise."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The time of the last Sleep is over."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The cache did not take what the last actions gave it, and the rest of them was left undone.

    Nothing is under way any more: what was open is closed. What the reflector believes to be in the
    cache is not there, so that only a whole new content makes it right.
    """

    message: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The engine wants to end. May come at any time; what was under way is not answered."""


Event = Started | Listed | Opened | Received | Closed | Failed | Elapsed | Rejected | Stop

# ---- actions: what is to be done, in their order -------------------------------------------------


@dataclass(frozen=True, slots=True)
class List:
    """Ask for one page and stage its items; answer Listed or Failed."""

    options: ListOptions


@dataclass(frozen=True, slots=True)
class Watch:
    """Open a watch; answer Opened, Received..., then Closed or Failed."""

    options: ListOptions
    silence: float


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the open watch; nothing more is answered for it."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait; answer Elapsed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BeginReplace:
    """Open a staging area for a whole new content, dropping one that is open."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Put these items of a watch into the staging area: ADDED, MODIFIED store, DELETED removes."""

    items: list[Item]


@dataclass(frozen=True, slots=True)
class FinishReplace:
    """Make the staged content visible, at once, at this version."""

    version: str


@dataclass(frozen=True, slots=True)
class CancelReplace:
    """Forget the staging area."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Make these changes visible as one generation, at this version; "" if there is none yet."""

    items: list[Item]
    version: str


@dataclass(frozen=True, slots=True)
class Advance:
    """Nothing changed up to this version: a bookmark."""

    version: str


@dataclass(frozen=True, slots=True)
class Report:
    """The state that readers are to see (states.py), with the reason in words."""

    state: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """Tell whoever operates this; `level` is one of logging's, the engine adds the resource."""

    level: int
    message: str


Action = (
    List
    | Watch
    | Hangup
    | Sleep
    | BeginReplace
    | Stage
    | FinishReplace
    | CancelReplace
    | Apply
    | Advance
    | Report
    | Log
)
