"""One object with its history, and the search over keys: the page's questions about content.

LOOK1  A search and a history look at PAGE keys or deltas in one turn of the loop; other clients
    have theirs in between. A search keeps its generation for as long as it lasts.
LOOK2  Both have bounded answers: MATCHES keys, VERSIONS versions of at most BYTES in all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from shmcache.errors import Lapped, StaleObjectError
from shmcache.protocol import framing
from shmcache.reader import listing
from shmcache.serve.http.answers import Answer
from shmcache.serve.http.loop import Loop, Pending

if TYPE_CHECKING:
    from shmcache._hot import Delta, Root, View
    from shmcache.serve.server import Server
    from shmcache.serve.ui.past import Times

PAGE = 4096
MATCHES = 200
VERSIONS = 64
BYTES = 4 << 20


async def turn(loop: Loop) -> None:
    """Lets other clients have their turn."""
    pending: Pending[None] = Pending()
    loop.call_soon(lambda: pending.give(None))
    await pending


async def with_history(server: Server, times: Times, resource: str, key: str) -> Answer:
    """The object, and its versions in the window of changes, the oldest first; as JSON."""
    reader, number = server.cache.locate(resource)
    root = reader.root()
    found: View | None = root.get(number, key)
    now = b"null" if found is None else found.json()
    times.look(root)
    versions = await _versions(server.loop, root, times, (number, key))
    about = framing.encode({"resource": resource, "key": key})
    return Answer(b'%b,"object":%b,"versions":[%b]}\n' % (about[:-1], now, b",".join(versions)))


async def _versions(loop: Loop, root: Root, times: Times, wanted: tuple[int, str]) -> list[bytes]:
    number, key = wanted
    position, seen = root.tail, 0
    kept: deque[Delta] = deque(maxlen=VERSIONS)
    try:
        while position < root.head:
            deltas, position = root.take(position, PAGE, (number,))
            mine = [one for one in deltas if one.key == key]
            seen += len(mine)
            kept.extend(mine)
            await turn(loop)
        return await _texts(loop, times, kept, whole=seen < VERSIONS)
    except (Lapped, StaleObjectError):
        return []  # the writer needed the memory: the window has moved on


async def _texts(loop: Loop, times: Times, kept: deque[Delta], *, whole: bool) -> list[bytes]:
    """The newest versions, as many as LOOK2 allows: only those are ever encoded."""
    made: list[bytes] = []
    size = 0
    for one in reversed(kept):
        about = {"version": one.version, "number": one.number, "age": times.age_of(one.number)}
        text = _version(one.kind, about, one.new)
        size += len(text)
        if made and size > BYTES:
            return made[::-1]
        made.append(text)
        await turn(loop)
    if whole and kept and kept[0].old is not None:
        about = {"version": None, "number": kept[0].number, "age": None}
        text = _version("BEFORE", about, kept[0].old)
        if size + len(text) <= BYTES:
            made.append(text)
    return made[::-1]


def _version(event: str, about: dict[str, Any], obj: View | None) -> bytes:
    text = framing.encode({"event": event, **about})
    return b'%b,"object":%b}' % (text[:-1], b"null" if obj is None else obj.json())


async def search(server: Server, resources: list[str], text: str, labels: str) -> dict[str, Any]:
    """Keys that contain a text, of objects with these labels. InvalidSelector."""
    where = listing.selection(None, labels or None, None, None).where
    lowered = text.lower()
    found: list[dict[str, str]] = []
    for resource in resources:
        reader, number = server.cache.locate(resource)
        root, after = reader.root(), None
        while len(found) < MATCHES:
            keys = looked = root.scan(number, after=after, limit=PAGE, want="keys")
            if where is not None and looked:  # the same part of the tree, however few match
                stop = looked[-1] + "\0"
                keys = root.scan(number, after=after, stop=stop, want="keys", where=where)
            found += [{"resource": resource, "key": one} for one in keys if lowered in one.lower()]
            await turn(server.loop)
            if len(looked) < PAGE:
                break
            after = looked[-1]
        if len(found) >= MATCHES:
            break
    return {"matches": found[:MATCHES], "complete": len(found) < MATCHES}
