"""A page of pods as msgspec's structures: six fields of each, or its raw JSON and its name.

The six are the fields that most services need: namespace, name, uid, labels, node and phase.
Without labels, which are a dict, a pod is less than half of that: the short form is measured as
well.
"""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct):
    namespace: str
    name: str
    uid: str
    labels: dict[str, str] = {}


class Identity(msgspec.Struct, gc=False):
    namespace: str
    name: str
    uid: str


class Spec(msgspec.Struct, gc=False):
    nodeName: str  # noqa: N815


class Status(msgspec.Struct, gc=False):
    phase: str


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec
    status: Status


class ShortStatus(msgspec.Struct, gc=False):
    phase: str
    podIP: str  # noqa: N815


class ShortPod(msgspec.Struct, gc=False):
    metadata: Identity
    spec: Spec
    status: ShortStatus


class Named(msgspec.Struct):
    metadata: Identity


class Page(msgspec.Struct):
    items: list[Pod]


class ShortPage(msgspec.Struct):
    items: list[ShortPod]


class RawPage(msgspec.Struct):
    items: list[msgspec.Raw]


POD = msgspec.json.Decoder(Pod)
PAGE = msgspec.json.Decoder(Page)
SHORT_PAGE = msgspec.json.Decoder(ShortPage)
RAW_PAGE = msgspec.json.Decoder(RawPage)
NAMED = msgspec.json.Decoder(Named)
