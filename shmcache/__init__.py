"""shmcache: a Kubernetes informer cache for a machine, in shared memory.

    with shmcache.Writer("demo", resources=["pods"]) as writer:   # one process
        writer.apply("pods", objects)

    cache = shmcache.attach("demo")                               # any number of others
    cache["pods"]["prod/web-0"]["spec"]["nodeName"]

Objects are views into memory that the writer reuses: to keep one for long, `.to_dict()` it.
"""

from __future__ import annotations

from shmcache import _interpreter  # noqa: F401 - refuses before the extensions are missed
from shmcache._platform import PORTABLE
from shmcache.errors import (
    BusyError,
    CacheFull,
    CacheTooOld,
    ClosedError,
    CorruptSegment,
    FencedError,
    ForkedError,
    InvalidSelector,
    Lapped,
    LayoutMismatch,
    LeadershipLost,
    LimitExceeded,
    ObjectDeleted,
    PastUnknown,
    QueueShutDown,
    SegmentNotFound,
    ShmCacheError,
    SourceError,
    StaleObjectError,
    UnconfirmedError,
    UnsupportedValue,
    UntrustedSegment,
)
from shmcache.handlers.tombstone import Tombstone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache._hot import Delta, ListView, View, default
    from shmcache.controllers.declaring import Controller, controller
    from shmcache.controllers.outcomes import Requeue, TerminalError
    from shmcache.controllers.running import run_controllers
    from shmcache.controllers.sources import Owns, Watches
    from shmcache.controllers.written import deleted, fencing_token, written
    from shmcache.handlers.registration import Registration
    from shmcache.integrations.columns import columns
    from shmcache.lease.leader import Leader, leader
    from shmcache.lease.settings import Candidacy, LeaseSettings
    from shmcache.models import decoding as interop
    from shmcache.reader.cache import Cache, attach
    from shmcache.reader.cursor import Cursor
    from shmcache.reader.resources import CachedResource
    from shmcache.reader.selectors import FieldSelector, LabelSelector
    from shmcache.reader.snapshot import Snapshot
    from shmcache.settings import Resource
    from shmcache.writer.staging import Staged
    from shmcache.writer.writer import Writer

__version__ = "0.2.0"

__all__ = [
    "BusyError",
    "Cache",
    "CacheFull",
    "CacheTooOld",
    "CachedResource",
    "Candidacy",
    "ClosedError",
    "Controller",
    "CorruptSegment",
    "Cursor",
    "Delta",
    "FencedError",
    "FieldSelector",
    "ForkedError",
    "InvalidSelector",
    "LabelSelector",
    "Lapped",
    "LayoutMismatch",
    "Leader",
    "LeadershipLost",
    "LeaseSettings",
    "LimitExceeded",
    "ListView",
    "ObjectDeleted",
    "Owns",
    "PastUnknown",
    "QueueShutDown",
    "Registration",
    "Requeue",
    "Resource",
    "SegmentNotFound",
    "ShmCacheError",
    "Snapshot",
    "SourceError",
    "Staged",
    "StaleObjectError",
    "TerminalError",
    "Tombstone",
    "UnconfirmedError",
    "UnsupportedValue",
    "UntrustedSegment",
    "View",
    "Watches",
    "Writer",
    "attach",
    "columns",
    "controller",
    "default",
    "deleted",
    "fencing_token",
    "interop",
    "leader",
    "run_controllers",
    "written",
]

_LATE = {
    "Cache": "shmcache.reader.cache",
    "CachedResource": "shmcache.reader.resources",
    "Cursor": "shmcache.reader.cursor",
    "Delta": "shmcache._hot",
    "ListView": "shmcache._hot",
    "Snapshot": "shmcache.reader.snapshot",
    "View": "shmcache._hot",
    "attach": "shmcache.reader.cache",
    "default": "shmcache._hot",
    "Candidacy": "shmcache.lease.settings",
    "Leader": "shmcache.lease.leader",
    "LeaseSettings": "shmcache.lease.settings",
    "leader": "shmcache.lease.leader",
    "Controller": "shmcache.controllers.declaring",
    "Owns": "shmcache.controllers.sources",
    "Registration": "shmcache.handlers.registration",
    "FieldSelector": "shmcache.reader.selectors",
    "LabelSelector": "shmcache.reader.selectors",
    "Requeue": "shmcache.controllers.outcomes",
    "Resource": "shmcache.settings",
    "Staged": "shmcache.writer.staging",
    "TerminalError": "shmcache.controllers.outcomes",
    "Watches": "shmcache.controllers.sources",
    "Writer": "shmcache.writer.writer",
    "columns": "shmcache.integrations.columns",
    "interop": "shmcache.models.decoding",
    "metrics": "shmcache.monitor.metrics",
    "controller": "shmcache.controllers.declaring",
    "deleted": "shmcache.controllers.written",
    "fencing_token": "shmcache.controllers.written",
    "run_controllers": "shmcache.controllers.running",
    "written": "shmcache.controllers.written",
}
"""Names that a worker imports at first use: a worker without them does not pay for the import."""

_MODULES = {"interop", "metrics"}

if PORTABLE:
    from shmcache import portable

    globals().update(portable.NAMES)


def __getattr__(name: str) -> object:
    if PORTABLE and name in portable.missing.LACKING:
        portable.lacking(f"shmcache.{name}")
    if name not in _LATE:
        raise AttributeError(f"module 'shmcache' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_LATE[name])
    found = globals()[name] = module if name in _MODULES else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
