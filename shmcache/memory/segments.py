"""Where a cache's segments are, what they are called, and whom we trust.

The family of a cache "pods" (layout version 5, in /dev/shm or in a directory):

    shmcache-v6-pods.lock            0600: the writer's lock, and its pid for display
    shmcache-v6-pods.cache           names the current DATA and SEATS; replaced by rename
    shmcache-v6-pods.ask             the socket of the reflector's desk, with the mode of SEATS
    shmcache-v6-pods.times           times and positions of the ring, with the mode of DATA
    shmcache-v6-pods.recorder        the condition of the flight recorder, with the mode of DATA
    shmcache-v6-pods.<16 hex>.data   DATA instance: written by the writer's uid only
    shmcache-v6-pods.<16 hex>.seats  SEATS instance: writable for readers of DATA

Readers open the lock file only for display. Every opened file must be a regular file owned by our
own uid, root, or a uid that the user named: /dev/shm is writable for everybody. The layout version
is part of the names, so that old and new run side by side.
"""

from __future__ import annotations

import os
import stat

from shmcache import _native
from shmcache.errors import BusyError, CacheFull, LayoutMismatch, SegmentNotFound, UntrustedSegment
from shmcache.memory import companions
from shmcache.memory.locations import Directory, SharedMemory
from shmcache.memory.retire import end_instances

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache._native import DescriptorOwner

LAYOUT_VERSION = 6
PREFIX = f"shmcache-v{LAYOUT_VERSION}-"
MAX_NAME = 100
MAX_SIZE = 32 << 30  # of DATA, in this layout
DIRECTORY_NAME = "cache"  # of the one cache in a directory
READ_ONLY = "readers write to the seats of a cache: mount its files for writing, too"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_HEX = frozenset("0123456789abcdef")


def check_name(name: str) -> str:
    """The name itself, or a ValueError that describes valid names."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a cache must be a str, not {name!r}")
    if not name or len(name) > MAX_NAME or not _ALLOWED.issuperset(name) or not name[0].isalnum():
        raise ValueError(
            f"{name!r} is not the name of a cache: names have 1 to {MAX_NAME} letters, digits, "
            "'.', '_' and '-', and begin with a letter or digit; a name with a '/' is a directory"
        )
    return name


def boot_id() -> bytes:
    """16 bytes that are others after each boot."""
    owner = _native.new_descriptor()
    Directory("/proc/sys/kernel/random").open_into(owner, "boot_id", writable=False)
    return bytes.fromhex(os.read(owner[0], 64).decode().strip().replace("-", ""))


class Current:
    """The content of the pointer file: the current instances and the sizes to map."""

    __slots__ = ("data", "max_size", "seats")

    def __init__(self, data: int, seats: int, max_size: int) -> None:
        self.data = data
        self.seats = seats
        self.max_size = max_size

    def __str__(self) -> str:
        return f"shmcache {self.data:016x} {self.seats:016x} {self.max_size}\n"

    @classmethod
    def parse(cls, text: str, where: str) -> Current:
        """Parses the text of __str__; LayoutMismatch for anything else."""
        try:
            magic, data, seats, max_size = text.split()
            found = cls(int(data, 16), int(seats, 16), int(max_size))
        except ValueError:
            pass
        else:
            if magic == "shmcache" and str(found) == text and 0 < found.max_size <= MAX_SIZE:
                return found
        raise LayoutMismatch(f"{where} is not a cache of this version: it reads {text[:80]!r}")


class Place:
    """The files of one cache: made by its writer, found by its readers."""

    __slots__ = ("location", "name", "stem", "trusted")

    def __init__(self, name: str, trusted_uids: tuple[int, ...] = ()) -> None:
        self.location: Directory
        if "/" in str(name):
            self.name = os.path.abspath(name)
            self.location = Directory(self.name)
            self.stem = PREFIX + DIRECTORY_NAME
        else:
            self.name = check_name(name)
            self.location = SharedMemory()
            self.stem = PREFIX + name
        self.trusted = frozenset((os.geteuid(), 0, *trusted_uids))

    # ---- for both ------------------------------------------------------------------------

    @property
    def pointer(self) -> str:
        """The file that says which instances are current."""
        return self.stem + ".cache"

    @property
    def lock(self) -> str:
        """The file whose lock is the writer's."""
        return self.stem + ".lock"

    @property
    def desk(self) -> str:
        """The socket at which readers ask the reflector to confirm that the cache is current."""
        return self.stem + ".ask"

    @property
    def times(self) -> str:
        """The file that notes when the ring was at which position (reader/instants.py)."""
        return self.stem + ".times"

    def open_times(self) -> int:
        """The notes of times, for a reader. SegmentNotFound if nobody writes them."""
        return self._open(self.times, writable=False)

    @property
    def recorder(self) -> str:
        """The file with the condition of the flight recorder (recorder/standing.py)."""
        return self.stem + ".recorder"

    def open_recorder(self) -> int:
        """That file, for a reader. SegmentNotFound if no recorder ever ran."""
        return self._open(self.recorder, writable=False)

    def files(self, current: Current) -> tuple[str, str]:
        """The files of DATA and SEATS."""
        return self._instance(current.data, "data"), self._instance(current.seats, "seats")

    def current(self) -> Current:
        """The instances to use now. SegmentNotFound if there is no such cache."""
        found = self.named()
        if found is None:
            raise SegmentNotFound(self.missing())
        return found

    def named(self) -> Current | None:
        """The same; None between two writers: readers look often then, and need no reason."""
        name, owner = self.pointer, _native.new_descriptor()
        try:
            self._open_into(owner, name, writable=False)
        except SegmentNotFound:
            return None
        text = os.read(owner[0], 256).decode("ascii", "replace")
        _native.lib.shmc_owned_close(owner)
        return Current.parse(text, self.location.file(name))

    def open_data(self, instance: int) -> int:
        """DATA for a reader: read-only, and nobody but its owner can write it."""
        return self._open(self._instance(instance, "data"), writable=False)

    def open_seats(self, instance: int) -> int:
        """SEATS for a reader: a description of its own, which will hold its seat's lock."""
        return self._open(self._instance(instance, "seats"), writable=True)

    def open_both(self, current: Current, data: DescriptorOwner, seats: DescriptorOwner) -> None:
        """The same of these instances, into their owners."""
        self._open_into(data, self._instance(current.data, "data"), writable=False)
        self._open_into(seats, self._instance(current.seats, "seats"), writable=True)

    def open_shared(self, name: str) -> int:
        """A file that readers may write, too: a description of its own, each time."""
        return self._open(name, writable=True)

    def shared_mode(self) -> int:
        """The mode of SEATS now, for files of that kind; our own uid's alone without SEATS."""
        try:
            file = self._instance(self.current().seats, "seats")
            return os.stat(self.location.file(file), follow_symlinks=False).st_mode & 0o666
        except (SegmentNotFound, FileNotFoundError):
            return 0o600

    def _instance(self, instance: int, kind: str) -> str:
        return f"{self.stem}.{instance:016x}.{kind}"

    def _open(self, name: str, *, writable: bool, trusted: frozenset[int] | None = None) -> int:
        owner = _native.new_descriptor()
        self._open_into(owner, name, writable=writable, trusted=trusted)
        fd: int = owner[0]
        owner[0] = -1
        return fd

    def _open_into(
        self,
        owner: DescriptorOwner,
        name: str,
        *,
        writable: bool,
        trusted: frozenset[int] | None = None,
    ) -> None:
        """An existing file of somebody whom we trust. Its owner has it also after a refusal."""
        try:
            self.location.open_into(owner, name, writable=writable)
        except FileNotFoundError:
            raise SegmentNotFound(f"there is no {self.location.file(name)}") from None
        except OSError as error:
            self._refuse_other_kinds(error, name)
            if error.errno == 30:  # EROFS
                raise OSError(30, READ_ONLY, self.location.file(name)) from error
            raise
        self._check_trust(owner[0], name, trusted or self.trusted, shared=writable)

    def _refuse_other_kinds(self, error: OSError, name: str) -> None:
        if error.errno in (40, 21, 6):  # ELOOP, EISDIR, ENXIO: link, directory, socket
            raise UntrustedSegment(f"{self.location.file(name)} is not a file") from error

    def _check_trust(self, fd: int, name: str, trusted: frozenset[int], *, shared: bool) -> None:
        found = os.fstat(fd)
        path = self.location.file(name)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedSegment(f"{path} is not a regular file")
        if found.st_uid not in trusted:
            raise UntrustedSegment(
                f"{path} belongs to uid {found.st_uid}: only uids {sorted(trusted)} are trusted "
                "here (trusted_uids adds more)"
            )
        if not shared and found.st_mode & 0o022:
            raise UntrustedSegment(f"{path} is writable for others than its owner")

    # ---- for the writer --------------------------------------------------------------------

    def take_lock(self) -> int:
        """The descriptor that holds the writer's lock. BusyError (with the pid) at once."""
        self.location.prepare()
        name = self.stem + ".lock"
        while True:
            fd = self._open_lock(name)
            try:
                self._lock(fd)
                found = os.fstat(fd)
                if self.location.identity(name) == (found.st_dev, found.st_ino):
                    self._sign(fd)
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the file was removed between opening and locking

    def _sign(self, fd: int) -> None:
        """Writes our pid into the lock file. For display only: it may do without."""
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            if error.errno != 28:  # ENOSPC
                raise

    def _open_lock(self, name: str) -> int:
        try:
            return self.location.create(name, 0o600)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno == 28:  # ENOSPC
                raise self.full(0) from error
            raise
        try:
            fd = self.location.open(name, writable=True)
        except FileNotFoundError:
            return self._open_lock(name)
        except PermissionError as error:
            raise UntrustedSegment(
                f"{self.location.file(name)} belongs to another user: choose another name"
            ) from error
        except OSError as error:
            self._refuse_other_kinds(error, name)
            raise
        try:
            self._check_trust(fd, name, frozenset((os.geteuid(),)), shared=False)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _lock(self, fd: int) -> None:
        status = _native.lib.shmc_lock_byte(fd, 0)
        if status == _native.BUSY:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise BusyError(f"cache {self.name!r} has a writer already (pid {pid})")
        _native.check(status, f"locking {self.location.file(self.stem + '.lock')}")

    def guard(self, fd: int) -> tuple[int, int]:
        """Which file the lock is of that `fd` holds: while it is held no other file is the same."""
        found = os.fstat(fd)
        return found.st_dev, found.st_ino

    def is_ours(self, fd: int, current: Current) -> bool:
        """Whether this lock's file is still that of the cache, and its instance the current one.

        Somebody may have removed the file while its holder slept; then the names are another's.
        """
        if self.location.identity(self.stem + ".lock") != self.guard(fd):
            return False
        try:
            return self.current().data == current.data
        except (SegmentNotFound, LayoutMismatch, UntrustedSegment):
            return True  # removed, and not replaced by another one

    def open_own(self, kind: str, instance: int, mode: int) -> int:
        """The file of an instance that a writer of ours left, for writing.

        LayoutMismatch if its mode is another; UntrustedSegment if it is not our own.
        """
        name = self._instance(instance, kind)
        fd = self._open(name, writable=True, trusted=frozenset((os.geteuid(),)))
        found = stat.S_IMODE(os.fstat(fd).st_mode)
        if found != _mode_of(kind, mode):
            os.close(fd)
            raise LayoutMismatch(
                f"{self.location.file(name)} has mode {found:#o}, and must have {mode:#o}"
            )
        return fd

    def open_own_file(self, name: str, mode: int) -> int:
        """A file of ours with this mode, for writing. LayoutMismatch if its mode is another."""
        fd = self._open(name, writable=True, trusted=frozenset((os.geteuid(),)))
        if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.close(fd)
            raise LayoutMismatch(f"{self.location.file(name)} has another mode than {mode:#o}")
        return fd

    def create(self, kind: str, instance: int, mode: int) -> int:
        """A new instance's file. Readers may also write seats."""
        try:
            return self.location.create(self._instance(instance, kind), _mode_of(kind, mode))
        except OSError as error:
            if error.errno == 28:  # ENOSPC
                raise self.full(0) from error
            raise

    def publish(self, current: Current, mode: int) -> None:
        """From now on readers that attach find these instances."""
        name = self._instance(current.data, "next")
        fd = self.location.create(name, mode)
        try:
            text = str(current).encode("ascii")
            if os.write(fd, text) != len(text):
                raise self.full(len(text))
        except OSError as error:
            self.location.unlink(name)
            if error.errno == 28:  # ENOSPC
                raise self.full(4096) from error
            raise
        finally:
            os.close(fd)
        try:
            self.location.replace(self.pointer, name)
        except PermissionError as error:
            self.location.unlink(name)
            raise UntrustedSegment(
                f"{self.location.file(self.pointer)} belongs to another user: remove it, or choose "
                "another name"
            ) from error
        except OSError:
            self.location.unlink(name)
            raise

    def missing(self, *, waited: bool = False) -> str:
        """The sentence for a cache that is not there, with the command that starts it.

        `waited`: attach() has waited for it already.
        """
        what = f"in the directory {self.name}" if "/" in self.name else f"named {self.name!r}"
        if others := self._other_versions():
            return (
                f"no cache {what} has layout version {LAYOUT_VERSION}, only version "
                f"{' and '.join(map(str, others))}: another release of shmcache runs there. "
                "Install the same release in all processes, then restart the reflector"
            )
        return f"no cache {what}; start it with `shmcache run pods --cache {self.name}`" + (
            "" if waited else ", or let attach() wait for it (timeout=SECONDS)"
        )

    def _other_versions(self) -> list[int]:
        """The layout versions in which caches of this name exist."""
        end = self.pointer[len(PREFIX) :]
        found = (file.split("-", 2) for file in self.names("shmcache-v"))
        return sorted(
            int(parts[1][1:])
            for parts in found
            if len(parts) == 3 and parts[2] == end and parts[1][1:].isdecimal()
        )

    def full(self, needed: int) -> CacheFull:
        """The error of a full file system: its mount point, and a size that is large enough."""
        from shmcache.settings import format_size

        mount, total, free = self.location.mount_point(), self.location.size(), self.location.room()
        missing = max(needed - free, 0) if needed else total
        size = 1 << 20
        while size < total + missing:
            size *= 2
        return CacheFull(
            f"cache {self.name!r}: {mount} is full: {format_size(free)} of {format_size(total)} "
            f"free, {format_size(needed) if needed else 'more'} needed. Enlarge it (`mount -o "
            f"remount,size={size >> 20}M {mount}`; docker run --shm-size={size >> 20}m; "
            f"Kubernetes: an emptyDir with medium: Memory and sizeLimit: {size >> 20}Mi, "
            f"mounted at {mount}), or cache less"
        )

    def names(self, start: str) -> list[str]:
        """The files that begin so, of users whom we trust: anybody can make others."""
        location = self.location
        return [file for file in location.names(start) if location.is_of(file, self.trusted)]

    def instances(self) -> list[str]:
        """The files of all instances of this cache, finished or not."""
        files = self.location.names(self.stem + ".")
        return [file for file in files if self._is_instance(file)]

    def _is_instance(self, file: str) -> bool:
        instance, _, kind = file[len(self.stem) + 1 :].partition(".")
        return (
            len(instance) == 16 and _HEX.issuperset(instance) and kind in ("data", "seats", "next")
        )

    def unlink_instances(self, *, keep: Current | None = None) -> int:
        """Ends all instances but those of `keep`, and removes their names; how many. Lock held."""
        kept = keep and {self._instance(keep.data, "data"), self._instance(keep.seats, "seats")}
        gone = [file for file in self.instances() if not kept or file not in kept]
        try:
            end_instances(self, gone)
        finally:  # a file that cannot be mapped must not stay in the way
            removed = sum(self.clear(file) for file in gone)
        return removed

    def clear(self, file: str) -> bool:
        """Removes a name of anybody; returns whether that was possible.

        In a directory that everybody may write, others can take names of this cache. Theirs stay,
        nobody is led to them, and they keep no other name from being removed.
        """
        try:
            return self.location.unlink(file)
        except OSError:
            return False

    def discard(self, current: Current, lock_fd: int) -> None:
        """Removes instances that were never published, and nothing else. The lock was taken."""
        for instance, kind in ((current.data, "data"), (current.seats, "seats")):
            self.location.unlink(self._instance(instance, kind))
        self.discard_lock(lock_fd)

    def discard_lock(self, lock_fd: int) -> None:
        """Removes the file of a lock that was taken for nothing: there is no cache to it."""
        lock = self.stem + ".lock"
        if self.location.identity(self.pointer) is None and (
            self.location.identity(lock) == self.guard(lock_fd)
        ):
            self.location.unlink(lock)

    def unlink(self) -> None:
        """Removes every name of this cache; who is attached keeps the memory. Lock held."""
        self.location.unlink(self.pointer)
        for file in (self.desk, self.times, self.recorder):
            self.clear(file)
        self.unlink_instances()
        companions.remove_unused(self)
        companions.remove_boards(self)
        self.location.unlink(self.stem + ".lock")

    def remove(self) -> None:
        """Removes a cache that has no writer. BusyError if it has one."""
        fd = self.take_lock()
        try:
            self.unlink()
        finally:
            os.close(fd)

    def writer_alive(self) -> bool:
        """Whether somebody holds the writer's lock now. For display: racy."""
        try:
            fd = self.location.open(self.stem + ".lock", writable=True)
        except FileNotFoundError:
            return False
        try:
            return _native.lib.shmc_probe_byte(fd, 0) == _native.BUSY
        finally:
            os.close(fd)


def _mode_of(kind: str, mode: int) -> int:
    return mode | (mode & 0o044) >> 1 if kind == "seats" else mode


def cache_names() -> list[str]:
    """The names of all caches of this layout in shared memory, with or without a writer.

    Only our own user's and root's: attach() refuses others.
    """
    location, users = SharedMemory(), {os.geteuid(), 0}
    files = [file for file in location.names(PREFIX) if file.endswith((".cache", ".lock"))]
    own = [file for file in files if location.is_of(file, users)]
    return sorted({file[len(PREFIX) :].rsplit(".", 1)[0] for file in own})
