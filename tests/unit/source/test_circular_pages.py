"""A page with the token of its own request ends the loops that follow tokens."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Never

import pytest

from shmcache.engine.proof import Claim, Prover
from shmcache.engine.rate_limit import Pace
from shmcache.protocol.options import ListOptions
from shmcache.source.access import ServerAccess
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.client import ApiConnection
from shmcache.source.discovery import ApiResource
from shmcache.source.kube import KubeSource

PODS = ApiResource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
NEXT = "next"
BODY = json.dumps(
    {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "5", "continue": NEXT},
        "items": [],
    }
).encode()
DEADLINE = 60.0


class Dropping(BaseHTTPRequestHandler):
    """Answers as a proxy that drops the query: each page is the first one."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def source() -> object:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dropping)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    found = KubeSource(ApiConnection(lambda: ServerAccess(url=url)), PODS)
    yield found
    found.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_that_leads_to_itself_is_garbage(source: KubeSource) -> None:
    with source.page(ListOptions(limit=1)) as page:
        assert not [item for items in page for item in items]
    assert page.meta.continue_token == NEXT
    with (
        pytest.raises(SourceFailed) as caught,
        source.page(ListOptions(limit=1, continue_token=NEXT)) as page,
    ):
        list(page)
    assert caught.value.failure.kind is FailureKind.GARBAGE


def fails() -> Never:
    raise AssertionError("nothing was compared")


def test_a_proof_ends_where_pages_go_in_circles(source: KubeSource) -> None:
    unknown = threading.Event()
    prover = Prover(Pace(1000.0), threading.Event())
    claim = Claim(
        label="pods", version="5", digest=(0, 0), source=source, labels="", fields="",
        disproved=pytest.fail, unknown=unknown.set,
        difference=lambda _: fails(), repair=lambda _: fails(),
    )  # fmt: skip
    prover.submit(claim)
    thread = threading.Thread(target=prover.run, daemon=True)
    thread.start()
    assert unknown.wait(DEADLINE)
    prover.end()
    thread.join(DEADLINE)
    assert not thread.is_alive()
