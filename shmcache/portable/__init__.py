"""The cache of systems that are not Linux: private to its process, pure Python, with the same API.

It lets programs that use shmcache be developed and tested on macOS and Windows, or anywhere with
SHMCACHE_PORTABLE=1. Nothing is shared: the first attach() of a process warns about that once. A
cache comes from a Writer, a testing.Cluster or reflect() of the same process.

    cache.py     attach(), the latest state, snapshots
    resource.py  look-ups, lists, waits
    handlers.py  registrations, events
    writer.py    the Writer
    store.py     states, and listeners to them
    objects.py   View, ListView
    following.py reflect(): lists and watches

NotPortable is the error of the rest: time travel, cursors, consumers, queues, controllers,
columns, models, metrics and `shmcache run`.

    PORT1  A state never changes after it was published: readers hold one for as long as they like.
    PORT2  Each registration receives the content of one state, then every later change, in order.
"""

from __future__ import annotations

from typing import Any

from shmcache.portable.cache import PrivateCache, PrivateSnapshot, attach
from shmcache.portable.following import reflect
from shmcache.portable.handlers import PrivateRegistration
from shmcache.portable.missing import NotPortable, lacking
from shmcache.portable.objects import ListView, View, default
from shmcache.portable.resource import PrivateResource
from shmcache.portable.writer import PrivateWriter

__all__ = ["NAMES", "NotPortable", "attach", "lacking", "reflect"]

NAMES: dict[str, Any] = {
    "Cache": PrivateCache,
    "CachedResource": PrivateResource,
    "ListView": ListView,
    "Registration": PrivateRegistration,
    "Snapshot": PrivateSnapshot,
    "View": View,
    "Writer": PrivateWriter,
    "attach": attach,
    "default": default,
}
"""Names of `import shmcache`, and what they mean instead of the cache in shared memory."""
