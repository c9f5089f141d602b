"""Invariant tested: a selector's memory of shapes is true, whatever it met while its generation was
revoked (VALUE3: nothing counts before the generation is validated)."""

from __future__ import annotations

import gc
import itertools
import mmap
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import shmcache
from shmcache import Writer, _hot
from shmcache.errors import StaleObjectError

FLOOR = 256  # of struct shmc_super, in layout.h
KEYS = ("a", "bb", "ccc")


def short(text: str) -> bytes:
    """The word of a string of at most seven bytes."""
    payload = int.from_bytes(text.encode(), "little")
    return struct.pack("<Q", payload << 8 | len(text) << 3 | 2)


def shape_at(memory: mmap.mmap, keys: tuple[str, ...]) -> int:
    """The place of the shape with these keys: its id, their number, their words."""
    return memory.find(struct.pack("<Q", len(keys)) + b"".join(map(short, keys))) - 8


class Reuse:
    """Plays the writer, which reuses a shape's block under a reader whose pin it has revoked.

    A garbage collection is the moment when Python code runs between two chunks of a walk.
    """

    def __init__(self, memory: mmap.mmap, moment: int, new_id: int) -> None:
        shape = shape_at(memory, KEYS)
        words = {FLOOR: struct.pack("<Q", 2**62), shape: struct.pack("<Q", new_id)}
        self.memory, self.left = memory, moment
        self.words = {**words, shape + 16: short("zz")}
        self.before = {at: memory[at : at + 8] for at in self.words}

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        self.left -= phase == "start"
        if self.left == 0:
            self.write(self.words)

    def write(self, words: dict[int, bytes]) -> None:
        for at, word in words.items():
            self.memory[at : at + 8] = word

    def during(self, walk: Callable[[], object]) -> bool:
        """Returns whether the walk noticed that its generation is stale."""
        threshold = gc.get_threshold()
        gc.collect()
        gc.callbacks.append(self)
        gc.set_threshold(1)
        try:
            walk()
        except StaleObjectError:
            return True
        finally:
            gc.set_threshold(*threshold)
            gc.callbacks.remove(self)
            self.write(self.before)
        return False


def test_shapes_of_a_stale_generation_are_forgotten(name: str) -> None:
    obj: dict[str, Any] = {"a": {"x": "no"}, "bb": 1, "ccc": 2}
    match: dict[str, Any] = {**obj, "a": {"x": "yes"}}
    stale = 0

    with Writer(name, ["things"]) as writer, shmcache.attach(name) as cache:
        writer.put_many("things", [(f"old-{i:04}", {**obj, "bb": i}, None) for i in range(400)])
        [path] = Path("/dev/shm").glob(f"*{name}.*.data")  # noqa: S108
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            for found, moment in itertools.product(range(1, 5), range(1, 8)):
                writer.put("things", f"old-{found:04}", match)
                writer.put("things", "last", {f"m{found}-{moment}": 0})
                [last] = struct.unpack_from("<Q", memory, shape_at(memory, (f"m{found}-{moment}",)))
                where = _hot.Where(((("a",), ((("x",), "in", ("yes",)),)),))
                walk = partial(cache.reader.root().scan, 0, where=where)
                stale += Reuse(memory, moment, last + 1).during(walk)
                writer.put("things", "new", {f"n{found}-{moment}": 0, **match})
                new = cache.reader.root().scan(0, where=where, prefix="new", want="keys")
                assert new == ["new"], (found, moment)
    assert stale > 0 or sys.version_info >= (3, 12)  # if nothing is collected within a call
