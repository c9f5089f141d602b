"""How to reach one API server, and as whom: what every kind of configuration comes down to."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from shmcache.errors import SourceError

_log = logging.getLogger(__name__)

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """Whom the server is to take us for, if our own user may ask for that."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        """As the API server reads them; a group or an extra value is a header of its own."""
        if not self.user:
            if self.groups or self.uid or self.extra:
                raise SourceError("impersonating a group, a uid or extras needs a user as well")
            return []
        found = [("Impersonate-User", self.user)]
        found += [("Impersonate-Group", group) for group in self.groups]
        if self.uid:
            found.append(("Impersonate-Uid", self.uid))
        for name, values in self.extra.items():
            found += [(f"Impersonate-Extra-{name}", value) for value in values]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One server and one identity. Equal ones can share connections."""

    url: str
    namespace: str = "default"
    """That of the context or of the service account."""
    authorization: str | None = field(default=None, repr=False)
    token_file: str | None = None
    """Read for every request: whoever rotates the token just writes it anew."""
    impersonation: Impersonation = Impersonation()
    tls: ssl.SSLContext | None = field(default=None, compare=False)
    tls_material: bytes = field(default=b"", repr=False)
    """What `tls` was made of, for comparison."""
    server_name: str | None = None
    proxy: str | None = None
    expires: float | None = None
    """Wall clock: when the credentials have to be asked for again."""

    def headers(self) -> list[tuple[str, str]]:
        """What says who we are, as of now."""
        authorization = self.authorization
        if self.token_file is not None:
            authorization = f"Bearer {read_token(self.token_file)}"
        found = [] if authorization is None else [("Authorization", authorization)]
        return found + self.impersonation.headers()

    @property
    def is_local(self) -> bool:
        """Whether the server is on this host and reached without a proxy."""
        return self.proxy is None and (urlsplit(self.url).hostname or "") in LOOPBACK


Load = Callable[[], Access]
"""Reads the configuration again, with fresh credentials."""


def read_token(path: str) -> str:
    """The token in a file; SourceError says what is wrong with it."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        raise SourceError(f"token file {path}: {error.strerror}") from error
    if not token:
        raise SourceError(f"token file {path}: empty")
    return token


def tls_context(
    *, ca_file: str | None, cert_file: str | None, key_file: str | None, insecure: bool
) -> tuple[ssl.SSLContext, bytes]:
    """A context for a client, and what it was made of. Nothing of the files is needed later."""
    try:
        context = ssl.create_default_context(cafile=None if insecure else ca_file)
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            _log.warning("TLS: the server's certificate is not verified, as configured")
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        # As Go does: many clusters' own authorities lack what strict checking asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if cert_file:
            context.load_cert_chain(cert_file, key_file)
        material = bytes([insecure])
        for path in (ca_file, cert_file, key_file):
            material += _contents(path)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = " ".join(path for path in (ca_file, cert_file, key_file) if path)
        raise SourceError(f"TLS files {named}: {error}") from error
    return context, material


def _contents(path: str | None) -> bytes:
    if not path:
        return b"\0"
    with open(path, "rb") as file:
        return file.read() + b"\0"


def environment_proxy(url: str) -> str | None:
    """What HTTPS_PROXY, HTTP_PROXY and NO_PROXY say for this server; never one for this host."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    if host in LOOPBACK or proxy_bypass(host):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def direct(
    url: str,
    *,
    token: str | None = None,
    token_file: str | None = None,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    insecure: bool = False,
    proxy: str | None = None,
    namespace: str = "default",
) -> Access:
    """For a server known by its URL, without any configuration file."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SourceError(f"{url!r} is no URL of a server: http(s)://host[:port] is needed")
    tls, material = None, b""
    if parts.scheme == "https":
        tls, material = tls_context(
            ca_file=ca_file, cert_file=cert_file, key_file=key_file, insecure=insecure
        )
    return Access(
        url=url.rstrip("/"),
        namespace=namespace,
        authorization=None if token is None else f"Bearer {token}",
        token_file=None if token_file is None else os.path.abspath(token_file),
        tls=tls,
        tls_material=material,
        proxy=proxy or environment_proxy(url),
    )
