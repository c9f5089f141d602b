"""ZeroMQ PUB/SUB over ipc: every message is copied to each subscriber through a socket.

Set up to its advantage: unlimited queues, so that it neither drops messages nor waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import zmq

from benchmarks.peers.descriptor import FIELD, FIELD_OFFSET

name = "ZeroMQ"


class Sender:
    def __init__(self, address: str, consumers: int) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)  # a PUB that sees subscriptions
        self._socket.set(zmq.XPUB_VERBOSE, 1)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.bind(f"ipc://{address}")
        self._consumers = consumers

    def prepare(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        return payloads

    def connect(self) -> None:
        """Returns when every consumer has subscribed."""
        for _ in range(self._consumers):
            self._socket.recv()

    def send(self, batch: Sequence[bytes]) -> None:
        send = self._socket.send
        for payload in batch:
            send(payload)

    def close(self) -> None:
        self._context.destroy(linger=0)


class Receiver:
    def __init__(self, address: str, _consumers: int) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.SUBSCRIBE, b"")
        self._socket.connect(f"ipc://{address}")

    def consume(self, count: int) -> None:
        """Receives `count` messages and reads one field of each; waits asleep."""
        receive, read = self._socket.recv, FIELD.unpack_from
        for _ in range(count):
            read(receive(), FIELD_OFFSET)

    def close(self) -> None:
        self._context.destroy(linger=0)


class ObjectReceiver(Receiver):
    """Receives whole objects as JSON: the cost of a field without a shared store."""

    def consume(self, count: int) -> None:
        receive, loads = self._socket.recv, orjson.loads
        for _ in range(count):
            loads(receive())["spec"]["nodeName"]
