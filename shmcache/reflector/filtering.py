"""Sifting: what the items of a watch mean, one after the other: news, bookmarks, ends, nonsense.

The position is the version up to which everything is known. It moves by what the server says in
version order only: not by the objects that a watch from nowhere begins with (they come in any
order), and never backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shmcache.protocol.items import GARBAGE, Item
from shmcache.protocol.jsontext import decoded
from shmcache.protocol.status import ServerStatus
from shmcache.protocol.versions import compare, is_version
from shmcache.source.base import FailureKind, SourceFailure

CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
END_OF_INITIAL = "k8s.io/initial-events-end"
ONCE = 100  # how many different complaints are remembered as made


def is_table(kind: str | None, api_version: str | None) -> bool:
    """Whether it is a server-side table, which shows objects but is not one of them (R-RF-12)."""
    return kind == "Table" and (api_version or "").startswith("meta.k8s.io/")


def is_older(left: str, right: str) -> bool:
    """Whether `left` is before `right`, as far as both can be compared."""
    return is_version(left) and is_version(right) and compare(left, right) < 0


def ends_initial(bookmark: Item) -> bool:
    """Whether it says that all objects of the beginning have been sent: "true", nothing else."""
    try:
        found = decoded(bookmark.raw)
        return bool(found["metadata"]["annotations"][END_OF_INITIAL] == "true")
    except (ValueError, TypeError, KeyError):
        return False


class Position:
    """The version that we hold, and how the open watch may move it."""

    __slots__ = ("_fresh", "_synthetic", "version")

    def __init__(self) -> None:
        self.version = ""
        self._synthetic = self._fresh = False

    @property
    def resumable(self) -> bool:
        """Whether a watch can go on from here; from ""/"0" it would start over."""
        return self.version not in {"", "0"}

    def open(self) -> None:
        """A watch begins at `version`."""
        self._synthetic = not self.resumable
        self._fresh = False

    def reset(self, version: str) -> None:
        """A whole new content is known, at this version; what follows on the stream is news."""
        self.version = version
        self._synthetic = not self.resumable
        self._fresh = False

    def is_replay(self, version: str) -> bool:
        """Whether we have it already: a resumed stream may begin with what the last one said."""
        if self._synthetic or self._fresh or not version:
            return False
        return version == self.version or is_older(version, self.version)

    def is_backwards(self, version: str) -> bool:
        """Whether the stream goes back behind what it said before."""
        return not self._synthetic and self._fresh and is_older(version, self.version)

    def follow(self, version: str) -> None:
        """Takes over the version of news that came in order."""
        self._fresh = True
        self.version = version

    @property
    def is_ordered(self) -> bool:
        """Whether what comes is news in the order of versions, if the server does as it should."""
        return not self._synthetic and is_version(self.version)

    def move(self, item: Item) -> None:
        """Takes over the version of what was taken in."""
        if self._synthetic and item.type == "ADDED":
            return  # one of the objects that were there, in no order (R-RF-10)
        self._synthetic = False
        if item.version and not is_older(item.version, self.version):
            self._fresh = self._fresh or item.version != self.version
            self.version = item.version


@dataclass(slots=True)
class Sifted:
    """The result of one batch."""

    changes: list[Item] = field(default_factory=list)
    bookmarks: int = 0
    skipped: int = 0
    complaints: list[str] = field(default_factory=list)
    failure: SourceFailure | None = None
    """The end of the stream; items after it do not count."""
    ended_initial: Item | None = None
    rest: list[Item] = field(default_factory=list)
    """Items after the end of the initial objects."""


class Sieve:
    """Sifts the batches of one resource. Each kind of skipped item is logged once."""

    __slots__ = ("_api_version", "_kind", "_said", "_usual", "position")

    def __init__(self, position: Position, kind: str | None, api_version: str | None) -> None:
        self.position = position
        self._kind = kind
        self._api_version = api_version
        self._said: set[str] = set()
        self._usual: tuple[str | None, str | None] | None = None  # kind and version of what fits

    def initial(self, items: list[Item]) -> Sifted:
        """A batch of a watch-list before its end bookmark: for the staging area, in their order."""
        found = Sifted()
        for number, item in enumerate(items):
            if self._ends(item, found) or not self._fits(item, found):
                if found.failure:
                    return found
            elif item.type in CHANGES:
                found.changes.append(item)
            elif item.type == "BOOKMARK":
                found.bookmarks += 1
                if ends_initial(item):
                    found.ended_initial, found.rest = item, items[number + 1 :]
                    return found
            else:
                self._unknown(item, found)
        return found

    def live(self, items: list[Item]) -> Sifted:
        """A batch of a watch; moves the position."""
        plain = self._plain(items)
        found = Sifted(items[:plain])
        for item in items[plain:]:
            if self._ends(item, found):
                return found
            if not self._fits(item, found):
                continue
            version = item.version or ""
            if self.position.is_backwards(version):
                found.failure = SourceFailure(
                    FailureKind.GARBAGE,
                    f"{item.type} at version {version} comes after {self.position.version}",
                )
                return found
            self._take(item, version, found)
        return found

    def _plain(self, items: list[Item]) -> int:
        """How many from the first on are changes of the usual kind, each newer than the last.

        Nearly all are. They are taken in here, for a fraction of what it costs to look at each by
        itself, which would come to the same.
        """
        if self._usual is None or not self.position.is_ordered:
            return 0
        kind, api_version = self._usual
        version = self.position.version
        length, count = len(version), 0
        for item in items:
            newer = item.version
            if (
                newer is None
                or len(newer) != length
                or newer <= version
                or not (newer.isdigit() and newer.isascii())
                or item.type not in CHANGES
                or not item.key
                or item.kind != kind
                or item.api_version != api_version
            ):
                break
            version = newer
            count += 1
        if count:
            self.position.follow(version)
        return count

    def _take(self, item: Item, version: str, found: Sifted) -> None:
        if item.type in CHANGES:
            if self.position.is_replay(version):
                found.skipped += 1
                return
            found.changes.append(item)
        elif item.type == "BOOKMARK":
            found.bookmarks += 1
        else:
            self._unknown(item, found)
        self.position.move(item)

    @staticmethod
    def _ends(item: Item, found: Sifted) -> bool:
        """ERROR and invalid lines end a stream (R-AS-21): nothing after them counts."""
        if item.type == "ERROR":
            status = ServerStatus.parse(0, item.raw)
            text = status.message or status.reason or "an ERROR event without a message"
            found.failure = SourceFailure(FailureKind.HTTP, text, status)
        elif item.type == GARBAGE:
            text = item.raw[:80].decode(errors="replace")
            found.failure = SourceFailure(FailureKind.GARBAGE, f"an invalid watch event: {text!r}")
        return found.failure is not None

    def _fits(self, item: Item, found: Sifted) -> bool:
        """Whether it is of the kind that is cached; else skipped, and the version stays."""
        wrong = is_table(item.kind, item.api_version)
        if item.type in CHANGES:
            wrong = wrong or bool(
                (self._kind and item.kind and item.kind != self._kind)
                or (self._api_version and item.api_version not in {None, self._api_version})
                or not item.key
            )
            if not wrong:
                self._usual = item.kind, item.api_version
        if wrong:
            found.skipped += 1
            what = f"{item.api_version} {item.kind}" if item.key else "an object without a name"
            self._complain(f"skipped {item.type} of {what}", found)
        return not wrong

    def _unknown(self, item: Item, found: Sifted) -> None:
        found.skipped += 1
        self._complain(f"skipped an event of unknown type {item.type[:40]!r}", found)

    def _complain(self, text: str, found: Sifted) -> None:
        if text not in self._said and len(self._said) < ONCE:
            self._said.add(text)
            found.complaints.append(text)
