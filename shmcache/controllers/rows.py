"""One process's row on a board: its counts, the keys that it reconciles, its writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from shmcache.memory.companions import ROWS

if TYPE_CHECKING:
    from shmcache.controllers.board import Board

RUNNERS, _RUNNER = 64, 512
PROCESSES = ROWS
BUCKETS = 1024
RESOURCES = 1024
"""That feed a controller, or that it writes."""
_OFTEN, _RARE_BUCKETS = 16, 64
"""Each of the first resources has all buckets. The others, which few controllers have, have fewer:
their keys wait for more of each other's versions."""
DELETIONS, _DELETION = 512, 512
MAX = (1 << 64) - 1
EXPIRE = 300.0
"""Seconds for which a version or a deletion is remembered (WRITTEN2)."""

_COUNTS = 64  # behind pid, concurrency, deletions ever used
_RUNNERS = 4096
_STAMPS = _RUNNERS + RUNNERS * _RUNNER  # by bucket: when it deleted something
_VERSIONS = _STAMPS + BUCKETS * 8  # by resource and bucket: when, version
_RARE = _VERSIONS + _OFTEN * BUCKETS * 16
_DELETIONS = _RARE + (RESOURCES - _OFTEN) * _RARE_BUCKETS * 16
ROW = _DELETIONS + DELETIONS * _DELETION

# A runner, a thread or task that reconciles: since when (0: it is in no key), the key's digest, the
# key.
# A deletion: when (0: none), bucket, resource, key, UID.
_KEY_ROOM, _UID_ROOM = 376, 104


def digest(text: str) -> int:
    """64 bits that are never 0, the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") or 1


def expired(when: int) -> bool:
    """Whether something that was remembered then counts no longer."""
    return time.monotonic_ns() - when > EXPIRE * 1e9


class Runner(NamedTuple):
    """A thread or task in a key."""

    number: int
    since: int
    """In ns, of the monotonic clock."""
    key: str


class Deletion(NamedTuple):
    """Something that was deleted while a key was reconciled."""

    at: int
    when: int
    bucket: int
    resource: int
    key: str
    uid: str


class Row:
    """A row, as any process reads it."""

    def __init__(self, board: Board, number: int, at: int) -> None:
        self.board = board
        self.number = number
        self._at = at // 8

    @property
    def pid(self) -> int:
        """Of who has it, or had it last and was killed; 0 if it was left in order."""
        return self.board.words[self._at]

    @property
    def concurrency(self) -> int:
        """On how many keys it works at a time."""
        return self.board.words[self._at + 1]

    @property
    def overdue(self) -> int:
        """The runners that hung, as bits, if the process ended because of them; 0 if unknown."""
        return self.board.words[self._at + 3]

    def convict(self, runners: int) -> None:
        """The process ends because of these runners; others that end with it are bystanders."""
        self.board.words[self._at + 3] = runners

    @property
    def ends_at(self) -> int:
        """When a process that ends because of an overdue runner has ended the others, in ns."""
        return self.board.words[self._at + 4]

    def count(self, number: int) -> int:
        """One of its counts: see numbers.py."""
        return self.board.words[self._at + _COUNTS // 8 + number]

    def runners(self) -> Iterator[Runner]:
        """Those that are in a key."""
        for number in range(min(self.concurrency, RUNNERS)):
            at = self._runner(number)
            since = self.board.words[at]
            if since:
                yield Runner(number, since, self.board.text(at * 8 + 16, _RUNNER - 16))

    def runners_in(self, digest: int) -> list[int]:
        """Those that are in the key of this digest."""
        words = self.board.words
        found = []
        for number in range(min(self.concurrency, RUNNERS)):
            at = self._runner(number)
            if words[at + 1] == digest and words[at]:
                found.append(number)
        return found

    def empty(self, number: int) -> None:
        """The runner is in no key any more."""
        self.board.words[self._runner(number)] = 0

    def _runner(self, number: int) -> int:
        return self._at + (_RUNNERS + number * _RUNNER) // 8

    def written(self, bucket: int, resource: int) -> tuple[int, int]:
        """When something was written, and the version; zeros if nothing was."""
        at = self._version(bucket, resource)
        return self.board.words[at], self.board.words[at + 1]

    def _version(self, bucket: int, resource: int) -> int:
        if resource < _OFTEN:
            return self._at + (_VERSIONS + (resource * BUCKETS + bucket % BUCKETS) * 16) // 8
        rare = (resource - _OFTEN) * _RARE_BUCKETS + bucket % _RARE_BUCKETS
        return self._at + (_RARE + rare * 16) // 8

    def deleted_at(self, bucket: int) -> int:
        """When something was deleted last in this bucket; 0 if nothing was."""
        return self.board.words[self._at + _STAMPS // 8 + bucket % BUCKETS]

    def deletions(self) -> Iterator[Deletion]:
        """All that it remembers."""
        for number in range(min(self.board.words[self._at + 2], DELETIONS)):
            found = self._deletion(number)
            if found.when:
                yield found

    def _deletion(self, number: int) -> Deletion:
        at = self._at + (_DELETIONS + number * _DELETION) // 8
        when, bucket, resource = self.board.words[at : at + 3]
        key = self.board.text(at * 8 + 24, _KEY_ROOM) if when else ""
        uid = self.board.text(at * 8 + 24 + _KEY_ROOM, _UID_ROOM) if when else ""
        return Deletion(at, when, bucket, resource, key, uid)


class OwnRow(Row):
    """The row of this process: only the settler of a dead one's runner also writes it."""

    def __init__(self, board: Board, number: int, at: int) -> None:
        super().__init__(board, number, at)
        self._lock = threading.Lock()
        self._next = 0

    def enter(self, concurrency: int) -> None:
        """Begins here, in no key."""
        for runner in list(self.runners()):
            self.empty(runner.number)
        self.convict(0)
        self.board.words[self._at + 4] = 0
        self.board.words[self._at + 1] = concurrency
        self.board.words[self._at] = os.getpid()

    def leave(self) -> None:
        """Gives the row up in order: in no key."""
        for runner in list(self.runners()):
            self.empty(runner.number)
        self.board.words[self._at] = 0
        self.board.leave_row(self.number)

    def end_by(self, moment: int) -> None:
        """This process ends, and its other runners have until then."""
        self.board.words[self._at + 4] = moment

    def add(self, *counts: tuple[int, int]) -> None:
        """Counts: number and amount of each."""
        words, start = self.board.words, self._at + _COUNTS // 8
        with self._lock:
            for number, amount in counts:
                words[start + number] = (words[start + number] + amount) & MAX

    def fill(self, number: int, key: str, digest: int, wait: float = 0.0) -> int:
        """Puts the runner into the key (BOARD3); since when. Its time begins after `wait`."""
        at, now = self._runner(number), time.monotonic_ns()
        self.board.set_text(at * 8 + 16, _RUNNER - 16, key)
        self.board.words[at + 1] = digest
        self.board.words[at] = now + int(wait * 1e9)
        return now

    def wrote(self, bucket: int, resource: int, version: int) -> None:
        """Remembers a version, unless a newer one is (BOARD2).

        An older version says nothing about the newer one, whose time therefore stays: a server
        that was restored from a backup counts on from less, and the newer one expires.
        """
        at, words = self._version(bucket, resource), self.board.words
        with self._lock:
            if version >= words[at + 1]:
                words[at] = time.monotonic_ns()
                words[at + 1] = version
            elif expired(words[at]):
                words[at + 1] = version
                words[at] = time.monotonic_ns()  # last: an old version never gets a new time

    def deleted(self, bucket: int, resource: int, key: str, uid: str) -> Deletion | None:
        """Remembers a deletion. Where there is no room: the oldest one, and does not."""
        words = self.board.words
        with self._lock:
            found = self._deletion(self._next)
            if found.when:
                return found
            at, now = found.at, time.monotonic_ns()
            self.board.set_text(at * 8 + 24, _KEY_ROOM, key)
            self.board.set_text(at * 8 + 24 + _KEY_ROOM, _UID_ROOM, uid)
            words[at + 1], words[at + 2], words[at] = bucket, resource, now
            self._next = (self._next + 1) % DELETIONS
            words[self._at + 2] = max(words[self._at + 2], self._next or DELETIONS)
            words[self._at + _STAMPS // 8 + bucket % BUCKETS] = now
        return None

    def forget(self, deletion: Deletion) -> None:
        """It was seen: there is room for another."""
        self.board.words[deletion.at] = 0
