"""Server processes: their options, their listener, their life cycle.

parent   opens the listener (so that errors are reported at once, and no connection that waits
         in the kernel is lost with a process), and supervises
child    attaches to the cache, serves on one thread, drains at SIGTERM

SERVE1  without tokens or reviews it listens where only this host's processes reach it, unless the
    flag --open-to-all is given.
SERVE2  there, a local user reads the cache over a connection only if it may read the cache's file:
    see auth/neighbours.py.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import resource as limits_of_process
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shmcache.engine.notify import notify
from shmcache.errors import (
    CorruptSegment,
    LayoutMismatch,
    SegmentNotFound,
    SourceError,
    UntrustedSegment,
)
from shmcache.monitor.starting import without_writer
from shmcache.processes.stop_requests import StopRequests, ignore_at_exit
from shmcache.processes.supervisor import Body, Supervisor
from shmcache.protocol.urls import server_url
from shmcache.reader.cache import Cache, attach
from shmcache.reasons import reason_at, reason_of, unheard
from shmcache.serve.auth.access import LOCAL, Access, Tokens
from shmcache.serve.auth.neighbours import Neighbours, check_kernel, readable_for_all
from shmcache.serve.certificate import Certificate, context_of
from shmcache.serve.http import listeners
from shmcache.serve.server import Server, Serving

logger = logging.getLogger(__name__)

DRAINED, SOFTWARE, TEMPORARY, DENIED, CONFIGURATION = 0, 70, 75, 77, 78
GRACE_SECONDS = 5.0
PATIENCE_SECONDS = 2.0
"""A server that waits longer for its cache reports it."""


class ServingError(ValueError):
    """The server cannot run with these options; the text explains what to do."""

    def __init__(self, text: str, status: int = CONFIGURATION) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    name: str
    host: str = "127.0.0.1"
    port: int = 8001
    unix_socket: str | None = None
    socket_mode: int = 0o600
    processes: int = 1
    certificate: str | None = None
    key: str | None = None
    tokens: str | None = None
    review: Callable[[], Any] | None = None
    """Returns the source.client.Server that answers reviews."""
    proxy: str | None = None
    proxy_ca: str | None = None
    allow_hosts: tuple[str, ...] = ()
    open_to_all: bool = False
    """Listen on any address, although clients need no token."""
    ui: bool = False
    """Offer the page of `shmcache ui` as well."""
    attach_seconds: float = 60.0
    serving: Serving = field(default_factory=Serving)

    @property
    def address(self) -> str:
        """As in --listen."""
        if self.unix_socket is not None:
            return f"unix:{self.unix_socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def guarded(self) -> bool:
        """Whether clients must authenticate."""
        return self.tokens is not None or self.review is not None

    def check(self) -> None:
        """Raises ServingError if the options are inconsistent or unsafe (SERVE1)."""
        if (self.certificate is None) != (self.key is None):
            raise ServingError("TLS needs both --tls-cert and --tls-key")
        if self.processes < 1:
            raise ServingError("--processes must be at least 1")
        if self.proxy is not None and server_url(self.proxy) is None:
            raise ServingError(
                "--proxy must be the URL of an API server, such as https://10.0.0.1:6443"
            )
        if self.unix_socket is not None or _is_local(self.host):
            return
        if not self.guarded and not self.open_to_all:
            raise ServingError(
                f"other machines can reach {self.host} and could read the whole cache; use "
                "--tokens or --review, or allow it with --open-to-all"
            )
        if self.guarded and self.certificate is None and not self.open_to_all:
            raise ServingError(
                f"other machines can reach {self.host}, and tokens would be sent unencrypted; use "
                "--tls-cert and --tls-key, or allow it with --open-to-all"
            )


def _is_local(host: str) -> bool:
    if host in LOCAL:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run(options: Options, beside: Sequence[Body] = ()) -> int:
    """The whole life of the command; its exit status. Main thread only.

    `beside`: other children of the supervisor, such as the reflector of a relay.
    """
    try:
        options.check()
        if options.tokens is not None:
            Tokens(options.tokens)  # report an error before anything waits
        if options.review is not None:
            options.review().access()
        with ExitStack() as stack:
            listener = _listen(options, stack)
            tls = None if options.certificate is None else _tls(options)
            _allow_connections()
            where = _where(listener, secure=tls is not None)
            page = f"; its page is {where}/ui/" if options.ui else ""
            logger.info("serving cache %s at %s%s", options.name, where, page)
            if options.processes == 1 and not beside:
                return serve(options, listener, tls, reports=True)
            return _supervise(options, listener, tls, beside)
    except (ServingError, SourceError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the text says what to do
        return error.status if isinstance(error, ServingError) else CONFIGURATION
    except OSError as error:
        logger.error("%s", reason_at(error))  # noqa: TRY400
        return CONFIGURATION


def _supervise(
    options: Options,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    beside: Sequence[Body],
) -> int:
    each: list[Body] = [
        partial(serve, options, listener, tls, reports=not number and not beside)
        for number in range(options.processes)
    ]
    bodies = [*beside, *each]
    drain = options.serving.limits.drain_seconds + GRACE_SECONDS
    name = "child" if beside else "server"
    supervisor = Supervisor(bodies, name=name, drain_seconds=drain, fatal=(CONFIGURATION,))
    notify("READY=1")
    return supervisor.run()


# ---- the listener --------------------------------------------------------------------------------


def _listen(options: Options, stack: ExitStack) -> socket.socket:
    try:
        if options.unix_socket is not None:
            return listeners.unix(options.unix_socket, options.socket_mode, stack)
        return listeners.tcp(options.host, options.port, stack)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        status = DENIED if isinstance(error, PermissionError) else CONFIGURATION
        text = unheard(options.address, error)
        raise ServingError(text, TEMPORARY if taken else status) from error


def _where(listener: socket.socket, *, secure: bool) -> str:
    address = listener.getsockname()
    if isinstance(address, str):
        return f"unix:{address}"
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{'https' if secure else 'http'}://{host}:{address[1]}"


def _tls(options: Options) -> ssl.SSLContext:
    try:
        return context_of(options.certificate or "", options.key or "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = f"--tls-cert {options.certificate} --tls-key {options.key}"
        raise ServingError(f"{files}: {reason_of(error)}") from error


def _allow_connections() -> None:
    """As many descriptors as the system lets this process have."""
    soft, hard = limits_of_process.getrlimit(limits_of_process.RLIMIT_NOFILE)
    if soft != hard:
        limits_of_process.setrlimit(limits_of_process.RLIMIT_NOFILE, (hard, hard))


# ---- one process ---------------------------------------------------------------------------------


def serve(
    options: Options,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    *,
    reports: bool = False,
) -> int:
    """Serves until SIGTERM or SIGINT; the exit status. In the process's main thread.

    `reports`: logs that it waits for the cache, or for a writer, which one of several processes
    does for all.
    """
    try:
        cache = _attached(options, reports=reports)
    except (SegmentNotFound, LayoutMismatch) as error:
        logger.error("%s", error)  # noqa: TRY400 - the text says what to do
        return TEMPORARY
    except (UntrustedSegment, CorruptSegment) as error:
        logger.error("%s", error)  # noqa: TRY400
        return CONFIGURATION
    with cache:
        if reports and (warning := without_writer(cache)):
            logger.warning("%s", warning)
        server = Server(cache, listener, options.serving, tls=tls)
        try:
            _guard(server, options)
        except (ServingError, SourceError, OSError) as error:
            logger.error("%s", reason_at(error))  # noqa: TRY400
            return CONFIGURATION
        _obey(server)
        server.start()
        if options.certificate and options.key:
            Certificate(server, options.certificate, options.key).look()
        notify("READY=1")
        server.loop.run()
        notify("STOPPING=1")
        server.loop.close()
    return DRAINED


def _attached(options: Options, *, reports: bool) -> Cache:
    """The cache, which may not be there yet."""
    soon = min(PATIENCE_SECONDS, options.attach_seconds)
    try:
        return attach(options.name, timeout=soon)
    except SegmentNotFound as error:
        if reports:
            logger.warning("waiting for the cache: %s", error)
    return attach(options.name, timeout=options.attach_seconds - soon)


def _guard(server: Server, options: Options) -> None:
    """Sets the access control, and the proxy for other requests."""
    if not options.guarded and not options.open_to_all:
        server.neighbours = _neighbours(server, options)
        server.admits = server.neighbours.admits
    review = None
    if options.review is not None:
        from shmcache.serve.auth.review import Poster, Review

        review = Review(server.loop, Poster(options.review()), most=server.limits.waiting)
    hosts = None if options.unix_socket or options.open_to_all else {*LOCAL, options.host}
    if hosts is not None:
        hosts |= set(options.allow_hosts)
    tokens = None if options.tokens is None else Tokens(options.tokens)
    server.access = Access(tokens=tokens, review=review, hosts=hosts)
    if options.ui:
        from shmcache.serve.ui.routes import Interface

        server.page = Interface(server)
    if options.proxy is not None:
        from shmcache.serve.proxy.proxy import Proxy

        most = server.limits.proxied
        server.proxy = Proxy(server.loop, options.proxy, ca_file=options.proxy_ca, most=most)


def _neighbours(server: Server, options: Options) -> Neighbours:
    """Decides by the mode of the cache's file which local users may read (SERVE2)."""
    place = server.cache.place

    def find() -> os.stat_result:
        return os.stat(place.location.file(place.files(place.current())[0]))

    if options.unix_socket is None and not readable_for_all(find().st_mode):
        try:
            check_kernel()
        except OSError as error:
            raise ServingError(
                f"cache {options.name!r} is not readable for every user, and "
                f"{reason_of(error)}: use --listen unix:PATH, --tokens or --review, or allow it "
                "with --open-to-all"
            ) from error
    return Neighbours(find)


def _obey(server: Server) -> None:
    """SIGTERM and SIGINT drain; a later one ends the process at once."""
    requests = StopRequests()

    def end(number: int, _frame: object) -> None:
        if requests.insists():
            os._exit(128 + number)
        server.loop.call_threadsafe(lambda: server.drain(server.loop.stop))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    ignore_at_exit()
