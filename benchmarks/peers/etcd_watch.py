"""A worker with a range, a gRPC watch and a dict of its own: what a program does without a cache.

python -m benchmarks.peers.etcd_watch ENDPOINTS PREFIX      ends at the end of its input
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import orjson

from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.source.etcd.keys import end_of


def main(endpoints: str, text: str) -> None:
    connection, prefix = EtcdConnection(EtcdAccess.of(endpoints)), text.encode()
    request = messages.RangeRequest(key=prefix, range_end=end_of(prefix))
    answer = connection.call(messages.RANGE, request, "range", timeout=60)
    found = {kv.key[len(prefix) :].decode(): orjson.loads(kv.value) for kv in answer.kvs}

    def requests() -> Iterator[Any]:
        yield messages.WatchRequest(
            create_request=messages.WatchCreateRequest(key=prefix, range_end=end_of(prefix))
        )
        threading.Event().wait()

    def follow() -> None:
        for one in connection.stream(messages.WATCH, requests(), ()):
            for event in one.events:
                found[event.kv.key[len(prefix) :].decode()] = orjson.loads(event.kv.value)

    threading.Thread(target=follow, daemon=True).start()
    print(len(found), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
