"""A cache file that not every user may read is not opened to every local user by being served."""

from __future__ import annotations

import io
import os
import socket

import pytest
from served import pod, serving
from workers import eventually

from shmcache.serve.auth import neighbours
from shmcache.serve.auth.neighbours import Neighbours, check_kernel, user_of
from shmcache.serve.process import Options, ServingError, _neighbours

OWNER, GROUP, STRANGER = 4001, 4002, 4003


def state(mode: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, OWNER, GROUP, 0, 0, 0, 0))


@pytest.mark.parametrize(("mode", "uid", "expected"), [
    (0o600, OWNER, True), (0o600, 0, True), (0o600, STRANGER, False), (0o600, None, False),
    (0o640, OWNER, True), (0o640, STRANGER, False), (0o640, GROUP, True),
    (0o644, STRANGER, True), (0o604, STRANGER, True), (0o644, None, True),
])  # fmt: skip
def test_a_user_that_may_read_the_file_is_admitted(
    monkeypatch: pytest.MonkeyPatch, mode: int, uid: int | None, *, expected: bool
) -> None:
    monkeypatch.setattr(neighbours, "user_of", lambda _: uid)
    monkeypatch.setattr(neighbours, "groups_of", lambda found: {GROUP} if found == GROUP else {1})
    found = Neighbours(lambda: state(mode))
    with socket.socket() as sock:
        assert found.admits(sock) is expected


def test_no_user_is_admitted_before_a_file_was_seen() -> None:
    def gone() -> os.stat_result:
        raise FileNotFoundError

    with socket.socket() as sock:
        assert not Neighbours(gone).admits(sock)


def tcp(host: str, family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    with socket.create_server((host, 0), family=family) as listener:
        ours = socket.create_connection(listener.getsockname()[:2])
        return ours, listener.accept()[0]


@pytest.mark.parametrize(("host", "family"), [
    ("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6),
])  # fmt: skip
def test_the_kernel_names_the_user_of_a_local_connection(
    host: str, family: socket.AddressFamily
) -> None:
    check_kernel()
    ours, theirs = tcp(host, family)
    with ours, theirs:
        assert user_of(theirs) == os.geteuid()


def test_the_kernel_names_the_user_of_a_unix_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert user_of(theirs) == os.geteuid()


@pytest.mark.parametrize(("maps", "admitted"), [
    ("0 0 4294967295\n", True), ("0 1000 1\n", False), ("0 1000 1\n1 100000 65536\n", False),
    ("nonsense", False),
])  # fmt: skip
def test_the_number_of_unmapped_users_names_nobody_where_there_are_such(
    monkeypatch: pytest.MonkeyPatch, maps: str, *, admitted: bool
) -> None:
    files = {"/proc/self/uid_map": maps, "/proc/sys/kernel/overflowuid": "65534\n"}
    monkeypatch.setattr(
        neighbours, "open", lambda path, **_: io.StringIO(files[path]), raising=False
    )
    monkeypatch.setattr(neighbours, "user_of", lambda _: 65534)
    state = os.stat_result((0o600, 0, 0, 1, 65534, 65534, 0, 0, 0, 0))
    with socket.socket() as sock:
        assert Neighbours(lambda: state).admits(sock) == admitted


def test_a_closed_socket_is_nobodys() -> None:
    """The kernel shows uid 0 for a socket that no process holds any more."""
    ours, theirs = tcp("127.0.0.1", socket.AF_INET)
    with theirs:
        ours.close()
        assert user_of(theirs) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_connection_is_recognized() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            os.setuid(STRANGER)
            with socket.create_connection(listener.getsockname()) as sock:
                sock.recv(1)
            os._exit(0)
        theirs, _ = listener.accept()
        with theirs:
            assert user_of(theirs) == STRANGER
        os.waitpid(child, 0)


def test_a_stranger_gets_health_and_nothing_else() -> None:
    get = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    usual = b"/api/v1/namespaces/default/pods/p-0001"
    with serving({"pods": [pod(1)]}) as asked:
        asked.serve.server.admits = lambda _: False
        for path in (usual, b"/api/v1/pods", b"/api/v1/pods?watch=1", b"/version", b"/"):
            assert asked.raw(get % path).startswith(b"HTTP/1.1 403 "), path
        kept = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % usual
        assert asked.raw(kept, until_closed=False).startswith(b"HTTP/1.1 403 ")
        assert asked.raw(get % b"/livez").startswith(b"HTTP/1.1 200 ")
        asked.serve.server.admits = lambda _: True
        assert asked.raw(get % usual).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("may_read", [True, False])
def test_connections_of_users_who_may_not_read_the_cache_any_more_end(
    monkeypatch: pytest.MonkeyPatch, *, may_read: bool
) -> None:
    """NEAR3: the next instance, or chmod, makes a stranger of a client that is connected."""
    mode = [0o644]
    monkeypatch.setattr(neighbours, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(neighbours, "user_of", lambda _: OWNER if may_read else STRANGER)
    get = b"GET /api/v1/pods?%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving({"pods": [pod(1)]}) as asked:
        server = asked.serve.server
        near = server.neighbours = Neighbours(lambda: state(mode[0]))
        server.admits = near.admits
        address = ("127.0.0.1", asked.serve.port)
        with socket.create_connection(address) as kept, socket.create_connection(address) as watch:
            for sock, query in ((kept, b""), (watch, b"watch=1")):
                sock.settimeout(60)
                sock.sendall(get % query)
                assert sock.recv(64).startswith(b"HTTP/1.1 200 ")
            mode[0] = 0o600
            if may_read:
                eventually(lambda: near._readers == (0o600, OWNER, GROUP), "the mode is not seen")
                assert len(server.connections) == 2
            else:
                for sock in (kept, watch):
                    while sock.recv(1 << 16):
                        pass


def fails() -> None:
    raise OSError("the kernel does not name the users of local connections")


def test_where_the_kernel_names_no_user_a_listener_for_all_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shmcache.serve.process.check_kernel", fails)
    with serving({"pods": [pod(1)]}, mode=0o600) as asked:
        with pytest.raises(ServingError, match=r"--listen unix:PATH, --tokens or --review"):
            _neighbours(asked.serve.server, Options(name=asked.cache.name))
        _neighbours(asked.serve.server, Options(name="x", unix_socket="/s"))
    with serving({"pods": [pod(1)]}, mode=0o644) as asked:
        _neighbours(asked.serve.server, Options(name=asked.cache.name))


def test_the_mode_of_the_file_that_is_served_decides() -> None:
    with serving({"pods": [pod(1)]}, mode=0o640) as asked:
        near = _neighbours(asked.serve.server, Options(name=asked.cache.name))
        assert near._find().st_mode & 0o777 == 0o640
