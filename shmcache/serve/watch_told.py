"""One change as watches are told it, out of a delta of the ring or of a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shmcache.protocol import watching

if TYPE_CHECKING:
    from shmcache._hot import Delta, View
    from shmcache.serve.watch_forms import Form


class Told:
    """A change of one object: `old` is None of a new one, `new` of a deleted one.

    It holds the generation that it was read in, so it is to be kept for short.
    """

    __slots__ = ("_lines", "name", "namespace", "new", "number", "old", "position", "version")

    def __init__(
        self, key: str, old: View | None, new: View | None, version: str | None, position: int
    ) -> None:
        self.namespace, _, self.name = key.rpartition("/")
        self.old = old
        self.new = new
        self.version = version
        self.number = number_of(version)
        """The version as a number; -1 where it is none."""
        self.position = position
        self._lines: dict[tuple[str, str], bytes] = {}

    def line(self, event: str, form: Form, *, first: bool = False) -> bytes:
        """The line of an event of it; made once for all watches."""
        if first:
            return self._line(event, form, first=True)
        place = (event, form.key)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = self._line(event, form)
        return line

    def _line(self, event: str, form: Form, *, first: bool = False) -> bytes:
        if event == watching.DELETED:
            assert self.old is not None
            return form.line(event, self.old, self.version, first=first)
        assert self.new is not None
        return form.line(event, self.new, None, first=first)


def number_of(version: str | None) -> int:
    """A resourceVersion as the number that the API server makes of it; -1 for what is none."""
    return int(version) if version and version.isascii() and version.isdigit() else -1


def told(deltas: Iterable[Delta]) -> Iterator[Told]:
    """Of deltas in their order. An object that was made anew unseen is a deletion, then a new one.

    That deletion was at some version before the new object; what is told here is the last possible.
    """
    for delta in deltas:
        key, version, position = delta.key or "", delta.version, delta.number
        if not delta.recreated:
            yield Told(key, delta.old, delta.new, version, position)
            continue
        yield Told(key, delta.old, None, _before(version), position)
        yield Told(key, None, delta.new, version, position)


def difference(
    added: list[tuple[str, View]],
    modified: list[tuple[str, View, View]],
    deleted: list[tuple[str, View]],
    upto: int,
) -> list[Told]:
    """What a list found, as changes in the order of their versions.

    The list was of the version `upto`. When a missing object went nobody saw; it is told as of the
    version before, so that a client that is cut in the middle holds a version inside the gap, which
    is too old to resume at: only the last of them may be of `upto` itself (see `ends_gap`).
    """
    before = str(max(upto - 1, 0))
    found = [Told(key, old, None, before, -1) for key, old in deleted]
    for key, old, new in modified:
        version = version_of(new)
        if uid_of(old) == uid_of(new):
            found.append(Told(key, old, new, version, -1))
        else:
            found += [Told(key, old, None, _before(version), -1), Told(key, None, new, version, -1)]
    found += [Told(key, None, new, version_of(new), -1) for key, new in added]
    found.sort(key=lambda one: one.number)
    return found


def ends_gap(changes: list[Told], upto: int) -> bool:
    """Whether a client can tell by its version that it has not seen all of them."""
    return all(0 <= one.number < upto for one in changes[:-1]) and (
        not changes or 0 <= changes[-1].number <= upto
    )


def _before(version: str | None) -> str | None:
    number = number_of(version)
    return str(number - 1) if number > 0 else version


def version_of(obj: View) -> str | None:
    """metadata.resourceVersion."""
    found = obj["metadata"].get("resourceVersion")
    return found if isinstance(found, str) else None


def uid_of(obj: View) -> object:
    """metadata.uid."""
    return obj["metadata"].get("uid")
