"""multiprocessing.Queue, one for each consumer: a pickle of every message into each one's pipe."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.descriptor import FIELD, FIELD_OFFSET

name = "multiprocessing.Queue"


class Sender:
    """`addresses` are the receivers' arguments: a queue is passed on, and has no name."""

    def __init__(self, _address: str, consumers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.addresses: list[Any] = [context.Queue() for _ in range(consumers)]

    def prepare(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        return payloads

    def connect(self) -> None:
        pass

    def send(self, batch: Sequence[bytes]) -> None:
        puts = [queue.put for queue in self.addresses]
        for payload in batch:
            for put in puts:
                put(payload)

    def close(self) -> None:
        for queue in self.addresses:
            queue.cancel_join_thread()
            queue.close()


class Receiver:
    def __init__(self, queue: Any, _consumers: int) -> None:
        self._queue = queue

    def consume(self, count: int) -> None:
        """Receives `count` messages and reads one field of each; waits asleep."""
        receive, read = self._queue.get, FIELD.unpack_from
        for _ in range(count):
            read(receive(), FIELD_OFFSET)

    def close(self) -> None:
        self._queue.close()
