"""Requests about one object, over the HTTP client of the sources: what comes out is a LeaseReply.

Nothing is tried again here, except with new credentials after a 401.

    LEASEREPLY1  An answer that does not fit its request is a failure: a Lease has a name and a
        resourceVersion, the items of a list are objects with names, and an object that was
        written has the holder that was sent.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

from shmcache.lease.election import LeaseReply, LeaseRequest, ReplyKind, Verb
from shmcache.lease.record import LeaseRecord, version_of
from shmcache.protocol.jsontext import decoded
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.client import ApiConnection, Client

GROUP = "coordination.k8s.io"
LEASES = f"/apis/{GROUP}/v1"
_KINDS = {404: ReplyKind.MISSING, 409: ReplyKind.CONFLICT}


class LeaseRequests:
    """Requests of one thread about one object. interrupt() may come from any thread."""

    def __init__(
        self,
        server: ApiConnection,
        namespace: str,
        name: str,
        *,
        timeout: float,
        version: str = LEASES,
        plural: str = "leases",
        label: str = "",
    ) -> None:
        """`label` selects the objects of a LIST."""
        self._label = label
        self._client = Client(server)
        self._timeout = timeout
        self.collection = f"{version}/namespaces/{quote(namespace, safe='')}/{plural}"
        self._path = f"{self.collection}/{quote(name, safe='')}"

    def ask(self, request: LeaseRequest) -> LeaseReply:
        """Sends it, and waits for its end."""
        path, method = self._path, request.verb.value
        if request.name:
            path = f"{self.collection}/{quote(request.name, safe='')}"
        if request.verb is Verb.CREATE:
            path = self.collection
        elif request.verb is Verb.LIST:
            path, method = f"{self.collection}?{urlencode({'labelSelector': self._label})}", "GET"
        body = None if request.body is None else json.dumps(request.body).encode()
        try:
            text = self._client.send(method, path, body, silence=self._timeout)
        except SourceFailed as failed:
            return refusal(failed)
        found = parsed(text)
        if found is None or not _answers(request, found):
            return LeaseReply(ReplyKind.FAILED, message=f"{path}: the answer makes no sense")
        return LeaseReply(ReplyKind.DONE, found)

    def interrupt(self) -> None:
        """Ends the request under way, as if its connection had broken. From any thread."""
        self._client.interrupt()

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


def _answers(request: LeaseRequest, found: dict[str, Any]) -> bool:
    """LEASEREPLY1."""
    if request.verb is Verb.DELETE:
        return True  # the object, or a Status
    if request.verb is Verb.LIST:
        items = found.get("items", 0)
        return items is None or (isinstance(items, list) and all(map(_is_named, items)))
    if not _is_named(found) or not version_of(found):
        return False
    if request.body is None:
        return True
    return LeaseRecord.of(found).holder == LeaseRecord.of(request.body).holder


def _is_named(found: Any) -> bool:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def refusal(failed: SourceFailed) -> LeaseReply:
    """A failure as a reply: 404 and 409 are answers, anything else is a failure."""
    failure = failed.failure
    kind = ReplyKind.FAILED
    if failure.kind is FailureKind.HTTP:
        kind = _KINDS.get(failure.code, ReplyKind.FAILED)
    return LeaseReply(kind, message=failure.message, retry_after=failure.retry_after or 0.0)


def parsed(text: bytes) -> dict[str, Any] | None:
    """The object of an answer; None for other content."""
    try:
        found = decoded(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
