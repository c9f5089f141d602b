"""Tells the service manager that started us how we are: sd_notify, in a few lines."""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> bool:
    """Sends READY=1, STOPPING=1, STATUS=... to NOTIFY_SOCKET; False if it is not set."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.connect(address)
        out.sendall("\n".join(lines).encode())
    return True
