"""A proxy between a reflector and its API server that leaves single events out of watches.

It forwards everything else as it is: one request for each connection, its answer byte for byte, and
of a watch line by line. A line that is left out is lost for good: no error, no gap in the stream.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import suppress

_SIZE = 1 << 16
_METADATA = b"PartialObjectMetadata"


class DroppingProxy:
    """Listens on a port of its own from its beginning to close()."""

    def __init__(self, port: int) -> None:
        """`port`: of the server, on this host."""
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._doomed: set[str] = set()
        self._open: set[socket.socket] = set()
        self._watching: socket.socket | None = None
        """The last watch: what an earlier one still brings reaches nobody."""
        self._dropped: set[tuple[str, str]] = set()
        self.dropped = 0
        """Events that were left out."""
        self.returned = 0
        """Events among them that a later watch brought after all."""
        self.lists = 0
        """Lists of whole objects, watch-lists included; not those of one name."""
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def doom(self, name: str) -> None:
        """The next event of an object of this name will be left out."""
        with self._lock:
            self._doomed.add(name)

    @property
    def waiting(self) -> int:
        """Names whose event has yet to come."""
        with self._lock:
            return len(self._doomed)

    def close(self) -> None:
        """Ends all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    # ---- connections -----------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head = self._head(client)
            if not head:
                return
            with socket.create_connection(("127.0.0.1", self._to)) as server:
                with self._lock:
                    self._open |= {client, server}
                try:
                    server.sendall(head)
                    is_watch = b"watch=true" in head.split(b"\r\n", 1)[0]
                    self._count(head, is_watch=is_watch)
                    if is_watch and _METADATA not in head:
                        self._watch(server, client)
                    else:
                        while data := server.recv(_SIZE):
                            client.sendall(data)
                finally:
                    with self._lock:
                        self._open -= {client, server}

    @staticmethod
    def _head(client: socket.socket) -> bytes:
        """One request without a body, of a connection that ends with its answer."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = client.recv(_SIZE)
            if not piece:
                return b""
            data += piece
        data = re.sub(rb"\r\nConnection:[^\r]*", b"", data, flags=re.IGNORECASE)
        return data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)

    def _count(self, head: bytes, *, is_watch: bool) -> None:
        line = head.split(b"\r\n", 1)[0]
        one = b"metadata.name" in line or b"limit=1 " in line or b"limit=1&" in line
        collection = b"/pods" in line and _METADATA not in head
        if collection and not one and (not is_watch or b"sendInitialEvents=true" in line):
            with self._lock:
                self.lists += 1

    # ---- a watch ---------------------------------------------------------------------------------

    def _watch(self, server: socket.socket, client: socket.socket) -> None:
        """Chunks of the server to lines, and lines to chunks of our own."""
        with self._lock:
            self._watching = server
        with server.makefile("rb") as answer:
            head = b""
            while (line := answer.readline()) not in {b"\r\n", b""}:
                head += line
            client.sendall(head + b"\r\n")
            if b"chunked" not in head.lower():
                while data := answer.read1(_SIZE):
                    client.sendall(data)
                return
            rest = b""
            while size := int(answer.readline() or b"0", 16):
                rest += answer.read(size)
                answer.readline()
                *lines, rest = rest.split(b"\n")
                kept = b"".join(one + b"\n" for one in lines if self._is_kept(one, server))
                if kept:
                    client.sendall(b"%x\r\n%b\r\n" % (len(kept), kept))
            client.sendall(b"0\r\n\r\n")

    def _is_kept(self, line: bytes, server: socket.socket) -> bool:
        metadata = json.loads(line)["object"].get("metadata", {})
        name, version = metadata.get("name", ""), metadata.get("resourceVersion", "")
        with self._lock:
            if server is not self._watching:
                return True
            if name in self._doomed:
                self._doomed.discard(name)
                self._dropped.add((name, version))
                self.dropped += 1
                return False
            if (name, version) in self._dropped:
                self._dropped.discard((name, version))
                self.returned += 1
        return True
