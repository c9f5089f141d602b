"""Reading one's own writes: no key is reconciled on a cache that does not show its writes yet.

    pod = api.create_namespaced_pod(...)
    shmcache.written("pods", pod)           # the server's answer
    shmcache.deleted("pods", pod)           # the deleted object, as last seen

Before the key is reconciled again, in whatever process, it waits until the resource in the cache
has the written version, and until the deleted key holds no object of that UID (or one that is
being deleted). A key that waits too long is tried again later.

Writes of a process that was killed before it could report them are unknown. With `recover`,
the next one calls that function, which asks the server and returns when the cache shows its
answer; without, the key waits for `settle` seconds, which is longer than a healthy watch lags, but
proves nothing. (The version of a list would be a proof, but a quiet resource reaches it only with
its next bookmark, in a minute or so.)

    WRITTEN1  written() and deleted() have stored their words when they return, and so before
        done().
    WRITTEN2  A version is forgotten after rows.EXPIRE seconds: a server that was restored from
        a backup never reaches it. client-go's expectations end after the same time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.controllers.outcomes import NotCaughtUp
from shmcache.controllers.rows import MAX, Deletion, Row, expired
from shmcache.errors import LeadershipLost
from shmcache.protocol import versions

if TYPE_CHECKING:
    from shmcache.controllers.part import Part

_DEATH = "(a worker died)"  # instead of a resource; its versions are moments

current: ContextVar[tuple[Part, str, int]] = ContextVar("shmcache.controllers.current")
"""The process's part, the key and its bucket, in a reconcile."""


def written(resource: str, obj: Any) -> None:
    """The key that is being reconciled wrote this object of a cached resource.

    `obj` is what the server answered: a dict, or an object of the kubernetes package.
    """
    part, _, bucket = _current("written")
    _remember(part, bucket, resource, _metadata(obj, "resourceVersion", "resource_version"))


def deleted(resource: str, obj: Any) -> None:
    """The key that is being reconciled deleted this object; `obj` is what it was, with its UID."""
    part, _, bucket = _current("deleted")
    version = _metadata(obj, "resourceVersion", "resource_version")
    if version:
        _remember(part, bucket, resource, version)  # it may not be here yet
    name, namespace = _metadata(obj, "name"), _metadata(obj, "namespace")
    key = f"{namespace}/{name}" if namespace else name
    number = part.board.resource(resource)
    while (oldest := part.mine.deleted(bucket, number, key, _metadata(obj, "uid"))) is not None:
        _await_deletion(part, oldest, time.monotonic() + part.controller.catch_up)
        part.mine.forget(oldest)


def fencing_token() -> int:
    """A number for receivers of writes: each later machine that gets this key has a greater one.

    For a reconcile of a controller with `leader` or `machines`. LeadershipLost if the key is not
    this machine's any more: do not write.
    """
    part, key, _ = _current("fencing_token")
    if part.tenure is None:
        raise RuntimeError(f"controller {part.controller.name!r} has no Lease, and no token")
    token = part.tenure.epoch(key)
    if not part.tenure.allows(key) or not token:
        raise LeadershipLost(part.controller.name, f"{key} is not this machine's any more")
    return token


def _current(name: str) -> tuple[Part, str, int]:
    found = current.get(None)
    if found is None:
        raise RuntimeError(f"shmcache.{name}() is for reconciles: outside of one there is no key")
    return found


def _remember(part: Part, bucket: int, resource: str, version: str) -> None:
    versions.compare(version, version)  # ValueError for an invalid version
    if int(version) > MAX:
        raise ValueError(f"resourceVersion {version} has more than 64 bits: it is not remembered")
    part.cache.locate(resource)  # KeyError for what is not cached
    part.mine.wrote(bucket, part.board.resource(resource), int(version))


def _metadata(obj: Any, name: str, attribute: str | None = None) -> str:
    """A field of the metadata, of a dict or an object; "" if it is missing."""
    if isinstance(obj, Mapping):
        return str(obj["metadata"].get(name) or "")
    return str(getattr(obj.metadata, attribute or name) or "")


# ---- before a reconcile --------------------------------------------------------------------------


class Death(NamedTuple):
    """A runner in which a worker ended before it was through with its key."""

    row: Row
    runner: int
    culprit: bool
    """Whether this key may have ended it: no other runner was over its time limit."""


def died(part: Part, digest: int) -> list[Death]:
    """The runners in which workers died with this key, which is ours now (BOARD3)."""
    return [
        Death(row, runner, culprit=not row.overdue or bool(row.overdue >> runner & 1))
        for row in part.board.rows
        for runner in row.runners_in(digest)
    ]


def mourn(part: Part, bucket: int) -> None:
    """Where nothing can be asked: the key waits for a while, in whatever process."""
    settled = time.monotonic_ns() + int(part.controller.settle * 1e9)
    part.mine.wrote(bucket, part.board.resource(_DEATH), settled)


def caught_up(part: Part, bucket: int) -> bool:
    """Whether the cache shows what the keys of the bucket wrote; does not wait."""
    try:
        catch_up(part, bucket, 0.0)
    except NotCaughtUp:
        return False
    return True


def catch_up(part: Part, bucket: int, seconds: float) -> None:
    """Waits until the cache shows what the keys of the bucket wrote; NotCaughtUp if it does not."""
    deadline = time.monotonic() + seconds
    rows = part.board.rows
    for resource, number in part.written_resources():
        newest = 0
        for row in rows:
            when, version = row.written(bucket, number)
            if version > newest and not expired(when):
                newest = version
        if newest and resource == _DEATH:
            _settle(newest)
        elif newest and not _reaches(part, resource, newest, deadline):
            raise NotCaughtUp(f"{resource} is not at version {newest} yet, which this key wrote")
    for row in rows:
        if row.deleted_at(bucket) > part.seen.get((row.number, bucket), 0):
            _see_deletions(part, row, bucket, deadline)


def _settle(until: int) -> None:
    left = until - time.monotonic_ns()
    if left > 0:
        error = NotCaughtUp("a worker died in this key: what it wrote last is not known")
        error.after = left / 1e9
        raise error


def _reaches(part: Part, resource: str, version: int, deadline: float) -> bool:
    try:
        cached = part.cache[resource]
    except KeyError:
        return True  # it is not cached any more: nobody reads it
    return cached.wait_for(str(version), max(0.0, deadline - time.monotonic()))


def _see_deletions(part: Part, row: Row, bucket: int, deadline: float) -> None:
    stamp = row.deleted_at(bucket)
    for deletion in row.deletions():
        if deletion.bucket == bucket and not expired(deletion.when):
            if not _await_deletion(part, deletion, deadline):
                raise NotCaughtUp(f"{deletion.key} is there still, which this key deleted")
            if row.number == part.mine.number:
                part.mine.forget(deletion)
    part.seen[row.number, bucket] = stamp


def _await_deletion(part: Part, deletion: Deletion, deadline: float) -> bool:
    """Whether it was seen: the object is gone, is another one, or is being deleted."""
    resource = part.resource_of(deletion.resource)
    if resource is None:
        return True
    cached = part.cache[resource]
    while True:
        generation = part.cache.latest
        found = cached.get(deletion.key)
        if found is None or found["metadata"].get("uid") != deletion.uid:
            return True
        if found["metadata"].get("deletionTimestamp"):
            return True
        left = deadline - time.monotonic()
        if left <= 0 or part.stopping:
            return False
        part.cache.wait(generation, left, [resource])
