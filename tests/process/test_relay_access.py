"""Two tiers of relays with certificates and callers' tokens, which the API server reviews. Wrong,
expired and revoked ones read nothing, and a good one goes on where they stopped."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from relays import DEADLINE, Follower, Group, contents_of, eventually, free_ports

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

HOST = "127.0.0.1"
FIRST, SECOND, LEAF = "first-token", "second-token", "leaf-token"
USERS = {FIRST: "first", SECOND: "second", LEAF: "leaf"}
YESTERDAY = dt.datetime.now(tz=dt.UTC) - dt.timedelta(days=1)


class Files:
    """A certificate with its key and a token; both are replaced as a rotation does it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        self.token = folder / f"{name}.token"

    def certify(self, made: trustme.LeafCert) -> None:
        _put(self.key, made.private_key_pem.bytes())
        _put(self.certificate, made.cert_chain_pems[0].bytes())


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _put(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    os.replace(path.with_suffix(".new"), path)


class Secured:
    """An API server, relays and leaves that trust one authority."""

    def __init__(self, name: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.authority = trustme.CA()
        self._name, self._folder, self._stack = name, folder, stack
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(HOST).configure_cert(context)
        self.server = stack.enter_context(
            ApiServer(seed=1, tls=context, history=1_000_000, tokens=dict(USERS),
                      certificate_authority=str(self.ca))
        )  # fmt: skip
        self.write("a")

    def write(self, name: str) -> None:
        self.server.create("pods", {"metadata": {"name": name, "namespace": "prod"}})

    def relay(
        self, name: str, token: str, *servers: str, certificate: trustme.LeafCert | None = None
    ) -> tuple[str, Files]:
        """A relay with this certificate, or a good one; its URL and its files."""
        files, port = self._files(name, token), free_ports(1)[0]
        files.certify(certificate or self.authority.issue_cert(HOST))
        self._start(name, files, servers, "relay", "--listen", f"{HOST}:{port}", "--review",
                    "--tls-cert", str(files.certificate), "--tls-key", str(files.key))  # fmt: skip
        return f"https://{HOST}:{port}", files

    def leaf(self, name: str, token: str, *servers: str) -> Files:
        files = self._files(name, token)
        self._start(name, files, servers, "run")
        return files

    def _files(self, name: str, token: str) -> Files:
        files = Files(self._folder, name)
        _put(files.token, token.encode())
        return files

    def _start(
        self, name: str, files: Files, servers: tuple[str, ...], command: str, *flags: str
    ) -> None:
        cache = f"{self._name}-{name}"
        arguments = [command, "pods", "--cache", cache, "--server-ca", str(self.ca)]
        arguments += ["--server-token-file", str(files.token), *flags]
        arguments += [word for url in servers for word in ("--server", url)]
        group = Group(cache, arguments, self._folder / f"{name}.log")
        self._stack.callback(Place(cache).remove)
        self._stack.callback(group.end, signal.SIGKILL)
        group.start()

    def cache(self, name: str) -> shmcache.Cache:
        return self._stack.enter_context(shmcache.attach(f"{self._name}-{name}", timeout=DEADLINE))

    def synced(self, name: str) -> shmcache.Cache:
        cache = self.cache(name)
        eventually(f"{name} has the objects", self.equal(cache))
        return cache

    def equal(self, cache: shmcache.Cache) -> Callable[[], bool]:
        theirs = {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"]
            for one in self.server.list("pods")
        }
        return lambda: "pods" in cache and contents_of(cache["pods"]) == theirs

    def logs(self, name: str, pattern: str) -> None:
        """Waits until the log of a process has the text."""
        log = self._folder / f"{name}.log"
        eventually(f"{pattern} in the log of {name}",
                   lambda: re.search(pattern, log.read_text()))  # fmt: skip

    def reviewed(self) -> set[str]:
        """The tokens that relays have let the API server review."""
        return {
            str(review["spec"]["token"])
            for review in list(self.server.access.reviews)
            if review["kind"] == "TokenReview"
        }


@pytest.fixture
def secured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    monkeypatch.setenv("SHMCACHE_BACKOFF_INITIAL", "0.1s")
    monkeypatch.setenv("SHMCACHE_BACKOFF_CAP", "0.5s")
    with contextlib.ExitStack() as stack:
        yield Secured(name, tmp_path, stack)


def test_two_tiers_pass_on_changes_to_callers_that_the_api_server_knows(secured: Secured) -> None:
    api = secured.server.url
    first, _ = secured.relay("first", FIRST, api)
    secured.synced("first")
    second, _ = secured.relay("second", SECOND, first, api)
    between = secured.synced("second")
    secured.leaf("leaf", LEAF, second, api)
    leaf = secured.synced("leaf")
    upstreams = (between["pods"].status.upstream, leaf["pods"].status.upstream)
    secured.write("b")

    eventually("the change", secured.equal(leaf))
    assert upstreams == (first, second)
    assert secured.reviewed() == {SECOND, LEAF}
    assert secured.server.open_watches == 1


def test_a_relay_with_a_wrong_certificate_is_sent_no_token_until_it_has_a_good_one(
    secured: Secured,
) -> None:
    """Three mistakes at once: a relay looks at its files every ten seconds."""
    authority = secured.authority
    mistakes = {
        "expired": ("certificate has expired", authority.issue_cert(HOST, not_after=YESTERDAY)),
        "of-another-host": (
            "certificate is not valid for|mismatch",
            authority.issue_cert("relay.example"),
        ),
        "of-another-authority": (
            "unable to get local issuer|self.signed|unknown CA",
            trustme.CA().issue_cert(HOST),
        ),
    }
    relays = {name: secured.relay(name, FIRST, secured.server.url, certificate=made)
              for name, (_, made) in mistakes.items()}  # fmt: skip
    for name in relays:
        secured.synced(name)
    for name, (url, _) in relays.items():
        secured.leaf(f"leaf-{name}", LEAF, url)
    for name, (text, _) in mistakes.items():
        secured.logs(f"leaf-{name}", text)
    assert secured.reviewed() == set()
    assert not any(secured.cache(f"leaf-{name}")["pods"].status.synced for name in relays)

    for _, files in relays.values():
        files.certify(authority.issue_cert(HOST))
    for name in relays:
        secured.synced(f"leaf-{name}")
    assert secured.reviewed() == {LEAF}


def test_a_leaf_goes_on_at_the_next_relay_if_a_certificate_is_wrong(secured: Secured) -> None:
    wrong, api = trustme.CA().issue_cert(HOST), secured.server.url
    first, _ = secured.relay("first", FIRST, api, certificate=wrong)
    second, _ = secured.relay("second", SECOND, api)
    secured.leaf("leaf", LEAF, first, second)
    leaf = secured.synced("leaf")
    eventually("the second relay", lambda: leaf["pods"].status.upstream == second)


def test_an_unknown_token_reads_nothing_until_the_file_has_a_good_one(secured: Secured) -> None:
    first, _ = secured.relay("first", FIRST, secured.server.url)
    leaf = secured.leaf("leaf", "no-token", first)
    secured.logs("leaf", "401")
    assert not secured.cache("leaf")["pods"].status.synced

    _put(leaf.token, LEAF.encode())
    secured.synced("leaf")


def test_a_user_without_rights_reads_nothing_until_it_has_them(secured: Secured) -> None:
    """The scope of a leaf is its own, and not that of its relay."""
    secured.server.access.deny("leaf", "list", "pods")
    secured.server.access.deny("leaf", "watch", "pods")
    first, _ = secured.relay("first", FIRST, secured.server.url)
    secured.synced("first")
    secured.leaf("leaf", LEAF, first)
    secured.logs("leaf", "403")
    assert not secured.cache("leaf")["pods"].status.synced

    secured.server.access.allow("leaf", "list", "pods")
    secured.server.access.allow("leaf", "watch", "pods")
    secured.synced("leaf")


def test_a_revoked_token_ends_its_watch_and_the_next_token_goes_on(secured: Secured) -> None:
    """PERMIT2; readers get the changes of the time between, each once."""
    first, _ = secured.relay("first", FIRST, secured.server.url)
    files = secured.leaf("leaf", LEAF, first)
    follower = Follower(f"{secured.synced('leaf').name}")
    with contextlib.closing(follower):
        eventually("the first object", lambda: follower.count == 1)
        del secured.server.access.tokens[LEAF]
        secured.logs("leaf", "401")
        secured.write("b")
        eventually("the relay has it", secured.equal(secured.cache("first")))
        assert follower.count == 1

        secured.server.access.tokens["leaf-token-2"] = "leaf"
        _put(files.token, b"leaf-token-2")
        eventually("the leaf has it", secured.equal(follower.cache))
        eventually("each change once", lambda: follower.count == 2)
        assert sorted(follower.seen) == ["a", "b"]
