"""`shmcache gc`: removes caches that crashes left behind, and never a live one (G36).

Kernel locks alone decide which caches are live, whatever files or pids claim: a writer holds a byte
of its lock file, each reader one of SEATS. A cache without either is left over. A cache that still
has readers stays, and so does one that changed a moment ago: its writer continues with it when it
is started again.
"""

from __future__ import annotations

import os
import re
import time

from shmcache._native import BUSY, OK, lib
from shmcache.cli.arguments import renamed, value
from shmcache.cli.output.finding import DENIED, DONE, MISSING, Trouble
from shmcache.memory.locations import Directory, SharedMemory
from shmcache.reasons import reason_of
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
                say(f"{stem}: kept: it belongs to another user")
            except OSError as error:  # a name that somebody gave to a link, a directory
                self.failed += 1
                say(f"{stem}: kept: {error.filename}: {reason_of(error)}")

    def _family(self, stem: str, files: list[str]) -> str:
        """Removes the files of one cache if it is left over; returns what became of it."""
        location = self._location
        lock = _lock_writer(location, stem)
        if lock == -1:
            return "live: its writer is running"
        try:
            kept = _why_kept(location, files, self._older)
            if kept:
                return f"kept: {kept}"
            size = sum(_blocks(location, file) for file in files)
            if not self._dry_run:
                self._remove(files)
            self.freed += size
            verb = "would be removed" if self._dry_run else "removed"
            return f"{verb}: no process uses it; {len(files)} files, {format_size(size)}"
        finally:
            if lock is not None:
                os.close(lock)

    def _remove(self, files: list[str]) -> None:
        """All files that can be removed. OSError at the end, if another user has some of them."""
        failed: OSError | None = None
        for file in sorted(files, key=lambda file: file.endswith(".lock")):  # last of all
            try:
                self._location.unlink(file)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed


def _lock_writer(location: Directory, stem: str) -> int | None:
    """The descriptor that holds the writer's lock, to keep writers out; -1: a writer is live."""
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


def _why_kept(location: Directory, files: list[str], older: float) -> str:
    for file in files:
        if file.endswith((".seats", ".queue", ".board")):
            count = _holders(location, file)
            if count:
                users = "1 process uses" if count == 1 else f"{count} processes use"
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
    """When the file was made or named; writing through a map leaves no time."""
    try:
        found = os.stat(location.file(file), follow_symlinks=False)
    except FileNotFoundError:
        return 0.0
    return max(found.st_mtime, found.st_ctime)


def _blocks(location: Directory, file: str) -> int:
    try:
        return os.stat(location.file(file), follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
