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
    "QueueShutDown",
    "Registration",
    "Resource",
    "SegmentNotFound",
    "ShmCacheError",
    "Snapshot",
    "SourceError",
    "Staged",
    "StaleObjectError",
    "Tombstone",
    "UnsupportedValue",
    "UntrustedSegment",
    "View",
    "Writer",
    "attach",
    "columns",
    "default",
    "interop",
]

_LATE = {
    "Registration": "shmcache.handlers",
    "FieldSelector": "shmcache.selectors",
    "LabelSelector": "shmcache.selectors",
    "Resource": "shmcache.settings",
    "Staged": "shmcache.staging",
    "Writer": "shmcache.writer",
    "columns": "shmcache.columnar",
    "interop": "shmcache.interop",
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
