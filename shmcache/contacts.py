"""What a writer says of its sources: the state of each resource, and when it was last heard.

A state, its reason and a version are part of a generation. What note() is told is not: it is
visible at once, wakes nobody, and costs a few stores, so that it may be told of every chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from shmcache._native import REASON_MAX, check, ffi, lib
from shmcache.batches import Batches

if TYPE_CHECKING:
    from typing import Unpack

    from shmcache.writer import Declared


class Note(TypedDict, total=False):
    """What note() takes. `contact_ns` is a time.monotonic_ns(), the rest is added to what was."""

    contact_ns: int
    lists: int
    watches: int
    events: int
    bookmarks: int
    errors: int
    relists: int
    bytes: int
    refused: int


class Contacts(Batches):
    """The part of the Writer that says how its sources are."""

    def _resource(self, resource: str) -> Declared:
        raise NotImplementedError

    def set_state(
        self, resource: str, state: int, version: str | None = None, reason: str = ""
    ) -> None:
        """Publishes the resource's state with its reason in words, and its version if one is given.

        A reason longer than 1,024 bytes is cut.
        """
        declared = self._resource(resource)
        text = reason.encode(errors="replace")[:REASON_MAX].decode(errors="ignore").encode()
        with self._change(resource, whole=True) as handle:
            check(lib.shmc_set_state(handle, declared.id, state), f"{resource}: state")
            check(lib.shmc_set_reason(handle, declared.id, text, len(text)), f"{resource}: reason")
            if version is not None:
                name = version.encode()
                check(lib.shmc_set_version(handle, declared.id, name, len(name)), resource)

    def note(self, resource: str, **what: Unpack[Note]) -> None:
        """Tells readers what its source did: no generation, no wake-up, visible at once.

        `contact_ns` is when the last byte or bookmark came; it only rises. Note it after what came
        until then was applied: whoever sees it reads all of that (K1 of contact.c).
        """
        declared = self._resource(resource)
        note = ffi.new("struct shmc_note *", what)
        with self._turn() as handle:
            check(lib.shmc_note(handle, declared.id, note), f"{resource}: note {what}")
