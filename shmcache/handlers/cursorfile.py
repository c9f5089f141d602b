"""The file of a durable consumer: what it has acknowledged, through any death of its process.

    NAME.cursor    lines: the CRC-32 of a JSON text, a space, the text
        header     {"shmcache.cursor": 1, "resource": ..., "selection": ...}
        record     {"k": [[key, uid, version], ...], "g": [key, ...], "at": [instance, position]}
    NAME.lock      the kernel's lock of its one process

`k` are objects that the consumer has now, `g` keys that it has no more, `at` is its point in the
ring. A record is one acknowledgement, and counts as a whole.

CURSOR1  A record is appended by one write. After a death in the middle of it, its checksum is
         wrong: loading ends before it, and cuts it off. The state is that of the record before.
CURSOR2  The file is replaced (when it has grown, or for another selection) by writing a whole new
         one, fsync, and rename: each name leads to one of two whole files that mean the same.
CURSOR3  A record that could not be written leaves the file as it was, and the caller's state, too.
CURSOR4  Records are not synced to the disk one by one. The cache does not survive a crash of the
         machine, so that a consumer takes the difference after it anyway: from the last record
         whose checksum is right.
CURSOR5  One consumer has a file, in one process and among processes: by whatever way its directory
         is named, and whichever thread comes first. A kernel lock says nothing about its own
         process, and goes when the process closes the file for the first time.
CURSOR6  No name leads out of the directory: a symbolic link that somebody left there is refused,
         and its target keeps its content.
CURSOR7  Nothing that another user can write is believed: a file of another user, or one that others
         may write, is refused. Its state would hide objects, and its lock could be held for ever.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import stat
import zlib

from shmcache.errors import BusyError, ShmCacheError, UntrustedSegment
from shmcache.reasons import reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Identity = tuple[str | None, str | None]
    """The uid and the version of an object."""
    RingPoint = tuple[int, int]
    """An instance, and a position in its ring."""

logger = logging.getLogger(__name__)

GROWN = 1 << 18
"""Bytes up to which a file is never replaced for its size."""
_FORMAT = 1
_PER_RECORD = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_open_here: dict[tuple[int, str], object] = {}  # by process and path (CURSOR5)
_OWN = os.O_NOFOLLOW | os.O_CLOEXEC


class CursorFile:
    """The acknowledged state, in memory and in the file. For one thread at a time."""

    def __init__(self, directory: str, name: str, resource: str, selection: str) -> None:
        """BusyError if another consumer has this name open; ValueError for another resource's."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"the name of a consumer must have letters, digits, '.', '_' and '-', not {name!r}"
            )
        self.path = os.path.join(os.path.realpath(directory), name + ".cursor")
        self.known: dict[str, Identity] = {}
        self.point: RingPoint | None = None
        self.whole = False
        """Whether the first content was acknowledged to its end."""
        self._header = {
            "shmcache.cursor": _FORMAT,
            "resource": resource,
            "selection": selection,
        }
        self._size = self._replace_at = 0
        self._file = -1
        self._here = (os.getpid(), self.path)
        self._lock = self._locked(name)
        try:
            self._enter()
        except BaseException:
            self.close()
            raise

    def _locked(self, name: str) -> int:
        busy = f"consumer {name!r}: another one has {self.path} open: one process has each name"
        own, lock = object(), -1
        if _open_here.setdefault(self._here, own) is not own:
            raise BusyError(busy)
        try:
            lock = _opened(self.path.removesuffix(".cursor") + ".lock", os.O_RDWR | os.O_CREAT)
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            if lock >= 0:
                os.close(lock)
                if isinstance(error, BlockingIOError | PermissionError):
                    error = BusyError(busy)
            del _open_here[self._here]
            raise error from None
        return lock

    def close(self) -> None:
        """Lets another process have the name. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            _open_here.pop(self._here, None)

    # ---- reading ---------------------------------------------------------------------------------

    def _enter(self) -> None:
        try:
            with open(_opened(self.path, os.O_RDONLY), "rb") as file:
                header = self._load(file)
        except FileNotFoundError:
            self._replace()
            return
        if header["resource"] != self._header["resource"]:
            raise ValueError(
                f"{self.path} is of {header['resource']}, not of {self._header['resource']}: "
                "give this consumer another name"
            )
        if header != self._header:
            self.point = None  # another selection: the difference to it follows
            self._replace()
            return
        self._file = _opened(self.path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, self._size)  # CURSOR1
        self._replace_at = max(GROWN, 3 * self._size)

    def _load(self, lines: Iterable[bytes]) -> dict[str, Any]:
        """The state by the records up to the first damaged one; the header."""
        header: dict[str, Any] | None = None
        for line in lines:
            record = _read(line)
            if record is None:
                if header is not None:
                    logger.warning("%s: cut off at byte %d, in a record", self.path, self._size)
                break
            self._size += len(line)
            if header is None:
                header = record
            else:
                self._apply(record)
        if header is None or header.get("shmcache.cursor") != _FORMAT:
            raise ShmCacheError(
                f"{self.path} cannot be read as the cursor of a consumer: remove it, and the "
                "consumer begins with all objects"
            )
        return header

    def _apply(self, record: dict[str, Any]) -> None:
        for key in record.get("g", ()):
            self.known.pop(key, None)
        for key, uid, version in record.get("k", ()):
            self.known[key] = (uid, version)
        if "at" in record:
            instance, position = record["at"]
            self.point, self.whole = (instance, position), True
        if "whole" in record:
            self.whole = True

    # ---- writing ---------------------------------------------------------------------------------

    def append(self, changes: dict[str, Identity | None], point: RingPoint | None) -> None:
        """Acknowledges: objects it has now (or, None, has no more), and its point in the ring."""
        record: dict[str, Any] = {}
        here = [(key, *found) for key, found in changes.items() if found is not None]
        gone = [key for key, found in changes.items() if found is None]
        if here:
            record["k"] = here
        if gone:
            record["g"] = gone
        if point is not None:
            record["at"] = point
        line = _line(record)
        try:
            written = os.write(self._file, line)
            if written != len(line):
                written += os.write(self._file, line[written:])  # raises why it was cut
            if written != len(line):
                raise OSError(f"{self.path}: {written} of {len(line)} bytes were written")
        except OSError:
            os.ftruncate(self._file, self._size)  # CURSOR3
            raise
        self._size += len(line)
        self._apply(record)
        if self._size >= self._replace_at:
            self._try_to_replace()

    def _try_to_replace(self) -> None:
        """The acknowledgement is in the file already: a full disk only lets it grow further."""
        try:
            self._replace()
        except OSError as error:
            self._replace_at = 2 * self._size
            logger.warning(
                "%s cannot be replaced by a shorter one yet: %s", self.path, reason_of(error)
            )

    def _replace(self) -> None:
        """Writes the state as a new file (CURSOR2)."""
        draft = self.path + ".draft"
        _remove(draft)  # of a process that died: a successor writes its own
        file = _opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        try:
            size = 0
            for line in self._lines():
                size += len(line)
                left = memoryview(line)
                while left:
                    left = left[os.write(file, left) :]
            os.fsync(file)
            os.rename(draft, self.path)
        except BaseException:
            os.close(file)
            _remove(draft)  # a full disk needs its room for the next records
            raise
        self._sync_directory()
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = file, size
        self._replace_at = max(GROWN, 3 * size)

    def _sync_directory(self) -> None:
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _lines(self) -> Iterator[bytes]:
        yield _line(self._header)
        rows = [(key, *found) for key, found in self.known.items()]
        for start in range(0, len(rows), _PER_RECORD):
            yield _line({"k": rows[start : start + _PER_RECORD]})
        if self.point is not None:
            yield _line({"at": self.point})
        elif self.whole:
            yield _line({"whole": True})


def _opened(path: str, flags: int) -> int:
    """A plain file of this very name (CURSOR6) that is ours alone (CURSOR7)."""
    try:
        file = os.open(path, flags | _OWN | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ShmCacheError(f"{path} is a symbolic link: remove it") from None
        if isinstance(error, PermissionError):
            with contextlib.suppress(FileNotFoundError):
                _refuse(path, os.lstat(path))  # says whose it is
        raise
    try:
        _refuse(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def _refuse(path: str, found: os.stat_result) -> None:
    """Raises ShmCacheError if it is not a plain file, or not ours alone."""
    if not stat.S_ISREG(found.st_mode):
        raise ShmCacheError(f"{path} is not a plain file: remove it")
    if found.st_uid != os.geteuid():
        raise UntrustedSegment(
            f"{path} belongs to uid {found.st_uid}: remove it, or give the consumer a directory "
            "in which only this user can write"
        )
    if found.st_mode & 0o022:
        raise UntrustedSegment(
            f"{path} is writable for others than its owner: make it 0600, or remove it"
        )


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if the line is damaged or cut."""
    if line[8:9] != b" " or line[-1:] != b"\n":
        return None
    text = line[9:-1]
    if line[:8] != b"%08x" % zlib.crc32(text):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None
