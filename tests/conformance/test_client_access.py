"""Invariant tested: a source reaches its server, with the identity, as the configuration states."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from client import CONFIGMAPS, SILENCE, list_of, watch_of
from wire import DEADLINE, Wire, answer, chunked, read_head

from shmcache.errors import SourceError
from shmcache.source.base import FailureKind
from shmcache.source.config import ServerSettings, open_server
from shmcache.source.kube import KubeSource

LIST = b'{"kind":"L","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}'
REFUSED = answer(b'{"kind":"Status","code":401,"reason":"Unauthorized"}', "401 Unauthorized")
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}}\n'

Configure = Callable[..., str]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own configuration reaches a test."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name == "KUBECONFIG" or "KUBERNETES" in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def tls_of(
    authority: trustme.CA, *names: str, clients: bool = False
) -> tuple[ssl.SSLContext, trustme.LeafCert]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert = authority.issue_cert(*(names or ("127.0.0.1",)))
    cert.configure_cert(context)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context, cert


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Writes a kubeconfig of one cluster and one user; JSON is YAML."""

    def write(
        url: str,
        user: dict[str, Any] | None = None,
        *,
        name: str = "config",
        context: str = "here",
        **cluster: Any,
    ) -> str:
        path = tmp_path / name
        config = {
            "current-context": context,
            "clusters": [{"name": f"c-{context}", "cluster": {"server": url, **cluster}}],
            "users": [{"name": f"u-{context}", "user": user or {}}],
            "contexts": [
                {
                    "name": context,
                    "context": {"cluster": f"c-{context}", "user": f"u-{context}"},
                }
            ],
        }
        path.write_text(json.dumps(config))
        return str(path)

    return write


def source_by(settings: ServerSettings) -> KubeSource:
    return KubeSource(open_server(settings), CONFIGMAPS, list_silence=SILENCE)


def listed_by(settings: ServerSettings) -> int:
    outcome = list_of(source_by(settings))
    assert outcome.failure is None
    return len(outcome.items)


def as_data(blob: trustme.Blob) -> str:
    return base64.b64encode(blob.bytes()).decode()


# ---- TLS -----------------------------------------------------------------------------------------


def test_a_server_is_trusted_by_its_authority(authority: trustme.CA, configure: Configure) -> None:
    context, _ = tls_of(authority)
    ca = as_data(authority.cert_pem)
    with Wire(answer(LIST), tls=context) as wire:
        path = configure(wire.url, **{"certificate-authority-data": ca})

        assert 1 == listed_by(ServerSettings(kubeconfig=path))


def test_files_are_found_beside_the_file_that_names_them(
    authority: trustme.CA, configure: Configure, tmp_path: Path
) -> None:
    context, _ = tls_of(authority)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with Wire(answer(LIST), tls=context) as wire:
        path = configure(wire.url, **{"certificate-authority": "ca.pem"})

        assert 1 == listed_by(ServerSettings(kubeconfig=path))


def test_a_server_of_another_authority_is_a_network_failure_with_the_reason(
    authority: trustme.CA, configure: Configure
) -> None:
    context, _ = tls_of(trustme.CA())
    ca = as_data(authority.cert_pem)
    with Wire(answer(LIST), tls=context) as wire:
        path = configure(wire.url, **{"certificate-authority-data": ca})
        failure = list_of(source_by(ServerSettings(kubeconfig=path))).failure

    assert failure is not None
    assert failure.kind is FailureKind.NETWORK
    assert "certificate" in failure.message


def test_a_server_may_be_trusted_unseen(authority: trustme.CA, configure: Configure) -> None:
    context, _ = tls_of(authority, "other.example.com")
    with Wire(answer(LIST), tls=context) as wire:
        path = configure(wire.url, **{"insecure-skip-tls-verify": True})

        assert 1 == listed_by(ServerSettings(kubeconfig=path))


def test_a_server_may_have_another_name(authority: trustme.CA, configure: Configure) -> None:
    context, _ = tls_of(authority, "api.example.com")
    ca = as_data(authority.cert_pem)
    for name, kind in (("api.example.com", None), ("b.example.com", FailureKind.NETWORK)):
        with Wire(answer(LIST), tls=context) as wire:
            path = configure(
                wire.url, **{"certificate-authority-data": ca, "tls-server-name": name}
            )
            failure = list_of(source_by(ServerSettings(kubeconfig=path))).failure
        assert (failure and failure.kind) is kind


def client_certificate(authority: trustme.CA) -> dict[str, str]:
    cert = authority.issue_cert(common_name="system:shmcache", organization_name="readers")
    return {
        "client-certificate-data": as_data(cert.cert_chain_pems[0]),
        "client-key-data": as_data(cert.private_key_pem),
    }


def test_a_client_certificate_identifies_us_and_no_key_stays_on_disk(
    authority: trustme.CA, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    context, _ = tls_of(authority, clients=True)
    ca = as_data(authority.cert_pem)
    with Wire(answer(LIST), tls=context) as wire:
        path = configure(
            wire.url, client_certificate(authority), **{"certificate-authority-data": ca}
        )

        assert 1 == listed_by(ServerSettings(kubeconfig=path))
    subject = dict(part[0] for part in wire.peers[0]["subject"])
    assert "system:shmcache" == subject["commonName"]
    assert [] == os.listdir(temporary)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_watches_over_tls_are_whole_and_can_be_cancelled(
    authority: trustme.CA, configure: Configure, version: ssl.TLSVersion
) -> None:
    context, _ = tls_of(authority)
    context.maximum_version = version
    waiting = threading.Event()

    def play(sock: socket.socket) -> None:
        sock.sendall(chunked(*[EVENT] * 2000, end=False))
        waiting.set()
        sock.recv(1)

    with Wire(play, tls=context) as wire:
        ca = as_data(authority.cert_pem)
        path = configure(wire.url, **{"certificate-authority-data": ca})
        source = source_by(ServerSettings(kubeconfig=path))
        outcomes = []
        thread = threading.Thread(
            target=lambda: outcomes.append(watch_of(source, silence=4 * DEADLINE))
        )
        thread.start()
        assert waiting.wait(DEADLINE)
        while source.bytes_received < 2000 * len(EVENT):
            thread.join(0.01)
        source.cancel()
        thread.join(DEADLINE)

    (outcome,) = outcomes
    assert outcome.failure is not None
    assert (FailureKind.CANCELLED, 2000) == (outcome.failure.kind, len(outcome.items))


# ---- user agent ----------------------------------------------------------------------------------


def test_a_token_is_sent(configure: Configure) -> None:
    with Wire(answer(LIST)) as wire:
        listed_by(ServerSettings(kubeconfig=configure(wire.url, {"token": "t0"})))

    assert ["Bearer t0"] == wire.header("Authorization")


def test_a_token_file_is_read_for_every_request(configure: Configure, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with Wire(answer(LIST), answer(LIST)) as wire:
        token.write_text("one\n")
        source = source_by(ServerSettings(kubeconfig=configure(wire.url, {"tokenFile": "token"})))
        list_of(source)
        token.write_text("two\n")
        list_of(source)

    assert ["Bearer one"] == wire.header("Authorization", 0)
    assert ["Bearer two"] == wire.header("Authorization", 1)


def test_a_token_rotated_while_a_request_was_under_way_is_tried_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    def rotate(sock: socket.socket) -> None:
        token.write_text("new")
        sock.sendall(REFUSED)

    with Wire(rotate, answer(LIST)) as wire:
        assert 1 == listed_by(ServerSettings(url=wire.url, token_file=str(token)))

    assert ["Bearer new"] == wire.header("Authorization")


def test_a_token_that_is_still_the_same_is_not_tried_again() -> None:
    with Wire(REFUSED, answer(LIST)) as wire:
        settings = ServerSettings(url=wire.url, token="t")  # noqa: S106 - nobody's
        outcome = list_of(source_by(settings))

    assert outcome.failure is not None
    assert outcome.failure.status is not None
    assert 401 == outcome.failure.status.code
    assert 1 == len(wire.requests)


def test_a_missing_token_file_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    with Wire(answer(LIST)) as wire:
        settings = ServerSettings(url=wire.url, token_file=str(tmp_path / "none"))
        failure = list_of(source_by(settings)).failure

    assert failure is not None
    assert "token file" in failure.message


PLUGIN = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
runs = len(open(sys.argv[1], "a+").write("x") and open(sys.argv[1]).read())
status = {"token": f"{os.environ['WHO']}-{runs}"}
if len(sys.argv) > 2:
    status["expirationTimestamp"] = sys.argv[2]
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A user with a credential plugin, whose token counts its runs."""

    def make(*arguments: str) -> dict[str, Any]:
        script = tmp_path / "plugin.py"
        script.write_text(PLUGIN)
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(script), str(tmp_path / "runs"), *arguments],
                "env": [{"name": "WHO", "value": "me"}],
                "interactiveMode": "Never",
            }
        }

    return make


def test_a_credential_plugin_runs_once_and_again_after_a_401(
    configure: Configure, plugin: Callable[..., dict[str, Any]]
) -> None:
    with Wire(answer(LIST), REFUSED, answer(LIST)) as wire:
        source = source_by(ServerSettings(kubeconfig=configure(wire.url, plugin())))
        assert [None, None] == [list_of(source).failure for _ in range(2)]

    assert ["Bearer me-1", "Bearer me-1", "Bearer me-2"] == [
        wire.header("Authorization", number)[0] for number in range(3)
    ]


def test_a_credential_is_renewed_before_it_expires(
    configure: Configure, plugin: Callable[..., dict[str, Any]]
) -> None:
    clock, wall = [5000.0], [1_800_000_000.0]
    with Wire(answer(LIST), answer(LIST), answer(LIST)) as wire:
        user = plugin("2027-01-15T08:10:00Z")  # in ten minutes
        server = open_server(ServerSettings(kubeconfig=configure(wire.url, user)))
        server.now, server.clock = lambda: wall[0], lambda: clock[0]
        source = KubeSource(server, CONFIGMAPS, list_silence=SILENCE)
        for later, jump in ((0.0, 1e5), (560.0, -1e6), (20.0, 0)):
            clock[0] += later
            assert list_of(source).failure is None
            wall[0] += jump  # proves nothing about the rest of its lifetime

    assert ["Bearer me-1", "Bearer me-1", "Bearer me-2"] == [
        wire.header("Authorization", number)[0] for number in range(3)
    ]


def test_a_credential_plugin_that_fails_sends_no_request_without_credentials(
    configure: Configure, plugin: Callable[..., dict[str, Any]]
) -> None:
    user = plugin()
    user["exec"]["args"] = ["-c", "import sys; sys.exit('the key has expired')"]
    with Wire(answer(LIST)) as wire:
        failure = list_of(source_by(ServerSettings(kubeconfig=configure(wire.url, user)))).failure

    assert failure is not None
    assert "the key has expired" in failure.message
    assert [] == wire.requests


def test_a_credential_plugin_may_give_a_certificate(
    authority: trustme.CA, configure: Configure, tmp_path: Path
) -> None:
    cert = authority.issue_cert(common_name="by-plugin")
    status = {
        "clientCertificateData": cert.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": cert.private_key_pem.bytes().decode(),
    }
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (tmp_path / "credential").write_text(json.dumps(credential))
    user = {
        "exec": {"apiVersion": version, "command": "cat", "args": [str(tmp_path / "credential")]}
    }
    context, _ = tls_of(authority, clients=True)
    ca = as_data(authority.cert_pem)
    with Wire(answer(LIST), tls=context) as wire:
        path = configure(wire.url, user, **{"certificate-authority-data": ca})

        assert 1 == listed_by(ServerSettings(kubeconfig=path))
    assert "by-plugin" == dict(part[0] for part in wire.peers[0]["subject"])["commonName"]


def test_impersonation_of_a_kubeconfig_is_sent(configure: Configure) -> None:
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"reason": ["a", "b"]},
    }
    with Wire(answer(LIST)) as wire:
        listed_by(ServerSettings(kubeconfig=configure(wire.url, user)))

    assert ["jane"] == wire.header("Impersonate-User")
    assert ["dev", "ops"] == wire.header("Impersonate-Group")
    assert ["7"] == wire.header("Impersonate-Uid")
    assert ["a", "b"] == wire.header("Impersonate-Extra-reason")


def test_impersonation_by_settings_replaces_that_of_the_file(configure: Configure) -> None:
    with Wire(answer(LIST)) as wire:
        path = configure(wire.url, {"as": "jane", "as-groups": ["dev"]})
        listed_by(ServerSettings(kubeconfig=path, impersonate_user="joe"))

    assert ["joe"] == wire.header("Impersonate-User")
    assert [] == wire.header("Impersonate-Group")


def test_impersonating_a_group_alone_is_refused() -> None:
    with pytest.raises(SourceError, match="needs a user"):
        ServerSettings(url="http://127.0.0.1:1", impersonate_groups=("dev",)).load()


# ---- which file, which context -------------------------------------------------------------------


def test_of_several_files_the_first_decides_and_all_are_known(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(answer(LIST)) as near, Wire(answer(LIST)) as far:
        paths = [
            configure(near.url, {"token": "n"}, name="near", context="near"),
            configure(far.url, {"token": "f"}, name="far", context="far"),
        ]
        monkeypatch.setenv("KUBECONFIG", ":".join(paths))
        assert 1 == listed_by(ServerSettings())
        assert 1 == listed_by(ServerSettings(context="far"))

    assert [["Bearer n"], ["Bearer f"]] == [wire.header("Authorization") for wire in (near, far)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("{", "expected"),
        ('{"current-context": "gone", "contexts": [], "clusters": [], "users": []}', "gone"),
        ('{"contexts": [], "clusters": [], "users": []}', "current-context"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(SourceError, match=f"{path}.*{words}|{words}"):
        ServerSettings(kubeconfig=str(path)).load()


def test_without_any_configuration_the_error_lists_the_places_searched() -> None:
    with pytest.raises(SourceError, match="KUBECONFIG"):
        ServerSettings().load()


def test_a_pod_takes_its_service_account_and_its_rotated_tokens(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("token", "one"), ("namespace", "shop"), ("ca.crt", "")):
        (tmp_path / name).write_text(content)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    monkeypatch.setattr("shmcache.source.incluster.FOLDER", str(tmp_path))
    context, _ = tls_of(authority)
    with Wire(answer(LIST), answer(LIST), tls=context) as wire:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(wire.port))
        server = open_server(ServerSettings())
        source = KubeSource(server, CONFIGMAPS, list_silence=SILENCE)
        list_of(source)
        (tmp_path / "token").write_text("two")
        list_of(source)

    assert "shop" == server.access().namespace
    assert [["Bearer one"], ["Bearer two"]] == [wire.header("Authorization", n) for n in (0, 1)]


# ---- proxies -------------------------------------------------------------------------------------


@contextmanager
def tunnel() -> Iterator[tuple[str, list[str]]]:
    """A proxy that connects one client to wherever it asks for."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                head = read_head(sock)
                asked.append(head)
                host, port = head.split(" ")[1].split(":")
                with socket.create_connection((host, int(port))) as beyond:
                    sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    there = threading.Thread(target=pump, args=(sock, beyond))
                    there.start()
                    pump(beyond, sock)
                    there.join(DEADLINE)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(DEADLINE)
        assert not thread.is_alive()


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one side has gone: the other pump sees it, too


def test_a_proxy_is_gone_through_with_tls_to_the_server(
    authority: trustme.CA, configure: Configure
) -> None:
    context, _ = tls_of(authority)
    ca = as_data(authority.cert_pem)
    with tunnel() as (proxy, asked), Wire(chunked(EVENT, EVENT), tls=context) as wire:
        path = configure(wire.url, **{"certificate-authority-data": ca, "proxy-url": proxy})
        source = source_by(ServerSettings(kubeconfig=path))
        outcome = watch_of(source)
        source.close()

        assert (None, 2) == (outcome.failure, len(outcome.items))
        assert asked[0].startswith(f"CONNECT 127.0.0.1:{wire.port}")


def test_a_missing_proxy_refuses_the_connection(
    authority: trustme.CA, configure: Configure
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ca = as_data(authority.cert_pem)
    path = configure(
        "https://127.0.0.1:1", **{"certificate-authority-data": ca, "proxy-url": proxy}
    )

    failure = list_of(source_by(ServerSettings(kubeconfig=path))).failure

    assert failure is not None
    assert failure.kind is FailureKind.REFUSED


def test_the_environments_proxy_is_for_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", ".internal")

    assert (
        "http://proxy.example.com:3128" == ServerSettings(url="https://a.example.com").load().proxy
    )
    assert ServerSettings(url="https://a.internal").load().proxy is None
    assert ServerSettings(url="https://127.0.0.1:6443").load().proxy is None


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_managed_fields_are_left_out_at_the_server_unless_kept(
    *, kept: bool, metadata: bool
) -> None:
    """KEP-5958; the plain form follows, for servers that refuse parameters."""
    with Wire(answer(LIST), chunked(EVENT)) as wire:
        server = open_server(ServerSettings(url=wire.url))
        source = KubeSource(server, CONFIGMAPS, managed_fields=kept, metadata_only=metadata)
        list_of(source)
        watch_of(source)

    for number in range(2):
        (accept,) = wire.header("Accept", number)
        forms = accept.split(", ")
        assert forms[-1].startswith("application/json")
        assert "drop=" not in forms[-1]
        assert ("as=PartialObjectMetadata" in forms[-1]) == metadata
        assert forms[:-1] == ([] if kept else [f"{forms[-1]};drop=metadata.managedFields"])


def test_gzip_is_requested_only_where_it_pays() -> None:
    with Wire(answer(LIST), answer(LIST)) as wire:
        listed_by(ServerSettings(url=wire.url))
        here = wire.url.replace("127.0.0.1", "127.1")  # an address that does not look it
        listed_by(ServerSettings(url=here))

    assert ["identity"] == wire.header("Accept-Encoding", 0)
    assert ["gzip"] == wire.header("Accept-Encoding", 1)
    assert not ServerSettings(url="http://10.0.0.1:80").load().is_local
    assert not ServerSettings(url="http://127.0.0.1:80", proxy="http://p:1").load().is_local
