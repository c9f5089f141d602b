"""`shmcache serve`: the cache as an API server, for kubectl and any other client."""

from __future__ import annotations

import argparse
import os
from typing import Any

HELP = "Answers the Kubernetes API's reads and watches from the cache, over HTTP."
EPILOG = """\
Without tokens or reviews it listens at this host's own addresses only. Outside of what is cached
it says so: 404 and 403 name what there is, 503 says that it is too old. Objects are as the cache
has them; the header X-Shmcache-Form says what is different (managedFields are not kept, unless the
reflector keeps them), Age how many seconds ago the API server was heard. Exit status: 0 drained,
2 usage, 70 a bug, 75 try again later, 78 configuration.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, in groups of what they are about."""
    parser.epilog = EPILOG
    parser.add_argument("--name", help="of the cache (default: SHMCACHE_NAME, or shmcache)")
    parser.add_argument("--address", default="127.0.0.1:8001", metavar="HOST:PORT",
                        help="where to listen (127.0.0.1:8001)")  # fmt: skip
    parser.add_argument("--unix-socket", metavar="PATH", help="listen there instead")
    parser.add_argument("--socket-mode", default="0600", metavar="MODE", help="of the socket")
    parser.add_argument("-p", "--processes", type=int, default=1, metavar="N",
                        help="server processes (1)")  # fmt: skip
    parser.add_argument("--tls-cert", metavar="FILE", help="read anew when it changes")
    parser.add_argument("--tls-key", metavar="FILE")
    parser.add_argument("--tokens", metavar="FILE",
                        help='who may read: lines of token,user,uid,"group1,group2"')  # fmt: skip
    parser.add_argument("--review", action="store_true",
                        help="ask the API server who a token is, and what he may read")  # fmt: skip
    parser.add_argument("-s", "--server", metavar="URL", help="for --review, without a kubeconfig")
    parser.add_argument("--kubeconfig", metavar="FILE", help="for --review")
    parser.add_argument("--context", help="of the kubeconfig")
    parser.add_argument("--proxy", metavar="URL", help="pass what is not served here,"
                        " and discovery, on to this API server, as the caller")  # fmt: skip
    parser.add_argument("--proxy-ca", metavar="FILE", help="its certificate authority")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME",
                        help="what requests without tokens may call this host")  # fmt: skip
    parser.add_argument("--open-to-all", action="store_true",
                        help="no tokens, no TLS, whoever can reach the address")  # fmt: skip
    parser.add_argument("--max-age", default="5m", metavar="SECONDS",
                        help="answer 503 when the API server was not heard for so long; 0: never"
                        " (5m)")  # fmt: skip
    parser.add_argument("--fresh-seconds", default="3s", metavar="SECONDS",
                        help="wait so long for a resourceVersion of the future (3s)")  # fmt: skip
    parser.add_argument("--max-connections", type=int, default=4096, metavar="N",
                        help="of each process (4096)")  # fmt: skip
    parser.add_argument("--drain-seconds", default="25s", metavar="SECONDS",
                        help="for what is under way when it is to end (25s)")  # fmt: skip
    parser.add_argument("--attach-seconds", default="60s", metavar="SECONDS",
                        help="wait so long for the cache to be there (60s)")  # fmt: skip
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"],
                        default="info")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    from shmcache.engine import logs
    from shmcache.serve import process

    try:
        wanted = options_of(options)
    except ValueError as error:
        import sys

        print(f"shmcache serve: {error}", file=sys.stderr)
        return 2
    logs.start_logging(options.log_format, options.log_level)
    return process.run(wanted)


def options_of(options: argparse.Namespace) -> Any:
    """What the flags say. ValueError if one cannot be read."""
    from shmcache.engine import kinds
    from shmcache.serve.limits import Limits
    from shmcache.serve.process import Options
    from shmcache.serve.server import Serving

    host, port = _address(options.address)
    max_age = kinds.seconds(options.max_age)
    limits = Limits(
        connections=kinds.count(options.max_connections),
        drain_seconds=kinds.seconds(options.drain_seconds),
    )
    serving = Serving(
        limits=limits,
        fresh_seconds=kinds.seconds(options.fresh_seconds),
        max_age=max_age or None,
    )
    return Options(
        name=options.name or os.environ.get("SHMCACHE_NAME") or "shmcache",
        host=host,
        port=port,
        unix_socket=options.unix_socket,
        socket_mode=kinds.mode(options.socket_mode),
        processes=options.processes,
        certificate=options.tls_cert,
        key=options.tls_key,
        tokens=options.tokens,
        review=_review(options) if options.review else None,
        proxy=options.proxy,
        proxy_ca=options.proxy_ca,
        allow_hosts=tuple(options.allow_host),
        open_to_all=options.open_to_all,
        attach_seconds=kinds.seconds(options.attach_seconds),
        serving=serving,
    )


def _review(options: argparse.Namespace) -> Any:
    from shmcache.source.config import ServerSettings, open_server

    settings = ServerSettings(
        url=options.server, kubeconfig=options.kubeconfig, context=options.context
    )
    return lambda: open_server(settings)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--address {text!r}: HOST:PORT is wanted, as in 127.0.0.1:8001")
    return host.removeprefix("[").removesuffix("]"), int(port)
