"""One child process: how it is started, what it inherits, how it ends.

A body is what a child runs: a function whose result is the exit status (None is 0), or one of

    command("shmcache", "run", "pods")     another program
    spawned(function, *arguments)          a fresh interpreter of ours; all must be picklable

    CHILD1  A child never outlives the thread that started it: the kernel kills it
        (PR_SET_PDEATHSIG), also after execve(); a child that was orphaned before that ends by
        itself.
    CHILD2  No signal is lost or mistaken between fork() and the child's first line: all
        are blocked meanwhile, and the child has the default actions, SIGINT ignored: a terminal
        sends that to everybody, and the parent decides then.
    CHILD3  No descriptor of the parent stays open in the child that shows another child's end.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shmcache import _native
from shmcache.reasons import reason_of

Body = Callable[[], object]

SOFTWARE = 70
"""The status of a body that raised."""
_NO_PROGRAM = 127
_RESET = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2,
          signal.SIGALRM)  # fmt: skip

logger = logging.getLogger(__name__)


def fork(body: Body, close: Iterable[int]) -> int:
    """Starts a child that runs the body and ends; its pid. `close` are descriptors not for it."""
    parent = os.getpid()
    _flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _live(body, parent, close, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _live(body: Body, parent: int, close: Iterable[int], mask: Iterable[int]) -> None:
    """The whole life of a child; does not return, whatever happens."""
    status = SOFTWARE
    try:
        if _native.lib.shmc_die_with_parent(parent) != _native.OK:
            os._exit(SOFTWARE)
        signal.set_wakeup_fd(-1)
        for fd in close:
            os.close(fd)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = _status_of(body)
        _flush()
    except BaseException:
        logger.exception("pid %d could not begin", os.getpid())
    finally:
        os._exit(status)


def _flush() -> None:
    """Prints buffered text once: it is neither lost by _exit() nor printed by both after fork()."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # missing, without a reader, or closed


def _status_of(body: Body) -> int:
    try:
        found = body()
    except SystemExit as error:
        found = error.code
    except BaseException:
        logger.exception("pid %d ends", os.getpid())
        return SOFTWARE
    if found is None:
        return 0
    return found & 0xFF if isinstance(found, int) else 1


def command(*argv: str, env: Mapping[str, str] | None = None) -> Body:
    """Another program, found in PATH, with these variables added to the environment."""
    added = dict(env or {})

    def execute() -> int:
        try:
            os.execvpe(argv[0], argv, {**os.environ, **added})  # noqa: S606 - no shell is wanted
        except OSError as error:
            logger.error("%s: %s", argv[0], reason_of(error))  # noqa: TRY400 - it says what is wrong
        return _NO_PROGRAM

    return execute


def spawned(function: Callable[..., object], *arguments: Any) -> Body:
    """function(*arguments) in a fresh interpreter, which shares no memory with this process."""
    from multiprocessing import spawn, util

    about: dict[str, Any] = spawn.get_preparation_data("shmcache")
    about["authkey"] = bytes(about["authkey"])
    text = pickle.dumps(about) + pickle.dumps((function, arguments))
    flags: list[str] = util._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    code = "from shmcache.processes import child; child.live_spawned({})"

    def execute() -> None:
        fd = os.memfd_create("shmcache", 0)
        with open(fd, "wb", closefd=False) as file:
            file.write(text)
        os.lseek(fd, 0, os.SEEK_SET)
        argv = [sys.executable, *flags, "-c", code.format(fd)]
        os.execv(sys.executable, argv)  # noqa: S606 - no shell is wanted

    return execute


def live_spawned(fd: int) -> None:
    """Runs in the fresh interpreter of spawned()."""
    from multiprocessing import spawn

    with open(fd, "rb") as file:
        spawn.prepare(pickle.load(file))  # noqa: S301 - from our parent
        function, arguments = pickle.load(file)  # noqa: S301
    status = _status_of(lambda: function(*arguments))
    _flush()
    os._exit(status)
