"""Today's ways to share one state: LMDB in /dev/shm, or Redis; raw JSON in both.

One process fills the store from a server, any number of others read one field of every object.
Neither has indices, events or decoded values; keeping them up to date is left to their user.
"""

from __future__ import annotations

import os

from benchmarks.peers.holding import RawBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from benchmarks.scenes.lean import Pipe


def fill_lmdb(pipe: Pipe, url: str, path: str) -> None:
    """The process that fills; it stays, as a process that keeps the store up to date would."""
    holder = RawBytes()
    from benchmarks.peers.lmdb_store import open_environment

    pipe.answer(os.getpid())
    pipe.next()
    environment = open_environment(path)
    for body in holder.bodies(url):
        holder.keep(body)
        with environment.begin(write=True) as transaction:
            for key, raw in holder.pods.items():
                transaction.put(key.encode(), raw)
        holder.pods.clear()
    pipe.answer("full")
    pipe.next()


def read_lmdb(pipe: Pipe, path: str) -> None:
    import orjson

    from benchmarks.peers.lmdb_store import open_environment

    pipe.answer(os.getpid())
    pipe.next()
    environment = open_environment(path)
    pipe.answer("full")
    pipe.next()
    with environment.begin(buffers=True) as transaction:
        pipe.answer(
            sum(1 for _, body in transaction.cursor() if orjson.loads(body)["spec"]["nodeName"])
        )
    pipe.next()


def fill_redis(pipe: Pipe, url: str, path: str) -> None:
    holder = RawBytes()
    client = _redis(path)
    pipe.answer(os.getpid())
    pipe.next()
    for body in holder.bodies(url):
        holder.keep(body)
        client.mset(holder.pods)
        holder.pods.clear()
    pipe.answer("full")
    pipe.next()


def read_redis(pipe: Pipe, path: str) -> None:
    import orjson

    client = _redis(path)
    pipe.answer(os.getpid())
    pipe.next()
    keys = client.keys()
    pipe.answer("full")
    pipe.next()
    pipe.answer(sum(1 for key in keys if orjson.loads(client.get(key))["spec"]["nodeName"]))
    pipe.next()


def _redis(path: str) -> Any:
    import redis

    return redis.Redis(unix_socket_path=f"{path}/redis.sock")
