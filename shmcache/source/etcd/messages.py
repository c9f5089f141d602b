"""The messages and methods of etcd's gRPC API that this package uses.

They are built from the table below when this module is imported, in a pool of their own: no
generated file has to follow the installed protobuf, and another etcd client in the same process
cannot collide with them. Numbers and names are those of etcd's rpc.proto and kv.proto, which only
ever grow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "shmcache.etcd"
_KIND = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bytes": _KIND.TYPE_BYTES,
    "string": _KIND.TYPE_STRING,
    "int64": _KIND.TYPE_INT64,
    "uint64": _KIND.TYPE_UINT64,
    "bool": _KIND.TYPE_BOOL,
    "number": _KIND.TYPE_INT32,  # an enum: the encoding is the same
}

TABLE: dict[str, str] = {
    # message: name=number:type; + repeated, | one of these
    "KeyValue": "key=1:bytes create_revision=2:int64 mod_revision=3:int64 version=4:int64 "
    "value=5:bytes lease=6:int64",
    "Event": "type=1:number kv=2:KeyValue prev_kv=3:KeyValue",
    "Header": "cluster_id=1:uint64 member_id=2:uint64 revision=3:int64 raft_term=4:uint64",
    "RangeRequest": "key=1:bytes range_end=2:bytes limit=3:int64 revision=4:int64 "
    "serializable=7:bool keys_only=8:bool count_only=9:bool",
    "RangeResponse": "header=1:Header kvs=2:+KeyValue more=3:bool count=4:int64",
    "PutRequest": "key=1:bytes value=2:bytes lease=3:int64 prev_kv=4:bool",
    "PutResponse": "header=1:Header prev_kv=2:KeyValue",
    "DeleteRangeRequest": "key=1:bytes range_end=2:bytes prev_kv=3:bool",
    "DeleteRangeResponse": "header=1:Header deleted=2:int64 prev_kvs=3:+KeyValue",
    "RequestOp": "request_range=1:|RangeRequest request_put=2:|PutRequest "
    "request_delete_range=3:|DeleteRangeRequest",
    "ResponseOp": "response_range=1:|RangeResponse response_put=2:|PutResponse "
    "response_delete_range=3:|DeleteRangeResponse",
    "Compare": "result=1:number target=2:number key=3:bytes version=4:|int64 "
    "create_revision=5:|int64 mod_revision=6:|int64 value=7:|bytes lease=8:|int64",
    "TxnRequest": "compare=1:+Compare success=2:+RequestOp failure=3:+RequestOp",
    "TxnResponse": "header=1:Header succeeded=2:bool responses=3:+ResponseOp",
    "CompactionRequest": "revision=1:int64 physical=2:bool",
    "CompactionResponse": "header=1:Header",
    "WatchCreateRequest": "key=1:bytes range_end=2:bytes start_revision=3:int64 "
    "progress_notify=4:bool prev_kv=6:bool watch_id=7:int64 fragment=8:bool",
    "WatchCancelRequest": "watch_id=1:int64",
    "WatchProgressRequest": "",
    "WatchRequest": "create_request=1:|WatchCreateRequest cancel_request=2:|WatchCancelRequest "
    "progress_request=3:|WatchProgressRequest",
    "WatchResponse": "header=1:Header watch_id=2:int64 created=3:bool canceled=4:bool "
    "compact_revision=5:int64 cancel_reason=6:string fragment=7:bool events=11:+Event",
    "LeaseGrantRequest": "TTL=1:int64 ID=2:int64",
    "LeaseGrantResponse": "header=1:Header ID=2:int64 TTL=3:int64 error=4:string",
    "LeaseRevokeRequest": "ID=1:int64",
    "LeaseRevokeResponse": "header=1:Header",
    "LeaseKeepAliveRequest": "ID=1:int64",
    "LeaseKeepAliveResponse": "header=1:Header ID=2:int64 TTL=3:int64",
    "AuthenticateRequest": "name=1:string password=2:string",
    "AuthenticateResponse": "header=1:Header token=2:string",
    "StatusRequest": "",
    "StatusResponse": "header=1:Header version=2:string dbSize=3:int64 leader=4:uint64 "
    "isLearner=10:bool",
}


class Method(NamedTuple):
    """A method of the API: its path, and the classes of its messages."""

    path: str
    request: Any
    response: Any


def build(table: dict[str, str], package: str) -> dict[str, Any]:
    """The message classes of a table, by name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    file.syntax = "proto3"
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        choices = "|" in fields
        if choices:
            message.oneof_decl.add(name="choice")
        for text in fields.split():
            field, _, rest = text.partition("=")
            number, _, kind = rest.partition(":")
            added = message.field.add(name=field, number=int(number))
            added.label = _KIND.LABEL_REPEATED if kind[0] == "+" else _KIND.LABEL_OPTIONAL
            if kind[0] == "|":
                added.oneof_index = 0
            kind = kind.lstrip("+|")
            if kind in _SCALARS:
                added.type = _SCALARS[kind]
            else:
                added.type, added.type_name = _KIND.TYPE_MESSAGE, f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in table
    }


_CLASSES = build(TABLE, PACKAGE)
Compare, RequestOp = _CLASSES["Compare"], _CLASSES["RequestOp"]
RangeRequest, PutRequest = _CLASSES["RangeRequest"], _CLASSES["PutRequest"]
DeleteRangeRequest, TxnRequest = _CLASSES["DeleteRangeRequest"], _CLASSES["TxnRequest"]
WatchRequest, WatchCreateRequest = _CLASSES["WatchRequest"], _CLASSES["WatchCreateRequest"]
WatchProgressRequest = _CLASSES["WatchProgressRequest"]
CompactionRequest, StatusRequest = _CLASSES["CompactionRequest"], _CLASSES["StatusRequest"]
AuthenticateRequest = _CLASSES["AuthenticateRequest"]
LeaseGrantRequest, LeaseRevokeRequest = (
    _CLASSES["LeaseGrantRequest"],
    _CLASSES["LeaseRevokeRequest"],
)
LeaseKeepAliveRequest = _CLASSES["LeaseKeepAliveRequest"]

PUT, DELETE = 0, 1
"""Types of an Event."""
EQUAL, GREATER, LESS = 0, 1, 2
"""Results of a Compare."""
BY_VERSION, BY_CREATE, BY_MOD = 0, 1, 2
"""Targets of a Compare."""


def _method(service: str, name: str, kind: str = "") -> Method:
    kind = kind or name
    path = f"/etcdserverpb.{service}/{name}"
    return Method(path, _CLASSES[f"{kind}Request"], _CLASSES[f"{kind}Response"])


RANGE, TXN = _method("KV", "Range"), _method("KV", "Txn")
PUTTING, DELETING = _method("KV", "Put"), _method("KV", "DeleteRange")
COMPACT = _method("KV", "Compact", "Compaction")
WATCH = _method("Watch", "Watch")
GRANT, REVOKE = _method("Lease", "LeaseGrant"), _method("Lease", "LeaseRevoke")
KEEP_ALIVE = _method("Lease", "LeaseKeepAlive")
AUTHENTICATE = _method("Auth", "Authenticate")
STATUS = _method("Maintenance", "Status")
