"""shmcache under gunicorn: a cache that is there, and full, before a worker's first request.

    # gunicorn.conf.py
    from shmcache.integrations.gunicorn import hooks

    globals().update(hooks("pods", "deployments.apps", name="web"))

and in the application, wherever it is loaded (`preload_app` or not):

    from shmcache.integrations import attached

    cache = attached()                        # SHMCACHE_NAME says which

The hooks run in the master, unless stated otherwise, which waits nowhere but at its end:

    nworkers_changed   the master's first hook, before preload_app loads the application, and again
                       at HUP: the keeper is started, or replaced if its arguments have changed
    when_ready         SIGCHLD also looks for the keeper from now on: one that died is replaced
    pre_fork           the same look
    post_fork          in the worker, before the application is loaded: waits until the first lists
                       are stored, for `wait` seconds at most. Signals just end a worker that waits
    on_exit            asks the keeper to end, which drains

With USR2 two masters have a keeper each, of which one stands by (keeper.py, KEEPER3). A master that
is killed takes its keeper and reflector with it (KEEPER1, KEEPER2).
"""

from __future__ import annotations

import logging
import os
import posix
import signal
import sys
import time

import shmcache
from shmcache.integrations import attached
from shmcache.reader import cache as _cache  # noqa: F401 - workers share what the master imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any

    Hook = Callable[..., None]

logger = logging.getLogger("gunicorn.error")  # where gunicorn's own lines go

_BOOT = (
    "import sys, time; time.sleep(float(sys.argv[1])); "
    "from shmcache.integrations.keeper import main; sys.exit(main(sys.argv[2:]))"
)
"""The wait is before the first import: whatever is wrong, no loop is a hot one."""
HEALTHY_SECONDS = 60.0
END_SECONDS = 20.0
_FDS = "/proc/self/fd"


def hooks(
    *resources: str,
    name: str,
    config: str | None = None,
    options: Iterable[str] = (),
    wait: float = 30.0,
    silence: float = 30.0,
) -> dict[str, Hook]:
    """The hooks for the cache `name`, to be made globals of gunicorn.conf.py.

    With `resources` or `config` (a TOML file) a reflector is started; `options` are further
    arguments for `shmcache run`, and one that gives no sign of life for `silence` seconds is
    replaced.
    Without either, one that was started outside is used. A worker waits up to `wait` seconds.
    """
    os.environ["SHMCACHE_NAME"] = name
    arguments = ["run", *resources, "--cache", name, "--no-keep"]
    if config is not None:
        arguments += ["--config", os.path.abspath(config)]
    arguments += options
    keeping = bool(resources or config)

    def nworkers_changed(server: Any, _new: int, _old: int | None) -> None:
        if keeping:
            _keep(name, ["--silence", str(silence), "--", *arguments], server)

    def when_ready(_server: Any) -> None:
        _listen()

    def pre_fork(_server: Any, _worker: Any) -> None:
        _look()

    def post_fork(_server: Any, worker: Any) -> None:
        await_content(name, wait, worker)

    def on_exit(_server: Any) -> None:
        release()

    made = (nworkers_changed, when_ready, pre_fork, post_fork, on_exit)
    return {hook.__name__: hook for hook in made}


# ---- the master's side -----------------------------------------------------------------------


class KeptReflector:
    """A keeper of this master, and how often in a row it failed."""

    def __init__(self, name: str, arguments: list[str], user: int, group: int) -> None:
        self.name = name
        self.wanted = (arguments, user, group)
        self.failures = 0
        self.start()

    def start(self) -> None:
        """Starts it: with nothing of ours but standard streams, in a session of its own."""
        arguments, user, group = self.wanted
        pause = min(30.0, 2.0 ** (self.failures - 1)) if self.failures else 0.0
        self.started = time.monotonic()
        self.pid = posix.posix_spawn(
            sys.executable,
            [sys.executable, "-c", _BOOT, str(pause), "--parent", str(os.getpid()),
             "--user", str(user), "--group", str(group), "--name", self.name, *arguments],
            {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"},
            file_actions=[(posix.POSIX_SPAWN_CLOSE, fd) for fd in _open_descriptors()],
            setsigdef=[signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
            setsigmask=[],
            setsid=True,  # ctrl-C is for the master, which then tells us
        )  # fmt: skip

    def ended(self) -> bool:
        """Whether it has ended; the master may have reaped it before us."""
        try:
            return posix.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def renew(self) -> None:
        """Starts it again."""
        healthy = time.monotonic() - self.started >= HEALTHY_SECONDS
        self.failures = 0 if healthy else self.failures + 1
        self.start()


_kept: dict[str, KeptReflector] = {}
_master = 0
_looks: list[None] = []  # wanted: a handler may come while one is under way, and only adds to them


def _keep(name: str, arguments: list[str], server: Any) -> None:
    """One keeper for the cache, with these arguments. One that is as wanted goes on."""
    global _master  # noqa: PLW0603 - one process, one master; a forked child compares
    if _master != os.getpid():
        _kept.clear()
        _master = os.getpid()
    wanted = (arguments, int(server.cfg.uid), int(server.cfg.gid))
    found = _kept.get(name)
    if found is not None and found.wanted != wanted:
        logger.info("shmcache: cache %s is kept with other arguments from now on", name)
        _tell(found)
        found = None
    if found is None:
        _kept[name] = KeptReflector(name, *wanted)
    _look()


def _look() -> None:
    """Replaces what has died. Takes microseconds, waits for nothing."""
    if _master != os.getpid():
        return
    _looks.append(None)
    if len(_looks) > 1:
        return
    try:
        while _looks:
            wanted = len(_looks)
            for kept in list(_kept.values()):
                if kept.ended():
                    kept.renew()
            del _looks[:wanted]
    finally:
        _looks.clear()


def _listen() -> None:
    """Looks at each SIGCHLD, before the handler that is there."""
    before = signal.getsignal(signal.SIGCHLD)

    def look(number: int, frame: FrameType | None) -> None:
        _look()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGCHLD, look)


def release() -> None:
    """Ends this master's keepers and waits until they have drained."""
    if _master != os.getpid():
        return
    leaving = list(_kept.values())
    _kept.clear()
    for kept in leaving:
        _tell(kept)
    deadline = time.monotonic() + END_SECONDS
    while leaving and time.monotonic() < deadline:
        leaving = [kept for kept in leaving if not kept.ended()]
        time.sleep(0.02)
    for kept in leaving:
        logger.warning("shmcache: keeper %d of cache %s does not end", kept.pid, kept.name)


def _tell(kept: KeptReflector) -> None:
    if not kept.ended():
        os.kill(kept.pid, signal.SIGTERM)


def _open_descriptors() -> list[int]:
    return [int(fd) for fd in os.listdir(_FDS) if int(fd) > 2]


# ---- the worker's side -----------------------------------------------------------------------


def await_content(name: str, wait: float, worker: Any) -> None:
    """attached(), for as long as gunicorn lets a worker boot. Signals end it meanwhile."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # gunicorn sets its own when it loads the application

    def turn() -> None:
        worker.notify()
        if os.getppid() != worker.ppid:
            os._exit(0)

    try:
        cache = attached(name, wait=wait, turn=turn)
    except shmcache.SegmentNotFound as error:
        logger.warning("shmcache: after %g s: %s", wait, error)
        return
    for resource in cache.resources:
        status = cache[resource].status
        if not status.synced:
            why = f"{status.state}, {status.reason}" if status.reason else status.state
            logger.warning("shmcache: after %g s: no first list of %s: %s", wait, resource, why)
