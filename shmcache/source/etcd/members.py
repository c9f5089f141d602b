"""Members of an etcd cluster: their channels, and the choice of one.

MEMBER5  a member is chosen by its answer: all endpoints receive a question at once, and the
first that knows a leader serves. While there is no leader the question is repeated; nothing else
is asked meanwhile.
MEMBER6  a member of another cluster than ours is not used, unless more than half of the endpoints
belong to that cluster: then a snapshot was restored, and it is ours from now on. The first time,
the cluster that most endpoints belong to is ours.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import grpc

from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.messages import Method

KEEPALIVE, KEEPALIVE_TIMEOUT = 10.0, 5.0
"""Seconds between pings of an open connection, and until one without an answer ends it. etcd
refuses clients that ping more often than every 5 s."""
MESSAGE_MAX = 64 << 20
"""Bytes of the largest answer that is taken; pages are made far smaller."""
STATUS_SECONDS = 1.0
"""A member that has not answered by then is not chosen."""
OPTIONS = [
    ("grpc.keepalive_time_ms", int(1000 * KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", int(1000 * KEEPALIVE_TIMEOUT)),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel does not wait for an old one's backoff
    ("grpc.enable_retries", 0),  # the connection decides (MEMBER1)
    ("grpc.enable_http_proxy", 0),
]


class Member:
    """A channel to one endpoint."""

    def __init__(self, access: EtcdAccess, endpoint: str) -> None:
        """SourceError for certificates that cannot be read."""
        self.endpoint = endpoint
        self.version = ""
        """Of its program, as its status said; "" if it did not."""
        target, credentials = urlsplit(endpoint).netloc, access.credentials()
        self.channel = (
            grpc.insecure_channel(target, OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, OPTIONS)
        )

    def unary(self, method: Method) -> Any:
        """A callable of a method with one answer."""
        return self.channel.unary_unary(
            method.path, method.request.SerializeToString, method.response.FromString
        )

    def stream(self, method: Method) -> Any:
        """A callable of a method with streams in both directions."""
        return self.channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )


class Choice(Future["Member | None"]):
    """One question to all endpoints. Its result: the member that serves; None: none does.

    Like a call of gRPC it has a result, callbacks and cancel().
    """

    def __init__(self, members: list[Member], cluster: int) -> None:
        """`cluster`: the id of ours; 0: not known yet."""
        super().__init__()
        self.cluster = cluster
        """After the result: the cluster that the member belongs to."""
        self.reasons: dict[str, str] = {}
        """Why an endpoint was not chosen."""
        self.answered = False
        """Whether any endpoint answered."""
        self._lock = threading.RLock()  # a call that has ended calls back at once
        self._members = members
        self._found: dict[Member, Any] = {}
        self._left = len(members)
        request = messages.StatusRequest()
        self._calls = [
            (member, member.unary(messages.STATUS).future(request, timeout=STATUS_SECONDS))
            for member in members
        ]
        for member, call in self._calls:
            call.add_done_callback(lambda call, member=member: self._ended(member, call))

    def _ended(self, member: Member, call: Any) -> None:
        with self._lock:
            if self.done():
                return
            self._left -= 1
            error = None if call.cancelled() else call.exception()
            if call.cancelled() or error is not None:
                self.reasons[member.endpoint] = (error and error.details()) or "cancelled"
            else:
                self._found[member] = call.result()
                self.answered = True
                member.version = call.result().version
            chosen = self._chosen()
            if chosen is None and self._left:
                return
            self._end(chosen)

    def _chosen(self) -> Member | None:
        known = self.cluster or (0 if self._left else self._of_most())
        usable = [m for m, found in self._found.items() if self._is_usable(m, found, known)]
        if not usable and not self._left:
            restored = self._restored()
            if restored:
                known = restored
                usable = [m for m, found in self._found.items() if self._is_usable(m, found, known)]
        if not known or not usable:
            return None
        self.cluster = known
        return usable[0]

    def _is_usable(self, member: Member, found: Any, cluster: int) -> bool:
        theirs = found.header.cluster_id
        why = ""
        if cluster and theirs != cluster:
            why = f"it belongs to cluster {theirs:x} of etcd, and not to ours, {cluster:x}"
        elif not found.leader:
            why = "it knows no leader"
        elif found.isLearner:
            why = "it is a learner"
        self.reasons[member.endpoint] = why
        return not why

    def _of_most(self) -> int:
        """The cluster that most endpoints belong to; 0 if that is not clear."""
        counts = Counter(found.header.cluster_id for found in self._found.values()).most_common(2)
        if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
            return 0
        return int(counts[0][0])

    def _restored(self) -> int:
        """Another cluster that more than half of all endpoints belong to; 0: none."""
        most = self._of_most()
        count = sum(found.header.cluster_id == most for found in self._found.values())
        return most if 2 * count > len(self._members) else 0

    def _end(self, chosen: Member | None) -> None:
        for member, call in self._calls:
            if member is not chosen:
                call.cancel()
        self.set_result(chosen)

    def cancel(self) -> bool:
        """Ends the question, from any thread."""
        with self._lock:
            done = super().cancel()
        for _, call in self._calls:
            call.cancel()
        return done

    def release(self, chosen: Member | None) -> None:
        """Closes the channels of all other members. Not from a thread of gRPC."""
        for member in self._members:
            if member is not chosen:
                member.channel.close()

    @property
    def why(self) -> str:
        """Why no endpoint was chosen."""
        reasons = [f"{endpoint}: {text}" for endpoint, text in self.reasons.items() if text]
        if len({found.header.cluster_id for found in self._found.values()}) > 1:
            reasons.append("the endpoints belong to different clusters; name those of one")
        return "; ".join(reasons)


class Pause(Future[None]):
    """Some time, like a call of gRPC."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._timer = threading.Timer(seconds, self._over)
        self._timer.daemon = True
        self._timer.start()

    def _over(self) -> None:
        if self.set_running_or_notify_cancel():
            self.set_result(None)

    def cancel(self) -> bool:
        """Ends it, from any thread."""
        self._timer.cancel()
        return super().cancel()
