"""The operations of a store, as steps: each yields a request, and is sent the answer.

Store and AsyncStore carry out the same steps, one blocking, one in an event loop. They are those of
etcd3/store.go: every write is a transaction on the mod_revision that it was decided upon.

    STORE1  an update that began from the cache is decided again from a fresh read whenever the
            cached object was old: if the transaction meets another revision, if the function or a
            precondition refused it, or if it would change nothing.
    STORE2  the pages of a list are those of one revision.
    STORE3  a write whose answer is lost is never repeated: WriteUnknown.
    STORE4  the cache serves updates only if its objects are whole: of this prefix, without a
            transform, and with managedFields where objects have them.
    STORE5  a revision means nothing in another history: the cache serves updates only if it was
            listed from the cluster that answers, at its raft term or an earlier one. An update
            from the cache that is applied at an earlier term raises WriteUnknown: a snapshot was
            restored after the object had been cached.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from shmcache.etcd.errors import EtcdError, KeyChanged, KeyExists, KeyMissing, WriteUnknown
from shmcache.source.etcd import messages
from shmcache.source.etcd.keys import KeyPattern
from shmcache.source.etcd.values import RefusedValue, object_text

Object = dict[str, Any]
Update = Callable[[Object | None], Object | None]
"""Takes the object as it is (None: it is missing); returns what to store, or None to leave it."""
_OURS = ("resourceVersion", "createRevision", "version")


class StoreRequest(NamedTuple):
    """One call of etcd."""

    method: messages.Method
    message: Any
    what: str
    writes: bool = False


Steps = Generator[StoreRequest, Any, Any]


@dataclass(frozen=True, slots=True)
class StorePage:
    """One page of a list. `continue_token` leads to the next one; "" ends the list."""

    items: list[Object]
    version: str
    continue_token: str
    remaining: int


class Held(NamedTuple):
    """An object as an operation knows it; revision 0: it is missing."""

    revision: int
    obj: Object | None
    term: int = 0
    """Of a cached object: the raft term at which the cache was listed; 0: read from etcd."""

    @property
    def fresh(self) -> bool:
        """Whether it was read from etcd."""
        return not self.term


class Operations:
    """The steps over one prefix."""

    def __init__(
        self, pattern: KeyPattern, form: str, cached: Callable[[str], tuple[Object, int] | None]
    ) -> None:
        """`cached` returns the cache's object under a key, and its term; None: read etcd."""
        self._pattern = pattern
        self._form = form
        self._cached = cached

    # ---- reading -----------------------------------------------------------------------------

    def get(self, key: str, revision: int = 0) -> Steps:
        """The object, or None."""
        held = yield from self._read(key, revision)
        return held.obj

    def _read(self, key: str, revision: int = 0) -> Generator[StoreRequest, Any, Held]:
        request = messages.RangeRequest(key=self._pattern.raw_key_of(key), revision=revision)
        answer = yield StoreRequest(messages.RANGE, request, f"get {key}")
        return self._held(key, answer.kvs)

    def page(self, limit: int, continue_token: str, revision: int) -> Steps:
        """STORE2. EtcdError for an invalid token."""
        start = self._pattern.prefix
        if continue_token:
            revision, start = self._read_token(continue_token)
        request = messages.RangeRequest(
            key=start, range_end=self._pattern.end, limit=limit, revision=revision
        )
        answer = yield StoreRequest(messages.RANGE, request, "list")
        revision = revision or answer.header.revision
        items = []
        for kv in answer.kvs:
            key = self._pattern.key_of(kv.key)
            if key is not None:
                items.append(self._decode(key, kv))
        token = ""
        if answer.more:
            if not answer.kvs or not start <= answer.kvs[-1].key < self._pattern.end:
                raise EtcdError("list: a page has no keys, and more are to come")
            after = base64.urlsafe_b64encode(answer.kvs[-1].key + b"\0").decode()
            token = f"{revision}.{after}"
        return StorePage(items, str(revision), token, answer.count - len(answer.kvs))

    def _read_token(self, token: str) -> tuple[int, bytes]:
        try:
            revision, _, after = token.partition(".")
            start = base64.urlsafe_b64decode(after)
            if start.startswith(self._pattern.prefix):
                return int(revision), start
        except ValueError:
            pass
        raise EtcdError(f"{token!r} is not a continue token of this store")

    def count(self) -> Steps:
        """How many keys there are under the prefix."""
        request = messages.RangeRequest(
            key=self._pattern.prefix, range_end=self._pattern.end, count_only=True
        )
        answer = yield StoreRequest(messages.RANGE, request, "count")
        return answer.count

    # ---- writing -----------------------------------------------------------------------------

    def create(self, key: str, obj: Object, lease: int) -> Steps:
        """The stored object. KeyExists."""
        held = Held(0, None)
        answer = yield self._txn(key, held, self._encode(key, obj), lease, f"create {key}")
        if not answer.succeeded:
            raise KeyExists(f"create {key}: the key exists")
        return self._written(key, answer)

    def delete(self, key: str, uid: str, version: str) -> Steps:
        """The last state, at the revision of the deletion. KeyMissing, KeyChanged."""
        held = self._from_cache(key) or (yield from self._read(key))
        while True:
            try:
                if held.obj is None:
                    raise KeyMissing(f"delete {key}: the key is missing")
                _check(f"delete {key}", held.obj, uid, version)
            except EtcdError:
                if held.fresh:
                    raise
                held = yield from self._read(key)
                continue
            answer = yield self._txn(key, held, None, 0, f"delete {key}")
            if answer.succeeded:
                _check_history(f"delete {key}", held, answer.header)
                held.obj["metadata"]["resourceVersion"] = str(answer.header.revision)
                return held.obj
            held = self._held(key, answer.responses[0].response_range.kvs)

    def update(
        self, key: str, function: Update, *, uid: str, version: str, lease: int, missing: bool
    ) -> Steps:
        """The stored object (STORE1). KeyMissing, unless `missing`; KeyChanged."""
        what = f"update {key}"
        held = self._from_cache(key) or (yield from self._read(key))
        while True:
            try:
                if held.obj is None and not missing:
                    raise KeyMissing(f"{what}: the key is missing")
                _check(what, held.obj, uid, version)
                wanted = function(_copy(held.obj))
            except Exception:
                if held.fresh:
                    raise
                held = yield from self._read(key)
                continue
            if wanted is None or (held.obj is not None and self._same(key, wanted, held.obj)):
                if held.fresh:
                    return held.obj
                held = yield from self._read(key)
                continue
            answer = yield self._txn(key, held, self._encode(key, wanted), lease, what)
            if answer.succeeded:
                _check_history(what, held, answer.header)
                return self._written(key, answer)
            held = self._held(key, answer.responses[0].response_range.kvs)

    def _txn(
        self, key: str, held: Held, value: bytes | None, lease: int, what: str
    ) -> StoreRequest:
        """Stores (None: deletes) if the key is still at this revision; else reads it."""
        raw_key = self._pattern.raw_key_of(key)
        compare = messages.Compare(
            result=messages.EQUAL, target=messages.BY_MOD, key=raw_key, mod_revision=held.revision
        )
        if value is None:
            change = messages.RequestOp(
                request_delete_range=messages.DeleteRangeRequest(key=raw_key)
            )
        else:
            change = messages.RequestOp(
                request_put=messages.PutRequest(key=raw_key, value=value, lease=lease)
            )
        read = messages.RequestOp(request_range=messages.RangeRequest(key=raw_key))
        success = [change]
        if value is not None:
            success.append(read)  # the version and create_revision of what was stored
        request = messages.TxnRequest(compare=[compare], success=success, failure=[read])
        return StoreRequest(messages.TXN, request, what, writes=True)

    # ---- values ------------------------------------------------------------------------------

    def _from_cache(self, key: str) -> Held | None:
        found = self._cached(key)
        if found is None:
            return None
        obj, term = found
        return Held(int(obj["metadata"]["resourceVersion"]), obj, term)

    def _held(self, key: str, kvs: Any) -> Held:
        if not kvs:
            return Held(0, None)
        return Held(kvs[0].mod_revision, self._decode(key, kvs[0]))

    def _written(self, key: str, answer: Any) -> Object:
        return self._decode(key, answer.responses[1].response_range.kvs[0])

    def _decode(self, key: str, kv: Any) -> Object:
        try:
            names = self._pattern.names_of(key)
            found: Object = orjson.loads(
                object_text(kv.value, self._form, names, kv, revisions=False)
            )
        except RefusedValue as error:
            raise EtcdError(f"{key}: {error}") from error
        return found

    def _encode(self, key: str, obj: Object) -> bytes:
        """The value of an object: without the metadata that _decode() adds."""
        if self._form == "object":
            return orjson.dumps(self._bare(key, obj))
        try:
            value = obj["value"]
            match self._form:
                case "text":
                    encoded: bytes = value.encode()
                case "bytes":
                    encoded = base64.b64decode(value, validate=True)
                case _:
                    encoded = orjson.dumps(value)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise EtcdError(f'{key}: not {{"value": …}} with {self._form}: {error!r}') from error
        return encoded

    def _bare(self, key: str, obj: Object) -> Object:
        metadata = {
            name: part for name, part in obj.get("metadata", {}).items() if name not in _OURS
        }
        if not ("apiVersion" in obj and "kind" in obj):
            namespace, name = self._pattern.names_of(key)
            metadata.pop("uid", None)
            for part, ours in (("name", name), ("namespace", namespace)):
                if metadata.get(part) == ours:
                    del metadata[part]
        rest = {part: value for part, value in obj.items() if part != "metadata"}
        kept = {"metadata": metadata} if metadata or "apiVersion" in obj else {}
        if "apiVersion" in obj and "kind" in obj:  # in the order of Kubernetes' encoder
            lead = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
            return {**lead, **kept, **rest}
        return {**kept, **rest}

    def _same(self, key: str, left: Object, right: Object) -> bool:
        return self._encode(key, left) == self._encode(key, right)


def _copy(obj: Object | None) -> Object | None:
    return None if obj is None else orjson.loads(orjson.dumps(obj))


def _check_history(what: str, held: Held, header: Any) -> None:
    """STORE5."""
    if header.raft_term < held.term:
        raise WriteUnknown(
            f"{what}: it was applied, but upon an object of another history: a snapshot of etcd "
            "was restored after the object had been cached. Read the key before you go on"
        )


def _check(what: str, obj: Object | None, uid: str, version: str) -> None:
    metadata = {} if obj is None else obj["metadata"]
    for name, wanted in (("uid", uid), ("resourceVersion", version)):
        if wanted and metadata.get(name) != wanted:
            raise KeyChanged(
                f"{what}: {name} must be {wanted}, and is {metadata.get(name, 'missing')}"
            )
