"""Texts for failures of the system and of TLS, as messages for people have them.

REASON1  no message shows such an exception as Python prints it: with its errno, the place in
OpenSSL's sources, or the tuple of an address. A test looks at every `except` of the package.

REASON2  texts of servers and objects reach a terminal without control characters: others wrote
them, and a terminal obeys what it reads.
"""

from __future__ import annotations

import errno
import os

_TLS = {
    "PEM lib": "not a certificate and its key in PEM form",
    "NO_CERTIFICATE_OR_CRL_FOUND": "no certificate in PEM form",
    "no start line": "no certificate in PEM form",
    "KEY_VALUES_MISMATCH": "the certificate and the key do not belong together",
    "WRONG_VERSION_NUMBER": "the other end does not speak TLS",
    "HTTP_REQUEST": "the other end does not speak TLS",
    "EOF_WHILE_READING": "the other end closed the connection during TLS",
}
_CONTROLS = {
    **{number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0))},
    0x1B: "^[",
    0x0D: "\\r",
}
"""As kubectl shows them, as far as it does."""
del _CONTROLS[0x09], _CONTROLS[0x0A]
_ATTEMPT = " (while attempting"
"""Python appends the address as a tuple."""


def reason_of(error: BaseException) -> str:
    """The failure in a few words, without the file that it belongs to."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if not isinstance(error, OSError):
        return text or type(error).__name__
    text, frame, _ = text.partition(" (_ssl.c:")
    if frame:
        known = next((shown for part, shown in _TLS.items() if part in text), "")
        return known or (text.partition("] ")[2] if text.startswith("[") else text)
    return text.partition(_ATTEMPT)[0] or type(error).__name__


def reason_at(error: BaseException) -> str:
    """The same, after the name of the file if the system named one."""
    file = error.filename if isinstance(error, OSError) else None
    return f"{file}: {reason_of(error)}" if isinstance(file, str) else reason_of(error)


def unheard(address: str, error: OSError) -> str:
    """The sentence for an address that a server cannot listen on."""
    if isinstance(error, PermissionError):
        port = address.rpartition(":")[2]
        low = port.isdecimal() and int(port) < 1024
        cure = "choose a port above 1023" if low else "choose another place"
        return f"--listen {address}: permission denied; {cure}"
    if error.errno == errno.EADDRINUSE:
        return f"--listen {address}: another process listens there; choose another one"
    return f"--listen {address}: {reason_of(error)}"


def printable(text: str) -> str:
    """The text without control characters but tabs and line ends (REASON2)."""
    return text if text.replace("\n", "").isprintable() else text.translate(_CONTROLS)


def file_shown(name: str) -> str:
    """The name of a file that anybody may have made, in one line (REASON2)."""
    return printable(os.fsencode(name).decode(errors="replace").replace("\n", "?"))
