"""Servers and sources for the tests of programs that use shmcache; nothing else imports them.

with shmcache.testing.ApiServer() as server: ...      a real HTTP server, in-process
with shmcache.testing.Cluster() as cluster: ...       one with a kubeconfig and caches of it
with shmcache.testing.Incident("record") as it: ...   one that goes through a flight record
source = shmcache.testing.FakeSource()                the same as a plain object, without a thread
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmcache.testing.apiserver import ApiServer
    from shmcache.testing.clock import ManualClock
    from shmcache.testing.cluster import Cluster
    from shmcache.testing.driver import Driver, Request
    from shmcache.testing.fake_source import FakeSource
    from shmcache.testing.fake_watch import FakeWatch
    from shmcache.testing.incident import Incident

__all__ = [
    "ApiServer",
    "Cluster",
    "Driver",
    "FakeSource",
    "FakeWatch",
    "Incident",
    "ManualClock",
    "Request",
]

_WHERE = {
    "ApiServer": "apiserver",
    "Cluster": "cluster",
    "Driver": "driver",
    "FakeSource": "fake_source",
    "FakeWatch": "fake_watch",
    "Incident": "incident",
    "ManualClock": "clock",
    "Request": "driver",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"shmcache.testing.{_WHERE[name]}"), name)
