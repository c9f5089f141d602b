"""Invariants tested: FOLLOW1, FOLLOW2 and FOLLOW3 of the portable reflector, at a real HTTP server
whose answers each test chooses."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from workers import PATIENCE, eventually

from shmcache import portable
from shmcache.portable import following

pytestmark = pytest.mark.filterwarnings("ignore:this cache is private:RuntimeWarning")

DOCUMENTS: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["list", "watch"]}
        ],
    },
}
LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []}
Answer = tuple[int, bytes]


def error(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "message": f"failed with {code}"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def event(version: int, **more: Any) -> bytes:
    metadata = {"name": "a", "namespace": "prod", "resourceVersion": str(version)}
    obj = {"kind": "Pod", "metadata": metadata, **more}
    return json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n"


class Server:
    """Answers lists and watches as its attributes say, and notes when they came."""

    def __init__(self) -> None:
        self.lists: list[float] = []
        self.watches: list[float] = []
        self.tokens: list[str | None] = []
        self.watch: Callable[[], Answer] = lambda: (200, b"")
        self.allowed: Callable[[str | None], bool] = lambda _: True
        self.silent = ""
        """The part that lists lack: "headers" or "body"."""
        self.dripping = ""
        """Answers to "list" or "watch" go on with white space for ever."""
        self.over = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def do_GET(self) -> None:
                server.answer(self)

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        token = request.headers.get("Authorization")
        self.tokens.append(token)
        code, body = self._found(request.path) if self.allowed(token) else (401, b"{}")
        is_list = request.path == "/api/v1/pods"
        if is_list and self.silent == "headers":
            self.over.wait()
        request.send_response(code)
        drips = self.dripping == ("watch" if "watch=1" in request.path else is_list and "list")
        request.send_header("Content-Length", str(1 << 30 if drips else len(body)))
        request.end_headers()
        request.wfile.write(body[:10] if is_list and self.silent else body)
        try:
            while drips and not self.over.wait(0.02):
                request.wfile.write(b"\n ")
        except OSError:
            return  # the client has left
        if is_list and self.silent:
            request.wfile.flush()
            self.over.wait()

    def _found(self, path: str) -> Answer:
        if "watch=1" in path:
            self.watches.append(time.monotonic())
            return self.watch()
        if path == "/api/v1/pods":
            self.lists.append(time.monotonic())
            return 200, json.dumps(LIST).encode()
        return 200, json.dumps(DOCUMENTS[path]).encode()

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


FIRST = 0.05


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", FIRST)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("answer", "lists"),
    [
        ((200, b""), False),
        ((200, error(500)), False),
        ((200, error(403)), False),
        ((500, b"{}"), False),
        ((429, b"{}"), False),
        ((200, error(410)), True),
        ((410, b"{}"), True),
        ((403, b"{}"), True),
        ((200, b"[]\n"), True),
    ],
)
def test_the_pause_grows_after_watches_without_events(
    server: Server, name: str, answer: Answer, lists: bool
) -> None:
    """FOLLOW1, and lists only where the watch cannot go on."""
    server.watch = lambda: answer
    with portable.reflect("pods", name=name, server=server.url):
        eventually(lambda: len(server.watches) >= 6, "too few watches")
        watches = server.watches[:6]
    for number, (before, after) in enumerate(itertools.pairwise(watches)):
        assert after - before >= FIRST * 2**number
    assert (len(server.lists) > 1) == lists


@pytest.mark.usefixtures("quick")
def test_an_event_makes_the_pause_short_again(server: Server, name: str) -> None:
    """FOLLOW1: pauses that kept growing would take hours."""
    versions = itertools.count(6)
    server.watch = lambda: (200, event(next(versions)))
    following_now = portable.reflect("pods", name=name, server=server.url)
    with following_now, portable.attach(name) as cache:
        eventually(lambda: len(server.watches) >= 20, "the pause kept growing")
        assert int(cache["pods"]["prod/a"].metadata.resourceVersion) > 6
    assert 1 == len(server.lists)


@pytest.mark.usefixtures("quick")
def test_the_state_is_synced_again_after_an_error(server: Server, name: str) -> None:
    answers = itertools.chain([(200, error(500))], itertools.repeat((200, b"")))
    server.watch = lambda: next(answers)
    with portable.reflect("pods", name=name, server=server.url), portable.attach(name) as cache:
        eventually(lambda: len(server.watches) >= 3, "too few watches")
        assert "synced" == cache["pods"].status.state
    assert 1 == len(server.lists)


@pytest.mark.usefixtures("quick")
def test_an_event_without_end_is_given_up(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(following, "LONGEST_LINE", 200_000)
    server.watch = lambda: (200, b" " * 400_000)
    with portable.reflect("pods", name=name, server=server.url):
        eventually(lambda: "far too long" in caplog.text, "the line was kept")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("what", ["watch", "list"])
def test_white_space_is_not_life(
    server: Server, name: str, what: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """FOLLOW4."""
    monkeypatch.setattr(following, "SILENT_SECONDS", 0.2)
    server.dripping = what
    text = "no event" if what == "watch" else "too slowly"
    with portable.reflect("pods", name=name, server=server.url):
        eventually(lambda: text in caplog.text, "the answer goes on")
        requests = server.watches if what == "watch" else server.lists
        eventually(lambda: len(requests) > 1, "it is not repeated")


def test_events_may_come_in_any_pieces() -> None:
    class Pieces:
        def __init__(self, length: int) -> None:
            self.length = length
            self.left = event(6) + b"\n" + event(7, text="é")

        def read1(self, _: int) -> bytes:
            found, self.left = self.left[: self.length], self.left[self.length :]
            return found

    for length in (1, 7, 100, 10_000):
        pieces: Any = Pieces(length)
        found = list(following._lines(pieces))
        assert ["6", "7"] == [one["object"]["metadata"]["resourceVersion"] for one in found]


# ---- credentials ---------------------------------------------------------------------------------


def kubeconfig(folder: Path, url: str, expires: str | None = None) -> str:
    """One whose plugin prints the tokens t1, t2 and so on."""
    status = {"token": "tNUMBER", **({"expirationTimestamp": expires} if expires else {})}
    version = "client.authentication.k8s.io/v1"
    printed = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    plugin = folder / "plugin"
    plugin.write_text(
        f"#!/bin/sh\necho >> {folder}/runs\nn=$(wc -l < {folder}/runs)\n"
        f"echo '{printed}' | sed s/NUMBER/$((n))/\n"
    )
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}}
    found = folder / "config"
    found.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(found)


@pytest.mark.usefixtures("quick")
def test_refused_credentials_are_read_again_once(server: Server, name: str, tmp_path: Path) -> None:
    """FOLLOW2."""
    server.allowed = lambda token: token in {None, "Bearer t2"} or len(server.watches) < 2
    config = kubeconfig(tmp_path, server.url)
    with portable.reflect("pods", name=name, kubeconfig=config):
        eventually(lambda: len(server.watches) >= 4, "the old token was kept")
    used = [token for token, _ in itertools.groupby(server.tokens)]
    assert ["Bearer t1", "Bearer t2"] == used
    assert 1 == len(server.lists)


@pytest.mark.usefixtures("quick")
def test_credentials_are_read_again_when_they_expire(
    server: Server, name: str, tmp_path: Path
) -> None:
    """FOLLOW2."""
    config = kubeconfig(tmp_path, server.url, expires="2020-01-01T00:00:00Z")
    with portable.reflect("pods", name=name, kubeconfig=config):
        eventually(lambda: len(server.watches) >= 2, "too few watches")
    assert len(set(server.tokens)) == len(server.tokens)


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lack", ["headers", "body"])
def test_close_does_not_wait_for_a_list(
    server: Server, name: str, lack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FOLLOW3."""
    monkeypatch.setattr(following, "SILENT_SECONDS", 100 * PATIENCE)
    server.silent = lack
    reflection = portable.reflect("pods", name=name, server=server.url)
    follower = reflection._following[0]
    eventually(
        lambda: follower._open if lack == "body" else server.lists,
        "no list",
    )
    closing = threading.Thread(target=reflection.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    if lack == "body":
        eventually(lambda: not follower.is_alive(), "the list goes on")
