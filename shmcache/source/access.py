"""How to reach one API server, and as whom: what every kind of configuration comes down to."""

from __future__ import annotations

import base64
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from shmcache.errors import SourceError
from shmcache.protocol.urls import server_url
from shmcache.reasons import reason_at
from shmcache.source.credentials import bearer

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
class ServerAccess:
    """One server and one identity. Equal ones can share connections."""

    url: str
    namespace: str = "default"
    """That of the context or of the service account."""
    authorization: str | None = field(default=None, repr=False)
    token_file: str | None = None
    """Read for every request, so that a rotated token needs no restart."""
    impersonation: Impersonation = Impersonation()
    tls: ssl.SSLContext | None = field(default=None, compare=False)
    tls_material: bytes = field(default=b"", repr=False)
    """The source of `tls`, for comparison."""
    server_name: str | None = None
    proxy: str | None = None
    compress: bool = True
    """Whether answers from another host may come in gzip."""
    expires: float | None = None
    """Wall clock: when the credentials expire."""

    def headers(self) -> list[tuple[str, str]]:
        """The headers of our identity, as of now."""
        authorization = self.authorization
        if self.token_file is not None:
            label = f"token file {self.token_file}"
            authorization = bearer(label, read_token(self.token_file))
        found = [] if authorization is None else [("Authorization", authorization)]
        return found + self.impersonation.headers()

    @property
    def gzip_pays(self) -> bool:
        """Whether to ask for gzip: not on this host, and not where the configuration forbids it."""
        return self.compress and not self.is_local

    @property
    def is_local(self) -> bool:
        """Whether the server is on this host and reached without a proxy."""
        return self.proxy is None and (urlsplit(self.url).hostname or "") in LOOPBACK


Load = Callable[[], ServerAccess]
"""Reads the configuration again, with fresh credentials."""


def read_token(path: str) -> str:
    """The token in a file; SourceError names the problem."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        raise SourceError(f"token file {path}: {error.strerror}") from error
    except ValueError:
        raise SourceError(f"token file {path}: it is not text") from None  # whose cause has it
    if not token:
        raise SourceError(f"token file {path}: empty")
    return token


def basic(user: str, password: str) -> str:
    """The Authorization header of a name and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def tls_context(
    *, ca: bytes = b"", cert: bytes = b"", key: bytes = b"", insecure: bool = False, label: str = ""
) -> tuple[ssl.SSLContext, bytes]:
    """A context for a client, of PEM texts, and what it was made of."""
    try:
        with ExitStack() as stack:
            trusted = ca.decode("ascii", "ignore") if ca and not insecure else None
            context = ssl.create_default_context(cadata=trusted)
            if cert:
                chain = stack.enter_context(_path_of(cert))
                context.load_cert_chain(chain, stack.enter_context(_path_of(key or cert)))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SourceError(f"TLS of {label}: {reason_at(error)}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        _log.warning("TLS: the server's certificate is not verified, as configured")
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    # As Go does: many clusters' own authorities lack what strict checking asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context, b"\0".join((bytes([insecure]), ca, cert, key))


@contextmanager
def _path_of(text: bytes) -> Iterator[str]:
    """A path of these bytes, for libraries that take nothing else: in memory, on Linux.

    Elsewhere it is a file of this user alone, for a moment.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("shmcache-pem", os.MFD_CLOEXEC)
        with open(fd, "wb") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{fd}"
        return
    with tempfile.TemporaryDirectory(prefix="shmcache-") as folder:  # 0700
        path = os.path.join(folder, "pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        yield path


def environment_proxy(url: str) -> str | None:
    """The proxy for this server by HTTPS_PROXY, HTTP_PROXY, NO_PROXY; none for this host."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _contents(path: str | None) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"TLS file {path}: {error.strerror}") from error


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
) -> ServerAccess:
    """For a server known by its URL, without any configuration file."""
    parts = server_url(url)
    if parts is None:
        raise SourceError(f"{url!r} is not the URL of an API server, such as https://10.0.0.1:6443")
    tls, material = None, b""
    if parts.scheme == "https":
        tls, material = tls_context(
            ca=_contents(ca_file),
            cert=_contents(cert_file),
            key=_contents(key_file),
            insecure=insecure,
            label=" ".join(path for path in (ca_file, cert_file, key_file) if path),
        )
    return ServerAccess(
        url=url.rstrip("/"),
        namespace=namespace,
        authorization=None if token is None else bearer("token", token),
        token_file=None if token_file is None else os.path.abspath(token_file),
        tls=tls,
        tls_material=material,
        proxy=proxy or environment_proxy(url),
    )
