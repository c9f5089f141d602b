"""`shmcache serve`: the cache as an API server, for kubectl and any other client."""

from __future__ import annotations

import argparse
from typing import Any

from shmcache.cli.arguments import at_least, renamed, value
from shmcache.cli.output import finding
from shmcache.cli.output.finding import USAGE, Trouble

ADDRESS = "127.0.0.1:8001"
HELP = "Answers gets, lists and watches of the Kubernetes API from the cache, over HTTP."
EPILOG = """\
Without --tokens or --review, only users of this host who may read the cache's files are answered.
Requests for anything that is not cached receive 404 or 403, and the text names the resources that
are; requests to a cache that is too old receive 503. The header Age of an answer is the age of the
data; X-Shmcache-Form names what objects lack (managedFields, unless the reflector keeps them).

Exit status: 0 ended normally, 2 command line, 70 internal error, 75 try again later,
77 permission denied, 78 configuration.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in groups."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--ui", action="store_true", help="offer the page of `shmcache ui` at /ui/ as well"
    )
    add_options(parser, address=ADDRESS, max_age="5m")


def add_options(parser: argparse.ArgumentParser, *, address: str, max_age: str) -> None:
    """The options that `ui` has as well, with their defaults."""
    finding.add_cache(parser)
    parser.add_argument(
        "--listen",
        default=address,
        metavar="ADDRESS",
        help=f"listen on HOST:PORT, :PORT or unix:PATH (default: {address})",
    )
    add_processes(parser)
    _add_reviewer(add_access(parser))
    add_limits(parser, max_age)
    renamed(parser, "--address", now="--listen", dest="listen")
    renamed(
        parser, "--unix-socket", now="--listen unix:PATH", dest="listen", convert="unix:{}".format
    )
    renamed(
        parser,
        "--fresh-seconds",
        now="--fresh-timeout",
        dest="fresh_timeout",
        convert=value("seconds"),
    )
    renamed(
        parser,
        "--drain-seconds",
        now="--drain-timeout",
        dest="drain_timeout",
        convert=value("seconds"),
    )
    renamed(
        parser,
        "--attach-seconds",
        now="--attach-timeout",
        dest="attach_timeout",
        convert=value("seconds"),
    )


def add_processes(parser: argparse.ArgumentParser) -> None:
    """How many servers there are, and who may use their Unix socket."""
    parser.add_argument(
        "--socket-mode",
        type=value("mode"),
        default=0o600,
        metavar="MODE",
        help="file mode of a Unix socket (default: 0600)",
    )
    parser.add_argument(
        "-p",
        "--processes",
        type=at_least(1),
        default=1,
        metavar="N",
        help="number of server processes (default: 1)",
    )


def _add_reviewer(group: Any) -> None:
    group.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig file for --review")
    group.add_argument("--context", metavar="NAME", help="context of that kubeconfig")
    group.add_argument(
        "-s", "--server", metavar="URL", help="API server for --review, without a kubeconfig"
    )


def add_access(parser: argparse.ArgumentParser) -> Any:
    """The options of access, which `relay` has as well; returns their group."""
    group = parser.add_argument_group("access")
    group.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="certificate of the server; a changed file is loaded again",
    )
    group.add_argument("--tls-key", metavar="FILE", help="private key of the certificate")
    group.add_argument(
        "--tokens",
        metavar="FILE",
        help="tokens whose users may read everything in the cache, as lines of "
        'token,user,uid,"group1,group2"',
    )
    group.add_argument(
        "--review", action="store_true", help="let the API server check each token and its rights"
    )
    group.add_argument(
        "--proxy",
        metavar="URL",
        help="forward discovery and requests that the cache cannot answer to this "
        "API server, with the caller's credentials",
    )
    group.add_argument("--proxy-ca", metavar="FILE", help="CA bundle for --proxy")
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept requests without a token for this name in the Host header; may be repeated",
    )
    group.add_argument(
        "--open-to-all",
        action="store_true",
        help="serve every client that can reach the address, without tokens or TLS",
    )
    return group


def add_limits(parser: argparse.ArgumentParser, max_age: str) -> None:
    """The limits, and the form of the log."""
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-age",
        type=value("seconds"),
        default=value("seconds")(max_age),
        metavar="DURATION",
        help=f"answer 503 if the data is older than this; 0 never does (default: {max_age})",
    )
    group.add_argument(
        "--fresh-timeout",
        type=value("seconds"),
        default=3.0,
        metavar="DURATION",
        help="wait this long for a resourceVersion that the cache has not reached (default: 3s)",
    )
    group.add_argument(
        "--consistency",
        choices=["strict", "bounded", "cached"],
        default="cached",
        help="answer to a request without a resourceVersion: strict: the current state, or 503; "
        "bounded: the current state, or after --fresh-timeout the cached one; cached: the cached "
        "state (default: cached)",
    )
    group.add_argument(
        "--max-connections",
        type=at_least(1),
        default=4096,
        metavar="N",
        help="connections of each process (default: 4096)",
    )
    group.add_argument(
        "--drain-timeout",
        type=value("seconds"),
        default=25.0,
        metavar="DURATION",
        help="time for open requests to finish after SIGTERM (default: 25s)",
    )
    group.add_argument(
        "--attach-timeout",
        type=value("seconds"),
        default=60.0,
        metavar="DURATION",
        help="wait this long for the cache at the start (default: 60s)",
    )
    group.add_argument(
        "--log-format",
        choices=["text", "json"],
        default="text",
        help="format of log lines (default: text)",
    )
    group.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="lowest level that is logged (default: info)",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit status."""
    from shmcache.engine import logs
    from shmcache.serve import process

    try:
        wanted = options_of(options)
    except ValueError as error:
        raise Trouble(str(error), USAGE) from None
    logs.start_logging(options.log_format, options.log_level)
    return process.run(wanted)


def options_of(options: argparse.Namespace) -> Any:
    """The options as serve takes them. ValueError if one is invalid."""
    from shmcache.memory.segments import check_name
    from shmcache.serve.limits import Limits
    from shmcache.serve.process import Options
    from shmcache.serve.server import Serving

    host, port, path = _listen(options.listen)
    name = finding.name_of(options.cache)
    if "/" not in name:
        check_name(name)
    serving = Serving(
        limits=Limits(connections=options.max_connections, drain_seconds=options.drain_timeout),
        fresh_seconds=options.fresh_timeout,
        consistency=options.consistency,
        max_age=options.max_age or None,
    )
    return Options(
        name=name,
        host=host,
        port=port,
        unix_socket=path,
        socket_mode=options.socket_mode,
        processes=options.processes,
        certificate=options.tls_cert,
        key=options.tls_key,
        tokens=options.tokens,
        review=_review(options) if options.review else None,
        proxy=options.proxy,
        proxy_ca=options.proxy_ca,
        allow_hosts=tuple(options.allow_host),
        open_to_all=options.open_to_all,
        ui=getattr(options, "ui", False),
        attach_seconds=options.attach_timeout,
        serving=serving,
    )


def _review(options: argparse.Namespace) -> Any:
    from shmcache.source.config import ServerSettings, open_server

    settings = ServerSettings(
        url=options.server, kubeconfig=options.kubeconfig, context=options.context
    )
    return lambda: open_server(settings)


def _listen(text: str) -> tuple[str, int, str | None]:
    """Host and port, or the path of a Unix socket."""
    if text.startswith("unix:") and text != "unix:":
        return "127.0.0.1", 0, text.removeprefix("unix:")
    host, colon, port = text.rpartition(":")
    number = port.isascii() and port.isdecimal() and int(port) <= 65535
    if not colon or not number or host.startswith("[") != host.endswith("]"):
        raise ValueError(f"--listen must be HOST:PORT, :PORT or unix:PATH, not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port), None  # noqa: S104 - as everywhere
