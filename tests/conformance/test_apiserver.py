"""testing.ApiServer: what a client sees of its storage, lists, watches, writes and counters."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from asking import PATIENCE, Stream, ask

from shmcache.protocol.failures import Failure
from shmcache.testing import ApiServer
from shmcache.testing.apiserver.__main__ import forget

PODS = "/api/v1/namespaces/prod/pods"


def pod(name: str, namespace: str = "prod", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


def test_a_list_has_what_was_created_in_order_of_names(server: ApiServer) -> None:
    for name in ("b", "a", "c"):
        server.create("pods", pod(name))

    answer = ask(server, PODS)

    assert answer.status == 200
    assert answer.names == ["a", "b", "c"]
    assert answer.json["metadata"] == {"resourceVersion": server.version}
    assert "kind" not in answer.json["items"][0]


def test_pages_are_of_one_version_despite_changes_between_them(server: ApiServer) -> None:
    for name in "abcde":
        server.create("pods", pod(name))
    first = ask(server, f"{PODS}?limit=2").json
    server.delete("pods", "c", "prod")
    server.create("pods", pod("d1"))

    rest = ask(server, f"{PODS}?limit=2&continue={first['metadata']['continue']}")

    assert first["metadata"]["remainingItemCount"] == 3
    assert rest.names == ["c", "d"]
    assert rest.json["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_watch_shows_changes_while_it_is_open(server: ApiServer) -> None:
    with Stream(server, f"{PODS}?watch=1&resourceVersion={server.version}") as stream:
        made = server.create("pods", pod("a"))
        server.update("pods", {**made, "spec": {"nodeName": "n-1"}})
        server.delete("pods", "a", "prod")

        assert [stream.next_event() for _ in range(3)] == [
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
        ]


def test_a_write_over_http_is_seen_from_python(server: ApiServer) -> None:
    server.create("namespaces", {"metadata": {"name": "prod"}})

    created = ask(server, PODS, "POST", pod("a"))
    again = ask(server, PODS, "POST", pod("a"))

    assert (created.status, again.status) == (201, 409)
    assert server.get("pods", "a", "prod") == created.json
    assert created.json["metadata"]["resourceVersion"] == server.version


def test_a_stale_update_is_a_conflict(server: ApiServer) -> None:
    old = server.create("pods", pod("a"))
    server.update("pods", {**old, "spec": {"nodeName": "n-1"}})

    with pytest.raises(Failure, match="the object has been modified") as failed:
        server.update("pods", {**old, "spec": {"nodeName": "n-2"}})

    assert failed.value.code == 409


def test_an_update_that_changes_nothing_writes_nothing(server: ApiServer) -> None:
    made = server.create("pods", pod("a"))
    before = server.version

    assert server.update("pods", made) == made
    assert server.version == before


def test_python_gets_its_own_copy(server: ApiServer) -> None:
    made = server.create("pods", pod("a"))
    made["spec"]["nodeName"] = "changed here"

    assert server.get("pods", "a", "prod")["spec"] == {}


def test_requests_are_counted_by_verb_and_resource(server: ApiServer) -> None:
    ask(server, PODS)
    server.faults.cut(where="clean")
    ask(server, f"{PODS}?watch=1&resourceVersion=1")
    ask(server, "/apis/apps/v1/deployments")

    assert server.requests["list", "pods"] == 1
    assert server.requests["watch", "pods"] == 1
    assert server.requests["list", "deployments.apps"] == 1
    assert [record.verb for record in server.log] == ["list", "watch", "list"]


def test_a_kubeconfig_leads_to_the_server(tmp_path: Path) -> None:
    with ApiServer(tokens={"secret": "admin"}) as server:
        path = server.kubeconfig(str(tmp_path / "config"))
        found = json.loads(Path(path).read_text(encoding="utf-8"))

        assert found["clusters"][0]["cluster"]["server"] == server.url
        token = found["users"][0]["user"]["token"]
        assert ask(server, PODS, headers={"Authorization": f"Bearer {token}"}).status == 200
        assert ask(server, PODS, headers={"Authorization": "Bearer no"}).status == 401
        assert ask(server, PODS).status == 403


def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    objects, kubeconfig = tmp_path / "objects", tmp_path / "kubeconfig"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **pod("a")}), "utf-8")
    command = [sys.executable, "-m", "shmcache.testing.apiserver", "--load", str(objects)]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        found = ask(port, PODS)
        written = json.loads(kubeconfig.read_text("utf-8"))
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 0

    assert found.names == ["a"]
    assert written["kind"] == "Config"
    assert not kubeconfig.exists(), "the next server's clients would connect to this one"


def test_a_server_that_ends_leaves_the_kubeconfig_of_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    with ApiServer() as following:
        following.kubeconfig(str(path))
        forget(str(path), "http://127.0.0.1:1")
        assert following.url in path.read_text("utf-8")
    forget(str(tmp_path / "missing"), following.url)


def test_the_command_reports_objects_that_it_cannot_load() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shmcache.testing.apiserver", "--load", "/nothing/here"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "cannot load objects" in done.stderr


def test_waiting_for_watches_has_an_end(server: ApiServer) -> None:
    server.wait_for_watches(0)
    with pytest.raises(TimeoutError, match="0 watches are open, not 1"):
        server.wait_for_watches(1, seconds=0.01)


BIG = "x" * (1 << 20)


def tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


@pytest.mark.parametrize("secured", [False, True])
def test_a_stopped_server_leaves_no_socket_to_the_collector(secured: bool) -> None:
    """APISERVER1, with a client that is silent, one that reads nothing, one that only connects."""
    with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as clients:
        warnings.simplefilter("always")
        server = ApiServer(seed=1, tls=tls_context() if secured else None).start()
        for number in range(8):
            server.create("pods", pod(f"big-{number}", note=BIG))

        at = ("127.0.0.1", server.port)

        def connected() -> socket.socket:
            return clients.enter_context(socket.create_connection(at))

        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        for asked in (f"{PODS}?watch=1&resourceVersion={server.version}", PODS, PODS):
            sock = connected()
            if secured:
                sock = clients.enter_context(trusting.wrap_socket(sock))
            sock.sendall(request(asked))
        server.wait_for_watches()
        silent = [connected() for _ in range(5)]
        server.stop()
        del server
        gc.collect()
    assert silent
    assert not [str(one.message) for one in caught if one.category is ResourceWarning]


def accepted_from(client: socket.socket) -> socket.socket:
    """A duplicate of this process's socket at the other end of the client's."""
    for link in Path("/proc/self/fd").iterdir():
        if link.is_socket():
            found = socket.socket(fileno=os.dup(int(link.name)))
            with contextlib.suppress(OSError):  # it has no other end
                if found.getpeername() == client.getsockname():
                    return found
            found.close()
    raise AssertionError("no socket leads to the client")


def test_the_first_events_of_a_watch_are_sent_at_once(server: ApiServer) -> None:
    """Else the kernel keeps them until a client acknowledges the head."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        client.sendall(request(f"{PODS}?watch=1"))
        client.recv(1)
        with accepted_from(client) as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(("kib", "coding"), [(120, None), (136, "gzip")])
def test_an_answer_of_more_than_128_kib_is_compressed(
    server: ApiServer, kib: int, coding: str | None
) -> None:
    """As by API servers; for clients that take it."""
    data = {"text": "x" * (kib << 10)}
    server.create("configmaps", {"metadata": {"name": "a", "namespace": "default"}, "data": data})
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", "/api/v1/configmaps", headers={"Accept-Encoding": "gzip"})
        with connection.getresponse() as answer:
            assert coding == answer.headers["Content-Encoding"]
