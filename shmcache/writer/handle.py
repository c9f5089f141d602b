"""The handle of a writer: the core's writer with its memory, its lock, and its open batch.

Calls of several threads take turns by one lock; calls of one thread nest, and the outermost is the
batch. A call that fails leaves no trace: the outermost batch is aborted, or continues without it.

The core's own batch is the truth about an open batch; every way out restores the lock and the
depth, so that an exception from a signal handler leaves nothing stuck.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from time import monotonic_ns
from typing import TYPE_CHECKING

from shmcache import _native
from shmcache._native import ffi, lib
from shmcache.errors import CacheFull, ClosedError, ForkedError, ShmCacheError
from shmcache.settings import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmcache.memory.mapping import Owned
    from shmcache.memory.segments import Place
    from shmcache.settings import WriterSettings

_LITTLE_ROOM = 8 << 20  # less than two steps of growth: the file system is what is full


class Handle:
    """The core's writer of one cache. The modules of this package share it; users hold a Writer."""

    raw: _native.WriterHandle | None = None
    """The core's handle; None before the first generation and after the end."""
    address = 0
    """The same handle, as the extension takes it."""
    segments: Owned | None = None
    depth = 0
    """How many nested calls the open batch has; 0: no batch is open."""
    inside = False
    """The core, or an index function, is at work for the thread that holds the lock."""

    def __init__(self, place: Place, settings: WriterSettings, lock_fd: int) -> None:
        self.place = place
        self.settings = settings
        self.lock_fd = lock_fd
        self.lock = threading.RLock()
        self.alive = _native.fork_word()
        """Its only element is 0 in a child of fork()."""
        self._pid = os.getpid()
        self._doomed: BaseException | None = None
        self._undo: list[Callable[[], object]] = []

    def open(self, segments: Owned, raw: _native.WriterHandle) -> None:
        """Takes over the core's handle of these segments."""
        self.segments, self.raw = segments, raw
        self.address = _native.address(raw)

    @property
    def name(self) -> str:
        """The name of the cache; of a directory, its absolute path."""
        return self.place.name

    @property
    def opened(self) -> _native.WriterHandle:
        """The core's handle, where the caller knows that it is open."""
        assert self.raw is not None
        return self.raw

    @property
    def mapped(self) -> Owned:
        """The segments, where the caller knows that there are some."""
        assert self.segments is not None
        return self.segments

    def on_abort(self, undo: Callable[[], object]) -> None:
        """Calls `undo` if the open batch is aborted."""
        self._undo.append(undo)

    @contextmanager
    def turn(self) -> Iterator[_native.WriterHandle]:
        """The core's handle; no other thread uses it meanwhile."""
        self.refuse_child()
        with self.lock:
            yield self.usable()

    @contextmanager
    def change(self, doing: str, *, whole: bool) -> Iterator[_native.WriterHandle]:
        """A batch around one call. `whole`: if it fails half-way, so does the batch around it.

        An exception may come between any two lines here (a signal's handler): the next batch undoes
        a batch that it leaves open in the core.
        """
        self.refuse_child()
        with self.lock:
            handle = self.usable()
            depth = self.depth
            try:
                if depth == 0:
                    self._begin_batch(handle)
                self.depth = depth + 1
                yield handle
                if depth == 0:
                    self._commit_batch(handle)
            except BaseException as error:
                if depth == 0:
                    self._undo_batch(handle)
                elif self.depth > depth and (whole or isinstance(error, CacheFull | MemoryError)):
                    self._doomed = error  # the core may have stopped in the middle of a change
                if type(error) is CacheFull and doing and error.__cause__ is None:
                    text = str(error)
                    text = text if text.startswith(doing) else f"{doing}: {text}"
                    raise self.explained(text) from error
                raise
            finally:  # may come late, when a traceback that held us goes: never raise it again
                # no call here, as min() would be: a signal's handler may run after one
                self.depth = depth if self.depth > depth else self.depth  # noqa: FURB136

    # ---- the parts of a change ---------------------------------------------------------------

    def refuse_child(self) -> None:
        """ForkedError in a child. Comes before the lock, which a child may find held for ever."""
        if not self.alive[0]:
            raise ForkedError(
                f"the writer of cache {self.name!r} belongs to process {self._pid}, "
                f"not to its child {os.getpid()}"
            )

    def usable(self) -> _native.WriterHandle:
        """The core's handle; an error after the end, and inside of an index function."""
        handle = self.raw
        if handle is None:
            raise ClosedError(f"the writer of cache {self.name!r} is closed")
        if self.inside:
            raise ShmCacheError(
                f"cache {self.name!r}: an index function or a finalizer must not use its writer"
            )
        return handle

    def refuse_batch(self, call: str) -> None:
        """ShmCacheError for a call that cannot come inside a batch."""
        if self.depth:
            raise ShmCacheError(f"{call} cannot come inside a batch")

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
        """Aborts the core's batch if one is open; whether one was."""
        if not lib.shmc_in_batch(handle):
            return False
        lib.shmc_abort(handle)
        self._roll_back()
        return True

    def _roll_back(self) -> None:
        """Undoes in Python what the aborted batch declared."""
        while self._undo:
            self._undo.pop()()

    # ---- errors ------------------------------------------------------------------------------

    def _failure(self, status: int, doing: str) -> Exception:
        error = _native.failure(status, f"cache {self.name!r}: {doing}")
        return self.explained(str(error)) if isinstance(error, CacheFull) else error

    def explained(self, text: str) -> CacheFull:
        """CacheFull that states the limit, the use, and the setting to raise."""
        refusal = self.segments.limits.refusal() if self.segments is not None else None
        if refusal:
            return CacheFull(f"{text}: {refusal}")
        if self.place.location.room() < _LITTLE_ROOM:
            return self.place.full(_LITTLE_ROOM)
        stats = self.stats()
        return CacheFull(
            f"{text}. {format_size(stats['file_bytes'])} of arena_max = "
            f"{format_size(int(self.settings.arena_max))} are in use, of which "
            f"{format_size(stats['limbo_bytes'])} wait for readers: raise arena_max (it is "
            "address space), or cache less"
        )

    def stats(self) -> dict[str, int]:
        """The fields of shmc_stats."""
        found = ffi.new("struct shmc_stats *")
        if self.raw is not None:
            lib.shmc_writer_stats(self.raw, found)
        return _native.struct_values(found)
