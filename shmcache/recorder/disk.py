"""The files of a recorder: the few calls that it makes of the system, in one place for tests.

DISK1  A recorder writes in a directory of its own user, or of root, that not everybody may write.
It opens regular files only, and follows no link. Into an emptyDir itself (mode 0777) everybody
could put reels, and could remove ours: a directory inside of it is made for our user alone.
DISK2  The right to open a file or a directory, if only for reading, is the right to lock it. So no
lock is of something that others may open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

LOCK = ".lock"
SUFFIX = ".reel"
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIGITS = 8


class Disk:
    """Calls of the system. Each raises OSError; tests put faults between."""

    def make_directory(self, path: str) -> None:
        """The directory, for our own uid alone if it has to be made. PermissionError (DISK1)."""
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path)
        if found.st_uid not in (os.geteuid(), 0):
            raise PermissionError(
                errno.EACCES,
                f"it belongs to uid {found.st_uid}: choose a directory of this user",
                path,
            )
        if found.st_mode & stat.S_IWOTH:
            raise PermissionError(
                errno.EACCES,
                "everybody may write it, as an emptyDir: name a directory inside of it, such as "
                f"{os.path.join(path, 'flight')}, which is made if it is missing (or chmod o-w)",
                path,
            )

    def create(self, path: str) -> int:
        """A new file; FileExistsError if there is one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        """A file that is there, to be written."""
        return open_reel(path, os.O_RDWR)

    def write(self, fd: int, data: bytes, at: int) -> int:
        """Writes at an offset; how many bytes were written."""
        return os.pwrite(fd, data, at)

    def truncate(self, fd: int, size: int) -> None:
        """Cuts a file."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Returns when the file's data is on the medium."""
        os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        """Returns when the names in a directory are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def unlink(self, path: str) -> None:
        """Removes a file."""
        os.unlink(path)

    def lock(self, path: str) -> int:
        """A descriptor that holds the lock of a directory. BlockingIOError if another one does.

        The lock is that of a file which our user alone may open (DISK2).
        """
        name = os.path.join(path, LOCK)
        fd = os.open(name, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(
                    errno.EACCES, "it is not a file of this user: remove it", name
                )
            os.fchmod(fd, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd


def open_reel(path: str, flags: int) -> int:
    """A reel that is there (DISK1). OSError."""
    fd = os.open(path, flags | _SAFE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file: remove it", path)
    return fd


def reel_path(directory: str, number: int) -> str:
    """The file of a reel."""
    return os.path.join(directory, f"{number:0{_DIGITS}d}{SUFFIX}")


def reel_numbers(directory: str) -> list[int]:
    """The numbers of all reels, in their order."""
    found = []
    for name in os.listdir(directory):
        stem, dot, _ = name.partition(".")
        if name == stem + SUFFIX and dot and stem.isascii() and stem.isdecimal():
            found.append(int(stem))
    return sorted(found)
