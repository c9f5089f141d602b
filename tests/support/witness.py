"""A reader's view: of this process, or of another one that answers over a pipe.

A Witness holds one attachment and one cursor. `seen` is the whole content, each part obtained in
more than one way; the ways must agree before it is returned.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any, NamedTuple

from twin import Change, State

import shmcache
from shmcache.errors import Lapped

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Seen(NamedTuple):
    state: State
    indices: dict[str, dict[str, list[tuple[str, str]]]]
    versions: dict[str, str | None]
    head: int


def change_of(delta: shmcache.Delta) -> Change:
    old, new = delta.old, delta.new
    return Change(
        delta.resource,
        delta.kind,
        delta.key,
        delta.version,
        old.json() if old is not None else None,
        new.json() if new is not None else None,
        delta.unknown_final_state,
    )


def content(resource: shmcache.CachedResource) -> dict[str, bytes]:
    """All objects as JSON, in order."""
    items = resource.range()
    found = {key: view.json() for key, view in items}
    assert list(found) == sorted(found) == list(resource)
    assert len(found) == len(resource)
    assert [view.json() for view in resource.list()] == list(found.values())
    for key, view in items:
        assert key in resource
        assert resource[key].json() == found[key]
        assert view == resource.get(key)
    return found


def index_content(resource: shmcache.CachedResource, index: str) -> list[tuple[str, str]]:
    """(value, key) of all entries, in order."""
    found = [(value, key) for value, key, _ in resource.scan_index(index)]
    values = resource.index_values(index)
    assert values == list(dict.fromkeys(value for value, _ in found))
    for value in values:
        keys = [key for one, key in found if one == value]
        assert keys == resource.index_keys(index, value)
        views = resource.by_index(index, value)
        assert [view.json() for view in views] == [resource[key].json() for key in keys]
    return found


def see(at: shmcache.Snapshot) -> Seen:
    """The whole content of a snapshot."""
    return Seen(
        {name: content(at[name]) for name in at.resources},
        {
            name: {index: index_content(at[name], index) for index in at[name].indices}
            for name in at.resources
        },
        at.resource_versions,
        at.head,
    )


class Witness:
    """One attachment and one cursor, which follows from the first call on."""

    def __init__(self, name: str) -> None:
        self.cache = shmcache.attach(name)
        with self.cache.snapshot() as at:
            self.cursor = self.cache.follow(start=at.head)

    def seen(self) -> Seen:
        with self.cache.snapshot() as at:
            found = see(at)
        for name, keys in found.state.items():  # nothing else is published meanwhile
            live = self.cache[name]
            assert list(keys) == list(live)
            assert len(keys) == len(live)
            assert list(keys.values()) == [live[key].json() for key in keys]
        return found

    def latest(self) -> int:
        return self.cache.latest

    def take(self, count: int) -> list[Change] | int:
        """The next deltas; a lapped cursor gives the position to resume at, and is there then."""
        try:
            return [change_of(delta) for delta in self.cursor.take(count)]
        except Lapped as lapped:
            with self.cache.snapshot() as at:
                assert at.head == lapped.position
                self.cursor.resume(at)
            return lapped.position

    def skip(self) -> int:
        """Skips to the head."""
        with self.cache.snapshot() as at:
            self.cursor.resume(at)
            return at.head

    def close(self) -> None:
        self.cache.close()


def _serve(pipe: Connection) -> None:
    """The other process: (method, arguments) in, (True, result) or (False, text) out."""
    import traceback

    witness: Witness | None = None
    while True:
        try:
            method, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            if method == "open":
                witness = Witness(*arguments)
                answer: tuple[bool, Any] = True, None
            else:
                answer = True, getattr(witness, method)(*arguments)
        except BaseException:  # noqa: BLE001 - the caller raises it
            answer = False, traceback.format_exc()
        pipe.send(answer)


class OtherProcess:
    """A Witness in a process of its own; it is spawned once and opens one cache after another."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, method: str, *arguments: Any) -> Any:
        self._pipe.send((method, *arguments))
        assert self._pipe.poll(60), f"the witness does not answer {method}"
        good, answer = self._pipe.recv()
        assert good, answer
        return answer

    def end(self) -> None:
        self._pipe.close()
        self._process.join(30)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()
