"""Turns and batches of a writer: who may use its handle now, and what becomes visible together.

Calls of several threads take turns by one lock; calls of one thread nest, and the outermost is the
batch. What fails leaves no trace: the outermost batch is aborted, or goes on without that call.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from shmcache import _native
from shmcache._native import ffi, lib
from shmcache.errors import CacheFull, ClosedError, ForkedError, ShmCacheError
from shmcache.settings import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache.segments import Place
    from shmcache.settings import WriterSettings

_LITTLE_ROOM = 8 << 20  # less than two steps of growth: the file system is what is full


class Batches:
    """The writer's handle with its lock, its open batch, and what it says when it fails."""

    _handle: _native.WriterHandle | None = None

    def __init__(self, place: Place, settings: WriterSettings) -> None:
        self.place = place
        self.settings = settings
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._depth = 0
        self._doomed: BaseException | None = None
        self._emitting = False

    @property
    def name(self) -> str:
        """Of the cache; a directory's is its absolute path."""
        return self.place.name

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    @contextmanager
    def batch(self) -> Iterator[Self]:
        """Everything inside becomes visible as one generation, or none of it does."""
        self._begin()
        try:
            yield self
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)

    @contextmanager
    def _turn(self) -> Iterator[_native.WriterHandle]:
        """The handle, and nobody else uses it meanwhile."""
        handle = self._enter()
        try:
            yield handle
        finally:
            self._lock.release()

    @contextmanager
    def _change(self, doing: str, *, whole: bool) -> Iterator[_native.WriterHandle]:
        """A batch around one call. `whole`: if it fails half-way, so does the batch around it."""
        handle = self._begin()
        try:
            yield handle
        except BaseException as error:
            if whole and self._depth > 1:
                self._doomed = error
            self._end(error)
            if type(error) is CacheFull and not error.__cause__:
                text = str(error) if str(error).startswith(doing) else f"{doing}: {error}"
                raise self._explained(CacheFull(text)) from error
            raise
        self._end(None)

    def _own(self) -> bool:
        return self._pid == os.getpid()

    def _enter(self) -> _native.WriterHandle:
        """Takes the writer's turn; the caller releases self._lock."""
        if not self._own():
            raise ForkedError(
                f"the writer of cache {self.name!r} belongs to process {self._pid}, "
                f"not to its child {os.getpid()}"
            )
        self._lock.acquire()
        if self._handle is not None and not self._emitting:
            return self._handle
        self._lock.release()
        if self._handle is not None:
            raise ShmCacheError(f"cache {self.name!r}: an index function must not use its writer")
        raise ClosedError(f"the writer of cache {self.name!r} is closed")

    def _begin(self) -> _native.WriterHandle:
        handle = self._enter()
        if self._depth == 0:
            status = lib.shmc_begin(handle)
            if status:
                self._lock.release()
                raise self._failure(status, "begin")
            self._doomed = None
        self._depth += 1
        return handle

    def _end(self, error: BaseException | None) -> None:
        self._depth -= 1
        try:
            if self._depth == 0 and self._handle is not None:
                self._finish(self._handle, error)
        finally:
            self._lock.release()

    def _finish(self, handle: _native.WriterHandle, error: BaseException | None) -> None:
        if error is None and self._doomed is None:
            status = lib.shmc_commit(handle, time.monotonic_ns())
            if status:
                raise self._failure(status, "commit")
            return
        lib.shmc_abort(handle)
        if error is None:
            raise ShmCacheError(
                f"cache {self.name!r}: the batch was aborted, since a call in it failed half-way"
            ) from self._doomed

    def _failure(self, status: int, doing: str) -> Exception:
        error = _native.failure(status, f"cache {self.name!r}: {doing}")
        return self._explained(error) if isinstance(error, CacheFull) else error

    def _explained(self, error: CacheFull) -> CacheFull:
        """The same, with how much there is and what to enlarge."""
        if self.place.location.room() < _LITTLE_ROOM:
            full = self.place.full(_LITTLE_ROOM)
        else:
            stats = self._stats()
            full = CacheFull(
                f"{error}. {format_size(stats['file_bytes'])} of arena_max = "
                f"{format_size(int(self.settings.arena_max))} are in use, of which "
                f"{format_size(stats['limbo_bytes'])} wait for readers: raise arena_max (it is "
                "address space), or cache less"
            )
        return full

    def _stats(self) -> dict[str, int]:
        found = ffi.new("struct shmc_stats *")
        if self._handle is not None:
            lib.shmc_writer_stats(self._handle, found)
        return _native.struct_values(found)
