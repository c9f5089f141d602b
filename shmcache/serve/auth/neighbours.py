"""Local clients without a token: which user is at the other end, and whether it may read the cache.

NEAR1  a cache file that not everybody may read is not opened to everybody by being served: a
local client reads it if its user may read the file. Other users are answered health alone.
NEAR2  the kernel names the user: SO_PEERCRED of a Unix socket, the socket's owner of a TCP
connection of this host. A socket that the kernel does not know, or whose process has
closed it, belongs to nobody.
NEAR3  the file's mode and owner are those of the instance that is served now.
Connections of a user who may not read it any more end.
NEAR4  the kernel gives one number to all users that our user namespace does not map, the
overflow uid; it names nobody, even where the file's owner has the same one.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Callable

from shmcache.errors import ShmCacheError

LOOK_SECONDS = 1.0
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_HEAD = struct.Struct("=IHHII")
_ADDRESSES = struct.Struct("!HH16s16s")
_REQUEST = struct.Struct("=BBBxI")
_EVERY_UID = (1 << 32) - 1
_OVERFLOW = 65534
_ANY_COOKIE = b"\xff" * 8
_FOUND_AT = 16 + 4 + 48
"""After the netlink head: 4 bytes of an inet_diag_msg and the addresses; five words follow."""


def readable_for_all(mode: int) -> bool:
    """Whether every local user may read the file anyhow."""
    return bool(mode & stat.S_IROTH)


class Neighbours:
    """Decides for each new connection. `find` gives the file's state; OSError where it is gone."""

    def __init__(self, find: Callable[[], os.stat_result]) -> None:
        self._find = find
        self._file: os.stat_result | None = None
        self._looked = 0.0
        self._readers: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Whether other users may read the file than at the last call, or first (NEAR3)."""
        before, file = self._readers, self._look()
        self._readers = None if file is None else _readers(file)
        return before not in {None, self._readers}

    def admits(self, sock: socket.socket) -> bool:
        """Whether the client's user may read the cache (NEAR1)."""
        file = self._look()
        if file is None:
            return False
        if readable_for_all(file.st_mode):
            return True
        uid = user_of(sock)
        if uid is None or uid == nobody():
            return False
        return uid in {0, file.st_uid} or (
            bool(file.st_mode & stat.S_IRGRP) and file.st_gid in groups_of(uid)
        )

    def _look(self) -> os.stat_result | None:
        now = time.monotonic()
        if self._file is None or now - self._looked > LOOK_SECONDS:
            self._looked = now
            try:
                self._file = self._find()
            except (OSError, ShmCacheError):
                return self._file  # between two instances: as the last one
            self._readers = self._readers or _readers(self._file)
        return self._file


def _readers(file: os.stat_result) -> tuple[int, int, int]:
    """The parts of a file's state that decide who may read it."""
    return file.st_mode, file.st_uid, file.st_gid


def user_of(sock: socket.socket) -> int | None:
    """The uid at the other end; None where the kernel does not name it."""
    try:
        if sock.family == socket.AF_UNIX:
            found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", found)[1])
        return _owner(sock.family, sock.getpeername(), sock.getsockname())
    except OSError:
        return None


def nobody() -> int | None:
    """The uid by which the kernel names all users that this user namespace does not map (NEAR4).

    None where it maps every user: the number is then that of a real one.
    """
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            mapped = sum(int(line.split()[2]) for line in file)
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return None if mapped >= _EVERY_UID else int(file.read())
    except (OSError, ValueError, IndexError):
        return _OVERFLOW


def groups_of(uid: int) -> set[int]:
    """The groups that the system's databases give a user."""
    import pwd

    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return set()
    return set(os.getgrouplist(user.pw_name, user.pw_gid))


def _owner(family: int, theirs: tuple[object, ...], ours: tuple[object, ...]) -> int | None:
    """Of the socket that is bound to `theirs` and connected to `ours` (sock_diag(7))."""
    source, target = (_packed(family, one) for one in (theirs, ours))
    addresses = _ADDRESSES.pack(source[1], target[1], source[0], target[0])
    socket_id = addresses + struct.pack("=I", 0) + _ANY_COOKIE
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + socket_id
    head = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as diagnosis:
        diagnosis.settimeout(LOOK_SECONDS)
        diagnosis.sendto(head + body, (0, 0))
        answer = diagnosis.recv(8192)
    if _HEAD.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    _, _, _, uid, inode = struct.unpack_from("=5I", answer, _FOUND_AT)
    return int(uid) if inode else None  # without an inode no process holds it any more


def _packed(family: int, address: tuple[object, ...]) -> tuple[bytes, int]:
    host, port = str(address[0]).partition("%")[0], address[1]
    assert isinstance(port, int)
    return socket.inet_pton(family, host).ljust(16, b"\0"), port


def check_kernel() -> None:
    """OSError where the kernel does not name the users of local TCP connections."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        theirs, _ = listener.accept()
        with theirs:
            if user_of(theirs) != os.geteuid():
                raise OSError("the kernel does not name the users of local connections")
        ours.close()
