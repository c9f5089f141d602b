"""Where files of a cache can live: POSIX shared memory by name, or a directory.

A location knows no caches, only files: create, open, replace, unlink, list. Both promise:
created files are new (O_EXCL) and have exactly the mode asked for, whatever the umask; nothing is
opened through a symbolic link, and opening never blocks; descriptors close on exec.
"""

from __future__ import annotations

import os
import stat

from shmcache._native import OK, ffi, lib
from shmcache.reasons import reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from shmcache._native import DescriptorOwner

SHM_DIRECTORY = "/dev/shm"  # noqa: S108 - where Linux keeps POSIX shared memory
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a planted FIFO must not hang us


class Directory:
    """Files in a directory of a file system in memory, such as an emptyDir of medium Memory."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, name: str) -> str:
        """The path of a file here, for display and for what only works on paths."""
        return os.path.join(self.path, name)

    def prepare(self) -> None:
        """Makes the directory if only its last part is missing."""
        try:
            os.mkdir(self.path, 0o755)
        except FileExistsError:
            pass

    def create(self, name: str, mode: int) -> int:
        """A new file, opened for reading and writing. FileExistsError if there is one."""
        fd = os.open(self.file(name), _OPEN | os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.fchmod(fd, mode)
        return fd

    def open(self, name: str, *, writable: bool) -> int:
        """An existing file, as a description of its own. FileNotFoundError if it is missing."""
        return os.open(self.file(name), _OPEN | (os.O_RDWR if writable else os.O_RDONLY))

    def open_into(self, owner: DescriptorOwner, name: str, *, writable: bool) -> None:
        """The same, owned: an exception that a signal's handler raises loses no descriptor."""
        path = self.file(name)
        if lib.shmc_owned_open(os.fsencode(path), writable, owner) != OK:
            number = ffi.errno
            raise OSError(number, os.strerror(number), path)

    def replace(self, name: str, by: str) -> None:
        """Gives the file `by` the name `name`, in one step for everybody who looks."""
        os.replace(self.file(by), self.file(name))

    def unlink(self, name: str) -> bool:
        """Removes a name; whether it existed. Existing maps stay."""
        try:
            os.unlink(self.file(name))
        except FileNotFoundError:
            return False
        return True

    def names(self, prefix: str) -> list[str]:
        """The files that begin so, sorted; none where there is no directory."""
        try:
            return sorted(name for name in os.listdir(self.path) if name.startswith(prefix))
        except FileNotFoundError:
            return []

    def is_of(self, name: str, uids: Collection[int]) -> bool:
        """Whether it is a file of one of these users: no link, no directory."""
        try:
            found = os.stat(self.file(name), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_uid in uids

    def identity(self, name: str) -> tuple[int, int] | None:
        """Which file has the name now (device, inode), None if none has."""
        try:
            found = os.stat(self.file(name), follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def mount_point(self) -> str:
        """The directory at which the file system is mounted."""
        path = os.path.realpath(self.path)
        while not os.path.ismount(path):
            path = os.path.dirname(path)
        return path

    def size(self) -> int:
        """Bytes of the whole file system."""
        found = os.statvfs(self.path)
        return found.f_blocks * found.f_frsize

    def room(self) -> int:
        """Bytes that the file system still has for us."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


class SharedMemory(Directory):
    """POSIX shared memory: names are made and removed by posix_ipc.

    It is opened, listed and replaced through the directory that Linux keeps it in: shm_open has no
    rename, and would wait for ever at a FIFO that somebody put there.
    """

    __slots__ = ("_ipc",)

    def __init__(self) -> None:
        super().__init__(SHM_DIRECTORY)
        self._ipc: Any = None

    @property
    def _posix_ipc(self) -> Any:
        """Kept: who makes names may have to remove them while Python ends, and imports nothing."""
        if self._ipc is None:
            import posix_ipc

            self._ipc = posix_ipc
        return self._ipc

    def prepare(self) -> None:
        """Nothing to do: the system mounts it."""

    def create(self, name: str, mode: int) -> int:
        """A new shared memory object. FileExistsError if there is one."""
        posix_ipc = self._posix_ipc
        try:
            fd: int = posix_ipc.SharedMemory("/" + name, posix_ipc.O_CREX, mode=0o600).fd
        except posix_ipc.ExistentialError:
            raise FileExistsError(17, "File exists", self.file(name)) from None
        except OSError as error:
            if error.errno is None:  # so it is for want of descriptors: EMFILE, ENFILE
                number = 23 if "system" in reason_of(error) else 24
                raise OSError(number, os.strerror(number), self.file(name)) from error
            raise
        os.fchmod(fd, mode)
        return fd

    def unlink(self, name: str) -> bool:
        """Removes a name; whether it existed. Existing maps stay."""
        posix_ipc = self._posix_ipc
        try:
            posix_ipc.unlink_shared_memory("/" + name)
        except posix_ipc.ExistentialError:
            return False
        except posix_ipc.PermissionsError:
            raise PermissionError(1, "Operation not permitted", self.file(name)) from None
        except OSError as error:  # a directory
            raise OSError(error.errno, reason_of(error), self.file(name)) from None
        return True
