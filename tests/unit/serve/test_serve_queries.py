"""Queries by the parameters that the API server's OpenAPI names, in every way to write them.

The parameters and their types are those of a list and a watch in the OpenAPI of Kubernetes; the
values are drawn by type, and also of the wrong type. A second reader (the rules of Go's
url.ParseQuery, on bytes) gives each query its meaning; a query that is written in another way must
have the same answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from served import Asked, pod, serving

from shmcache.serve.http.requests import address_of

BOOLEAN, INTEGER, STRING = "boolean", "integer", "string"
PARAMETERS = {
    "allowWatchBookmarks": BOOLEAN, "continue": STRING, "fieldSelector": STRING,
    "labelSelector": STRING, "limit": INTEGER, "pretty": STRING, "resourceVersion": STRING,
    "resourceVersionMatch": STRING, "sendInitialEvents": BOOLEAN, "shardSelector": STRING,
    "timeoutSeconds": INTEGER, "watch": BOOLEAN,
}  # fmt: skip
VALUES = {
    BOOLEAN: ["true", "false", "1", "0", "True", "yes", ""],
    INTEGER: ["0", "1", "2", "100", "-1", "+1", " 1", "1.5", "1e3", "9" * 25, "x", ""],
    STRING: ["a=b", "a in (b,c)", "!a", "a,b", "metadata.name=p-0001", "spec.nodeName!=node-1",
             "Exact", "NotOlderThan", "100", "0", "é", "\u2028", "a b", "%", "&", "=", ";", "+",
             "#", "\0", "\x7f", "'", '"', "\\", "", "x" * 300],
}  # fmt: skip
JUNK = [b"", b"&", b"a", b"=", b"=x", b"%", b"%zz=1", b"limit=%4", b"limit=1;watch=1", b"a=%ff",
        b"%6Cimit=1", b"LIMIT=1", b"limit==1", b"limit%3D1", b"?limit=1", b"watch", b"+=+",
        b"a=b%26limit%3D1"]  # fmt: skip


def written(text: str, luck: random.Random) -> bytes:
    """A part of a query, with escapes where they must be, and sometimes where they need not."""
    often = luck.choice([0.0, 0.0, 0.2, 1.0])
    made = b""
    for byte in text.encode():
        plain = byte < 128 and (chr(byte).isalnum() or chr(byte) in "-._~")
        if byte == 32 and luck.random() < 0.5:
            made += b"+"
        elif plain and luck.random() >= often:
            made += bytes((byte,))
        else:
            made += luck.choice([b"%%%02X", b"%%%02x"]) % byte
    return made


def drawn(luck: random.Random) -> list[tuple[str, str]]:
    pairs = []
    for name in luck.choices(list(PARAMETERS), k=luck.randrange(5)):
        kind = PARAMETERS[name] if luck.random() < 0.8 else luck.choice(list(VALUES))
        pairs.append((name, luck.choice(VALUES[kind])))
    return pairs


def query_of(pairs: list[tuple[str, str]], luck: random.Random, *, junk: bool) -> str:
    parts = [written(name, luck) + b"=" + written(value, luck) for name, value in pairs]
    while junk and luck.random() < 0.4:
        parts.insert(luck.randrange(len(parts) + 1), luck.choice(JUNK))
    return b"&".join(parts).decode("latin-1")


def by_go(query: str) -> dict[bytes, bytes]:
    """The first value of each parameter, by the rules of Go's url.ParseQuery."""
    found: dict[bytes, bytes] = {}
    for pair in query.encode("latin-1").split(b"&"):
        name, _, value = pair.partition(b"=")
        texts = [unescaped(name), unescaped(value)]
        if pair and b";" not in pair and texts[0] is not None and texts[1] is not None:
            found.setdefault(texts[0], texts[1])
    return found


def unescaped(text: bytes) -> bytes | None:
    made, at = b"", 0
    while at < len(text):
        if text[at : at + 1] == b"%":
            digits = text[at + 1 : at + 3]
            if len(digits) < 2 or not all(one in b"0123456789abcdefABCDEF" for one in digits):
                return None
            made += bytes((int(digits, 16),))
            at += 3
        else:
            made += b" " if text[at : at + 1] == b"+" else text[at : at + 1]
            at += 1
    return made


def test_each_query_means_what_the_api_server_reads(rng: random.Random) -> None:
    for _ in range(4000):
        query = query_of(drawn(rng), rng, junk=True)
        mine = address_of("GET", f"/api/v1/pods?{query}").query
        theirs = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in by_go(query).items()
        }
        assert dict(mine) == theirs, query


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    some = [pod(number, a="bc"[number % 2]) for number in range(6)]
    with serving({"pods": some}) as found:
        yield found
        assert found.serve.server.stats.errors == 0


def test_a_query_that_is_written_in_another_way_has_the_same_answer(
    asked: Asked, rng: random.Random
) -> None:
    codes = set()
    for _ in range(400):
        pairs = [(name, value) for name, value in drawn(rng) if name != "timeoutSeconds"]
        pairs.append(("timeoutSeconds", "0" if rng.random() < 0.1 else "1"))
        if any(name in {"watch", "resourceVersion"} for name, _ in pairs):
            pairs = [pair for pair in pairs if pair[0] not in {"watch", "resourceVersion"}]
        plain, other = (query_of(pairs, rng, junk=False) for _ in range(2))
        first, second = (asked.get(f"/api/v1/pods?{query}") for query in (plain, other))
        assert (first.code, first.body) == (second.code, second.body), (plain, other)
        assert first.code in {200, 400, 410, 422}, (plain, first)
        codes.add(first.code)
    assert {200, 400} <= codes
