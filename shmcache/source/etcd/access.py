"""EtcdAccess: where an etcd cluster is, and as whom it is asked.

MEMBER3  certificates and the password file are read when a connection is opened, so that rotated
files count from the next connection on.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import grpc

from shmcache.errors import SourceError
from shmcache.protocol.urls import server_url
from shmcache.reasons import reason_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Where an etcd cluster is, and as whom it is asked."""

    endpoints: tuple[str, ...]
    """https://host:port or http://host:port, all of one scheme."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    password: str = ""
    password_file: str = ""

    def __post_init__(self) -> None:
        if not self.endpoints or not all(_is_endpoint(each) for each in self.endpoints):
            raise SourceError(
                f"{','.join(self.endpoints)!r} are not endpoints of etcd, such as "
                "https://etcd-1:2379,https://etcd-2:2379"
            )
        if len({urlsplit(each).scheme for each in self.endpoints}) > 1:
            raise SourceError("the endpoints of one etcd cluster must all be http or all be https")
        if bool(self.cert_file) != bool(self.key_file):
            raise SourceError("a client certificate needs both files: certificate and key")
        if (self.ca_file or self.cert_file) and not self.is_secure:
            raise SourceError("certificates need https:// endpoints")
        if (self.password or self.password_file) and not self.user:
            raise SourceError("a password needs a user")

    @classmethod
    def of(cls, text: str, **more: Any) -> EtcdAccess:
        """Of endpoints that are separated by commas."""
        found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
        return cls(endpoints=found, **more)

    @property
    def is_secure(self) -> bool:
        """Whether connections use TLS."""
        return self.endpoints[0].startswith("https://")

    @property
    def origin(self) -> str:
        """The cluster, in the settings that a cache's content depends on."""
        return "etcd " + ",".join(sorted(self.endpoints))

    def secret(self) -> str:
        """The password, from its file if it has one. SourceError."""
        if not self.password_file:
            return self.password
        try:
            return _read(self.password_file).decode().strip()
        except ValueError:
            raise SourceError(f"{self.password_file} is not text") from None  # whose cause has it

    def tls(self) -> ssl.SSLContext | None:
        """TLS of a new connection without gRPC; None without TLS. SourceError."""
        if not self.is_secure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # SSLError, too
            files = ", ".join(filter(None, (self.ca_file, self.cert_file, self.key_file)))
            raise SourceError(f"{files}: {reason_of(error)}") from error
        context.set_alpn_protocols(["h2"])
        return context

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS of a new channel; None without TLS. SourceError."""
        if not self.is_secure:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file) if self.ca_file else None,
            private_key=_read(self.key_file) if self.key_file else None,
            certificate_chain=_read(self.cert_file) if self.cert_file else None,
        )


def _is_endpoint(text: str) -> bool:
    parts = server_url(text)
    return parts is not None and not parts.path


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
