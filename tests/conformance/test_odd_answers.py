"""Invariant tested: JSON1, STATUS1: an odd answer is its server's failure, never our error.

Odd are JSON texts that are nested more deeply than Python decodes, and fields of other types than
Kubernetes gives them.
"""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from client import SILENCE, list_of, server_of, source_of
from wire import Wire

import shmcache
from shmcache.lease.election import LeaseRequest, ReplyKind, Verb
from shmcache.lease.requests import LeaseRequests
from shmcache.lease.slots import ANNOTATION, SlotTable
from shmcache.protocol.items import Item
from shmcache.protocol.jsontext import decoded
from shmcache.protocol.status import ServerStatus
from shmcache.reflector.filtering import ends_initial
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.etcd import values
from shmcache.source.failures import http_failure

PACKAGE = Path(shmcache.__file__).parent
DEPTH = 100_000
DEEP = [b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH, b"[" * DEPTH]
OTHERS: list[Any] = [
    None,
    True,
    -1,
    1 << 40,
    1.5,
    1e300,
    "text",
    [],
    [1],
    ["a"],
    [[]],
    {},
    {"a": 1},
]
"""Values of every type of JSON."""
OURS = {
    "protocol/jsontext.py",
    "protocol/tokens.py",  # says how deep the API server's decoder goes
    "handlers/cursorfile.py",  # lines that the program itself wrote, with their checksum
    "cli/output/jsonpath.py",  # the text of one string
}
"""Files that call the json module themselves, besides those of FOLDERS."""
FOLDERS = (
    "recorder/", "testing/", "cli/bench/", "cli/demo/", "cli/commands/bench.py",
    "portable/objects.py",
)  # fmt: skip
"""They read what they wrote."""


def answer(body: bytes, code: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        code, len(body), body
    )  # fmt: skip


@pytest.mark.parametrize("text", DEEP)
def test_a_text_that_is_nested_too_deeply_is_refused_as_any_other(text: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        decoded(text)


def test_no_other_file_decodes_texts_from_outside_by_itself() -> None:
    found = set()
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        nodes = ast.walk(ast.parse(file.read_text()))
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if not name.startswith(FOLDERS) and called & {"json.loads", "json.load"}:
            found.add(name)

    assert found == OURS


@pytest.mark.parametrize("text", DEEP)
def test_a_list_with_deep_metadata_is_garbage(text: bytes) -> None:
    body = b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"5"},"x":%b,"items":[]}' % text
    with Wire(answer(body)) as wire:
        found = list_of(source_of(wire.url))

    assert found.failure is not None
    assert found.failure.kind in {FailureKind.GARBAGE, FailureKind.ENDED}


@pytest.mark.parametrize("text", DEEP)
def test_a_refusal_with_a_deep_status_is_an_http_failure(text: bytes) -> None:
    with Wire(answer(text, 403)) as wire:
        found = list_of(source_of(wire.url))

    assert found.failure is not None
    assert (found.failure.kind, found.failure.code) == (FailureKind.HTTP, 403)


@pytest.mark.parametrize("text", DEEP)
def test_discovery_in_a_deep_document_is_garbage(text: bytes) -> None:
    with Wire(answer(text)) as wire, pytest.raises(SourceFailed) as caught:
        source_of(wire.url, "configmaps").resource()

    assert caught.value.failure.kind is FailureKind.GARBAGE


@pytest.mark.parametrize("text", DEEP)
def test_an_object_and_a_definition_in_deep_documents_are_garbage(text: bytes) -> None:
    with Wire(answer(text), answer(text)) as wire:
        source = source_of(wire.url)
        for ask in (lambda: source.identity("default", "a"), source.definition):
            with pytest.raises(SourceFailed) as caught:
                ask()
            assert caught.value.failure.kind is FailureKind.GARBAGE


@pytest.mark.parametrize("found", [*OTHERS, *({"spec": one} for one in OTHERS[:-2])], ids=repr)
def test_an_odd_definition_is_garbage(found: Any) -> None:
    with Wire(answer(orjson.dumps(found))) as wire, pytest.raises(SourceFailed) as caught:
        source_of(wire.url).definition()

    assert caught.value.failure.kind is FailureKind.GARBAGE


@pytest.mark.parametrize("text", DEEP)
def test_a_deep_bookmark_or_error_ends_nothing(text: bytes) -> None:
    bookmark = b'{"kind":"ConfigMap","metadata":{"resourceVersion":"9"},"data":%b}' % text

    assert not ends_initial(Item("BOOKMARK", "", "9", None, None, None, bookmark))
    assert ServerStatus.parse(0, text).code == 0


@pytest.mark.parametrize("text", DEEP)
def test_a_deep_lease_is_a_failed_request(text: bytes) -> None:
    with Wire(answer(text), answer(text, 409)) as wire:
        asked = LeaseRequests(server_of(wire.url), "default", "a", timeout=SILENCE)
        kinds = [asked.ask(LeaseRequest(Verb.READ)).kind for _ in range(2)]
        asked.close()

    assert kinds == [ReplyKind.FAILED, ReplyKind.CONFLICT]


@pytest.mark.parametrize("text", [*(text.decode() for text in DEEP), *OTHERS])
def test_an_odd_table_of_slots_is_refused(text: Any) -> None:
    if text is not None:
        with pytest.raises(ValueError, match=ANNOTATION):
            SlotTable.of({"metadata": {"annotations": {ANNOTATION: text}}})


@pytest.mark.parametrize("depth", [300, 1000])
def test_an_etcd_value_that_cannot_be_written_again_is_refused(depth: int) -> None:
    kv = SimpleNamespace(mod_revision=2, create_revision=1, version=1)
    text = b'{"metadata":{"labels":{}},"a":%b}' % (b"[" * depth + b"]" * depth)

    with pytest.raises(values.RefusedValue, match="nested too deeply"):
        values.object_text(text, "object", ("", "a"), kv, revisions=True)


def test_a_status_with_fields_of_any_type_is_read_as_far_as_it_is_one() -> None:
    names = ["code", "reason", "message", "details", "retryAfterSeconds", "causes", "cause"]
    for name, value in itertools.product(names, OTHERS):
        details = {"retryAfterSeconds": 3, "causes": [{"reason": "a", "message": "b"}]}
        status = {
            "kind": "Status",
            "code": 410,
            "reason": "Gone",
            "message": "x",
            "details": details,
        }
        if name == "cause":
            details["causes"] = [value, {"reason": value, "message": value}]
        else:
            (details if name in details else status)[name] = value
        found = ServerStatus.parse(500, orjson.dumps(status))
        failure = http_failure(500, {}, orjson.dumps(status), what="GET", now=0.0)

        assert isinstance(found.code, int), (name, value)
        assert all(
            isinstance(text, str) for text in (found.reason, found.message, *sum(found.causes, ()))
        )
        assert failure.retry_after in {None, 3.0}
        assert found.is_expired == (
            name not in {"code", "reason"} or name == "code" or found.code == 410
        )


@pytest.mark.parametrize("value", OTHERS)
def test_a_list_with_metadata_of_another_type_is_garbage(value: Any) -> None:
    for name in ("kind", "apiVersion", "metadata"):
        body = {"kind": "ConfigMapList", "apiVersion": "v1", "items": []} | {name: value}
        with Wire(answer(orjson.dumps(body))) as wire:
            found = list_of(source_of(wire.url))
        usual = dict if name == "metadata" else str

        assert (found.failure is None) == (value is None or isinstance(value, usual)), (name, value)
