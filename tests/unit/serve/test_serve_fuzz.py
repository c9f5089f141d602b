"""Any input from a client: no 500, no silence, and no leftovers."""

import contextlib
import gc
import os
import re
import socket
import time
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Asked, pod, serving

from shmcache.serve.limits import Limits
from shmcache.serve.server import Serving

SLOW = Serving(fresh_seconds=0.02, limits=Limits(head_seconds=0.3, body_seconds=0.3))
EXAMPLES = 150

PATHS = st.sampled_from(
    ["/", "*", "/api", "/apis", "/api/v1", "/api/v1/pods", "/api/v1/namespaces/default/pods",
     "/api/v1/namespaces/default/pods/p-0001", "/api/v1/nodes", "/version", "/openapi/v3",
     "/openapi/v3/api/v1", "/readyz", "/apis/apps/v1/deployments", "//", "/api/v1/pods/",
     "/api/v1/namespaces/%00/pods", "/api/v1/namespaces/%ff/pods/%c3%28",
     "/api/v1/namespaces/" + "x" * 300 + "/pods", "/api/v1/namespaces/a/b/c/d/e",
     "/api/v1/namespaces/%zz/pods", "http://localhost/api/v1/pods", "http://[x/"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "watch",
     "fieldSelector", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks", "pretty",
     "includeObject", "verbose", "timeout"]
)  # fmt: skip
TOKEN = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAwLCJzdGFydCI6Ii9hXHUwMDAwIn0"  # noqa: S105
NO_TEXT = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAwLCJzdGFydCI6Ii9cdWQ4MDBcdTAwMDAifQ"
MOST = str((1 << 63) - 1)
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "100", "101", "99999999999999999999", MOST, "true", "Exact",
         "NotOlderThan", "a=b", "a in (b,c)", "!a", "a>1", "spec.nodeName=node-1",
         "metadata.name=p-0001", "metadata.namespace!=x", "x" * 9000, TOKEN, TOKEN[:-3],
         NO_TEXT, "W1tb" * 3000, "Object", "None", "+", "%", "%zz"]
    ),
    st.text(max_size=12),
)  # fmt: skip
HEADERS = st.sampled_from(
    [b"Accept: application/json", b"Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
     b"Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
     b"Accept: text/plain;;;q=,", b"Accept-Encoding: gzip", b"Accept-Encoding: identity",
     b"Content-Length: 3", b"Content-Length: 0", b"Content-Length: x", b"Expect: 100-continue",
     b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Connection: close",
     b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
     b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Origin: http://evil", b"Host: localhost",
     b"Origin: http://[",
     b"Authorization: Bearer x", b"X-Long: " + b"y" * 5000, b" folded", b"Bad Name: x", b"\xff: x"]
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Something like a request."""
    from urllib.parse import quote

    method = draw(st.sampled_from(["GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "PUT", "get"]))
    pairs = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    query = "&".join(f"{name}={quote(value)}" for name, value in pairs)
    if not any(name == "timeoutSeconds" for name, _ in pairs):
        query += "&timeoutSeconds=1"
    uri = draw(PATHS) + (f"?{query}" if query else "")
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    lines = [f"{method} {uri} HTTP/{version}".encode("ascii", "replace"), b"Host: localhost"]
    lines += draw(st.lists(HEADERS, max_size=4))
    body = draw(st.sampled_from([b"", b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"\xff" * 50]))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with serving({"pods": [pod(n, app="a") for n in range(30)], "nodes": []}, SLOW) as found:
        yield found


def codes(asked: Asked, data: bytes) -> list[int]:
    """Of all the answers to these bytes; the client ends its side when it has heard one."""
    found = b""
    with socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
        try:
            while b"\r\n\r\n" not in found and (piece := sock.recv(1 << 16)):
                found += piece
        except ConnectionResetError:
            pass
    return [int(code) for code in re.findall(rb"^HTTP/1\.1 (\d{3}) ", found)]


def left(asked: Asked) -> None:
    """Nothing is left of the earlier requests."""
    server = asked.serve.server
    deadline = time.monotonic() + 30
    while asked.serve.call(lambda: len(server.connections)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert asked.serve.call(lambda: server.waiting.taken) == 0
    assert server.stats.errors == 0


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck)
)  # how long an answer takes is not the question here
@given(requests())
def test_input_like_a_request_is_answered(asked: Asked, data: bytes) -> None:
    found = codes(asked, data)

    assert all(code < 500 or code in {501, 503, 504} for code in found), (data, found)
    assert asked.serve.server.stats.errors == 0


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda b: b + b"\r\n\r\n")))
def test_invalid_request_is_refused_or_cut(asked: Asked, data: bytes) -> None:
    if b"\r\n\r\n" not in data.removeprefix(b"\r\n"):
        with socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock:
            sock.sendall(data)  # and goes
        return
    assert set(codes(asked, data)) <= {400, 413, 414, 431, 501}


def test_nothing_is_left_behind(asked: Asked) -> None:
    process = psutil.Process()

    def burst() -> None:
        for number in range(60):
            path = ("/api/v1/pods", "/api/v1/pods?limit=3", "/nope", "/api/v1/pods?watch=1")
            line = f"GET {path[number % 4]} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            codes(asked, line.encode())
        left(asked)
        asked.serve.call(asked.serve.server.past.clear)
        gc.collect()

    burst()
    descriptors, roots = len(os.listdir("/proc/self/fd")), asked.cache.reader.roots
    memory = process.memory_info().rss
    for _ in range(8):
        burst()

    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
    assert asked.cache.reader.roots <= roots + 2
    assert process.memory_info().rss - memory < 16 << 20
