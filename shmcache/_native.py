"""The typed face of the C core: the only importer of `_core`.

Calls take handles (opaque pointers that only this module makes) and return results or raise the
exceptions of errors.py. This module keeps no state. Every call gives the GIL away.
"""

from __future__ import annotations

import errno
import os

from shmcache import _core, _hot, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NewType, Protocol

    SegmentHandle = NewType("SegmentHandle", object)
    WriterHandle = NewType("WriterHandle", object)
    DescriptorOwner = Any  # an int *, whose [0] is the descriptor, -1 without one
    AttachmentOwner = Any  # a struct shmc_attachment *
    ReaderHandle = NewType("ReaderHandle", object)
    Pointer = Any  # to a struct of ours, a result, or bytes that the callee reads

    class Lib(Protocol):
        """The functions of shmcache.h; statuses are ints."""

        shmc_status_text: Callable[[int], Pointer]
        shmc_limits_allow: Callable[[Pointer, int], bool]
        shmc_segment_map: Callable[[int, int, int, SegmentHandle], int]
        shmc_segment_extend: Callable[[SegmentHandle, int], int]
        shmc_segment_unmap: Callable[[SegmentHandle], None]
        shmc_lock_byte: Callable[[int, int], int]
        shmc_unlock_byte: Callable[[int, int], int]
        shmc_probe_byte: Callable[[int, int], int]
        shmc_fork_word: Callable[[], Pointer]
        shmc_close_in_child: Callable[[int], int]
        shmc_keep_in_child: Callable[[int], None]
        shmc_die_with_parent: Callable[[int], int]
        shmc_guard: Callable[[SegmentHandle], int]
        shmc_unguard: Callable[[SegmentHandle], None]
        shmc_data_memory: Callable[[Pointer], int]
        shmc_data_extend: Callable[[SegmentHandle, Pointer], int]
        shmc_data_format: Callable[[SegmentHandle, Pointer], int]
        shmc_data_check_header: Callable[[SegmentHandle, bytes, Pointer], int]
        shmc_writer_create: Callable[[SegmentHandle, SegmentHandle, Pointer, Pointer], int]
        shmc_writer_takeover: Callable[
            [SegmentHandle, SegmentHandle, Pointer, Pointer, int, Pointer], int
        ]
        shmc_writer_leave: Callable[[WriterHandle], None]
        shmc_writer_destroy: Callable[[WriterHandle], None]
        shmc_declare_resource: Callable[[WriterHandle, bytes, int, Pointer], int]
        shmc_find_resource: Callable[[WriterHandle, bytes, int, Pointer], int]
        shmc_declare_index: Callable[
            [WriterHandle, int, bytes, int, bytes | Pointer, int, Pointer], int
        ]
        shmc_set_state: Callable[[WriterHandle, int, int], int]
        shmc_set_version: Callable[[WriterHandle, int, bytes, int], int]
        shmc_set_reason: Callable[[WriterHandle, int, bytes, int], int]
        shmc_set_settings: Callable[[WriterHandle, int, bytes, int], int]
        shmc_set_source: Callable[[WriterHandle, int, bytes, int], int]
        shmc_set_function: Callable[[WriterHandle, int, int, bytes, int], int]
        shmc_drop_index: Callable[[WriterHandle, int, bytes, int], int]
        shmc_retire_resource: Callable[[WriterHandle, int], int]
        shmc_note: Callable[[WriterHandle, int, Pointer], int]
        shmc_begin: Callable[[WriterHandle], int]
        shmc_commit: Callable[[WriterHandle, int], int]
        shmc_abort: Callable[[WriterHandle], int]
        shmc_in_batch: Callable[[WriterHandle], int]
        shmc_delete: Callable[[WriterHandle, int, bytes, int, bytes | Pointer, int, int], int]
        shmc_restage: Callable[[WriterHandle, int, bytes, int], int]
        shmc_replace_begin: Callable[[WriterHandle, int], int]
        shmc_replace_finish: Callable[[WriterHandle, int, bytes | Pointer, int], int]
        shmc_replace_cancel: Callable[[WriterHandle, int], int]
        shmc_share_begin: Callable[[WriterHandle, int], int]
        shmc_share_finish: Callable[
            [WriterHandle, int, bytes | Pointer, int, bytes | Pointer, int], int
        ]
        shmc_share_cancel: Callable[[WriterHandle, int, bytes | Pointer, int], int]
        shmc_unstage: Callable[[WriterHandle, int, bytes, int], int]
        shmc_tend: Callable[[WriterHandle, int], int]
        shmc_writer_copy: Callable[[WriterHandle, SegmentHandle, Pointer], int]
        shmc_writer_switch: Callable[[WriterHandle, SegmentHandle, SegmentHandle, Pointer], int]
        shmc_writer_relocked: Callable[[WriterHandle, Pointer], None]
        shmc_writer_renamed: Callable[[WriterHandle], None]
        shmc_reclaim: Callable[[WriterHandle], int]
        shmc_drop_window: Callable[[WriterHandle], int]
        shmc_writer_stats: Callable[[WriterHandle, Pointer], None]
        shmc_check: Callable[[WriterHandle, Pointer, int], int]
        shmc_seats_size: Callable[[int], int]
        shmc_seats_format: Callable[[SegmentHandle, int, int], int]
        shmc_seats_check_header: Callable[[SegmentHandle, Pointer], int]
        shmc_seat_info: Callable[[SegmentHandle, int, Pointer], int]
        shmc_reader_create: Callable[[SegmentHandle, SegmentHandle | Pointer, Pointer], int]
        shmc_reader_destroy: Callable[[ReaderHandle], None]
        shmc_reader_seat: Callable[[ReaderHandle], int]
        shmc_reader_latest: Callable[[ReaderHandle], int]
        shmc_reader_pins: Callable[[ReaderHandle], int]
        shmc_data_info: Callable[[SegmentHandle, Pointer], None]
        shmc_survey: Callable[[ReaderHandle, Pointer, Pointer, int, Pointer, int], int]
        shmc_wait: Callable[[ReaderHandle, int, int, int], int]
        shmc_reader_over: Callable[[ReaderHandle], int]
        shmc_data_end: Callable[[SegmentHandle], int]
        shmc_seats_end: Callable[[SegmentHandle], int]
        shmc_relay_start: Callable[[ReaderHandle, int, int, int, int, int, Pointer], int]
        shmc_relay_stop: Callable[[Pointer], None]
        shmc_owned_open: Callable[[bytes, int, DescriptorOwner], int]
        shmc_owned_notice: Callable[[bytes, DescriptorOwner], int]
        shmc_owned_close: Callable[[DescriptorOwner], None]
        shmc_attachment_end: Callable[[AttachmentOwner], None]
        shmc_reader_wakes: Callable[[ReaderHandle], int]
        shmc_wait_progress: Callable[[ReaderHandle, int, int, int, int], int]
        shmc_wake_self: Callable[[ReaderHandle], None]
        shmc_queue_size: Callable[[int, int, int, Pointer], int]
        shmc_queue_format: Callable[[SegmentHandle, int, int, int, int, int], int]
        shmc_queue_used: Callable[[SegmentHandle, int], int]
        shmc_queue_open: Callable[[SegmentHandle, int, int, Pointer], int]
        shmc_queue_close: Callable[[Pointer], None]
        shmc_queue_limits: Callable[[Pointer, int, int, int, int], None]
        shmc_queue_keep: Callable[[Pointer, int], None]
        shmc_queue_stop: Callable[[Pointer], None]
        shmc_queue_sweep: Callable[[Pointer, int], None]
        shmc_queue_shut_down: Callable[[Pointer, int], None]
        shmc_queue_shutting_down: Callable[[Pointer], int]
        shmc_queue_drained: Callable[[Pointer, int], int]
        shmc_queue_stats: Callable[[Pointer, Pointer], None]
        shmc_queue_feed_begin: Callable[[Pointer], int]
        shmc_queue_feed_end: Callable[[Pointer], None]
        shmc_queue_add_known: Callable[[Pointer, int], int]
        shmc_queue_cursor: Callable[[Pointer, bytes, int, Pointer], int]
        shmc_queue_store_cursor: Callable[[Pointer, bytes, int, Pointer], int]
        SHMC_QUEUE_OPEN: int
        SHMC_QUEUE_SLOTS_MAX: int
        SHMC_QUEUE_RESOURCES_MAX: int
        SHMC_SEATS_MAX: int


ffi = _core.ffi
lib: Lib = _core.lib
NULL: Pointer = ffi.NULL

OK: int = _core.lib.SHMC_OK
EMPTY: int = _core.lib.SHMC_EMPTY
LAPPED: int = _core.lib.SHMC_LAPPED
TIMEOUT: int = _core.lib.SHMC_TIMEOUT
INTERRUPTED: int = _core.lib.SHMC_INTERRUPTED
NOT_FOUND: int = _core.lib.SHMC_NOT_FOUND
STALE: int = _core.lib.SHMC_STALE
NO_SPACE: int = _core.lib.SHMC_NO_SPACE
BUSY: int = _core.lib.SHMC_BUSY
INVALID: int = _core.lib.SHMC_INVALID
FENCED: int = _core.lib.SHMC_FENCED
CORRUPT: int = _core.lib.SHMC_CORRUPT
CLOSED: int = _core.lib.SHMC_CLOSED
OVER: int = _core.lib.SHMC_OVER
SYSTEM: int = _core.lib.SHMC_SYSTEM
REASON_MAX: int = _core.lib.SHMC_REASON_MAX

_EXCEPTIONS: dict[int, type[Exception]] = {
    STALE: errors.StaleObjectError,
    _core.lib.SHMC_FULL: errors.CacheFull,
    NO_SPACE: errors.CacheFull,
    _core.lib.SHMC_NO_MEMORY: MemoryError,
    BUSY: errors.BusyError,
    FENCED: errors.FencedError,
    CORRUPT: errors.CorruptSegment,
    _core.lib.SHMC_VERSION: errors.LayoutMismatch,
    _core.lib.SHMC_LIMIT: errors.LimitExceeded,
    INVALID: ValueError,
    _core.lib.SHMC_FORKED: errors.ForkedError,
    CLOSED: errors.ClosedError,
}


def check(status: int, doing: str) -> None:
    """Returns for OK; any other status becomes its exception, whose text starts with `doing`."""
    if status != OK:
        raise failure(status, doing)


def failure(status: int, doing: str) -> Exception:
    """The exception that belongs to a status; a system call's keeps its errno."""
    number = ffi.errno
    if status == SYSTEM:
        return OSError(number, f"{doing}: {os.strerror(number)}")
    text = ffi.string(lib.shmc_status_text(status)).decode()
    return _EXCEPTIONS.get(status, errors.ShmCacheError)(f"{doing}: {text}")


def new_segment() -> SegmentHandle:
    """A zeroed struct shmc_segment that lives as long as the handle."""
    handle: SegmentHandle = ffi.new("struct shmc_segment *")
    return handle


def new_descriptor() -> DescriptorOwner:
    """An owner without a descriptor; what a call opens into it is closed with it (OWNED1)."""
    return ffi.gc(ffi.new("int *", -1), lib.shmc_owned_close)


def new_attachment() -> tuple[_hot.Opened, AttachmentOwner]:
    """The owner of all that an attachment opens, which it gives back when it goes (OWNED4)."""
    end = int(ffi.cast("uintptr_t", ffi.addressof(lib, "shmc_attachment_end")))
    opened = _hot.Opened(end)
    return opened, ffi.cast("struct shmc_attachment *", opened.address)


def map_segment(fd: int, size: int, *, writable: bool, doing: str) -> SegmentHandle:
    """Maps `fd` over `size` bytes of address space; the caller keeps owning `fd`."""
    segment = new_segment()
    map_into(segment, fd, size, writable=writable, doing=doing)
    return segment


def map_into(segment: SegmentHandle, fd: int, size: int, *, writable: bool, doing: str) -> None:
    """The same into a segment that has an owner."""
    status = lib.shmc_segment_map(fd, size, writable, segment)
    if status == SYSTEM and ffi.errno == errno.ENOMEM:
        raise _no_address_space(size, doing)
    check(status, doing)


def _no_address_space(size: int, doing: str) -> OSError:
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

    from shmcache.settings import format_size

    limit = getrlimit(RLIMIT_AS)[0]
    allowed = "unlimited" if limit == RLIM_INFINITY else format_size(limit)
    return OSError(
        errno.ENOMEM,
        f"{doing}: {format_size(size)} of address space are needed, and this process cannot have "
        f"them (its RLIMIT_AS is {allowed}): raise the limit (ulimit -v; systemd: LimitAS=), or "
        "start the cache's writer with a smaller arena_max",
    )


class _PidWord:
    """Where the system has no fork word: the same by asking for the pid."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, _: int) -> int:
        return os.getpid() == self._pid


def fork_word() -> Pointer:
    """Its [0] is true in this process, and false in every child of fork()."""
    return lib.shmc_fork_word() or _PidWord()


def address(handle: object) -> int:
    """The address behind a handle, for `_hot`, which shares the core's structs."""
    return int(ffi.cast("uintptr_t", handle))


def struct_values(pointer: Pointer) -> dict[str, Any]:
    """A flat struct of ours as a dict, in the header's order."""
    fields = ffi.typeof(pointer).item.fields
    return {name: getattr(pointer, name) for name, _ in fields}
