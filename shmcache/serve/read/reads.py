"""GET and LIST: which state is shown, and whether it may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shmcache.errors import InvalidSelector, StaleObjectError
from shmcache.protocol import accept, failures, relays, tokens, validation
from shmcache.reader import listing, namespace_versions
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.serve.catalogue import declaration
from shmcache.serve.http import pretty, zipping
from shmcache.serve.http.answers import Answer, Stream
from shmcache.serve.http.weights import weight_of_selectors
from shmcache.serve.read import lists, shapes
from shmcache.serve.read import past_states as past

if TYPE_CHECKING:
    from shmcache.protocol.options import ListOptions
    from shmcache.serve.catalogue import Served
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.read.past_states import State
    from shmcache.serve.server import Server

TRIES = 8
"""New roots tried until a list's first page is there."""


async def get(
    server: Server, request: HttpRequest, connection: Connection, served: Served
) -> Answer:
    """One object; a Failure (404) if it does not exist and the cache would have it."""
    target = request.target
    assert target is not None
    query = request.query
    shape = accept.shape(request.headers.get("accept", ""), query, many=False)
    shape = served.scope.check(served.kind, target.namespace, shape=shape)
    if query and (version := query.get("resourceVersion")):
        number = validation.numeric(version)
        await server.fresh(served.name, number, target.namespace, holder=connection.holder)
    key = served.key(target.namespace, target.name)
    version = query.get("resourceVersion", "") if query else ""
    confirmed = await server.consistency.current(served, version, key=key)
    headers = server.standing.headers(served)
    for tries in range(TRIES):
        root, number = server.catalogue.root(served)
        shown = confirmed.headers(root)
        try:
            found = root.get(number, key)
            if found is None:
                raise served.scope.missing(served.kind, target.name)
            body = shapes.one(served.kind, found, shape)
        except StaleObjectError:
            if tries == TRIES - 1:
                raise
            continue
        return _whole(request, body, headers + shown)
    raise AssertionError("unreachable")


async def list_(
    server: Server, request: HttpRequest, connection: Connection, served: Served
) -> Answer | Stream:
    """The requested objects, from one state."""
    target, query, kind = request.target, request.query, served.kind
    assert target is not None
    shape = accept.shape(request.headers.get("accept", ""), query, many=True)
    asked = validation.parse_options(query)
    labels, fields = selectors(server, served, asked)
    request.weight = weight_of_selectors(labels, fields, shard=asked.shard_selector)
    shape = served.scope.check(kind, target.namespace, shape=shape)
    labels, fields = served.scope.check_selectors(kind, labels, fields)
    shard = validation.shard_of(asked)
    await server.reached(served, request.headers, target.namespace, holder=connection.holder)
    if not asked.continue_token:
        wanted_version = validation.numeric(asked.resource_version)
        await server.fresh(served.name, wanted_version, target.namespace, holder=connection.holder)
    confirmed = await server.consistency.current(
        served, asked.continue_token or asked.resource_version, namespace=target.namespace
    )
    await connection.piece_fits()
    headers = server.standing.headers(served)
    left = served.scope.check_shard(kind, shard)
    wanted = listing.selection(target.namespace or None, labels, fields, left)
    for tries in range(TRIES):
        try:
            state, after = _state(server, served, asked, target.namespace)
            shown = confirmed.headers(state.root)
            walk = _walk(state, wanted, asked, after)
            metadata = _metadata(server, walk, state, wanted, asked)
            if shard is not None:
                metadata["shardInfo"] = validation.shard_info(shard)
            body = shapes.pieces(kind, walk, metadata, shape)
            stated = relays.lines(lag=None, version=state.version)
            answer = _stream(request, body, headers + shown + stated)
        except StaleObjectError:
            if tries == TRIES - 1:
                raise
            continue
        if isinstance(answer, Stream):
            answer.weight = walk.weight + request.weight
        return answer
    raise AssertionError("unreachable")


def selectors(
    server: Server, served: Served, asked: ListOptions
) -> tuple[LabelSelector | None, FieldSelector | None]:
    """The selectors of a request; a Failure (400) if one is invalid or too long."""
    for text in (asked.label_selector, asked.field_selector, asked.shard_selector):
        if len(text) > server.limits.selector_bytes:
            most = server.limits.selector_bytes
            raise failures.bad_request(f"a selector of more than {most} bytes")
    try:
        labels = LabelSelector.parse(asked.label_selector) if asked.label_selector else None
        fields = (
            FieldSelector.parse(asked.field_selector, served.kind.selectable, served.kind.made)
            if asked.field_selector
            else None
        )
    except InvalidSelector as error:
        raise failures.bad_request(str(error)) from error
    return labels or None, fields or None


# ---- which state ---------------------------------------------------------------------------------


def _state(
    server: Server, served: Served, asked: ListOptions, namespace: str
) -> tuple[State, str | None]:
    """The state to list, and the key after which to begin, relative to the list's scope."""
    root, number = server.catalogue.root(served)
    version = namespace_versions.version_of(root.record(number), namespace) or "0"
    latest = past.state_of(root, number, version)
    if asked.continue_token:
        return _continued(server, served, latest, asked.continue_token)
    wanted = validation.numeric(asked.resource_version)
    legacy = not asked.resource_version_match and asked.limit > 0 and wanted > 0
    if (asked.resource_version_match != validation.EXACT and not legacy) or str(wanted) == version:
        return latest, None
    found = server.past.of_version(latest, str(wanted))
    if found is None or not _shows(found, served):
        raise failures.expired(failures.LIST_TOO_OLD)
    return found, None


def _shows(state: State, served: Served) -> bool:
    """Whether a state of the past, maybe of another instance, has the served declaration."""
    try:
        record = state.root.record(state.number)
    except LookupError:
        return False
    return record["name"] == served.name and declaration(record) == served.declaration


def _continued(server: Server, served: Served, latest: State, text: str) -> tuple[State, str]:
    token = tokens.decode(text)
    after = token.start.removesuffix("\0")
    exact, version = lists.generation_of(token), str(token.version)
    if exact is not None:
        found = server.past.at(latest.root, latest.number, *exact)
    elif token.version == tokens.LATEST or version == latest.version:
        found = latest
    else:
        found = server.past.of_version(latest, version)
    if found is None or not _shows(found, served):
        again = tokens.encode(tokens.LATEST, after)
        raise failures.expired(failures.CONTINUE_TOO_OLD, again)
    return found, after


def _walk(
    state: State, wanted: listing.Selection, asked: ListOptions, after: str | None
) -> lists.Walk:
    """The list; its limit does not count at resourceVersion 0 (R-AS-22)."""
    limit = 0 if asked.resource_version == "0" and not asked.continue_token else asked.limit
    behind = None if after is None else (wanted.prefix or "") + after
    return lists.Walk(state, wanted, behind, max(limit, 0))


def _metadata(
    server: Server,
    walk: lists.Walk,
    state: State,
    wanted: listing.Selection,
    asked: ListOptions,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": state.version}
    if asked.limit <= 0 or not walk.limit:
        return metadata
    cut = walk.cut()
    if cut.last:
        if not state.changed:
            server.past.keep(state.root)
        metadata["continue"] = lists.token(state, cut.last, wanted.prefix)
        if cut.remaining is not None:
            metadata["remainingItemCount"] = cut.remaining
    return metadata


# ---- how it is sent ------------------------------------------------------------------------------


def _whole(request: HttpRequest, body: bytes, headers: bytes) -> Answer:
    if pretty.wanted(request):
        body = pretty.whole(body)
    if len(body) > zipping.LEAST and zipping.wanted(request.headers):
        return Answer(zipping.whole(body), headers=headers + zipping.HEADERS, ready=True)
    return Answer(body, headers=headers, ready=True)


def _stream(request: HttpRequest, body: Iterator[bytes], headers: bytes) -> Answer | Stream:
    """Encodes the first piece here: if that fails, no answer has begun and the read is retried.

    An answer that is whole by then is sent as one.
    """
    if pretty.wanted(request):
        body = pretty.pieces(body)
    begun, size = [], 0
    for piece in body:
        begun.append(piece)
        size += len(piece)
        if size > zipping.LEAST:
            break
    else:
        return Answer(b"".join(begun), headers=headers, ready=True)
    begun[:] = [b"".join(begun)]
    pieces = _chain(begun, body)
    if not zipping.wanted(request.headers):
        return Stream(pieces, headers=headers)
    return Stream(zipping.pieces(pieces), headers=headers + zipping.HEADERS)


def _chain(begun: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    """Releases each piece as soon as possible: its memory is reused for a later one."""
    while begun:
        yield begun.pop(0)
    yield from rest
