"""The API: from a request to an answer, or to a watch that goes on."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from shmcache.protocol import failures, validation, watching
from shmcache.protocol.kinds import Kind
from shmcache.testing.apiserver import documents, lists, patches, reviews
from shmcache.testing.apiserver.access import Authorizer
from shmcache.testing.apiserver.kinds import ServedKinds
from shmcache.testing.apiserver.requests import JSON, ApiRequest, Response, Streaming, document
from shmcache.testing.apiserver.selecting import RequestScope
from shmcache.testing.apiserver.shapes import AnswerShape, shape_of
from shmcache.testing.apiserver.store import ObjectStore
from shmcache.testing.apiserver.stored import Stored
from shmcache.testing.apiserver.watches import ServedWatch, WatchTiming
from shmcache.testing.apiserver.writes import Writes

Object = dict[str, Any]

UNCACHED = frozenset({"events", "events.events.k8s.io"})
"""Resources that the real server keeps no watch cache of: their watches get no bookmarks."""
BODIES = frozenset({JSON, "application/x-www-form-urlencoded", "*/*"})
"""The media types that bodies of writes may have."""
FRESH_SECONDS = 3.0
"""How long a request waits for a version from the future (R-AS-16)."""


class Api:
    """Answers requests; whatever is awaited is awaited in the server's loop."""

    def __init__(self, store: ObjectStore, catalogue: ServedKinds, luck: random.Random) -> None:
        self.access = Authorizer()
        self.watch_list: bool | str = True
        """Whether it knows WatchList; the text of an error: it does, and fails with it."""
        self.sharding = True
        """Whether it knows shardSelector; servers that do not, ignore it."""
        self.aggregated_discovery = True
        self.watch_cache = True
        self.bookmark_seconds = watching.BOOKMARK_SECONDS
        self.fresh_seconds = FRESH_SECONDS
        self.catalogue = catalogue
        self.store = store
        self.writes = Writes(store, catalogue, luck)
        self.written = asyncio.Event()
        """Set, and replaced, whenever something was written (in the loop's thread)."""
        self._luck = luck

    async def answer(self, request: ApiRequest) -> Response | Streaming:
        """The answer; a Failure where the request is refused."""
        user = self.access.user(request.headers)
        target = request.target
        if target is None:
            aggregated = self.aggregated_discovery
            return documents.answer(self.catalogue, request, aggregated=aggregated)
        self.access.check(user, request)
        if (review := reviews.answer(self.access, request, user)) is not None:
            return review
        kind = self._kind(request)
        if not request.verb:
            raise failures.method_not_allowed()
        shape = shape_of(request)
        headers = [("Warning", f'299 - "{kind.warning}"')] if kind.warning else []
        if request.verb == "watch":
            return Streaming(self._watch(kind, request, shape), headers)
        if request.verb in {"list", "get"}:
            done = await self._read(kind, request, shape)
        else:
            done = self._write(kind, request, shape)
        done.headers += headers
        return done

    def _kind(self, request: ApiRequest) -> Kind:
        assert request.target is not None
        group, version, resource, namespace, _, subresource = request.target
        kind = self.catalogue.find(group, version, resource)
        if kind is None:
            versions = self.catalogue.groups().get(group)
            raise failures.no_resource() if versions else failures.no_page()
        if namespace and not kind.namespaced:
            raise failures.no_resource()
        known = {"": True, "status": kind.status, "finalize": kind.key == "namespaces"}
        if not known.get(subresource, False):
            raise failures.no_resource()
        if kind.namespaced and not namespace and request.target.name:
            raise failures.no_resource()
        return kind

    # ---- reading -------------------------------------------------------------------------------

    async def _read(self, kind: Kind, request: ApiRequest, shape: AnswerShape) -> Response:
        assert request.target is not None
        namespace, name = request.target.namespace, request.target.name
        if name:
            await self._fresh(validation.numeric(request.query.get("resourceVersion", "")))
            stored = self.writes.get(kind, namespace, name)
            return _one(kind, stored, shape)
        asked = validation.parse_options(request.query, watch_list=bool(self.watch_list))
        scope = RequestScope(kind, namespace, asked, sharding=self.sharding)
        await self._fresh(lists.fresh(asked))
        cached = self.watch_cache and kind.key not in UNCACHED
        found = lists.page(self.store, kind, scope, asked, watch_cache=cached)
        return Response(pieces=shape.list(kind, found))

    async def _fresh(self, version: int) -> None:
        """Waits until the store has come so far; a Failure (504) if it does not in time."""
        self.store.sync()
        if version <= self.store.version:
            return
        if not self.watch_cache:
            raise failures.too_large(version, self.store.version, retry=False)
        try:
            async with asyncio.timeout(self.fresh_seconds):
                while version > self.store.version:
                    await self.written.wait()
        except TimeoutError:
            raise failures.too_large(version, self.store.version) from None

    def _watch(self, kind: Kind, request: ApiRequest, shape: AnswerShape) -> ServedWatch:
        assert request.target is not None
        asked = validation.parse_options(request.query, watch_list=bool(self.watch_list))
        scope = RequestScope(kind, request.target.namespace, asked, sharding=self.sharding)
        timing = WatchTiming(watching.lifetime(asked, self._luck), self.bookmark_seconds)
        watch = shape.watch(
            self.store, kind, scope, asked, timing, watch_list=bool(self.watch_list)
        )
        if isinstance(self.watch_list, str) and asked.send_initial_events:
            watch.broken = failures.Failure(500, "InternalError", self.watch_list)
        watch.cached = self.watch_cache and kind.key not in UNCACHED
        watch.bookmarks = watch.bookmarks and watch.cached
        return watch

    async def refusal(self, watch: ServedWatch) -> failures.Failure | None:
        """The error that a watch shows at once, if its version does not come in time."""
        if watch.broken is not None:
            return watch.broken
        try:
            await self._fresh(watch.beginning.fresh)
        except failures.Failure as failure:
            return failure
        return None

    # ---- writing -------------------------------------------------------------------------------

    def _write(self, kind: Kind, request: ApiRequest, shape: AnswerShape) -> Response:
        assert request.target is not None
        namespace, name, sub = request.target[3:]
        dry = "dryRun" in request.query
        if request.verb == "create":
            obj = _object(request, kind)
            stored = self.writes.create(kind, namespace, obj, dry=dry)
            done = _one(kind, stored, shape)
            done.code = 201
            return done
        if request.verb == "update":
            obj = _object(request, kind)
            stored = self.writes.update(kind, namespace, name, obj, subresource=sub, dry=dry)
            return _one(kind, stored, shape)
        if request.verb == "patch":
            change = patches.change(kind, request)
            stored = self.writes.patch(kind, namespace, name, change, subresource=sub, dry=dry)
            return _one(kind, stored, shape)
        if request.verb == "deletecollection":
            return self._delete_collection(kind, request, shape)
        return self._delete(kind, request, shape)

    def _delete(self, kind: Kind, request: ApiRequest, shape: AnswerShape) -> Response:
        assert request.target is not None
        namespace, name = request.target.namespace, request.target.name
        stored, gone = self.writes.delete(kind, namespace, name, _delete_options(request))
        if not gone or kind.key == "pods":
            return _one(kind, stored, shape)
        details = {
            "name": name,
            **({"group": kind.group} if kind.group else {}),
            "kind": kind.resource,
            "uid": stored.obj["metadata"].get("uid", ""),
        }
        return document(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }
        )

    def _delete_collection(self, kind: Kind, request: ApiRequest, shape: AnswerShape) -> Response:
        assert request.target is not None
        asked = validation.parse_options(request.query, watch_list=bool(self.watch_list))
        scope = RequestScope(kind, request.target.namespace, asked, sharding=self.sharding)
        with self.store.lock:
            found = lists.page(self.store, kind, scope, asked)
            for stored in found.objects:
                self.writes.delete(kind, stored.namespace, stored.name, _delete_options(request))
        return Response(pieces=shape.list(kind, found))


def _one(kind: Kind, stored: Stored, shape: AnswerShape) -> Response:
    return Response(pieces=[shape.one(kind, stored)])


def _object(request: ApiRequest, kind: Kind) -> Object:
    media = request.headers.get("content-type", JSON).partition(";")[0].strip()
    if media not in BODIES:
        raise failures.unsupported_media_type()
    try:
        value = request.json()
    except failures.Failure as failure:
        text = f"the object provided is unrecognized (must be of type {kind.kind}): {failure}"
        raise failures.bad_request(
            f"{text} ({request.body[:40].decode(errors='replace')})"
        ) from None
    if not isinstance(value, dict):
        raise failures.bad_request("the object provided is unrecognized: it is no JSON object")
    return value


def _delete_options(request: ApiRequest) -> Object:
    options: Object = dict(_json_object(request)) if request.body else {}
    grace = request.query.get("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = int(grace)
    if "dryRun" in request.query:
        options["dryRun"] = ["All"]
    return options


def _json_object(request: ApiRequest) -> Object:
    value = request.json()
    return value if isinstance(value, dict) else {}
