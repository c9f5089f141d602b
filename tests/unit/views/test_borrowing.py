"""Invariant tested: no reference that C borrows outlives Python code that could drop it.

Each attack runs in a process of its own whose allocator overwrites freed memory, so that a use
after free shows.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from collections import OrderedDict
from typing import Any

import pytest

import shmcache
from shmcache import Writer, _hot
from shmcache.errors import UnsupportedValue

PRELUDE = """
import gc, sys
import shmcache
from shmcache import _hot
from shmcache.errors import UnsupportedValue

name = sys.argv[1]

def attack(writer):
"""
CALL = """
with shmcache.Writer(name, ["things"]) as writer:
    attack(writer)
    writer.put("things", "after", {"it": "works"})
    writer.check()
print("survived")
"""

ATTACKS = {
    "the repr of a key clears the containers around it": """
        class Key(str):
            def __repr__(self):
                outer.clear()
                return "gone"
        for depth in range(5):
            inner = {Key("k"): {Key("m"): object()}}
            for _ in range(depth):
                inner = {"x": [inner]}
            outer = {"a": inner}
            del inner
            try:
                writer.put("things", "key", outer)
            except UnsupportedValue:
                continue
            raise AssertionError("stored an object()")
    """,
    "the repr of a key that is not a str clears its dict": """
        class Key:
            def __repr__(self):
                outer.clear()
                return "gone"
        outer = {"a": {Key(): 1}}
        try:
            writer.put("things", "key", outer)
        except UnsupportedValue:
            return
        raise AssertionError("stored a key that is not a str")
    """,
    "the comparison of a key clears the metadata": """
        class Key(str):
            def __eq__(self, other):
                metadata.clear()
                return False
            def __hash__(self):
                return hash("namespace")
        metadata = {}
        metadata.update({Key("other"): 1, "name": "a" * 100, "resourceVersion": "7" * 100})
        objects = [{"metadata": metadata, "more": [1, 2, 3]}]
        try:
            with writer.batch():
                _hot.apply(writer._handle.address, 0, objects)
        except UnsupportedValue:
            pass
    """,
    "the comparison of a key clears the list of objects": """
        class Key(str):
            def __eq__(self, other):
                objects.clear()
                return False
            def __hash__(self):
                return hash("metadata")
        objects = []
        objects.append({Key("x"): 1, "metadata": {"name": "n" * 100}, "more": [1, 2, 3]})
        with writer.batch():
            _hot.apply(writer._handle.address, 0, objects)
    """,
    "index values end the list that they are in": """
        def values():
            emitted.clear()
            yield "value"
        emitted = [values(), ["a" * 50], ["b" * 50]]
        try:
            with writer.batch():
                _hot.put(writer._handle.address, 0, "key", {"a": 1}, None, emitted)
        except (ValueError, UnsupportedValue):
            pass
    """,
    "a number clears the list of spans": """
        class Number:
            def __index__(self):
                spans.clear()
                return 1
        spans = [(Number(), 2), (3, 4), (5, 6)] * 50
        _hot.Delivered().trim(spans, 1)
    """,
    "a collection within an error clears the containers": """
        class Cycle:
            def __del__(self):
                for outer in alive:
                    outer.clear()
        alive = []
        for round in range(300):
            gc.disable()
            one = Cycle()
            one.me = one
            del one
            alive = [{"a": [{"b" + str(round) * 9: [[object()]]}]}]
            gc.set_threshold(1)
            gc.enable()
            try:
                raise ValueError("an exception is handled: the next one gets a context")
            except ValueError:
                try:
                    writer.put("things", "key", alive[0])
                except UnsupportedValue:
                    pass
            gc.set_threshold(700)
    """,
    "a refused item clears the list of items": """
        class Odd:
            def __repr__(self):
                items.clear()
                return "odd"
        items = [Odd(), Odd()]
        try:
            with writer.batch():
                _hot.apply_items(writer._handle.address, 0, items, False, False)
        except TypeError:
            pass
    """,
}


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_borrowed_references_survive(name: str, attack: str) -> None:
    body = textwrap.indent(textwrap.dedent(ATTACKS[attack]), "    ")
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + body + CALL, name],
        env=os.environ | {"PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "survived\n"


class Word(str):
    """A key that runs code when it is freed."""

    __slots__ = ("__weakref__",)


def test_keys_of_subclasses_are_not_remembered(name: str) -> None:
    with Writer(name, ["things"]) as writer:
        keys = [Word(f"key-{number}") for number in range(4)]
        gone = [weakref.ref(key) for key in keys]
        writer.put("things", "a", dict.fromkeys(keys, 1))
        del keys
        gc.collect()
        assert [one() for one in gone] == [None] * 4


def test_collections_continue_after_a_put(name: str) -> None:
    with Writer(name, ["things"]) as writer:
        writer.put("things", "a", {"a": 1})
        with pytest.raises(UnsupportedValue):
            writer.put("things", "a", {"a": object()})
        assert gc.isenabled()
        gc.disable()
        try:
            writer.put("things", "a", {"a": 2})
            assert not gc.isenabled()
        finally:
            gc.enable()


def test_an_ordered_dict_keeps_its_own_order(name: str) -> None:
    """move_to_end() changes the order of the OrderedDict, not of the dict inside (G3)."""
    ordered: OrderedDict[str, Any] = OrderedDict((letter, letter) for letter in "abcd")
    ordered.move_to_end("b")
    ordered.move_to_end("d", last=False)
    nested = {"list": [ordered], "plain": {"x": ordered}}
    with Writer(name, ["things"]) as writer, shmcache.attach(name) as cache:
        writer.put("things", "a", ordered)
        writer.put("things", "b", nested)
        assert list(cache["things"]["a"]) == ["d", "a", "c", "b"]
        assert list(cache["things"]["b"]["list"][0]) == ["d", "a", "c", "b"]
        ordered.move_to_end("a")
        writer.put("things", "a", ordered)
        assert list(cache["things"]["a"]) == ["d", "c", "b", "a"]
        with pytest.raises(UnsupportedValue, match=r"at \['x'\]: a key of an OrderedDict"):
            writer.put("things", "c", {"x": OrderedDict({Word("key"): 1})})
        assert _hot.defended
