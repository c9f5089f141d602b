"""One reflector process: from its configuration to its exit status.

Signals: SIGTERM and SIGINT drain (watches are closed, received data is stored, the cache is left to
the next process, or removed); a later one ends the process at once (STOP1 and STOP2 of
stop_requests.py); SIGHUP is logged and ignored. Shutting down goes in the order feeds, writer,
recording: nothing writes into what is closed.

While another process keeps the cache this one stands by, with all that can fail checked already,
and takes over when that process ends or dies.

Exit statuses, as systemd and Kubernetes take them:

    0    drained after a signal
    2    the command line is wrong
    70   internal error
    74   reading or writing a file failed
    75   temporary: another process writes the cache, no memory or descriptors are left, or another
         process took the cache over
    77   permission denied by the system
    78   invalid configuration: the file, the kubeconfig, an untrusted segment
    128+n  ended at once by a second signal n
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from types import FrameType
from typing import Self, TextIO

from shmcache import states
from shmcache.engine import secrets
from shmcache.engine.config import Configuration
from shmcache.engine.config.checks import check_functions
from shmcache.engine.config.keys import KUBE, ConfigurationError
from shmcache.engine.engine import Engine
from shmcache.engine.following import PATIENCE_SHARE, Following
from shmcache.engine.names import PREFIX, ServiceName, plain
from shmcache.engine.notify import notify
from shmcache.engine.open_etcd import EtcdOpener
from shmcache.engine.open_source import (
    KubeOpener,
    Opener,
    RecordingOpener,
    ReplayOpener,
    origin_of,
)
from shmcache.engine.page import PageServer
from shmcache.engine.plans import PlanError
from shmcache.engine.progress import Progress
from shmcache.engine.rate_limit import Pace
from shmcache.engine.standby import stand_by
from shmcache.engine.upstreams import Upstreams
from shmcache.errors import (
    BusyError,
    CacheFull,
    CorruptSegment,
    FencedError,
    LayoutMismatch,
    SourceError,
    UntrustedSegment,
)
from shmcache.memory.segments import Place
from shmcache.processes.stop_requests import StopRequests, ignore_at_exit
from shmcache.reader.cache import attach
from shmcache.reasons import reason_at, unheard
from shmcache.source.client import CONNECT_TIMEOUT, ApiConnection
from shmcache.source.config import ServerSettings, open_server
from shmcache.writer.writer import Writer

logger = logging.getLogger(__name__)

DRAINED, USAGE, SOFTWARE, INPUT_OUTPUT, TEMPORARY, DENIED, CONFIGURATION = 0, 2, 70, 74, 75, 77, 78
DRAIN_SECONDS = 10.0
SWITCH_TIMEOUT = 3.0
"""Seconds for a connection where there is another server to turn to."""
_PASSING = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})
"""Limits of the process or the machine: its own text says which."""


class Signals:
    """Requests to end; handlers only set an event, or end the process if a request insists."""

    def __init__(self) -> None:
        self.drain = threading.Event()
        self._requests = StopRequests()

    def install(self) -> None:
        """From now on signals are taken here. Main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        ignore_at_exit()
        signal.signal(signal.SIGHUP, self._ignore)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        if self._requests.insists():
            os._exit(128 + number)
        self.drain.set()

    def _ignore(self, _number: int, _frame: FrameType | None) -> None:
        os.write(2, b"shmcache: SIGHUP is ignored; restart the process for a new configuration\n")


def run(configuration: Configuration) -> int:
    """The whole life of a reflector process; its exit status. Main thread only."""
    signals = Signals()
    signals.install()
    try:
        return _serve(configuration, signals)
    except (ConfigurationError, PlanError, SourceError, UntrustedSegment) as error:
        logger.error("%s", error)  # noqa: TRY400 - the text says what to do
        return CONFIGURATION
    except (BusyError, CacheFull, LayoutMismatch) as error:
        logger.error("%s", error)  # noqa: TRY400
        return TEMPORARY
    except OSError as error:
        return _failed(error)
    except Exception:
        logger.exception("internal error, please report it")
        return SOFTWARE


def _failed(error: OSError) -> int:
    """Logs a system call that failed, and returns the exit status."""
    if error.errno in _PASSING:
        logger.error("%s", reason_at(error))
        return TEMPORARY
    if error.filename is None:
        logger.error("internal error, please report it", exc_info=error)
        return SOFTWARE
    logger.error("%s", reason_at(error))
    return DENIED if isinstance(error, PermissionError) else INPUT_OUTPUT


def _serve(configuration: Configuration, signals: Signals) -> int:
    with ExitStack() as stack:
        check_functions(configuration.plans)
        opener = make_opener(configuration, stack)
        _serve_metrics(configuration, stack)
        lock_fd = stand_by(Place(configuration.name), signals.drain, wait=configuration.standby)
        if lock_fd is None:
            return DRAINED
        writer = _open_writer(configuration, origin_of(opener), lock_fd)
        ending = stack.enter_context(_Ending(configuration, writer))
        secrets.check_segment(configuration, writer)
        engine = Engine(
            writer,
            configuration.plans,
            opener,
            default_namespaces=configuration.default_namespaces,
            pace=Pace(configuration.requests_per_second),
            timing=configuration.timing,
        )
        ending.engine = engine
        _start_recorder(configuration, writer, stack)
        _follow_holders(configuration, opener, stack)
        engine.start()
        stack.callback(_drain, engine)
        if configuration.ui:
            stack.callback(
                PageServer(configuration.name, configuration.ui, configuration.log_format).close
            )
        _wait(engine, signals, Showing(writer, sys.stderr))
        return _status_of(engine)


def _open_writer(configuration: Configuration, origin: str, lock_fd: int) -> Writer:
    memory = configuration.memory
    namespaces = configuration.default_namespaces
    return Writer(
        configuration.name,
        [plan.resource_at(origin, namespaces) for plan in configuration.plans],
        fresh=not origin,
        lock_fd=lock_fd,
        arena_max=memory.arena_max,
        ring_slots=memory.ring_slots,
        ring_bytes=memory.ring_bytes,
        garbage_max=memory.garbage_max,
        seats=memory.seats,
        mode=memory.mode,
    )


class _Ending:
    """Leaves the cache to the next process, or removes it: if so configured, or if it is spoilt."""

    def __init__(self, configuration: Configuration, writer: Writer) -> None:
        self.engine: Engine | None = None
        self._keeps = configuration.keeps
        self._writer = writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        failed = self.engine and self.engine.failed
        if self._keeps and not isinstance(failed, CorruptSegment):
            self._writer.leave()
        else:
            self._writer.close()


def _start_recorder(configuration: Configuration, writer: Writer, stack: ExitStack) -> None:
    """From now on; it ends after the feeds, and before the writer."""
    if not configuration.recorder:
        return
    from shmcache.engine.recorder_child import RecorderChild

    child = RecorderChild(
        [
            writer.name,
            os.path.abspath(configuration.recorder),
            f"--mode={writer.mode}",
            f"--keep={configuration.recorder_keep}",
            f"--bytes={configuration.recorder_bytes}",
            f"--log-format={configuration.log_format}",
            f"--log-level={configuration.log_level}",
        ]
    )
    child.start()
    stack.callback(child.stop)


def _follow_holders(configuration: Configuration, opener: Opener, stack: ExitStack) -> None:
    """From now on, with --lease; a Lease that is ours is released after the feeds have ended."""
    if not configuration.lease:
        return
    assert isinstance(opener, KubeOpener)
    assert opener.upstreams is not None
    following = Following(configuration, reach(configuration)[-1], opener.upstreams)
    stack.callback(following.stop)
    following.start()


def _serve_metrics(configuration: Configuration, stack: ExitStack) -> None:
    """From now on, also while the cache is not there yet: a probe then fails."""
    if not configuration.listen:
        return
    from shmcache.monitor.health import Endpoint
    from shmcache.monitor.metrics_server import MetricsServer

    try:
        served = MetricsServer(configuration.listen, Endpoint(configuration.name))
    except OSError as error:
        raise ConfigurationError(unheard(configuration.listen, error)) from error
    except ValueError as error:
        raise ConfigurationError(f"--listen {configuration.listen}: {error}") from error
    stack.callback(served.close)
    logger.info("metrics and probes: %s", served.url)


class Showing:
    """How far the first lists have come, for who runs this on a terminal."""

    def __init__(self, writer: Writer, out: TextIO) -> None:
        self._cache = attach(writer.name) if out.isatty() else None
        self._progress = Progress(out)

    def step(self) -> None:
        """Draws the first resource that is listed still."""
        for name in self._cache.resources if self._cache is not None else ():
            status = self._cache[name].status if self._cache is not None else None
            if status is not None and status.state == "listing":
                self._progress.show(name, status)
                return

    def end(self) -> None:
        """The line goes away."""
        self._progress.clear()
        if self._cache is not None:
            self._cache.close()
            self._cache = None


def _wait(engine: Engine, signals: Signals, showing: Showing) -> None:
    """Until a signal or the end of the cache; says when all is there."""
    start = time.monotonic()
    said = False
    while not signals.drain.wait(0.1 if not said else 1.0) and not engine.ended.is_set():
        if not said:
            showing.step()
        if not said and engine.ready.is_set():
            said = True
            showing.end()
            _report_ready(engine, time.monotonic() - start)
            notify("READY=1", f"STATUS={len(engine.standings())} resources")
    showing.end()


def _report_ready(engine: Engine, seconds: float) -> None:
    """Logs that the first lists are stored, and which resources the server does not have."""
    absent = [name for name, (state, _) in engine.standings().items() if state == states.ABSENT]
    if absent:
        logger.warning(
            "the first lists are stored after %.2f s, but the server does not have %s",
            seconds,
            ", ".join(absent),
        )
    else:
        logger.info("all first lists are stored after %.2f s", seconds)


def _drain(engine: Engine) -> None:
    logger.info("draining")
    notify("STOPPING=1")
    if not engine.stop(DRAIN_SECONDS):
        logger.warning("not everything ended within %g s", DRAIN_SECONDS)


def _status_of(engine: Engine) -> int:
    if engine.failed is None:
        return DRAINED
    if isinstance(engine.failed, FencedError | CorruptSegment):
        return TEMPORARY
    return CONFIGURATION if isinstance(engine.failed, OSError) else SOFTWARE


def make_opener(configuration: Configuration, stack: ExitStack) -> Opener:
    """Where the configuration says that objects come from. SourceError if it cannot be read.

    The stack closes a recording.
    """
    if configuration.replay:
        return ReplayOpener(configuration.replay, configuration.plans)
    if configuration.etcd:
        return _open_etcd(configuration, stack)
    servers = reach(configuration)
    names = _names(configuration)
    at: ApiConnection | Upstreams = servers[0]
    if len(servers) > 1 or names or configuration.lease:
        patience = PATIENCE_SHARE * configuration.lease_duration if configuration.lease else None
        at = Upstreams(servers, names=names, patience=patience)
        at.resolve()
    kube = KubeOpener(at, list_silence=configuration.timing.list_silence)
    stack.callback(kube.close)
    opener: Opener = kube
    if configuration.record:
        opener = RecordingOpener(configuration.record, configuration.plans, opener, stack)
    return opener


def _open_etcd(configuration: Configuration, stack: ExitStack) -> EtcdOpener:
    try:
        from shmcache.source.etcd.access import EtcdAccess
    except ImportError as error:
        raise ConfigurationError(
            f"etcd as a source needs gRPC ({error}): pip install 'shmcache[etcd]'"
        ) from error
    access = EtcdAccess.of(
        configuration.etcd,
        ca_file=configuration.etcd_ca,
        cert_file=configuration.etcd_cert,
        key_file=configuration.etcd_key,
        user=configuration.etcd_user,
        password=configuration.etcd_password,
        password_file=configuration.etcd_password_file,
    )
    access.credentials()  # a file that is missing now is a mistake, not an outage
    access.secret()
    opener = EtcdOpener(
        access,
        together=configuration.etcd_together,
        list_silence=configuration.timing.list_silence,
    )
    stack.callback(opener.close)
    return opener


def reach(configuration: Configuration) -> list[ApiConnection]:
    """The servers of the configuration, whose access has been read. Nothing is asked yet."""
    found = []
    for url in configuration.server or (KUBE,):
        server = open_server(_settings_of(configuration, plain(url)))
        server.access()
        found.append(server)
    return found


def _names(configuration: Configuration) -> dict[int, ServiceName]:
    """The servers that stand for all addresses of a name, by their rank."""
    return {
        rank: ServiceName(_settings_of(configuration, plain(url)))
        for rank, url in enumerate(configuration.server)
        if url.startswith(PREFIX)
    }


def _settings_of(configuration: Configuration, url: str) -> ServerSettings:
    several = len(configuration.server) > 1 or configuration.lease
    patience = SWITCH_TIMEOUT if several else CONNECT_TIMEOUT
    if url == KUBE:
        return ServerSettings(
            kubeconfig=configuration.kubeconfig or None,
            context=configuration.context or None,
            connect_timeout=patience,
        )
    return ServerSettings(
        url=url,
        ca_file=configuration.server_ca or None,
        cert_file=configuration.server_cert or None,
        key_file=configuration.server_key or None,
        token_file=configuration.server_token_file or None,
        connect_timeout=patience,
    )
