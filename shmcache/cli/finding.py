"""Finding the cache and the resources that a command is about; errors that say what to do next."""

from __future__ import annotations

import os
import sys
import time

import shmcache
from shmcache.errors import BusyError, CacheTooOld, InvalidSelector, SegmentNotFound, ShmCacheError
from shmcache.segments import cache_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from shmcache.freshness import Status
    from shmcache.reader import Cache

DONE, MISSING, USAGE, NO_CACHE, BUG, TEMPORARY, WRONG, INTERRUPTED = 0, 1, 2, 66, 70, 75, 78, 130
DEFAULT_NAME = "shmcache"
QUIET_SECONDS = 90.0  # of silence, which a healthy server keeps


class Trouble(Exception):
    """What ends a command: its text, and its exit status."""

    def __init__(self, text: str, status: int = MISSING) -> None:
        super().__init__(text)
        self.status = status


def add_cache(parser: argparse.ArgumentParser) -> None:
    """The flag that names the cache."""
    parser.add_argument("--cache", "--name", metavar="NAME", dest="cache",
                        help="which cache (default: SHMCACHE_NAME, or the only one)")  # fmt: skip


def guarded(command: str, work: Callable[[], int]) -> int:
    """Runs a command's work; whatever goes wrong becomes one line and an exit status."""
    try:
        return work()
    except Trouble as trouble:
        text, status = str(trouble), trouble.status
    except InvalidSelector as error:
        text, status = str(error), USAGE
    except (BusyError, CacheTooOld) as error:
        text, status = str(error), TEMPORARY
    except ShmCacheError as error:
        text, status = str(error), WRONG
    except BrokenPipeError:  # who read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    print(f"shmcache {command}: {text}", file=sys.stderr)
    return status


def open_cache(name: str | None) -> Cache:
    """The cache of this name, or of the environment's, or the only one there is. Trouble."""
    chosen = name_of(name)
    try:
        return shmcache.attach(chosen)
    except SegmentNotFound:
        raise Trouble(_no_cache(chosen), NO_CACHE) from None
    except (ValueError, PermissionError) as error:
        raise Trouble(str(error), USAGE if isinstance(error, ValueError) else WRONG) from None


def name_of(name: str | None) -> str:
    """The name that was given, or that of the environment, or of the only cache, or the default."""
    return name or os.environ.get("SHMCACHE_NAME") or _only()


def _only() -> str:
    names = cache_names()
    return names[0] if len(names) == 1 else DEFAULT_NAME


def _no_cache(name: str) -> str:
    others = [other for other in cache_names() if other != name]
    there = "none is here"
    if others:
        there = f"there are: {', '.join(others)} (choose by --cache NAME)"
    flag = "" if name == DEFAULT_NAME else f" --name {name}"
    return f"there is no cache {name!r}; {there}. Start one: shmcache run pods{flag}"


def freshness(name: str, status: Status) -> str:
    """What there is to say of a resource that is not as fresh as it should be; "" if it is."""
    age = "it was never heard" if status.age is None else f"its server was heard {ago(status.age)}"
    why = f": {status.reason}" if status.reason else ""
    if status.state == "synced":
        late = status.age is not None and status.age > QUIET_SECONDS
        return f"{name} is synced, but {age}" if late else ""
    if status.state == "absent" and (status.objects or status.version):
        return ""  # a writer that tells no states
    return f"{name} is {status.state}{why}; {age}"


def ago(seconds: float) -> str:
    """3 s ago, 2m5s ago."""
    from shmcache.protocol.ages import human

    return f"{seconds:.1f} s ago" if seconds < 10 else f"{human(seconds)} ago"


def wait_listed(cache: Cache, names: list[str], timeout: float) -> None:
    """Until the first list of each is stored, if one is on its way; a terminal sees how far."""
    from shmcache.cli.progress import Progress

    deadline = time.monotonic() + timeout
    with Progress(sys.stderr) as progress:
        for name in names:
            while cache[name].status.state == "listing" and not cache[name].synced:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Trouble(
                        f"{name}: its first list was not there after {timeout:g} s "
                        "(--timeout waits longer, `shmcache top` shows it)", TEMPORARY
                    )  # fmt: skip
                progress.show(name, cache[name].status)
                cache[name].wait_synced(min(0.1, left))
