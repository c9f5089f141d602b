"""Turns and batches of a writer: who may use its handle now, and what becomes visible together.

Calls of several threads take turns by one lock; calls of one thread nest, and the outermost is the
batch. What fails leaves no trace: the outermost batch is aborted, or goes on without that call.

The core's own batch is the truth about what is open; the lock and the depth are given back on every
way out, so that an exception from a signal's handler leaves nothing stuck.
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

    from shmcache.mapping import Owned
    from shmcache.segments import Place
    from shmcache.settings import WriterSettings

_LITTLE_ROOM = 8 << 20  # less than two steps of growth: the file system is what is full


class Batches:
    """The writer's handle with its lock, its open batch, and what it says when it fails."""

    _handle: _native.WriterHandle | None = None
    _segments: Owned | None = None

    def __init__(self, place: Place, settings: WriterSettings) -> None:
        self.place = place
        self.settings = settings
        self._pid = os.getpid()
        self._alive = _native.fork_word()
        self._lock = threading.RLock()
        self._depth = 0
        self._doomed: BaseException | None = None
        self._undo: list[Callable[[], object]] = []
        self._inside = False  # the core, or an index function, is at work for this thread

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
        with self._change("", whole=True):
            yield self

    @contextmanager
    def _turn(self) -> Iterator[_native.WriterHandle]:
        """The handle, and no other thread uses it meanwhile."""
        self._refuse_child()
        with self._lock:
            yield self._usable()

    @contextmanager
    def _change(self, doing: str, *, whole: bool) -> Iterator[_native.WriterHandle]:
        """A batch around one call. `whole`: if it fails half-way, so does the batch around it.

        An exception may come between any two lines here (a signal's handler): what it leaves open
        in the core is undone by whoever opens the next batch.
        """
        self._refuse_child()
        with self._lock:
            handle = self._usable()
            depth = self._depth
            try:
                if depth == 0:
                    self._begin_batch(handle)
                self._depth = depth + 1
                yield handle
                if depth == 0:
                    self._commit_batch(handle)
            except BaseException as error:
                if depth == 0:
                    self._undo_batch(handle)
                elif self._depth > depth and (whole or isinstance(error, CacheFull | MemoryError)):
                    self._doomed = error  # the core may have stopped in the middle of a change
                if type(error) is CacheFull and doing and error.__cause__ is None:
                    text = str(error)
                    text = text if text.startswith(doing) else f"{doing}: {text}"
                    raise self._explained(text) from error
                raise
            finally:  # may come late, when a traceback that held us goes: never raise it again
                # no call here, as min() would be: a signal's handler may run after one
                self._depth = depth if self._depth > depth else self._depth  # noqa: FURB136

    # ---- what every change is made of ------------------------------------------------------

    def _refuse_child(self) -> None:
        """Before the lock is asked for: in a child it may be held for ever."""
        if not self._alive[0]:
            raise ForkedError(
                f"the writer of cache {self.name!r} belongs to process {self._pid}, "
                f"not to its child {os.getpid()}"
            )

    def _usable(self) -> _native.WriterHandle:
        handle = self._handle
        if handle is None:
            raise ClosedError(f"the writer of cache {self.name!r} is closed")
        if self._inside:
            raise ShmCacheError(
                f"cache {self.name!r}: an index function or a finalizer must not use its writer"
            )
        return handle

    def _begin_batch(self, handle: _native.WriterHandle) -> None:
        if not self._undo_batch(handle):
            self._undo.clear()
        status = lib.shmc_begin(handle)
        if status:
            raise self._failure(status, "begin")
        self._doomed = None

    def _commit_batch(self, handle: _native.WriterHandle) -> None:
        if self._doomed is not None:
            raise ShmCacheError(
                f"cache {self.name!r}: the batch was aborted, since a call in it failed half-way"
            ) from self._doomed
        status = lib.shmc_commit(handle, monotonic_ns())
        if status:
            self._roll_back()
            raise self._failure(status, "commit")
        self._undo.clear()

    def _undo_batch(self, handle: _native.WriterHandle) -> bool:
        """Aborts the core's batch if one is open; whether there was."""
        if not lib.shmc_in_batch(handle):
            return False
        lib.shmc_abort(handle)
        self._roll_back()
        return True

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
        refusal = self._segments.limits.refusal() if self._segments is not None else None
        if refusal:
            return CacheFull(f"{text}: {refusal}")
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
