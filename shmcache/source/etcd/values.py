r"""Values of etcd to the JSON text of objects.

A JSON object stays text: only the metadata that etcd knows is put into it, at the place where
Kubernetes' own encoder begins the metadata; a value that is laid out otherwise is decoded, and so
is one in which "metadata" occurs again: of two members with one name, JSON takes the last.

    VALUES1  metadata.resourceVersion is the mod_revision, whatever the value says itself.
    VALUES2  a Kubernetes object (apiVersion, kind) gets nothing else, so that it equals the API
             server's; any other object also has name, namespace, createRevision, version, and a
             uid: the create_revision, so that a key that was deleted and created is another object.
    VALUES3  what another program encoded or encrypted is refused for that key, never guessed.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import orjson

FORMS = ("object", "json", "text", "bytes")
"""Of a value: a JSON object; any JSON, UTF-8 text, or bytes, as {"metadata": …, "value": …}."""

_LEAD = re.compile(
    rb'\s*\{\s*((?:"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,\s*)*)"metadata"\s*:\s*\{'
)
_LETTER = re.compile(rb"\\u00[4-7]")
_EMPTY = re.compile(rb"\s*\}")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]*")
_PROTOBUF, _ENCRYPTED = b"k8s\0", b"k8s:enc:"


class RefusedValue(ValueError):
    """A value that becomes no object; the text says why, and what to do."""


def object_text(
    value: bytes, form: str, names: tuple[str, str], kv: Any, *, revisions: bool
) -> bytes:
    """The JSON text of an object. RefusedValue. `kv`: the KeyValue, for its revisions."""
    if form != "object":
        return b'{"metadata":{%b},"value":%b}' % (_metadata(names, kv), _value(value, form))
    refuse_foreign(value)
    if b'"resourceVersion"' not in value and not _has_escaped_letters(value):
        lead = _LEAD.match(value)
        plain = lead is not None and b'"apiVersion"' in lead[1] and b'"kind"' in lead[1]
        if lead is not None and plain and value.find(b'"metadata"', lead.end()) < 0:
            more = b'"resourceVersion":"%d"' % kv.mod_revision
            if revisions:
                more += b',"createRevision":"%d","version":%d' % (kv.create_revision, kv.version)
            end = lead.end()
            comma = b"" if _EMPTY.match(value, end) else b","
            return b"%b%b%b%b" % (value[:end], more, comma, value[end:])
        if lead is None and b'"metadata"' not in value:
            return _in_front(value, names, kv)
    return _decoded(value, names, kv, revisions=revisions)


def _has_escaped_letters(value: bytes) -> bool:
    r"""Whether a member could be called resourceVersion by escapes (r\u0065source…)."""
    return b"\\u00" in value and _LETTER.search(value) is not None


def refuse_foreign(value: bytes) -> None:
    """RefusedValue for the encodings of a Kubernetes API server that are not JSON."""
    if value.startswith(_PROTOBUF):
        raise RefusedValue(
            "it is protobuf of a Kubernetes API server: start kube-apiserver with "
            "--storage-media-type=application/json and write the objects again, or cache this "
            "resource from the API server (`shmcache run RESOURCE`, without --etcd)"
        )
    if value.startswith(_ENCRYPTED):
        raise RefusedValue(
            "it is encrypted by a Kubernetes API server (k8s:enc:), which alone can read it: cache "
            "this resource from the API server (`shmcache run RESOURCE`, without --etcd)"
        )


def _in_front(value: bytes, names: tuple[str, str], kv: Any) -> bytes:
    """An object without metadata: they come first."""
    text = value.strip()
    if not text.startswith(b"{"):
        raise RefusedValue(_NO_OBJECT)
    rest = text[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b","
    return b'{"metadata":{%b}%b%b' % (_metadata(names, kv), comma, rest)


_NO_OBJECT = (
    'it is not a JSON object: declare what the values are, value = "json", "text" or "bytes"'
)


def _decoded(value: bytes, names: tuple[str, str], kv: Any, *, revisions: bool) -> bytes:
    try:
        found = orjson.loads(value)
    except ValueError as error:
        raise RefusedValue(f"{_NO_OBJECT} ({error})") from error
    if not isinstance(found, dict):
        raise RefusedValue(_NO_OBJECT)
    metadata = found.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise RefusedValue("its metadata is not an object")
    metadata["resourceVersion"] = str(kv.mod_revision)
    kubernetes = "apiVersion" in found and "kind" in found
    if not kubernetes:
        namespace, name = names
        metadata.setdefault("name", name)
        if namespace:
            metadata.setdefault("namespace", namespace)
        metadata.setdefault("uid", str(kv.create_revision))
    if revisions or not kubernetes:
        metadata["createRevision"] = str(kv.create_revision)
        metadata["version"] = kv.version
    try:
        return orjson.dumps(found)
    except TypeError as error:  # it reads more levels than it writes
        raise RefusedValue("it is nested too deeply") from error


def _metadata(names: tuple[str, str], kv: Any) -> bytes:
    namespace, name = names
    named = f'"name":{_quoted(name)}'
    if namespace:
        named += f',"namespace":{_quoted(namespace)}'
    return b'%b,"resourceVersion":"%d","createRevision":"%d","uid":"%d","version":%d' % (
        named.encode(), kv.mod_revision, kv.create_revision, kv.create_revision, kv.version,
    )  # fmt: skip


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else json.dumps(text)


def _value(value: bytes, form: str) -> bytes:
    if form == "bytes":
        return b'"%b"' % base64.b64encode(value)
    if form == "text":
        try:
            return orjson.dumps(value.decode())
        except UnicodeDecodeError as error:
            raise RefusedValue(
                f'it is not UTF-8 text: declare value = "bytes" ({error})'
            ) from error
    try:
        orjson.loads(value)
    except ValueError as error:
        raise RefusedValue(
            f'it is not JSON: declare value = "text" or "bytes" ({error})'
        ) from error
    return value
