"""A flight record: what a recorder wrote in a directory, read back. Needs no running reflector.

PASTREEL1  A state is exact or an error: of a time that no reel covers, or that lies behind damage,
PastUnknown states that, and the times that are known.
PASTREEL2  A reel is as long as the next one says: one that was cut is damaged, not shorter.
PASTREEL3  Reading takes no lock and changes nothing; reels that a recorder removes meanwhile are
as those that were never there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from shmcache.errors import PastUnknown
from shmcache.recorder import lines
from shmcache.recorder.contents import Contents
from shmcache.recorder.disk import reel_numbers, reel_path
from shmcache.recorder.ending import head_of
from shmcache.recorder.reels import ReelReader


class RecordedStep(NamedTuple):
    """The lines up to a T: what led from one state of the cache to the next."""

    time_ns: int
    text: list[bytes]

    @property
    def is_checkpoint(self) -> bool:
        """Whether it begins a reel."""
        return bool(self.text) and self.text[0][:1] == b"H"

    @property
    def since_ns(self) -> int:
        """Since when its changes may have happened, if that is long before (LINES3); else 0."""
        first = self.text[0] if self.text else b""
        return int(lines.fields(first)[0]) if first[:1] == b"B" else 0


class Reel:
    """One reel of a record."""

    def __init__(self, number: int, path: str, head: dict[str, Any]) -> None:
        self.number = number
        self.path = path
        self.head = head
        self.cut_at = 0
        """Its length as of the next reel; 0: unknown."""
        self.fault = ""
        """Why its end could not be read, once it was read."""
        self.ended = False
        """Its recorder ended it in order, once it was read."""

    @property
    def time_ns(self) -> int:
        """The time of its checkpoint."""
        return int(self.head["time"])

    @property
    def gap(self) -> str:
        """Why something is missing before it; "" if nothing is."""
        return str(self.head["gap"])

    def steps(self) -> Iterator[RecordedStep]:
        """Whole steps in their order; afterwards `fault` says why it did not go on."""
        reader = ReelReader(self.path)
        held: list[bytes] = []
        for packet in reader.packets():
            self.ended = False
            for line in packet.split(b"\n"):
                if line[:1] == b"T":
                    yield RecordedStep(int(lines.fields(line)[0]), held)
                    held = []
                elif line[:1] == b"E":
                    self.ended = True
                elif line:
                    held.append(line)
        self.fault = reader.fault
        if not self.fault and reader.size < self.cut_at:
            self.fault = f"{os.path.basename(self.path)}: is cut off at byte {reader.size:,}"


class Gap(NamedTuple):
    """A time that is not known."""

    since_ns: int
    until_ns: int
    why: str


class FlightRecord:
    """A directory of reels."""

    def __init__(self, directory: str) -> None:
        """PastUnknown if nothing was recorded there. OSError."""
        self.directory = directory
        self.unreadable: list[str] = []
        """Reels of which not even the beginning is whole, as text."""
        self.reels: list[Reel] = []
        for number in reel_numbers(directory):
            self._find(number)
        for reel, after in zip(self.reels, self.reels[1:], strict=False):
            before = after.head["after"]
            if before is not None and before[0] == reel.number:
                reel.cut_at = before[1]
        if not self.reels:
            why = f": {'; '.join(self.unreadable)}" if self.unreadable else ""
            raise PastUnknown(f"{directory} has no flight record{why}")

    def _find(self, number: int) -> None:
        path = reel_path(self.directory, number)
        try:
            head = head_of(path)
        except FileNotFoundError:
            return  # PASTREEL3
        if head is None:
            self.unreadable.append(f"{os.path.basename(path)}: its beginning is not whole")
        else:
            self.reels.append(Reel(number, path, head))

    # ---- all of it -------------------------------------------------------------------------------

    def play(self, reels: list[Reel] | None = None) -> Iterator[tuple[Reel, RecordedStep]]:
        """All steps in the order of time. The first step of each reel is its checkpoint."""
        for reel in self.reels if reels is None else reels:
            try:
                for step in reel.steps():
                    yield reel, step
            except FileNotFoundError:
                continue  # PASTREEL3

    def gaps(self) -> list[Gap]:
        """Times that are missing between reels. After play(), also those behind damage."""
        found = []
        for reel, after in zip(self.reels, [*self.reels[1:], None], strict=False):
            until = after.time_ns if after is not None else 0
            if reel.fault:
                found.append(Gap(0, until, reel.fault))
            elif after is not None and after.gap:
                found.append(Gap(int(after.head["since"]), until, after.gap))
        return found

    # ---- one state -------------------------------------------------------------------------------

    def last(self) -> Contents:
        """The newest state that is known."""
        for reel in reversed(self.reels):
            found, _, _ = _walk(reel, None)
            if found is not None:
                return found
        raise PastUnknown(f"{self.directory}: no reel has a whole checkpoint")

    def at_time(self, wanted_ns: int) -> Contents:
        """The state at a time of the wall clock. PastUnknown."""
        number = sum(reel.time_ns <= wanted_ns for reel in self.reels) - 1
        if number < 0:
            raise PastUnknown(
                f"{self.directory} begins at {clock(self.reels[0].time_ns)}, after "
                f"{clock(wanted_ns)}"
            )
        reel = self.reels[number]
        found, last_ns, blind_ns = _walk(reel, wanted_ns)
        if blind_ns and wanted_ns > blind_ns:
            raise PastUnknown(
                f"the recorder did not look from {clock(blind_ns)} to {clock(last_ns)}, or its "
                "clock was set: the states of the times between are not known"
            )
        if found is not None and last_ns >= wanted_ns:
            return found
        after = self.reels[number + 1] if number + 1 < len(self.reels) else None
        if found is not None and not reel.fault and after is not None and not after.gap:
            return found
        raise PastUnknown(self._unknown(reel, after, wanted_ns, last_ns))

    def _unknown(self, reel: Reel, after: Reel | None, wanted_ns: int, last_ns: int) -> str:
        wanted, last = clock(wanted_ns), clock(last_ns or reel.time_ns)
        if reel.fault:
            until = f"; it goes on at {clock(after.time_ns)}" if after else ""
            return (
                f"{reel.fault}: the state at {wanted} is unknown, the last one known is of {last}"
                f"{until}"
            )
        if after is not None:
            return (
                f"nothing is known from {last} to {clock(after.time_ns)}: {after.gap or 'no reel'}"
            )
        return f"the record ends at {last}, before {wanted}"

    def reel_before(self, versions: dict[str, int]) -> Reel:
        """The last reel that begins with all these resources at or before their versions."""
        found = None
        for reel in self.reels:
            begun = reel.head["versions"]
            if all(
                (begun.get(name) or "").isdecimal() and int(begun[name]) <= version
                for name, version in versions.items()
            ):
                found = reel
        if found is None:
            raise PastUnknown(f"{self.directory} does not lead back to that version")
        return found


def _walk(reel: Reel, until_ns: int | None) -> tuple[Contents | None, int, int]:
    """The state at the last step up to a time; of the last step that was read, its times."""
    contents: Contents | None = None
    last = 0
    try:
        for step in reel.steps():
            last = step.time_ns
            if until_ns is not None and step.time_ns > until_ns:
                return contents, last, step.since_ns
            if contents is None:
                contents = Contents()
            take(contents, step.text)
    except FileNotFoundError:
        return None, 0, 0
    return contents, last, 0


def take(contents: Contents, text: list[bytes]) -> None:
    """Applies the lines of a step."""
    for line in text:
        letter = line[0]
        if letter in lines.CHANGES or letter == ord("O"):
            contents.change(lines.change(line))
        elif letter in b"RS":
            contents.note(line)


def gap_of(line: bytes) -> str:
    """Why changes are missing, by a G."""
    return str(json.loads(lines.fields(line)[0])["why"])


def clock(time_ns: int) -> str:
    """2026-11-19T21:00:00Z, as people and `--at` have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // 10**9))
