"""A recording read again: its records in their order, one of them ahead.

Files without any `list` or `watch` are read too: lines of events, with or without times, as
`kubectl get --watch --output-watch-events -o json` can be made to give them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shmcache.protocol.jsontext import decoded
from shmcache.source.inflate import WBITS, inflate

EVENT = "event"
HEADS = frozenset({"list", "watch"})
_PIECE = 1 << 20
_TIME = b'{"time":'


class Record(NamedTuple):
    """One line: `value` is an event's line, or what a note says."""

    time: float
    what: str
    value: object


class Tape:
    """The records of a file. ValueError names an invalid line."""

    def __init__(self, path: str) -> None:
        self._records = _records(path)
        self._next = next(self._records, None)

    @property
    def head(self) -> Record | None:
        """The next record, which stays; None at the end."""
        return self._next

    def take(self) -> Record | None:
        """The next record, and goes on."""
        found = self._next
        self._next = next(self._records, None)
        return found

    def skip(self) -> None:
        """On to the next question."""
        while self._next is not None and self._next.what not in HEADS:
            self.take()


def _records(path: str) -> Iterator[Record]:
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            try:
                yield _record(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error


def _record(line: bytes) -> Record:
    time = 0.0
    if line.startswith(_TIME):
        number, comma, rest = line[len(_TIME) :].partition(b",")
        if not comma:
            raise ValueError("a record says nothing but its time")
        time = float(number)
        if rest.startswith(b'"type":'):
            return Record(time, EVENT, b"{" + rest + b"\n")
    found = decoded(line)
    if not isinstance(found, dict):
        raise ValueError("no record")  # noqa: TRY004 - of a file, not of a caller
    time = float(found.pop("time", time))
    if "type" in found:
        return Record(time, EVENT, line + b"\n")
    if len(found) != 1:
        raise ValueError("a record has its time and one thing to say")
    ((what, value),) = found.items()
    return Record(time, what, value)


def _lines(path: str) -> Iterator[bytes]:
    """Whole lines; what follows the last line's end was cut off by a crash."""
    held: list[bytes] = []
    for piece in _pieces(path):
        first, *lines = piece.split(b"\n")
        held.append(first)
        if lines:
            yield b"".join(held)
            held = [lines.pop()]
            yield from lines


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        magic = file.read(2)
        file.seek(0)
        plain = iter(lambda: file.read(_PIECE), b"")
        if magic == b"\x1f\x8b":
            yield from inflate(plain, WBITS["gzip"])
        else:
            yield from plain
