"""Listening sockets: on an address, or on a path that is taken over from a process that was killed.

LISTEN1  a path is given up only if it is a socket at which nobody listens. A regular file, or
anything else, stays as it is and is an error.
LISTEN2  a listener removes its own path at its end, and no other file that has come there.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import ExitStack

BACKLOG = 4096
"""As many as Limits.connections: while fewer wait, the kernel drops none, a probe's neither."""
PATH_MAX = 107  # bytes, as the kernel has it


def tcp(host: str, port: int, stack: ExitStack) -> socket.socket:
    """A listener on an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=False)
    return stack.enter_context(listener)


def unix(path: str, mode: int | None, stack: ExitStack) -> socket.socket:
    """A listener on a path, which goes with the stack. `mode`: of the path; None leaves the umask.

    OSError, with EADDRINUSE where another process listens there.
    """
    if len(os.fsencode(path)) > PATH_MAX:
        raise OSError(errno.ENAMETOOLONG, f"a socket's path has at most {PATH_MAX} bytes", path)
    listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    _remove_stale(path)
    if mode is None:
        listener.bind(path)
    else:
        before = os.umask(0o177)  # nobody connects before the mode is set
        try:
            listener.bind(path)
        finally:
            os.umask(before)
    made = os.stat(path)
    stack.callback(_remove_own, path, (made.st_dev, made.st_ino))
    if mode is not None:
        os.chmod(path, mode)
    listener.listen(BACKLOG)
    return listener


def _remove_stale(path: str) -> None:
    """LISTEN1."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "this file exists and is not a socket", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a listener whose queue is full would keep us for ever
        try:
            probe.connect(path)
        except BlockingIOError:
            pass
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another process listens there", path)


def _remove_own(path: str, made: tuple[int, int]) -> None:
    """LISTEN2."""
    try:
        found = os.lstat(path)
        if (found.st_dev, found.st_ino) == made:
            os.unlink(path)
    except FileNotFoundError:
        pass
