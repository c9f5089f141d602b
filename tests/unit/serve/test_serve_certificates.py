"""A certificate that is rotated is in force soon, and one that is half written changes nothing."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

import pytest
import trustme
from served import Asked, pod, serving

from shmcache.serve.certificate import Certificate, context_of
from shmcache.serve.process import Options, ServingError, _tls

AUTHORITY = trustme.CA()


class Files:
    """A certificate and its key, which are written in place."""

    def __init__(self, folder: Path) -> None:
        self.paths = (str(folder / "cert.pem"), str(folder / "key.pem"))
        self._written = 0

    def write(self, name: str, *, certificate: bool = True, key: bool = True) -> None:
        """A new pair for a host of this name, or a part of it."""
        made = AUTHORITY.issue_cert(name)
        if certificate:
            self._put(self.paths[0], made.cert_chain_pems[0].bytes())
        if key:
            self._put(self.paths[1], made.private_key_pem.bytes())

    def _put(self, path: str, data: bytes) -> None:
        self._written += 1
        Path(path).write_bytes(data)
        os.utime(path, ns=(self._written, self._written))


def name_of(asked: Asked) -> str:
    """The host in the certificate that the server shows."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as plain:  # noqa: SIM117
        with context.wrap_socket(plain) as sock:
            certificate = sock.getpeercert()
            assert certificate
            return str(certificate["subjectAltName"][0][1])


def test_a_new_pair_is_loaded_but_not_half_of_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    files.write("one.test")
    with serving({"pods": [pod(1)]}) as asked:
        server = asked.serve.server
        server.tls = context_of(*files.paths)
        watched = Certificate(server, *files.paths)
        asked.serve.call(watched.take)
        assert name_of(asked) == "one.test"

        for half in ({"key": False}, {"certificate": False}):
            files.write("half.test", **half)
            asked.serve.call(watched.take)
            assert name_of(asked) == "one.test"  # with its own key: the handshake succeeds
            files.write("one.test")
            asked.serve.call(watched.take)
        Path(files.paths[0]).write_bytes(b"-----BEGIN CERT")
        asked.serve.call(watched.take)
        assert name_of(asked) == "one.test"

        files.write("two.test")
        asked.serve.call(watched.take)
        assert name_of(asked) == "two.test"
    assert caplog.text.count("keeping the previous certificate") == 3


def test_a_process_that_begins_after_a_rotation_serves_the_new_certificate(tmp_path: Path) -> None:
    """It was forked with its parent's context, which is of the first certificate."""
    files = Files(tmp_path)
    files.write("one.test")
    parents = context_of(*files.paths)
    files.write("two.test")
    with serving({"pods": [pod(1)]}) as asked:
        asked.serve.server.tls = parents
        watched = Certificate(asked.serve.server, *files.paths)
        asked.serve.call(watched.look)
        assert name_of(asked) == "two.test"


def test_a_process_that_begins_during_a_rotation_serves_its_parents_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    files.write("one.test")
    parents = context_of(*files.paths)
    files.write("two.test", key=False)
    with serving({"pods": [pod(1)]}) as asked:
        asked.serve.server.tls = parents
        watched = Certificate(asked.serve.server, *files.paths)
        asked.serve.call(watched.take)
        assert name_of(asked) == "one.test"
        files.write("two.test")
        asked.serve.call(watched.take)
        assert name_of(asked) == "two.test"
    assert "keeping the previous certificate" in caplog.text


def test_files_that_are_no_pair_at_the_start_are_an_error(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("one.test")
    files.write("two.test", key=False)

    with pytest.raises(ServingError, match="do not belong together"):
        _tls(Options(name="x", certificate=files.paths[0], key=files.paths[1]))
