"""Server processes: what they are told, their listener, their life.

parent   opens the listener (so that an error is said at once, and no connection that waits in
         the kernel is lost with a process), and supervises
child    attaches to the cache, serves on one thread, drains at SIGTERM

L1  Without tokens or reviews it listens where only this host's processes reach it, unless the
    user says otherwise in so many words.
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
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from shmcache.engine.notify import notify
from shmcache.errors import (
    CorruptSegment,
    LayoutMismatch,
    SegmentNotFound,
    SourceError,
    UntrustedSegment,
)
from shmcache.reader import attach
from shmcache.serve.access import LOCAL, Access, Tokens
from shmcache.serve.server import Server, Serving
from shmcache.supervising import Supervisor

logger = logging.getLogger(__name__)

DRAINED, SOFTWARE, TEMPORARY, CONFIGURATION = 0, 70, 75, 78
BACKLOG = 1024
LOOK_SECONDS = 10.0
"""Between two looks at the certificate's files."""
GRACE_SECONDS = 5.0


class ServingError(ValueError):
    """It cannot be served like that; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

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
    """Gives the source.client.Server that reviews are asked of."""
    proxy: str | None = None
    proxy_ca: str | None = None
    allow_hosts: tuple[str, ...] = ()
    open_to_all: bool = False
    """Listen anywhere, though nobody needs a token."""
    attach_seconds: float = 60.0
    serving: Serving = field(default_factory=Serving)

    @property
    def guarded(self) -> bool:
        """Whether who asks must say who he is."""
        return self.tokens is not None or self.review is not None

    def check(self) -> None:
        """ServingError for what makes no sense, or is not safe (L1)."""
        if (self.certificate is None) != (self.key is None):
            raise ServingError("TLS needs both --tls-cert and --tls-key")
        if self.processes < 1:
            raise ServingError("--processes is 1 or more")
        if self.proxy is not None and not _is_url(self.proxy):
            raise ServingError("--proxy is the URL of the API server")
        if self.unix_socket is not None or _is_local(self.host):
            return
        if not self.guarded and not self.open_to_all:
            raise ServingError(
                f"{self.host} can be reached from other machines: everybody there could read the "
                "whole cache. Ask for --tokens or --review, or say --open-to-all"
            )
        if self.guarded and self.certificate is None and not self.open_to_all:
            raise ServingError(
                f"{self.host} can be reached from other machines, and tokens would go there in "
                "clear: give --tls-cert and --tls-key, or say --open-to-all"
            )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_local(host: str) -> bool:
    if host in LOCAL:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run(options: Options) -> int:
    """The whole life of the command; its exit status. Main thread only."""
    try:
        options.check()
        if options.tokens is not None:
            Tokens(options.tokens)  # an error is said before anything waits
        if options.review is not None:
            options.review().access()
        with ExitStack() as stack:
            listener = _listen(options, stack)
            tls = None if options.certificate is None else _tls(options)
            _allow_connections()
            where = _where(listener, secure=tls is not None)
            logger.info("serving cache %s at %s", options.name, where)
            if options.processes == 1:
                return serve(options, listener, tls)
            return _supervise(options, listener, tls)
    except (ServingError, SourceError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the text says what to do
        return CONFIGURATION
    except OSError as error:
        logger.error("cannot listen: %s", error)  # noqa: TRY400
        return TEMPORARY if error.errno == errno.EADDRINUSE else CONFIGURATION


def _supervise(options: Options, listener: socket.socket, tls: ssl.SSLContext | None) -> int:
    bodies = [lambda: serve(options, listener, tls)] * options.processes
    drain = options.serving.limits.drain_seconds + GRACE_SECONDS
    supervisor = Supervisor(bodies, name="server", drain_seconds=drain, fatal=(CONFIGURATION,))
    notify("READY=1")
    return supervisor.run()


# ---- the listener --------------------------------------------------------------------------------


def _listen(options: Options, stack: ExitStack) -> socket.socket:
    if options.unix_socket is not None:
        return _listen_unix(options.unix_socket, options.socket_mode, stack)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.create_server(
        (options.host, options.port), family=family, backlog=BACKLOG, reuse_port=False
    )
    return stack.enter_context(listener)


def _listen_unix(path: str, mode: int, stack: ExitStack) -> socket.socket:
    listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    _remove_stale(path)
    before = os.umask(0o177)  # nobody connects before the mode is set
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    made = os.stat(path)
    stack.callback(_remove_own, path, (made.st_dev, made.st_ino))
    os.chmod(path, mode)
    listener.listen(BACKLOG)
    return listener


def _remove_stale(path: str) -> None:
    """A socket that nobody listens at any more; anything else that is there stays, and is said."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ServingError(f"{path} is there, and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, f"somebody serves at {path}")


def _remove_own(path: str, made: tuple[int, int]) -> None:
    try:
        found = os.lstat(path)
        if (found.st_dev, found.st_ino) == made:
            os.unlink(path)
    except FileNotFoundError:
        pass


def _where(listener: socket.socket, *, secure: bool) -> str:
    address = listener.getsockname()
    if isinstance(address, str):
        return f"unix:{address}"
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{'https' if secure else 'http'}://{host}:{address[1]}"


def _tls(options: Options) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(options.certificate or "", options.key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ServingError(f"TLS files {options.certificate} {options.key}: {error}") from error
    return context


def _allow_connections() -> None:
    """As many descriptors as the system lets this process have."""
    soft, hard = limits_of_process.getrlimit(limits_of_process.RLIMIT_NOFILE)
    if soft != hard:
        limits_of_process.setrlimit(limits_of_process.RLIMIT_NOFILE, (hard, hard))


# ---- one process ---------------------------------------------------------------------------------


def serve(options: Options, listener: socket.socket, tls: ssl.SSLContext | None) -> int:
    """Serves until SIGTERM or SIGINT; the exit status. In the process's main thread."""
    try:
        cache = attach(options.name, timeout=options.attach_seconds)
    except (SegmentNotFound, LayoutMismatch) as error:
        logger.error("%s", error)  # noqa: TRY400 - the text says what to do
        return TEMPORARY
    except (UntrustedSegment, CorruptSegment) as error:
        logger.error("%s", error)  # noqa: TRY400
        return CONFIGURATION
    with cache:
        server = Server(cache, listener, options.serving, tls=tls)
        try:
            _guard(server, options)
        except (SourceError, OSError) as error:
            logger.error("%s", error)  # noqa: TRY400
            return CONFIGURATION
        _obey(server)
        server.start()
        if tls is not None:
            _Certificate(server, tls, options).look()
        notify("READY=1")
        server.loop.run()
        notify("STOPPING=1")
        server.loop.close()
    return DRAINED


def _guard(server: Server, options: Options) -> None:
    """Who may ask, and where the rest goes."""
    review = None
    if options.review is not None:
        from shmcache.serve.review import Poster, Review

        review = Review(server.loop, Poster(options.review()), most=server.limits.waiting)
    hosts = None if options.unix_socket or options.open_to_all else {*LOCAL, options.host}
    if hosts is not None:
        hosts |= set(options.allow_hosts)
    tokens = None if options.tokens is None else Tokens(options.tokens)
    server.access = Access(tokens=tokens, review=review, hosts=hosts)
    if options.proxy is not None:
        from shmcache.serve.proxy import Proxy

        most = server.limits.proxied
        server.proxy = Proxy(server.loop, options.proxy, ca_file=options.proxy_ca, most=most)


def _obey(server: Server) -> None:
    """SIGTERM and SIGINT drain; the second one ends at once."""
    told: list[int] = []

    def end(number: int, _frame: object) -> None:
        told.append(number)
        if len(told) > 1:
            os._exit(128 + number)
        server.loop.call_threadsafe(lambda: server.drain(server.loop.stop))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


class _Certificate:
    """Takes a certificate that was written anew, for connections that come from then on."""

    def __init__(self, server: Server, tls: ssl.SSLContext, options: Options) -> None:
        self._server = server
        self._tls = tls
        self._files = [path for path in (options.certificate, options.key) if path]
        self._stamp = self._stamps()

    def _stamps(self) -> list[tuple[int, int]]:
        return [(found.st_mtime_ns, found.st_ino) for found in map(os.stat, self._files)]

    def look(self) -> None:
        """Now, and every few seconds."""
        self._server.loop.call_later(LOOK_SECONDS, self.look)
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._tls.load_cert_chain(*self._files)
                self._stamp = stamp
                logger.info("serve: the certificate was read anew")
        except (OSError, ValueError) as error:
            logger.warning("serve: the certificate stays as it was: %s", error)
