"""The state that a record has at one point: lines applied one after the other.

An object stays text, with the patches that follow it, until somebody needs it: of a hundred
thousand changes only the last state of each object has to be made.
"""

from __future__ import annotations

import json
from typing import Any

from shmcache.recorder import lines
from shmcache.recorder.lines import ObjectLine
from shmcache.recorder.patches import Patch, apply

Slot = tuple[int, bytes]
"""A resource's number, and the key as JSON."""


Chain = tuple[Any, bytes] | None
"""A patch and those before it: an object may have a hundred thousand of them."""


class RecordedObject:
    """An object: its text, and the patches since. Not changed once it is made."""

    __slots__ = ("chain", "text", "version")

    def __init__(self, text: bytes, chain: Chain = None, version: bytes = b"") -> None:
        self.text = text
        """Empty where a cache has the object already (Contents.settle)."""
        self.chain = chain
        self.version = version
        """JSON of the version in its line; empty: its own metadata has it."""

    def patched(self, base: Any) -> Any:
        """The object, from its text decoded. ValueError: the patches do not fit."""
        texts = []
        chain = self.chain
        while chain is not None:
            chain, text = chain
            texts.append(text)
        for text in reversed(texts):
            steps: Patch = json.loads(text)
            base = apply(base, steps)
        return base

    def value(self) -> Any:
        """The object, decoded with the json module. ValueError, RecursionError."""
        return self.patched(json.loads(self.text))


class Contents:
    """Resources and objects at one point of a record."""

    def __init__(self) -> None:
        self.about: dict[int, dict[str, Any]] = {}
        """Name and settings of each resource."""
        self.states: dict[int, dict[str, Any]] = {}
        """State, reason, version and marks of each resource."""
        self.objects: dict[Slot, RecordedObject] = {}
        self.touched: set[Slot] = set()
        """The objects that a line was about, since somebody emptied this."""

    def number(self, name: str) -> int:
        """Of a resource. KeyError."""
        for number, about in self.about.items():
            if about["name"] == name:
                return number
        raise KeyError(name)

    def restart(self) -> None:
        """Before a checkpoint: what it does not have is gone."""
        self.touched |= set(self.objects)
        self.objects.clear()
        self.about.clear()
        self.states.clear()

    def note(self, line: bytes) -> None:
        """R or S."""
        number, value = lines.fields(line)
        known = self.about if line[0] == ord("R") else self.states
        known[int(number)] = json.loads(value)

    def set(self, slot: Slot, value: Any) -> None:
        """An object as a value."""
        self.objects[slot] = RecordedObject(lines.compact(value))

    def settle(self) -> None:
        """A cache has all that was touched: from now on only what follows is kept."""
        for slot in self.touched & set(self.objects):
            self.objects[slot] = RecordedObject(b"")
        self.touched = set()

    def change(self, found: ObjectLine) -> None:
        """O, or a change. ValueError if it does not fit what is there."""
        slot = (found.resource, found.key)
        self.touched.add(slot)
        kind = found.kind.upper()
        if kind == "D":
            self.objects.pop(slot, None)
        elif kind == "M":
            before = self.objects.get(slot)
            if before is None:
                raise ValueError(f"a patch of {found.key!r}, which is not there")
            chain = (before.chain, found.rest)
            self.objects[slot] = RecordedObject(before.text, chain, found.version)
        else:
            self.objects[slot] = RecordedObject(found.rest, None, found.version)
