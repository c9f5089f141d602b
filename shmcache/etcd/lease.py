"""Lease: a lease of etcd that a thread keeps alive, and the moment at which its holder must stop.

LEASE2  a Lease is lost when etcd has ended it, and at the latest when its time has passed since the
last answered keep-alive was sent: its holder must not go on while etcd is away. The clock decides,
and no call has to end first. An answer that comes later does not undo it.
"""

from __future__ import annotations

import threading
from typing import Self

from shmcache.etcd.errors import error_of
from shmcache.lease.settings import boot_seconds
from shmcache.source.base import SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.connection import EtcdConnection


class Expiry(threading.Event):
    """An event that is set at a time by itself, unless that time is put off before (LEASE2)."""

    def __init__(self, until: float) -> None:
        """`until`: in boot_seconds(), which count the time of a suspended machine."""
        super().__init__()
        self._until = until
        self._changing = threading.RLock()

    def is_set(self) -> bool:
        """Whether it was set, or its time has come."""
        with self._changing:
            if not super().is_set() and boot_seconds() >= self._until:
                self.set()
            return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps until it is set, or its time comes. False after `timeout` seconds."""
        end = None if timeout is None else boot_seconds() + timeout
        while not self.is_set():
            now = boot_seconds()
            if end is not None and now >= end:
                return False
            until = self._until if end is None else min(self._until, end)
            super().wait(max(until - now, 0.0))
        return True

    def put_off(self, until: float) -> bool:
        """Sets a later time; False: too late, it is set."""
        with self._changing:
            if self.is_set():
                return False
            self._until = until
            return True

    @property
    def left(self) -> float:
        """The seconds until its time."""
        return self._until - boot_seconds()


class Lease:
    """A lease of etcd, kept alive by a thread. Keys that were written with it end with it."""

    def __init__(self, connection: EtcdConnection, number: int, ttl: int, until: float) -> None:
        self.number = number
        self.ttl = ttl
        self.lost = Expiry(until)
        """etcd has ended the lease, or may have: nothing has renewed it for its time."""
        self._connection = connection
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="shmcache-lease", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        pause = self.ttl / 3
        while not self._closed.wait(pause) and not self.lost.is_set():
            began = boot_seconds()
            try:
                left = self._alive(min(5.0, max(self.lost.left, 0.1)))
            except SourceFailed:
                left, pause = None, min(1.0, self.ttl / 6)  # another member, soon
            if left:
                self.lost.put_off(began + left)
                pause = self.ttl / 3
            elif left == 0:
                self.lost.set()

    def _alive(self, timeout: float) -> int | None:
        """The seconds that are left after one keep-alive; 0: it has ended; None: no answer."""
        request = messages.LeaseKeepAliveRequest(ID=self.number)
        stream = self._connection.stream(messages.KEEP_ALIVE, iter([request]), (), timeout=timeout)
        try:
            for answer in stream:
                return max(int(answer.TTL), 0)
        finally:
            stream.cancel()
        return None

    def close(self) -> None:
        """Ends the lease, and deletes its keys. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        if not self.lost.is_set():
            request = messages.LeaseRevokeRequest(ID=self.number)
            try:
                self._connection.call(messages.REVOKE, request, "revoke", timeout=5.0, writes=True)
            except SourceFailed as failed:
                raise error_of(failed, writes=True) from failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
