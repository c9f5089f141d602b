"""JSON in LMDB under /dev/shm: one copy for all processes, decoded at every use.

Set up to its advantage: no sync, a writable map, one long-lived read transaction, values
passed as buffers without a copy.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import lmdb
import orjson


class LmdbStore:
    name = "LMDB"

    def __init__(self, items: Iterable[tuple[str, bytes]], map_size: int = 8 << 30) -> None:
        self.path = tempfile.mkdtemp(prefix="bench-lmdb-", dir="/dev/shm")
        self._environment = open_environment(self.path, map_size)
        with self._environment.begin(write=True) as transaction:
            for key, body in items:
                transaction.put(key.encode(), body)
        self._reading = self._environment.begin(buffers=True)

    def close(self) -> None:
        self._reading.abort()
        self._environment.close()
        shutil.rmtree(self.path)

    def used_bytes(self) -> int:
        statistics = self._environment.stat()
        pages: int = self._environment.info()["last_pgno"] + 1
        return pages * int(statistics["psize"])

    def ready(self, keys: Sequence[str]) -> list[bytes]:
        return [key.encode() for key in keys]

    def get_newest(self, key: bytes) -> bytes:
        """A get that sees what was committed last: a transaction for each."""
        with self._environment.begin() as transaction:
            found: bytes = transaction.get(key)
        return found

    def get(self, keys: Sequence[bytes]) -> None:
        get = self._reading.get
        for key in keys:
            get(key)

    def get_projected(self, keys: Sequence[bytes]) -> None:
        """Only six fields are decoded, see shapes.py."""
        from benchmarks.peers.shapes import POD

        get, decode = self._reading.get, POD.decode
        for key in keys:
            decode(get(key)).spec.nodeName  # noqa: B018

    def get_field(self, keys: Sequence[bytes]) -> None:
        get, loads = self._reading.get, orjson.loads
        for key in keys:
            loads(get(key))["spec"]["nodeName"]


def open_environment(path: str, map_size: int = 8 << 30) -> Any:
    return lmdb.open(
        path, map_size=map_size, sync=False, metasync=False, writemap=True, readahead=False
    )
