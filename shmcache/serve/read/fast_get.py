"""The usual request, a GET of one object by its name, answered without the ways of all others.

FASTGET1  It is answered with the bytes that the long way (routes.py) would give, or not at all:
    whatever is not quite the usual, or fails, goes the long way, which says why.
FASTGET2  Remembered decisions on paths and freshness come from the long way's own parts, and
    hold for `standing.LOOK_SECONDS`; a user's token is looked up each time, and nothing is
    answered here if reviews are required. The declaration of the resource is checked again in
    each generation.
FASTGET3  The memory is bounded, whatever clients request.
FASTGET4  Clients that want no managedFields (ACCEPT3) are answered here where the cache keeps none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from shmcache.errors import StaleObjectError
from shmcache.protocol import accept, failures
from shmcache.serve.freshness import LOOK_SECONDS
from shmcache.serve.http import answers, heads, zipping
from shmcache.serve.http.heads import BadRequest
from shmcache.serve.http.requests import address_of
from shmcache.serve.read import shapes
from shmcache.serve.read.lists import ListForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmcache._hot import View
    from shmcache.reader.resources import CachedResource
    from shmcache.serve.catalogue import Served
    from shmcache.serve.server import Server

ANY = "x"
"""Stands for every name: the resource of a path does not depend on the name in it."""
MOST = 1024
PATH_MAX = 512
HEAD_MAX = 2048
_NAME = re.compile(rb"[a-z0-9][a-z0-9.-]{0,252}")


class PathTarget(NamedTuple):
    """The target of a path without its last part."""

    until: float
    resource: CachedResource | None
    """None: it is not about objects that are shown here."""
    served: Served | None
    generation: int
    """In which it was that."""
    form: ListForm
    """Of objects that are stored without their type."""
    lean: bool
    """Whether its objects have no managedFields."""
    prefix: str
    head: bytes
    """Of the answer, up to the number of its bytes."""


class UsualHeaders(NamedTuple):
    """Headers that request nothing special."""

    fields: Mapping[str, str]
    lean: bool
    """Whether managedFields are to be left out."""


class Usual:
    """Asked first for whatever comes when nothing else is under way."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reader = server.cache.reader
        """Of whose generations the targets are."""
        self._targets: dict[bytes, PathTarget] = {}
        self._blocks: dict[bytes, UsualHeaders | None] = {}

    def answer(self, data: bytes) -> bytes | None:
        """The whole answer to exactly one usual request; None for anything else."""
        end = data.find(b"\r\n")
        cut = data.rfind(b"/", 0, end - 9)
        if cut < 0 or data[:5] != b"GET /" or data[end - 9 : end] != b" HTTP/1.1":
            return None
        name = data[cut + 1 : end - 9]
        target = self._targets.get(data[4:cut])
        if target is None or target.until <= self._server.loop.now:
            target = self._look(data[4:cut])
        usual = _NAME.fullmatch(name) is not None and self._may(data, end + 2, target)
        if target.resource is None or not usual:
            return None
        key, reader = target.prefix + name.decode(), self._reader
        try:
            found = target.resource.get(key)
            if reader.latest != target.generation or reader.spent:
                found = self._get_later(data[4:cut], target, key)
            if found is None:
                return None
            text = found.json_in(shapes.WHOLE if "kind" in found else target.form)
        except (KeyError, StaleObjectError):  # another instance, without the resource; revoked
            return None
        if len(text) >= zipping.LEAST:
            return None
        self._server.stats.requests += 1
        return b"%b%d\r\n\r\n%b\n" % (target.head, len(text) + 1, text)

    # ---- the path ------------------------------------------------------------------------------

    def _look(self, path: bytes) -> PathTarget:
        """Its target now."""
        found = self._find(path)
        if len(self._targets) >= MOST:
            self._targets.clear()
        if len(path) <= PATH_MAX:
            self._targets[path] = found
        return found

    def _get_later(self, path: bytes, target: PathTarget, key: str) -> View | None:
        """The object in a later generation, if the path is about the same as before there."""
        assert target.served is not None
        self.follow()
        try:
            root, number = self._server.catalogue.root(target.served)
        except failures.Failure:
            self._targets.pop(path, None)
            return None
        self._targets[path] = target._replace(generation=root.generation)
        found: View | None = root.get(number, key)
        return found

    def follow(self) -> None:
        """Generations of another instance cannot be compared with those of the one before."""
        reader = self._server.cache.reader
        if reader is not self._reader:
            self._reader = reader
            self._targets.clear()

    def _find(self, path: bytes) -> PathTarget:
        server = self._server
        until = server.loop.now + LOOK_SECONDS
        nothing = PathTarget(until, None, None, 0, ListForm(), True, "", b"")
        if server.draining or not path.isascii() or len(path) > PATH_MAX:
            return nothing
        if b"?" in path or b"#" in path:
            return nothing  # the part cut off is in the query: not a name
        try:
            target = address_of("GET", f"{path.decode()}/{ANY}").target
            if target is None or target.name != ANY or target.subresource:
                return nothing
            served = server.catalogue.find(*target[:3])
            if served is None or served.kind.namespaced != bool(target.namespace):
                return nothing
            served.scope.check(served.kind, target.namespace, shape=accept.FULL)
            lines = server.standing.headers(served)
            self.follow()
            generation = server.catalogue.root(served)[0].generation
        except (failures.Failure, BadRequest):
            return nothing
        prefix = served.key(target.namespace, "")
        head = answers.head(200, answers.JSON, lines, b"Content-Length: ")[:-2]
        form = shapes.typed(served.kind)
        resource = server.cache[served.name]
        lean = not served.scope.managed_fields
        return PathTarget(until, resource, served, generation, form, lean, prefix, head)

    # ---- the headers ---------------------------------------------------------------------------

    def _may(self, data: bytes, start: int, target: PathTarget) -> bool:
        """Whether they request nothing special, and the user may read."""
        if self._server.access.reviewed:
            return False
        block = data[start:]
        try:
            found = self._blocks[block]
        except KeyError:
            found = self._blocks_of(block)
        if found is None or (found.lean and not target.lean):
            return False
        try:
            return self._server.access.known(found.fields) is not None
        except failures.Failure:
            return False

    def _blocks_of(self, block: bytes) -> UsualHeaders | None:
        found = self._read(block)
        if len(self._blocks) >= MOST:
            self._blocks.clear()
        if len(block) <= HEAD_MAX:
            self._blocks[block] = found
        return found

    def _read(self, block: bytes) -> UsualHeaders | None:
        if not block.endswith(heads.END) or len(block) > HEAD_MAX:
            return None
        try:
            fields = heads.fields(block, 0, self._server.limits.headers)
            found = fields.map
            shape = accept.shape(found.get("accept", ""))
        except (BadRequest, failures.Failure):
            return None
        plain = not (fields.chunked or fields.length or fields.close or "expect" in found)
        whole = shape.name == accept.FULL.name and not accept.pretty({}, found)
        return UsualHeaders(found, shape.lean) if whole and plain and "host" in found else None
