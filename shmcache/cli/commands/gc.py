"""`shmcache gc`: removes caches that crashes left behind, and never a live one (G36).

Kernel locks alone decide which caches are live, whatever files or pids claim: a writer holds a byte
of its lock file, each reader one of SEATS. A cache without either is left over. A cache that still
has readers stays, and so does one that changed a moment ago: its writer continues with it when it
is started again.

    GC1  Anybody can make files in /dev/shm. A file of another user than the cache's is not a part
        of it: neither its locks nor its times keep the cache. It is removed if gc may remove it and
        no process uses it; else it alone stays, and gc names it and the command that removes it.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import time

from shmcache._native import BUSY, OK, lib
from shmcache.cli.arguments import renamed, value
from shmcache.cli.output.finding import DENIED, DONE, MISSING, Trouble
from shmcache.memory.locations import Directory, SharedMemory
from shmcache.reasons import file_shown, reason_of
from shmcache.settings import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

HELP = "Removes the leftovers of crashed caches that have no readers; live caches stay."
_FILE = re.compile(
    r"(shmcache-v\d+-(?P<name>[A-Za-z0-9][\w.-]*?))"
    r"(?:\.(?:lock|cache|ask|times|recorder|[0-9a-f]{16}\.(?:data|seats|next)|[^.]+\.(?:queue|newqueue))|@.+\.board)"
)
MOST_NAMED = 3
"""Files that stay and are named; of more, only their number is."""
_LOCKS = (
    1024 + 16
)  # bytes of a file that may be locked: one for each seat, and those of queues and boards


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which caches may be removed."""
    parser.usage = "shmcache gc [DIRECTORY] [OPTIONS]"
    parser.add_argument(
        "directory",
        nargs="?",
        metavar="DIRECTORY",
        help="directory of a cache (default: shared memory)",
    )
    parser.add_argument("--cache", metavar="NAME", help="remove only this cache (default: all)")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
    )
    parser.add_argument(
        "--older-than",
        type=value("seconds"),
        default=60.0,
        metavar="DURATION",
        help="keep caches that changed more recently: their writer may be started "
        "again (default: 60s)",
    )
    renamed(parser, "-n", now="--dry-run", dest="dry_run", nargs=0)
    renamed(parser, "--older", now="--older-than", dest="older_than", convert=value("seconds"))


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return _gc(options)


def _gc(options: argparse.Namespace) -> int:
    if options.directory and not os.path.isdir(options.directory):
        raise Trouble(f"{options.directory} is not a directory", MISSING)
    location = Directory(options.directory) if options.directory else SharedMemory()
    swept = Sweep(location, older=options.older_than, dry_run=options.dry_run)
    swept.run(lambda name: options.cache in {None, name}, print)
    what = "would be freed" if options.dry_run else "freed"
    print(f"{format_size(swept.freed)} {what}" if swept.seen else "no caches found")
    return DENIED if swept.failed else DONE


class Sweep:
    """One pass over the caches of a location."""

    def __init__(self, location: Directory, *, older: float = 60, dry_run: bool = False) -> None:
        self.freed = self.failed = self.seen = 0
        self._location = location
        self._older = older
        self._dry_run = dry_run

    def run(self, wanted: Callable[[str], bool], say: Callable[[str], object]) -> None:
        """Handles each cache whose name fits, and reports what became of it."""
        families: dict[str, list[str]] = {}
        for file in self._location.names("shmcache-v"):
            match = _FILE.fullmatch(file)
            if match is not None and wanted(match["name"]):
                families.setdefault(match[1], []).append(file)
        for stem, files in families.items():
            self.seen += 1
            try:
                say(f"{stem}: {self._family(stem, files)}")
            except PermissionError:
                self.failed += 1
                say(f"{stem}: kept: it belongs to another user; {self._as_root(stem)}")
            except OSError as error:  # a name that somebody gave to a link, a directory
                self.failed += 1
                say(f"{stem}: kept: {file_shown(error.filename or stem)}: {reason_of(error)}")

    def _family(self, stem: str, files: list[str]) -> str:
        """Removes the files of one cache if it is left over; returns what became of it."""
        location = self._location
        owner = _owner(location, stem, files)
        lock = _lock_writer(location, stem, owner)
        if lock == -1:
            return "live: its writer is running"
        try:
            own = {file for file in files if _uid(location, file) == owner}
            kept = _why_kept(location, own, self._older)
            return f"kept: {kept}" if kept else self._remove(stem, files, own)
        finally:
            if lock is not None:
                os.close(lock)

    def _remove(self, stem: str, files: list[str], own: set[str]) -> str:
        """Removes all files that can be removed; returns what became of them (GC1)."""
        count = size = 0
        kept: list[str] = []
        denied = False
        for file in sorted(files, key=lambda file: file.endswith(".lock")):  # last of all
            blocks = _blocks(self._location, file)
            try:
                why = self._try(file, is_own=file in own)
            except PermissionError:
                why, denied = f"it belongs to uid {_uid(self._location, file)}", True
            except OSError as error:
                why = reason_of(error)
                self.failed += 1
            if why:
                kept.append(f"{file_shown(file)}: {why}")
            else:
                count, size = count + 1, size + blocks
        self.freed += size
        self.failed += denied
        verb = "would be removed" if self._dry_run else "removed"
        said = [f"{verb}: no process uses it; {count} files, {format_size(size)}"] if count else []
        said += [f"kept: {line}" for line in kept[:MOST_NAMED]]
        said += [f"kept: {len(kept) - MOST_NAMED} further files"] if len(kept) > MOST_NAMED else []
        return "; ".join([*said, self._as_root(stem)] if denied else said)

    def _try(self, file: str, *, is_own: bool) -> str:
        """Removes a file; why it stays. OSError."""
        if not is_own and (users := _users(self._location, file)):
            return f"{users} it"
        if not self._dry_run:
            self._location.unlink(file)
        elif not _may_unlink(self._location, file):
            raise PermissionError(1, "Operation not permitted", self._location.file(file))
        return ""

    def _as_root(self, stem: str) -> str:
        """The next command."""
        path = self._location.path
        shared = isinstance(self._location, SharedMemory)
        where = f"--cache {stem.split('-', 2)[2]}" if shared else shlex.quote(path)
        return f"its owner can remove it, or root: `sudo shmcache gc {where}`"


def _lock_writer(location: Directory, stem: str, owner: int) -> int | None:
    """The descriptor that holds the writer's lock, to keep writers out; -1: a writer is live."""
    if _uid(location, stem + ".lock") not in {owner, -1}:
        raise PermissionError(1, "Operation not permitted", location.file(stem + ".lock"))
    try:
        fd = location.open(stem + ".lock", writable=True)
    except FileNotFoundError:
        return None
    found = os.fstat(fd)
    ours = lib.shmc_lock_byte(fd, 0) == OK
    if ours and location.identity(stem + ".lock") == (found.st_dev, found.st_ino):
        return fd
    os.close(fd)
    return -1


def _uid(location: Directory, file: str) -> int:
    """The owner of a file; -1: it is gone."""
    try:
        return os.stat(location.file(file), follow_symlinks=False).st_uid
    except FileNotFoundError:
        return -1


def _owner(location: Directory, stem: str, files: list[str]) -> int:
    """Whose cache it is: ours, as others' may not be removed; for root that of the lock's owner."""
    data = [file for file in files if file.endswith(".data")]
    found = [_uid(location, file) for file in (stem + ".lock", stem + ".cache", *data, files[0])]
    return os.geteuid() or next((uid for uid in found if uid != -1), 0)


def _may_unlink(location: Directory, file: str) -> bool:
    """Whether we may remove a name: in a sticky directory only its owners may."""
    found = os.stat(location.path)
    owners = {0, found.st_uid, _uid(location, file)}
    return os.geteuid() in owners or not found.st_mode & stat.S_ISVTX


def _users(location: Directory, file: str) -> str:
    """How many processes use a file; "" for none."""
    count = _holders(location, file) if file.endswith((".seats", ".queue", ".board")) else 0
    return "" if not count else "1 process uses" if count == 1 else f"{count} processes use"


def _why_kept(location: Directory, files: set[str], older: float) -> str:
    for file in files:
        if users := _users(location, file):
            return f"{users} its last state"
    youngest = max((_touched(location, file) for file in files), default=0.0)
    age = time.time() - youngest
    if age < older:
        return f"it changed {age:.0f} s ago and may be started again (--older-than 0 removes it)"
    return ""


def _holders(location: Directory, file: str) -> int:
    try:
        fd = location.open(file, writable=True)
    except PermissionError:
        raise
    except OSError:
        return 0  # it is gone, or a link or a directory, which nobody holds
    try:
        return sum(lib.shmc_probe_byte(fd, byte) == BUSY for byte in range(_LOCKS))
    finally:
        os.close(fd)


def _touched(location: Directory, file: str) -> float:
    """When the file was made or named: writing through a map leaves no time."""
    try:
        return os.stat(location.file(file), follow_symlinks=False).st_ctime
    except FileNotFoundError:
        return 0.0


def _blocks(location: Directory, file: str) -> int:
    try:
        return os.stat(location.file(file), follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
