"""iceoryx2: descriptors in shared memory, a queue of references per subscriber, and an event.

Set up to its advantage: a large buffer, one notification per batch unless the caller requests one
per sample, and the field read straight from the sample's address. Nothing is lost: the sender waits
while a buffer is full.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import iceoryx2

from benchmarks.peers.descriptor import FIELD_OFFSET, SIZE

name = "iceoryx2"

BUFFER = 8_192
PATIENCE_MS = 20  # with blocking_wait all four were seen asleep for ever with full buffers


class Descriptor(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint64 * (SIZE // 8))]

    @staticmethod
    def type_name() -> str:
        return "Descriptor"


def _services(address: str, consumers: int) -> tuple[Any, Any, Any]:
    """The node, the data service and the event service; the first process creates them.

    They keep their files in the directory `address`, apart from those of other programs.
    """
    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
    config = iceoryx2.config.default()
    config.global_cfg.root_path = iceoryx2.Path.new(address)
    config.global_cfg.prefix = iceoryx2.FileName.new(_prefix(address))
    node = iceoryx2.NodeBuilder.new().config(config).create(iceoryx2.ServiceType.Ipc)
    service = iceoryx2.ServiceName.new("benchmark")
    data = (
        node.service_builder(service)
        .publish_subscribe(Descriptor)
        .enable_safe_overflow(False)
        .subscriber_max_buffer_size(BUFFER)
        .max_subscribers(consumers)
        .max_nodes(consumers + 1)
        .open_or_create()
    )
    event = (
        node.service_builder(service)
        .event()
        .max_listeners(consumers)
        .max_nodes(consumers + 1)
        .open_or_create()
    )
    return node, data, event


def _prefix(address: str) -> str:
    return f"bench-{Path(address).name}-"


class Sender:
    def __init__(self, address: str, consumers: int, *, notify_each: bool = False) -> None:
        self._address = address
        self._services = _services(address, consumers)
        self._notify_each = notify_each
        _node, data, event = self._services
        self._publisher = (
            data.publisher_builder()
            .backpressure_strategy(iceoryx2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        self._notifier = event.notifier_builder().create()

    def prepare(self, payloads: Sequence[bytes]) -> Sequence[Any]:
        return [Descriptor.from_buffer_copy(payload) for payload in payloads]

    def connect(self) -> None:
        self._publisher.update_connections()

    def send(self, batch: Sequence[Any]) -> None:
        loan, notify = self._publisher.loan_uninit, self._notifier.notify
        if self._notify_each:
            for payload in batch:
                loan().write_payload(payload).send()
                notify()
        else:
            for payload in batch:
                loan().write_payload(payload).send()
            notify()

    def close(self) -> None:
        self._publisher.delete()
        self._notifier.delete()
        del self._services
        for left in Path("/dev/shm").glob(f"{_prefix(self._address)}*"):
            left.unlink(missing_ok=True)  # its records for finding dead nodes


class Receiver:
    def __init__(self, address: str, consumers: int) -> None:
        self._services = _services(address, consumers)
        _node, data, event = self._services
        self._subscriber = data.subscriber_builder().buffer_size(BUFFER).create()
        self._listener = event.listener_builder().create()

    def consume(self, count: int) -> None:
        """Receives `count` samples and reads one field of each; waits asleep."""
        receive, read = self._subscriber.receive, ctypes.c_uint64.from_address
        patience = iceoryx2.Duration.from_millis(PATIENCE_MS)
        taken = 0
        while taken < count:
            sample = receive()
            if sample is None:
                self._listener.timed_wait(patience)
                continue
            read(sample.payload_ptr + FIELD_OFFSET).value  # noqa: B018
            sample.delete()
            taken += 1

    def close(self) -> None:
        self._subscriber.delete()
        self._listener.delete()
        del self._services
