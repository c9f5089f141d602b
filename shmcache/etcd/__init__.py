"""Programs that write to etcd, and read from the cache of it: Store, AsyncStore, and their errors.

It needs `pip install 'shmcache[etcd]'`.
"""

from __future__ import annotations

from shmcache.etcd.aio import AsyncStore
from shmcache.etcd.errors import (
    EtcdError,
    KeyChanged,
    KeyExists,
    KeyMissing,
    RevisionGone,
    WriteUnknown,
)
from shmcache.etcd.lease import Lease
from shmcache.etcd.operations import StorePage
from shmcache.etcd.store import Store

__all__ = [
    "AsyncStore",
    "EtcdError",
    "KeyChanged",
    "KeyExists",
    "KeyMissing",
    "Lease",
    "RevisionGone",
    "Store",
    "StorePage",
    "WriteUnknown",
]
