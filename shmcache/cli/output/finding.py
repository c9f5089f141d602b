"""Finding the cache of a command, and turning failures into one sentence and an exit status."""

from __future__ import annotations

import errno
import os
import sys
import time

import shmcache
from shmcache.errors import (
    BusyError,
    CacheFull,
    CacheTooOld,
    InvalidSelector,
    PastUnknown,
    SegmentNotFound,
    ShmCacheError,
)
from shmcache.memory.segments import cache_names
from shmcache.monitor.starting import DEFAULT_NAME, start_command, without_writer
from shmcache.reasons import printable, reason_of, unheard

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from shmcache.reader.cache import Cache
    from shmcache.reader.freshness import Status

DONE, MISSING, USAGE, NO_CACHE, BUG, TEMPORARY, WRONG, INTERRUPTED = 0, 1, 2, 66, 70, 75, 78, 130
UNREACHABLE, FAILED_IO, DENIED = 69, 74, 77
QUIET_SECONDS = 90.0  # a healthy server is never silent for longer


class Trouble(Exception):
    """Ends a command: the sentence to print, and the exit status."""

    def __init__(self, text: str, status: int = MISSING) -> None:
        super().__init__(text)
        self.status = status


def add_cache(parser: argparse.ArgumentParser) -> None:
    """The option that names the cache."""
    from shmcache.cli.arguments import renamed

    parser.add_argument(
        "--cache",
        metavar="NAME",
        help="name of the cache (default: SHMCACHE_NAME, or the only cache)",
    )
    renamed(parser, "--name", now="--cache", dest="cache")


def guarded(command: str, work: Callable[[], int]) -> int:
    """Runs a command's work; every failure becomes one sentence and an exit status.

    Only a bug shows a traceback.
    """
    try:
        status = work()
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the end of every command
        return _failed(command, error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _failed(command: str, error: Exception) -> int:
    if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough
        _drop_output()
        return DONE
    if isinstance(error, ModuleNotFoundError):
        raise error  # main() knows which extra has it
    text, status = _explained(error)
    if isinstance(error, OSError):
        _drop_output()
    if status == BUG:
        import traceback

        traceback.print_exception(error)
        text = "internal error (the traceback is above); please report it"
    print(f"shmcache {command}: {printable(text)}", file=sys.stderr)
    return status


def _drop_output() -> None:
    """Nothing that is still buffered for standard output is written when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _explained(error: Exception) -> tuple[str, int]:  # noqa: PLR0911 - a table
    """The sentence and the exit status of a failure."""
    if isinstance(error, Trouble):
        return str(error), error.status
    if isinstance(error, InvalidSelector):
        return f"invalid selector: {error}", USAGE
    if isinstance(error, SegmentNotFound):
        return str(error), NO_CACHE
    if isinstance(error, BusyError | CacheTooOld | CacheFull):
        return str(error), TEMPORARY
    if isinstance(error, PastUnknown):
        return str(error), MISSING
    if isinstance(error, ShmCacheError):
        return str(error), WRONG
    if isinstance(error, OSError):
        return explained_io(error)
    return "", BUG


def explained_io(error: OSError) -> tuple[str, int]:
    """The sentence and the exit status of a system call that failed."""
    where = "the output cannot be written" if error.filename is None else f"{error.filename}"
    return f"{where}: {reason_of(error)}", DENIED if isinstance(
        error, PermissionError
    ) else FAILED_IO


def explained_listen(address: str, error: OSError) -> tuple[str, int]:
    """The sentence and the exit status of an address that cannot be listened on."""
    taken = error.errno == errno.EADDRINUSE
    status = DENIED if isinstance(error, PermissionError) else TEMPORARY if taken else WRONG
    return unheard(address, error), status


def open_cache(name: str | None) -> Cache:
    """The cache of this name, or of SHMCACHE_NAME, or the only cache. Trouble if it is missing."""
    chosen = name_of(name)
    try:
        return shmcache.attach(chosen)
    except SegmentNotFound:
        raise Trouble(no_cache(chosen), NO_CACHE) from None
    except NotADirectoryError as error:
        where = error.filename or chosen
        while not os.path.exists(where):
            where = os.path.dirname(where)
        raise Trouble(f"--cache {chosen}: {where} is not a directory", NO_CACHE) from None
    except ValueError as error:
        raise Trouble(f"--cache: {error}", USAGE) from None
    except PermissionError as error:
        raise Trouble(
            f"cache {chosen!r} belongs to another user and may not be read ({error.filename}); its "
            "owner can share it: `shmcache run --mode 0644`", DENIED
        ) from None  # fmt: skip


def name_of(name: str | None) -> str:
    """The name that was given, or SHMCACHE_NAME, or the name of the only cache, or the default."""
    if name == "":
        raise Trouble("--cache needs the name of a cache, not an empty string", USAGE)
    if name or os.environ.get("SHMCACHE_NAME"):
        return name or os.environ["SHMCACHE_NAME"]
    names = cache_names()
    if len(names) > 1 and DEFAULT_NAME not in names:
        raise Trouble(
            f"there are several caches: {', '.join(names)}; choose one with --cache NAME", NO_CACHE
        )
    return names[0] if len(names) == 1 else DEFAULT_NAME


def warn_without_writer(cache: Cache) -> None:
    """On standard error, with the command that starts one."""
    if text := without_writer(cache):
        warn(text)


def warn(text: str) -> None:
    """On standard error."""
    print(f"shmcache: warning: {printable(text)}", file=sys.stderr)


def no_cache(name: str) -> str:
    """The sentence for a missing cache, with the command that starts one."""
    from shmcache.cli.arguments import closest

    others = [other for other in cache_names() if other != name]
    start = f"start it with `{start_command(name)}`"
    near = closest(name, others)
    if near:
        return f"no cache named {name!r}; did you mean --cache {near}? Otherwise {start}"
    there = f"; running: {', '.join(others)}" if others else ""
    return f"no cache named {name!r}{there}; {start}"


def freshness(name: str, status: Status) -> str:
    """The warning for a resource that is not fresh; "" if it is."""
    age = "the server has sent nothing yet"
    if status.age is not None:
        age = f"last data from the server {ago(status.age)}"
    why = f": {status.reason}" if status.reason else ""
    if status.state == "synced":
        late = status.age is not None and status.age > QUIET_SECONDS
        return f"{name} is synced, but {age}" if late else ""
    if status.state == "absent" and (status.objects or status.version):
        return ""  # its writer reports no states
    return f"{name} is {status.state}{why}; {age}"


def ago(seconds: float) -> str:
    """3 s ago, 2m5s ago."""
    from shmcache.protocol.tables.ages import human

    return f"{seconds:.1f} s ago" if seconds < 10 else f"{human(seconds)} ago"


def wait_listed(cache: Cache, names: list[str], timeout: float) -> None:
    """Waits until a first list that is under way is stored; shows its progress on a terminal."""
    from shmcache.engine.progress import Progress

    deadline = time.monotonic() + timeout
    with Progress(sys.stderr) as progress:
        for name in names:
            while cache[name].status.state == "listing" and not cache[name].synced:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Trouble(
                        f"the first list of {name} is not complete after {timeout:g} s; wait "
                        "longer with --timeout, or watch its progress with `shmcache top`",
                        TEMPORARY,
                    )  # fmt: skip
                progress.show(name, cache[name].status)
                cache[name].wait_synced(min(0.1, left))
