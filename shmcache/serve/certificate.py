"""The server's certificate: taken over when its files change, and never in part.

CERT1  files are read into a context of their own, which replaces the one in force only
when it is whole. So a pair that is half written, or does not match, changes nothing.
CERT2  the files' stamps are taken before they are read: a change during the reading is a change.
CERT3  each server process reads the files when it begins. Where they are not whole then, it
serves with the context that its parent read.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING

from shmcache.reasons import reason_at

if TYPE_CHECKING:
    from shmcache.serve.http.listening import Listening

logger = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Between two looks at the files."""


def context_of(certificate: str, key: str) -> ssl.SSLContext:
    """A context with this certificate; OSError or ValueError where the files make none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


class Certificate:
    """Keeps a server's context up to date."""

    def __init__(self, server: Listening, certificate: str, key: str) -> None:
        self._server = server
        self._files = (certificate, key)
        self._stamp: list[tuple[int, int, int]] = []

    def look(self) -> None:
        """Now, and every few seconds."""
        self._server.loop.call_later(LOOK_SECONDS, self.look)
        self.take()

    def take(self) -> None:
        """Takes the files if they have changed since they were read (CERT1, CERT2)."""
        try:
            found = [os.stat(path) for path in self._files]
            stamp = [(one.st_mtime_ns, one.st_ino, one.st_size) for one in found]
            if stamp == self._stamp:
                return
            self._server.tls = context_of(*self._files)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            logger.warning("serve: keeping the previous certificate: %s", reason_at(error))
            return
        if self._stamp:
            logger.info("serve: loaded a new certificate")
        self._stamp = stamp
