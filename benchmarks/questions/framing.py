"""What does it cost to read a watch's events from the wire, against urllib3's own reading?

A process sends recorded pods as an API server does: a line each, in HTTP chunks of 2 KiB, over
loopback. Both sides take the framing off and cut the lines into items in C (`Frames`); the peer is
urllib3's `stream()`, which is what its users have. CPU time of the reading thread, in turns; plain
and over TLS.
"""

from __future__ import annotations

import gzip
import multiprocessing
import socket
import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
import urllib3

from benchmarks import harness
from benchmarks.harness import Row, at_most
from shmcache._hot import Frames
from shmcache.protocol.options import ListOptions
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.source.discovery import ApiResource
from shmcache.source.kube import KubeSource

TRACE = Path(__file__).parents[2] / "tests/conformance/traces/f-watchlist-pods-big.body.gz"
PODS = ApiResource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
CHUNK = 2048
SILENCE = 30.0
LIMIT = 1.0


def run(quick: bool) -> list[Row]:
    turns, repeats = (3, 1) if quick else (7, 8)
    body = gzip.decompress(TRACE.read_bytes()) * repeats
    authority = trustme.CA()
    return [_compare(body, turns, None), _compare(body, turns, authority)]


def _compare(body: bytes, turns: int, authority: trustme.CA | None) -> Row:
    ours: list[float] = []
    peers: list[float] = []
    events = body.count(b"\n")
    with _server(body, authority) as (url, context):
        for _ in range(turns + 1):
            ours.append(_timed(lambda: _ours(url, context), events))
            peers.append(_timed(lambda: _urllib3(url, context), events))
    ratios = [left / right for left, right in zip(ours[1:], peers[1:], strict=True)]
    kind = "plain" if authority is None else "TLS"
    return Row(
        question=f"a watch event of {len(body) / events / 1000:.0f} kB, {kind}",
        ours=f"{statistics.median(ours[1:]):.1f} µs",
        peer=f"{statistics.median(peers[1:]):.1f} µs",
        **at_most(LIMIT, statistics.median(ratios)),
    )


def _timed(read: Callable[[], int], events: int) -> float:
    """CPU microseconds per event."""
    began = time.thread_time()
    found = read()
    assert found == events
    return (time.thread_time() - began) / events * 1e6


def _ours(url: str, context: ssl.SSLContext | None) -> int:
    source = KubeSource(ApiConnection(lambda: ServerAccess(url=url, tls=context)), PODS)
    with source.watch(ListOptions(watch=True), silence=SILENCE) as batches:
        found = sum(len(items) for items in batches)
    source.close()
    return found


def _urllib3(url: str, context: ssl.SSLContext | None) -> int:
    settings: dict[str, Any] = {} if context is None else {"ssl_context": context}
    with urllib3.PoolManager(**settings) as pool:
        response = pool.request("GET", url, preload_content=False, timeout=SILENCE)
        frames = Frames()
        return sum(len(frames.feed(data)) for data in response.stream())


@contextmanager
def _server(
    body: bytes, authority: trustme.CA | None
) -> Iterator[tuple[str, ssl.SSLContext | None]]:
    """Sends the body to each connection, until the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours, context = None, None
    if authority is not None:
        ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(ours)
        context = ssl.create_default_context()
        authority.configure_trust(context)
    child = multiprocessing.get_context("fork").Process(
        target=_send_for_ever, args=(listener, body, ours), daemon=True
    )
    child.start()
    scheme = "http" if authority is None else "https"
    yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", context
    child.kill()
    child.join()
    listener.close()


def _send_for_ever(listener: socket.socket, body: bytes, context: ssl.SSLContext | None) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    pieces = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    while True:
        sock, _ = listener.accept()
        with sock if context is None else context.wrap_socket(sock, server_side=True) as peer:
            peer.recv(65536)
            peer.sendall(head + framed)


if __name__ == "__main__":
    harness.main(__doc__, run)
