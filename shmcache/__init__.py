"""shmcache: a Kubernetes informer cache for a machine, in shared memory.

    with shmcache.Writer("demo", resources=["pods"]) as writer:   # one process
        writer.apply("pods", objects)

    cache = shmcache.attach("demo")                               # any number of others
    cache["pods"]["prod/web-0"]["spec"]["nodeName"]

Objects are views into memory that the writer reuses: to keep one for long, `.to_dict()` it.
"""

from __future__ import annotations

from shmcache._hot import Delta, ListView, View, default
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
    LimitExceeded,
    QueueShutDown,
    SegmentNotFound,
    ShmCacheError,
    SourceError,
    StaleObjectError,
    UnsupportedValue,
    UntrustedSegment,
)
from shmcache.follow import Cursor
from shmcache.reader import Cache, attach
from shmcache.resources import CachedResource
from shmcache.snapshot import Snapshot
from shmcache.tombstone import Tombstone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache import interop
    from shmcache.columnar import columns
    from shmcache.controllers.declaring import Controller, controller
    from shmcache.controllers.outcomes import Requeue, TerminalError
    from shmcache.controllers.running import run_controllers
    from shmcache.controllers.sources import Owns, Watches
    from shmcache.controllers.written import deleted, written
    from shmcache.handlers import Registration
    from shmcache.selectors import FieldSelector, LabelSelector
    from shmcache.settings import Resource
    from shmcache.staging import Staged
    from shmcache.writer import Writer

__version__ = "0.1.0"

__all__ = [
    "BusyError",
    "Cache",
    "CacheFull",
    "CacheTooOld",
    "CachedResource",
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
    "LimitExceeded",
    "ListView",
    "Owns",
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
    "interop",
    "run_controllers",
    "written",
]

_LATE = {
    "Controller": "shmcache.controllers.declaring",
    "Owns": "shmcache.controllers.sources",
    "Registration": "shmcache.handlers",
    "FieldSelector": "shmcache.selectors",
    "LabelSelector": "shmcache.selectors",
    "Requeue": "shmcache.controllers.outcomes",
    "Resource": "shmcache.settings",
    "Staged": "shmcache.staging",
    "TerminalError": "shmcache.controllers.outcomes",
    "Watches": "shmcache.controllers.sources",
    "Writer": "shmcache.writer",
    "columns": "shmcache.columnar",
    "interop": "shmcache.interop",
    "controller": "shmcache.controllers.declaring",
    "deleted": "shmcache.controllers.written",
    "run_controllers": "shmcache.controllers.running",
    "written": "shmcache.controllers.written",
}
"""What not every worker needs: one that does not ask for it does not pay for its import."""


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module 'shmcache' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_LATE[name])
    found = globals()[name] = module if name == "interop" else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
