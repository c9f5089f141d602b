"""The events that the reflector receives and the actions that it returns.

The reflector (machine.py) is a state machine: step(event) returns actions, and the engine that
carries them out reports their results as further events. The machine reads no clock and never
sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from shmcache.protocol.items import Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.source.base import SourceFailure

# ---- events: what happened ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The engine runs and has sent no request. `version`: where an earlier life ended."""

    version: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A LIST page was received and all its items were staged."""

    meta: ListMeta


@dataclass(frozen=True, slots=True)
class Probed:
    """The server answered a probe; `version` is the version of the whole server, "" if unknown."""

    version: str


@dataclass(frozen=True, slots=True)
class Answering:
    """An Await is over.

    `version`: the server's, from a probe that another feed sent after this wait began. None: it is
    this feed's turn to send the probe.
    """

    version: str | None


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

    failure: SourceFailure


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The time of the last Sleep is over."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The cache rejected the last actions, and the engine left out the rest of them.

    Nothing is under way any more: an open watch is closed. The cache lacks items that the reflector
    believes to be in it, so that only a whole new content makes it right.
    """

    message: str


@dataclass(frozen=True, slots=True)
class Doubted:
    """The content before the open watch is not of the server's history (engine/proof.py)."""

    message: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """Single keys were put right (engine/repairing.py), and the open watch was cut for that."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The engine wants to end. May come at any time; what was under way is not answered."""


Event = (
    Started
    | Listed
    | Probed
    | Answering
    | Opened
    | Received
    | Closed
    | Failed
    | Elapsed
    | Rejected
    | Doubted
    | Repaired
    | Stop
)

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
class Await:
    """Wait at least so long, and until the server is known to answer; answer Answering.

    All feeds of a server share the probes that find out (engine/gate.py). `cause` names what the
    server fails at; only feeds with the same cause share. `again`: the last probe of this feed
    failed, and the server has not served it since.
    """

    seconds: float
    cause: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask for the version of the server without staging anything; answer Probed or Failed."""

    options: ListOptions


@dataclass(frozen=True, slots=True)
class Contact:
    """The cache holds everything that the server has sent so far, and the server is there."""


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
    """Make these changes visible as one generation, at this version; "" before the first one."""

    items: list[Item]
    version: str


@dataclass(frozen=True, slots=True)
class Advance:
    """Nothing changed up to this version: a bookmark."""

    version: str


@dataclass(frozen=True, slots=True)
class Report:
    """The state that readers are to see (states.py), with the reason as text."""

    state: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """A line of the log; `level` is one of logging's, the engine adds the resource."""

    level: int
    message: str


Action = (
    List
    | Watch
    | Hangup
    | Sleep
    | Await
    | Probe
    | Contact
    | BeginReplace
    | Stage
    | FinishReplace
    | CancelReplace
    | Apply
    | Advance
    | Report
    | Log
)
