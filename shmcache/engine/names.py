"""A server that stands for all addresses of its name, as the name of a headless Service does.

`dns+https://relays.shmcache.svc:8443` is one rank in the order of servers, with an upstream for
each address. Certificates are checked for the name, not for the addresses.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from shmcache.errors import SourceError
from shmcache.reasons import reason_of
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.source.config import ServerSettings

logger = logging.getLogger(__name__)

PREFIX = "dns+"
_PORTS = {"http": 80, "https": 443}


def plain(url: str) -> str:
    """The URL without the prefix."""
    return url.removeprefix(PREFIX)


@dataclass(slots=True)
class ServiceName:
    """The settings of a server, of whose URL the host is a name."""

    settings: ServerSettings
    resolver: Callable[..., list[Any]] = socket.getaddrinfo
    _failure: str = ""

    def connections(self) -> list[ApiConnection]:
        """One for each address, whose access has been read; none if that fails now."""
        parts = urlsplit(self.settings.url or "")
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        try:
            found = self.resolver(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # of a part with 64 letters
            self._report(f"{host}: no addresses: {reason_of(error)}")
            return []
        addresses = sorted({str(one[4][0]) for one in found})
        shown = [f"[{one}]" if ":" in one else one for one in addresses]
        path = parts.path.rstrip("/")
        urls = [f"{parts.scheme}://{one}:{port}{path}" for one in shown]
        connections = [self._connection(url, host) for url in urls]
        try:
            for one in connections:
                one.access()
        except SourceError as error:  # a certificate is being replaced, say
            self._report(str(error))
            return []
        self._report("")
        return connections

    def _connection(self, url: str, host: str) -> ApiConnection:

        def load() -> ServerAccess:
            return replace(self.settings.load(), url=url, server_name=host)

        return ApiConnection(load, connect_timeout=self.settings.connect_timeout)

    def _report(self, failure: str) -> None:
        if failure and failure != self._failure:
            logger.warning("%s", failure)
        self._failure = failure
