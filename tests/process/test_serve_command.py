"""`shmcache serve` as a command: its processes, kills under load (G32), pages (G31), its end."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

PATIENCE = 60.0
LIST = "/api/v1/namespaces/default/pods"


def pod(number: int, version: int = 1) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"p-{number:04}",
            "namespace": "default",
            "uid": f"u{number}",
            "resourceVersion": str(version),
        },
        "spec": {"text": f"{number}" * 40},
    }


def until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


class Command:
    """A running `shmcache serve`."""

    def __init__(self, log: Path, *flags: str) -> None:
        self.log = log
        self._file = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shmcache", "serve", *flags], stderr=self._file
        )

    def where(self) -> str:
        """The address in its log line."""

        def logged() -> str | None:
            assert self.process.poll() is None, self.log.read_text()
            found = re.search(r"serving cache \S+ at (\S+)", self.log.read_text())
            return found[1] if found else None

        found: str = until(logged)
        return found

    def children(self) -> list[psutil.Process]:
        """Its server processes, or itself."""
        return psutil.Process(self.process.pid).children() or [psutil.Process(self.process.pid)]

    def end(self) -> int:
        """Signals it to end; returns its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def command(tmp_path: Path, *flags: str) -> Iterator[Command]:
    running = Command(tmp_path / "log", *flags)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.process.kill()
        running.process.wait(PATIENCE)
        running._file.close()


@contextlib.contextmanager
def cache(count: int = 200) -> Iterator[tuple[str, shmcache.Writer]]:
    name = f"served-{os.getpid()}-{time.monotonic_ns()}"
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.replace("pods", [pod(number) for number in range(count)], version="100")
        yield name, writer


class Unix(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def asked(connection: http.client.HTTPConnection, path: str = LIST) -> Any:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    assert answer.status == 200, body
    return orjson.loads(body)


def more_than(whole: list[int], count: int) -> bool:
    return whole[0] > count


def without(running: Command, pid: int) -> bool:
    return pid not in {one.pid for one in running.children()}


def tcp(where: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(where.removeprefix("http://"), timeout=PATIENCE)


@pytest.mark.parametrize("processes", ["1", "3"])
def test_one_process_of_a_server_logs_that_it_waits_for_the_cache(
    tmp_path: Path, processes: str
) -> None:
    name = f"served-{os.getpid()}-{time.monotonic_ns()}"
    flags = ("--cache", name, "--listen", "127.0.0.1:0", "-p", processes)
    with command(tmp_path, *flags) as running:
        until(lambda: "waiting for the cache" in running.log.read_text())
        with shmcache.Writer(name, ["pods"]) as writer:
            writer.replace("pods", [pod(0)], version="100")
            assert len(asked(tcp(running.where()))["items"]) == 1
        assert running.log.read_text().count("waiting for the cache") == 1


def test_a_socket_belongs_to_its_owner_and_is_removed_with_its_server(tmp_path: Path) -> None:
    path = str(tmp_path / "serve.sock")
    with (
        cache() as (name, _),
        command(tmp_path, "--cache", name, "--listen", f"unix:{path}") as running,
    ):
        assert running.where() == f"unix:{path}"
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert len(asked(Unix(path))["items"]) == 200
        (tmp_path / "second").mkdir()
        with command(tmp_path / "second", "--cache", name, "--listen", f"unix:{path}") as second:
            assert second.process.wait(PATIENCE) == 75
        assert len(asked(Unix(path))["items"]) == 200
        assert running.end() == 0
        assert not os.path.exists(path)


def test_a_socket_of_a_killed_server_is_taken_over(tmp_path: Path) -> None:
    path = str(tmp_path / "serve.sock")
    with cache() as (name, _):
        with command(tmp_path, "--cache", name, "--listen", f"unix:{path}") as running:
            running.where()
            running.process.kill()
            running.process.wait(PATIENCE)
        assert os.path.exists(path)
        with command(tmp_path, "--cache", name, "--listen", f"unix:{path}") as running:
            until(lambda: re.search("serving", running.log.read_text()))
            assert len(asked(Unix(path))["items"]) == 200


def test_no_client_gets_half_an_answer_while_server_processes_are_killed_under_load(
    tmp_path: Path,
) -> None:
    """A client gets a whole answer or the end of its connection, and finds a server again."""
    flags = ("--listen", "127.0.0.1:0", "-p", "2")
    with cache(2000) as (name, _), command(tmp_path, "--cache", name, *flags) as running:
        where = running.where()
        until(lambda: len(running.children()) == 2)
        stop, whole, broken, wrong = threading.Event(), [0], [0], list[str]()

        def load() -> None:
            while not stop.is_set():
                try:
                    found = asked(tcp(where))
                except (OSError, http.client.HTTPException):
                    broken[0] += 1
                    continue
                whole[0] += 1
                if len(found["items"]) != 2000:
                    wrong.append(f"{len(found['items'])} items")

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(4):
            until(partial(more_than, whole, turn * 5))
            before = running.children()
            gone = before[turn % len(before)].pid
            os.kill(gone, signal.SIGKILL)
            until(partial(without, running, gone))
            until(partial(more_than, whole, whole[0] + 3))
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert not wrong
        until(lambda: len(running.children()) == 2)
        assert running.end() == 0


def test_pages_continue_in_any_process(tmp_path: Path) -> None:
    flags = ("--listen", "127.0.0.1:0", "-p", "3")
    with cache() as (name, writer), command(tmp_path, "--cache", name, *flags) as running:
        where = running.where()
        until(lambda: len(running.children()) == 3)
        for _ in range(5):
            names, token = [], ""
            for _ in range(20):
                page = asked(
                    tcp(where), f"{LIST}?limit=30" + (f"&continue={token}" if token else "")
                )
                names += [one["metadata"]["name"] for one in page["items"]]
                writer.put("pods", "default/p-0100", pod(100, len(names)))
                writer.delete("pods", "default/p-0199")
                writer.put("pods", "default/p-0199", pod(199))
                token = page["metadata"].get("continue", "")
                if not token:
                    break
            assert names == [f"p-{number:04}" for number in range(200)]


def test_reads_survive_the_writer(tmp_path: Path) -> None:
    name = f"served-{os.getpid()}-{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(shmcache.Writer(name, ["pods"]))
        writer.replace("pods", [pod(1)], version="100")
        running = stack.enter_context(command(tmp_path, "--cache", name, "--listen", "127.0.0.1:0"))
        connection = tcp(running.where())
        assert len(asked(connection)["items"]) == 1
        writer.close()
        assert len(asked(connection)["items"]) == 1
        second = stack.enter_context(shmcache.Writer(name, ["pods"]))
        second.replace("pods", [pod(1), pod(2)], version="200")
        until(lambda: len(asked(connection)["items"]) == 2)
        assert asked(connection)["metadata"]["resourceVersion"] == "200"


@pytest.mark.parametrize(("flags", "status"), [
    (("--listen", "nowhere"), 2),
    (("--max-age", "soon"), 2),
    (("--listen", "0.0.0.0:0"), 78),
    (("--tls-cert", "x"), 78),
    (("--tokens", "/does/not/exist"), 78),
    (("--attach-timeout", "0", "--listen", "127.0.0.1:0"), 75),
])  # fmt: skip
def test_an_unservable_cache_exits_with_a_status_of_its_own(
    flags: tuple[str, ...], status: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shmcache", "serve", "--cache", "none-such", *flags],
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert done.stderr
    assert b"Traceback" not in done.stderr


WIDGETS = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wi"]},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


def test_the_cached_resources_are_served_under_their_servers_names(tmp_path: Path) -> None:
    """A custom resource without objects, a short name, a namespace: scope and kinds are known."""
    name = f"served-{os.getpid()}-{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer())
        server.create("customresourcedefinitions", WIDGETS)
        server.load("pods", pod(1, 50))
        stack.callback(Place(name).remove)
        reflector = subprocess.Popen(
            [sys.executable, "-m", "shmcache", "run", "--no-keep", "--cache", name,
             "-s", server.url, "-n", "default", "po", "widgets.example.com"],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(reflector.wait)
        stack.callback(reflector.kill)
        running = stack.enter_context(command(tmp_path, "--cache", name, "--listen", "127.0.0.1:0"))
        where = running.where()

        def code(path: str) -> tuple[int, Any]:
            connection = tcp(where)
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            is_json = answer.headers["Content-Type"] == "application/json"  # an unknown group: text
            return answer.status, orjson.loads(body) if is_json else body

        widgets = "/apis/example.com/v1/namespaces/default/widgets"
        until(lambda: code(widgets)[0] == 200)
        assert code(widgets)[1]["kind"] == "WidgetList"
        until(lambda: code(LIST)[0] == 200)
        assert len(asked(tcp(where))["items"]) == 1
        status, refused = code("/api/v1/pods")
        assert (status, refused["reason"]) == (403, "Forbidden")
        assert "namespaces default" in refused["message"]
        (row,) = code("/apis/example.com/v1")[1]["resources"]
        assert (row["kind"], row["shortNames"]) == ("Widget", ["wi"])


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(("path", "drain"), [
    (f"{CONFIGMAPS}?watch=1", "1h"),  # ends when draining begins
    (f"{LIST}/p-0001/log?follow=1", "1s"),  # after its drain time
])  # fmt: skip
@pytest.mark.parametrize("sent", [b"", HEAD])
def test_a_silent_passed_on_request_does_not_keep_a_server(
    tmp_path: Path, path: str, drain: str, sent: bytes
) -> None:
    with cache() as (name, _), socket.create_server(("127.0.0.1", 0)) as real:
        behind = f"http://127.0.0.1:{real.getsockname()[1]}"
        flags = ("--listen", "127.0.0.1:0", "--proxy", behind, "--drain-timeout", drain)
        with command(tmp_path, "--cache", name, *flags) as running:
            connection = tcp(running.where())
            connection.request("GET", path)
            real.settimeout(PATIENCE)
            there, _ = real.accept()
            with there:
                assert there.recv(1 << 16)
                if sent:
                    there.sendall(sent)
                    assert connection.getresponse().status == 200
                assert running.end() == 0
            connection.close()
            assert "Traceback" not in running.log.read_text()


def answers_as(uid: int, port: int, paths: list[str]) -> list[int]:
    """The statuses that a process of this user gets. It may not read Python's files any more."""
    reader, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(uid)
            for path in paths:
                with socket.socket() as sock:
                    sock.settimeout(PATIENCE)
                    sock.connect(("127.0.0.1", port))
                    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    os.write(sender, sock.recv(12)[9:] + b" ")
            os._exit(0)
        finally:
            os._exit(1)
    os.close(sender)
    with open(reader, encoding="ascii") as pipe:
        found = [int(code) for code in pipe.read().split()]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, found
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as other users")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(("flags", "status"), [((), 403), (("--open-to-all",), 200)])
def test_by_default_only_users_that_may_read_the_cache_are_answered(
    tmp_path: Path, flags: tuple[str, ...], status: int
) -> None:
    """A listener on an address would give a cache of mode 0600 to every user of the machine."""
    paths = [LIST, f"{LIST}/p-0001", f"{LIST}?watch=1&timeoutSeconds=1", "/api"]
    with (
        cache() as (name, _),
        command(tmp_path, "--cache", name, "--listen", "127.0.0.1:0", *flags) as running,
    ):
        port = int(running.where().rpartition(":")[2])
        assert answers_as(0, port, [*paths, "/livez"]) == [200] * 5
        assert answers_as(65534, port, [*paths, "/livez"]) == [status] * 4 + [200]
