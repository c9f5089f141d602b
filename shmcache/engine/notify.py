"""Tells the service manager that started us how we are: sd_notify, in a few lines."""

from __future__ import annotations

import logging
import os
import socket

from shmcache.reasons import reason_of

logger = logging.getLogger(__name__)

SECONDS = 1.0
"""A message that the manager does not take for so long is dropped."""


def notify(*lines: str) -> bool:
    """Sends READY=1, STOPPING=1, STATUS=... to NOTIFY_SOCKET; whether it was sent.

    False without that variable. Nothing fails for a manager that has gone: the variable is also
    inherited by processes that it did not start, and by containers in which its socket is missing.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.settimeout(SECONDS)
            out.connect("\0" + address[1:] if address.startswith("@") else address)
            out.sendall("\n".join(lines).encode())
    except OSError as error:
        logger.warning("NOTIFY_SOCKET %s: no message to the manager: %s", address, reason_of(error))
        return False
    return True
