"""Turns and batches of a writer: who may use its handle now, and what becomes visible together.

Calls of several threads take turns by one lock; calls of one thread nest, and the outermost is the
batch. What fails leaves no trace: the outermost batch is aborted, or goes on without that call.

`_begin`, then `_end` or `_abort`, are what every change is made of; they are written for speed,
since a change of one small object takes hardly longer.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from time import monotonic_ns
from typing import TYPE_CHECKING, Self

from shmcache import _native
from shmcache._native import ffi, lib
from shmcache.errors import CacheFull, ClosedError, ForkedError, ShmCacheError
from shmcache.settings import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        self._alive = _native.fork_word()
        self._lock = threading.RLock()
        self._depth = 0
        self._doomed: BaseException | None = None
        self._undo: list[Callable[[], object]] = []
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
            self._abort(error)
            raise
        self._end()

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
            clear = self._abort(error, doing, whole=whole)
            if clear is not None:
                raise clear from error
            raise
        self._end()

    # ---- what every change is made of ------------------------------------------------------

    def _enter(self) -> _native.WriterHandle:
        """Takes the writer's turn; the caller releases self._lock."""
        if not self._alive[0]:
            raise ForkedError(
                f"the writer of cache {self.name!r} belongs to process {self._pid}, "
                f"not to its child {os.getpid()}"
            )
        self._lock.acquire()
        handle = self._handle
        if handle is not None and not self._emitting:
            return handle
        self._lock.release()
        if handle is not None:
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

    def _end(self) -> None:
        """Commits, if this was the outermost."""
        self._depth = depth = self._depth - 1
        try:
            if depth == 0:
                if self._doomed is not None:
                    self._raise_doom(self._doomed)
                status = lib.shmc_commit(self._handle, monotonic_ns())  # type: ignore[arg-type]
                if status:
                    self._roll_back()
                    raise self._failure(status, "commit")
                if self._undo:
                    self._undo.clear()
        finally:
            self._lock.release()

    def _abort(
        self, error: BaseException, doing: str = "", *, whole: bool = False
    ) -> CacheFull | None:
        """Undoes the outermost batch; a clearer exception to raise, if there is one."""
        self._depth -= 1
        try:
            if self._depth == 0:
                lib.shmc_abort(self._handle)  # type: ignore[arg-type]
                self._roll_back()
            elif whole or isinstance(error, CacheFull | MemoryError):
                self._doomed = error  # the core may have stopped in the middle of a change
            if type(error) is not CacheFull or not doing or error.__cause__ is not None:
                return None
            text = str(error)
            return self._explained(text if text.startswith(doing) else f"{doing}: {text}")
        finally:
            self._lock.release()

    def _raise_doom(self, doom: BaseException) -> None:
        lib.shmc_abort(self._handle)  # type: ignore[arg-type]
        self._roll_back()
        raise ShmCacheError(
            f"cache {self.name!r}: the batch was aborted, since a call in it failed half-way"
        ) from doom

    def _roll_back(self) -> None:
        """What this batch declared is forgotten here too."""
        while self._undo:
            self._undo.pop()()

    # ---- what it says ------------------------------------------------------------------------

    def _failure(self, status: int, doing: str) -> Exception:
        error = _native.failure(status, f"cache {self.name!r}: {doing}")
        return self._explained(str(error)) if isinstance(error, CacheFull) else error

    def _explained(self, text: str) -> CacheFull:
        """The error of what is full: how much there is, and what to enlarge."""
        if self.place.location.room() < _LITTLE_ROOM:
            return self.place.full(_LITTLE_ROOM)
        stats = self._stats()
        return CacheFull(
            f"{text}. {format_size(stats['file_bytes'])} of arena_max = "
            f"{format_size(int(self.settings.arena_max))} are in use, of which "
            f"{format_size(stats['limbo_bytes'])} wait for readers: raise arena_max (it is "
            "address space), or cache less"
        )

    def _stats(self) -> dict[str, int]:
        found = ffi.new("struct shmc_stats *")
        if self._handle is not None:
            lib.shmc_writer_stats(self._handle, found)
        return _native.struct_values(found)
