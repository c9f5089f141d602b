"""One change as watches receive it, from a delta of the ring or from a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from shmcache.protocol import watching
from shmcache.protocol.versions import number_of
from shmcache.reader.sharding import metadata_of

if TYPE_CHECKING:
    from shmcache._hot import Delta, View
    from shmcache.serve.watch.encoding import WatchForm


class WatchChange:
    """A change of one object: `old` is None for a new one, `new` for a deleted one.

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
        """The version as a number; -1 if it is not one."""
        self.position = position
        self._lines: dict[tuple[str, str], bytes] = {}

    def line(self, event: str, form: WatchForm, *, first: bool = False) -> bytes:
        """The line of an event with this change; made once for all watches."""
        if first:
            return self._line(event, form, first=True)
        key = (event, form.key)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._line(event, form)
        return line

    def _line(self, event: str, form: WatchForm, *, first: bool = False) -> bytes:
        if event == watching.DELETED:
            assert self.old is not None
            return form.line(event, self.old, self.version, first=first)
        assert self.new is not None
        return form.line(event, self.new, None, first=first)


def changes_of(deltas: Iterable[Delta]) -> Iterator[WatchChange]:
    """Changes of deltas, in their order. An unseen recreation is a deletion, then a new object.

    That deletion was at some version before the new object's; the change carries the last possible.
    """
    for delta in deltas:
        key, version, position = delta.key or "", delta.version, delta.number
        if not delta.recreated:
            yield WatchChange(key, delta.old, delta.new, version, position)
            continue
        yield WatchChange(key, delta.old, None, _before(version), position)
        yield WatchChange(key, None, delta.new, version, position)


def difference(
    added: list[tuple[str, View]],
    modified: list[tuple[str, View, View]],
    deleted: list[tuple[str, View]],
    reached: Callable[[str], int],
) -> list[WatchChange]:
    """The findings of a list, as changes in the order of their versions.

    The time at which a missing object was deleted is unknown. Its change comes first, at the first
    version after the one that the watches of its namespace have `reached`: a client that is cut
    behind it, and goes on elsewhere from the version of a later change, has seen all deletions
    before that. In this process such a version is inside the gap, which is too old (see
    `ends_gap`).
    """
    found: list[WatchChange] = []
    for key, old in deleted:
        first = str(reached(key.rpartition("/")[0]) + 1)
        found.append(WatchChange(key, old, None, first, -1))
    for key, old, new in modified:
        version = version_of(new)
        if uid_of(old) == uid_of(new):
            found.append(WatchChange(key, old, new, version, -1))
        else:
            found += [
                WatchChange(key, old, None, _before(version), -1),
                WatchChange(key, None, new, version, -1),
            ]
    found += [WatchChange(key, None, new, version_of(new), -1) for key, new in added]
    found.sort(key=lambda one: one.number)
    return found


def ends_gap(changes: list[WatchChange], upto: int) -> bool:
    """Whether a client can tell by its version that it has not seen all of them."""
    return all(0 <= one.number < upto for one in changes[:-1]) and (
        not changes or 0 <= changes[-1].number <= upto
    )


def _before(version: str | None) -> str | None:
    number = number_of(version)
    return str(number - 1) if number > 0 else version


def version_of(obj: View) -> str | None:
    """metadata.resourceVersion."""
    found = metadata_of(obj).get("resourceVersion")
    return found if isinstance(found, str) else None


def uid_of(obj: View) -> object:
    """metadata.uid."""
    return metadata_of(obj).get("uid")
