"""EtcdObjectStore: the state of the API server for tests in a real etcd.

Objects are JSON under the keys that kube-apiserver uses for custom resources
(/registry/example.com/widgets/ns/name; of the core group without a group), so that a cache with
etcd as its source, etcdctl, and several of these servers work on the same state.

    ETCDOBJ1  the server shows its watch, in the order of revisions, of all writers; a write returns
              when its own revision has come.
    ETCDOBJ2  a write is a transaction on the revision that it was decided upon; if another server
              was faster, it is decided again (Raced).
    ETCDOBJ3  each write also writes MARKER: its revision is that of the last write of all servers,
              deletions included. A consistent read waits until the watch has come so far.
    ETCDOBJ4  answers of the watch are taken from the queue under the store's lock only: otherwise
              a writer, which waits for its own, could apply a later one first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

from shmcache.protocol import failures
from shmcache.protocol.builtins import builtin
from shmcache.source.base import SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.source.etcd.keys import end_of
from shmcache.source.etcd.values import RefusedValue, refuse_foreign
from shmcache.testing.apiserver.store import Backup, Object, ObjectStore, Raced
from shmcache.testing.apiserver.stored import Stored, StoredChange

logger = logging.getLogger(__name__)

PREFIX = b"/registry/"
MARKER = b"/registry.last-write"
TIMEOUT = 10.0
PAGE = 1000
AGAIN_SECONDS = 0.2
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_CORE = frozenset(kind.resource for kind in builtin() if not kind.group)


def raw_key_of(resource: str, key: str) -> bytes:
    """The key of etcd of an object."""
    plural, _, group = resource.partition(".")
    folder = f"{group}/{plural}" if group else plural
    return PREFIX + f"{folder}/{key}".encode()


def resource_of(raw: bytes) -> tuple[str, str] | None:
    """Resource and key of an object; None for a key that is of no object."""
    try:
        parts = raw.removeprefix(PREFIX).decode().split("/")
    except UnicodeDecodeError:
        return None
    skip = 1 if parts[0] in _CORE else 2
    if not 1 <= len(parts) - skip <= 2:
        return None
    resource = parts[0] if skip == 1 else f"{parts[1]}.{parts[0]}"
    return resource, "/".join(parts[skip:])


class EtcdObjectStore(ObjectStore):
    """The ObjectStore of one server among several on the same etcd."""

    def __init__(self, etcd: str, *, history: int) -> None:
        super().__init__(history=history)
        self.defined: Callable[[Object | None, str], None] = lambda _obj, _key: None
        """Receives each definition of a custom resource, None where it was deleted, and its key."""
        self._connection = EtcdConnection(EtcdAccess.of(etcd))
        self._queue: deque[Any] = deque()
        self._arrived = threading.Condition()
        self._stopped = threading.Event()
        self._stream: Any = None
        self._received = 0
        """Up to which revision everything is in the queue, or applied."""
        self._threads: list[threading.Thread] = []

    # ---- life --------------------------------------------------------------------------------

    def open(self) -> None:
        """Reads the whole history that etcd has, and follows it from there. SourceFailed."""
        with self.lock:
            self._load()
        for target in (self._follow, self._apply_all):
            thread = threading.Thread(target=target, name="shmcache-etcd-store", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.sync()

    def close(self) -> None:
        """Ends the watch; what is in etcd stays."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()
        with self._arrived:
            self._arrived.notify_all()
        for thread in self._threads:
            thread.join()
        self._connection.close()

    def _call(self, method: messages.Method, request: Any, *, writes: bool = False) -> Any:
        try:
            return self._connection.call(method, request, "etcd", timeout=TIMEOUT, writes=writes)
        except SourceFailed as failed:
            raise failures.internal_error(str(failed)) from failed

    def _load(self) -> None:
        """The state at the oldest revision that is left: what followed comes by the watch."""
        revision = self._oldest()
        start = PREFIX
        while True:
            request = messages.RangeRequest(
                key=start, range_end=end_of(PREFIX), limit=PAGE, revision=revision
            )
            answer = self._call(messages.RANGE, request)
            revision = revision or answer.header.revision
            for kv in answer.kvs:
                self._take(kv, None)
            if not answer.more:
                break
            start = answer.kvs[-1].key + b"\0"
        self.version = self.compacted = self._floor = self._received = revision
        for table in self._tables.values():
            table.forget(revision)

    def _oldest(self) -> int:
        """The revision of the last compaction; 1 before the first.

        A watch of MARKER from the beginning ends there, or begins with the marker.
        """
        marker = messages.PutRequest(key=MARKER)
        self._call(messages.PUTTING, marker, writes=True)
        create = messages.WatchCreateRequest(key=MARKER, start_revision=1)
        request = messages.WatchRequest(create_request=create)
        stream = self._connection.stream(messages.WATCH, iter([request]), (), TIMEOUT)
        try:
            for answer in stream:
                if answer.compact_revision:
                    return int(answer.compact_revision)
                if answer.events:
                    break
        finally:
            stream.cancel()
        return 1

    def _last_revision(self) -> int:
        """The revision of the last write; 0: none yet."""
        answer = self._call(messages.RANGE, messages.RangeRequest(key=MARKER))
        return int(answer.kvs[0].mod_revision) if answer.kvs else 0

    # ---- following ---------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._watch()
            except SourceFailed as failed:
                if failed.failure.status is not None and failed.failure.status.is_expired:
                    self._start_over()
                elif not self._stopped.is_set():
                    logger.warning("etcd: %s", failed)
            self._stopped.wait(AGAIN_SECONDS)

    def _apply_all(self) -> None:
        """Applies answers, except those that a writer applies while it waits for its own."""
        while not self._stopped.is_set():
            with self._arrived:
                self._arrived.wait_for(lambda: self._queue or self._stopped.is_set())
            with self.lock:
                self._drain()

    def _watch(self) -> None:
        version = self._received
        more = threading.Event()

        def requests() -> Any:
            yield messages.WatchRequest(
                create_request=messages.WatchCreateRequest(
                    key=PREFIX[:-1],
                    range_end=end_of(PREFIX),
                    start_revision=version + 1,
                )
            )
            more.wait()

        stream = self._connection.stream(messages.WATCH, requests(), (("hasleader", "true"),))
        self._stream = stream
        try:
            if self._stopped.is_set():
                return
            for answer in stream:
                if answer.canceled:
                    if answer.compact_revision:
                        self._start_over()
                    return
                with self._arrived:
                    self._queue.append(answer)
                    if answer.events:
                        self._received = answer.events[-1].kv.mod_revision
                    self._arrived.notify_all()
        finally:
            more.set()
            stream.cancel()

    def _start_over(self) -> None:
        """The history since our revision is gone: watches end, as with a server that restarts."""
        with self.lock:
            names = list(self._tables)
            for table in self._tables.values():
                table.closed = True
            self._tables = {}
            self._queue.clear()
            self._load()
            for name in names:
                self._tell(name)

    def _drain(self) -> None:
        """Applies the answers that have come. The lock is held (ETCDOBJ4)."""
        while self._queue:
            answer = self._queue.popleft()
            for event in answer.events:
                self._take(event.kv, event)
            if answer.events:
                self.version = max(self.version, answer.events[-1].kv.mod_revision)
                self._tell("")

    def _take(self, kv: Any, event: Any) -> None:
        """One object of a list, or (with its event) one change."""
        found = resource_of(kv.key) if kv.key.startswith(PREFIX) else None
        if found is None:
            return
        resource, key = found
        table = self.table(resource)
        old, new = table.get(key), None
        if event is None or event.type == messages.PUT:
            new = self._stored(key, kv)
            if new is None:
                return
        elif old is None:
            return
        change = StoredChange(kv.mod_revision, old, new)
        self.version = max(self.version, kv.mod_revision)
        table.apply(change)
        if resource == DEFINITIONS:
            self.defined(None if new is None else new.obj, key)
        if event is not None:
            self._tell(resource)

    def _stored(self, key: str, kv: Any) -> Stored | None:
        try:
            refuse_foreign(kv.value)
            obj = orjson.loads(kv.value)
            obj["metadata"]["resourceVersion"] = str(kv.mod_revision)
        except (RefusedValue, ValueError, TypeError, KeyError) as error:
            logger.warning("etcd: %r is left out: %s", kv.key, error)
            return None
        return Stored(key, obj, kv.mod_revision)

    def _reach(self, revision: int) -> None:
        """Waits until the watch has come so far. The lock is held."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            self._drain()
            if self.version >= revision:
                return
            with self._arrived:
                if not self._queue and not self._arrived.wait(deadline - time.monotonic()):
                    raise failures.internal_error(f"etcd's watch has not reached {revision}")

    # ---- the store ---------------------------------------------------------------------------

    def sync(self) -> None:
        """ETCDOBJ3."""
        with self.lock:
            self._reach(self._last_revision())

    def put(self, resource: str, key: str, obj: Object, *, version: int = 0) -> Stored:
        """Writes an object; etcd chooses its version."""
        del version  # an object that is loaded gets a new one
        with self.lock:
            obj = {**obj, "metadata": {**obj["metadata"]}}
            obj["metadata"].pop("resourceVersion", None)
            value = orjson.dumps(obj)
            self._write(resource, key, messages.PutRequest(value=value))
            stored = self.get(resource, key)
            if stored is None:  # another server has deleted it meanwhile
                raise Raced
            return stored

    def remove(self, resource: str, key: str) -> Stored:
        """Deletes an object that is there; its last state, under the version of the deletion."""
        with self.lock:
            last = self.get(resource, key)
            assert last is not None
            return last.at(self._write(resource, key, None))

    def _write(self, resource: str, key: str, put: Any) -> int:
        """ETCDOBJ2. The revision of the write, when it has come."""
        raw, known = raw_key_of(resource, key), self.get(resource, key)
        if put is None:
            change = messages.RequestOp(request_delete_range=messages.DeleteRangeRequest(key=raw))
        else:
            put.key = raw
            change = messages.RequestOp(request_put=put)
        marker = messages.RequestOp(request_put=messages.PutRequest(key=MARKER))
        compare = messages.Compare(
            target=messages.BY_MOD, key=raw, mod_revision=known.version if known else 0
        )
        request = messages.TxnRequest(compare=[compare], success=[change, marker])
        answer = self._call(messages.TXN, request, writes=True)
        if not answer.succeeded:
            self._reach(self._last_revision())
            raise Raced
        self._reach(answer.header.revision)
        return int(answer.header.revision)

    def compact(self, *, windows: bool = True) -> int:
        """Compacts etcd: the past is gone for all servers; their windows are their own."""
        with self.lock:
            self.sync()
            request = messages.CompactionRequest(revision=self.version, physical=True)
            self._call(messages.COMPACT, request, writes=True)
            return super().compact(windows=windows)

    def advance(self, version: int) -> None:
        """Not here: revisions are etcd's."""
        raise NotImplementedError(f"etcd counts its revisions itself: {version}")

    def backup(self) -> Backup:
        """Not here."""
        raise NotImplementedError("take a snapshot of etcd: etcdctl snapshot save")

    def restore(self, backup: Backup) -> None:
        """Not here."""
        raise NotImplementedError("restore a snapshot of etcd: etcdutl snapshot restore")
