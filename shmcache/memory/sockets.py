"""The socket of a cache: where readers ask the reflector, and the reflector listens.

It has a name next to the cache's files, so that a container that mounts them can ask as well. A
connection needs the right to write the socket's file: its mode is that of SEATS, which readers
write, too. Everybody may put a file into /dev/shm, so the client checks which user answers.

A name in a deep directory is longer than the kernel takes (107 bytes): the way then leads through
a descriptor of the directory.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import contextmanager

from shmcache.errors import UntrustedSegment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache.memory.segments import Place

LONGEST = 107
BACKLOG = 4096
_CREDENTIALS = struct.Struct("3i")


@contextmanager
def address(place: Place) -> Iterator[str]:
    """The path of the socket, in a form that the kernel takes."""
    path = place.location.file(place.desk)
    if len(os.fsencode(path)) <= LONGEST:
        yield path
        return
    fd = os.open(place.location.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{place.desk}"
    finally:
        os.close(fd)


def listen(place: Place) -> socket.socket:
    """The listening socket; a name that a dead reflector left is replaced. The lock is held.

    OSError where the name cannot be had, or is too long by itself.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        place.location.unlink(place.desk)
        mode = place.shared_mode()
        os.fchmod(listener.fileno(), 0o600)  # the mode of the name, from its first moment on
        with address(place) as path:
            listener.bind(path)
        os.chmod(place.location.file(place.desk), mode)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def identity(place: Place) -> tuple[int, int] | None:
    """Which socket has the name now."""
    return place.location.identity(place.desk)


def opened() -> socket.socket:
    """A socket to connect."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def check_peer(client: socket.socket, place: Place) -> None:
    """UntrustedSegment unless a user whom this process trusts answers."""
    uid = user_of(client)
    if uid not in place.trusted:
        raise UntrustedSegment(
            f"{place.location.file(place.desk)} belongs to a process of uid {uid}: only uids "
            f"{sorted(place.trusted)} are trusted here (trusted_uids adds more)"
        )


def user_of(peer: socket.socket) -> int:
    """The uid of the process at the other end."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])
