"""The history of a cluster: whether an answer belongs to the one that was listed.

A restored snapshot begins another history under old revisions. It is known by its cluster id
(etcd derives it from the members and the token of the cluster), by a revision that went back, and,
if somebody restored under the same names and wrote more than was lost, by the raft term, which
begins again and otherwise never falls.
"""

from __future__ import annotations

import json
from typing import Any

from shmcache.protocol.jsontext import decoded
from shmcache.source.etcd.failures import expired


class ClusterHistory:
    """Of one source. Used by its feed's thread alone."""

    __slots__ = ("cluster", "term")

    def __init__(self, text: str = "") -> None:
        """`text`: what an earlier life stored; "" knows nothing yet."""
        found = decoded(text) if text else {}
        self.cluster: int = int(found.get("cluster", 0))
        self.term: int = int(found.get("term", 0))

    def text(self) -> str:
        """To be stored with the content that was listed."""
        return json.dumps({"cluster": str(self.cluster), "term": self.term})

    def listed(self, header: Any) -> None:
        """A list begins: its history is ours from now on."""
        self.cluster, self.term = header.cluster_id, header.raft_term

    def check(self, header: Any, what: str) -> None:
        """410 if this answer of a consistent read is of another history."""
        self.check_member(header, what)
        if header.raft_term < self.term:
            raise expired(
                f"{what}: the raft term of etcd went back from {self.term} to {header.raft_term}: "
                "a snapshot was restored"
            )
        self.term = header.raft_term

    def check_member(self, header: Any, what: str) -> None:
        """The same for the answer of one member, which may not know the latest term."""
        if self.cluster and header.cluster_id != self.cluster:
            raise expired(
                f"{what}: this is cluster {header.cluster_id:x} of etcd, and {self.cluster:x} was "
                "listed: a snapshot was restored, or an endpoint belongs to another cluster"
            )
        if not self.cluster:
            self.cluster = header.cluster_id
