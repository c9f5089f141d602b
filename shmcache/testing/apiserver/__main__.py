"""`python -m shmcache.testing.apiserver`: the server as a command, until a signal ends it."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import ssl
import sys
import threading

import orjson

from shmcache.protocol.failures import Failure
from shmcache.reasons import reason_at
from shmcache.testing.apiserver.server import ApiServer


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m shmcache.testing.apiserver",
        description="A Kubernetes API server for tests, in memory or on etcd, on this machine.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="at which port (0: any free one)")
    parser.add_argument(
        "--kubeconfig", help="write a kubeconfig to this file, and remove it at the end"
    )
    parser.add_argument("--token", help="refuse clients that do not send this bearer token")
    parser.add_argument("--cert", help="serve TLS with this certificate (PEM)")
    parser.add_argument("--key", help="and this key, if it is not in the same file")
    parser.add_argument("--etcd", default="", help="keep the state in an etcd with these endpoints")
    parser.add_argument(
        "--load",
        metavar="FILE",
        action="append",
        default=[],
        help="JSON objects to begin with, one a line, or a List",
    )
    return parser


def load(server: ApiServer, path: str) -> int:
    """Creates what a file holds; how many objects."""
    with open(path, "rb") as file:
        text = file.read()
    try:
        found = orjson.loads(text)
        objects = found["items"] if str(found.get("kind", "")).endswith("List") else [found]
    except ValueError:
        objects = [orjson.loads(line) for line in text.splitlines() if line.strip()]
    for obj in objects:
        server.create(server.resource_of(obj), obj)
    return len(objects)


def main(given: list[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; the exit status."""
    asked = arguments().parse_args(given)
    tls = None
    if asked.cert:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(asked.cert, asked.key)
    server = ApiServer(
        host=asked.host,
        port=asked.port,
        tls=tls,
        certificate_authority=asked.cert,
        tokens={asked.token: "admin"} if asked.token else None,
        etcd=asked.etcd,
    )
    try:
        for path in asked.load:
            load(server, path)
    except (OSError, ValueError, KeyError, Failure) as error:
        print(f"cannot load objects: {reason_at(error)}", file=sys.stderr)
        return 1
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with server:
        if asked.kubeconfig:
            server.kubeconfig(asked.kubeconfig)
        print(server.url, flush=True)
        ended.wait()
    if asked.kubeconfig:
        forget(asked.kubeconfig, server.url)
    return 0


def forget(path: str, url: str) -> None:
    """Removes our kubeconfig, so that nobody takes it for that of the next server."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        if f'"{url}"' in file.read():
            os.unlink(path)


if __name__ == "__main__":
    sys.exit(main())
