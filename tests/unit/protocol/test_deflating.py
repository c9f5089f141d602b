"""Invariant tested: gzip is read and written the same with ISA-L and without it."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from collections.abc import Iterator

import pytest

from shmcache.protocol import deflating
from shmcache.protocol.deflating import Inflater, deflated
from shmcache.serve.http import zipping
from shmcache.source.inflate import WBITS, inflate

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 31))


@pytest.fixture(params=["isal", "zlib"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "zlib":
        monkeypatch.setattr(deflating, "_fast", None)
    else:
        pytest.importorskip("isal", reason="the extra isal is not installed")
    return str(request.param)


def text(rng: random.Random, size: int) -> bytes:
    words = [rng.randbytes(rng.randrange(1, 20)) for _ in range(50)]
    found = b"".join(rng.choice(words) for _ in range(size // 10 + 1))
    return found[:size]


def cut(rng: random.Random, data: bytes) -> Iterator[bytes]:
    while data:
        size = rng.randrange(1, 5000)
        yield data[:size]
        data = data[size:]


def test_members_in_any_pieces_are_inflated_deflate1(kind: str) -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        bodies = [text(rng, rng.choice([0, 1, 100, 70_000, 3_000_000])) for _ in range(3)]
        packed = b"".join(gzip.compress(body, rng.randrange(10)) for body in bodies)
        pieces = inflate(cut(rng, packed), WBITS["gzip"])
        assert b"".join(pieces) == b"".join(bodies), f"SEED={SEED}, {kind}"


def test_a_member_without_its_end_is_not_whole_deflate1(kind: str) -> None:
    packed = gzip.compress(text(random.Random(SEED), 10_000))
    for size in (0, 1, 10, len(packed) // 2, len(packed) - 1, len(packed)):
        stream = inflate(iter([packed[:size]] if size else []), WBITS["gzip"])
        while True:
            try:
                next(stream)
            except StopIteration as end:
                assert end.value == (size in {0, len(packed)}), f"{kind}: cut at {size}"
                break


def test_broken_data_is_an_error_of_zlib_deflate1(kind: str) -> None:
    packed = bytearray(gzip.compress(text(random.Random(SEED), 10_000)))
    packed[-6] ^= 1
    with pytest.raises(zlib.error):
        list(inflate(iter([bytes(packed)]), WBITS["gzip"]))
    with pytest.raises(zlib.error):
        Inflater(WBITS["gzip"]).feed(b"\x1f\x8bnothing of this", 100)
    assert kind


def test_bodies_of_serve_are_gzip_deflate1(kind: str) -> None:
    rng = random.Random(SEED)
    bodies = [text(rng, size) for size in (1, 0, 100_000, 17, 500_000)]
    assert gzip.decompress(b"".join(zipping.pieces(iter(bodies)))) == b"".join(bodies)
    assert gzip.decompress(zipping.whole(bodies[4])) == bodies[4]
    whole = zlib.decompressobj(-15).decompress(deflated(bodies[2], -15))
    assert whole == bodies[2], f"SEED={SEED}, {kind}"
