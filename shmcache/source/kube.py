"""KubeSource: one resource of an API server over HTTP.

Lists come item by item while their body streams, watches as many events at a time as one read
brings. Nothing is retried here, apart from one request after a 401 that new credentials answer.

PORTION1  a source of one shard brings objects of that shard only, whatever its server does.
PORTION2  its requests name the shard (`shardSelector`), which servers ignore that do not know it; a
    server may know it today and not tomorrow, so the echo in metadata.shardInfo is never relied on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from shmcache._hot import Frames, ItemScanner
from shmcache.protocol.accept import MANAGED
from shmcache.protocol.items import Identity, Item, ListMeta
from shmcache.protocol.jsontext import decoded
from shmcache.protocol.options import ListOptions
from shmcache.protocol.paths import is_segment
from shmcache.protocol.relays import stated
from shmcache.protocol.selectors.shards import UID, ShardSelector
from shmcache.source import discovery
from shmcache.source.base import SourceFailed
from shmcache.source.client import JSON, ApiConnection, Client
from shmcache.source.discovery import ApiResource
from shmcache.source.failures import ended_early, garbage
from shmcache.source.listed import ListedKeys

_log = logging.getLogger(__name__)

LIST_SILENCE = 70.0
"""A server gives a list at most 60 seconds; after that it has forgotten us."""
PROBE_SILENCE = 10.0
"""For the answer to a probe, which takes a server milliseconds."""
SMALL = 4096
"""A shorter read of a watch leaves nothing behind."""
DROP = f"drop={MANAGED}"
"""Of Accept (KEP-5958): up to 60 % of the bytes; servers that do not know it ignore it."""
METADATA_KIND, METADATA_VERSION = "PartialObjectMetadata", "meta.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LIST_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
GET_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
WATCH_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class KubeSource:
    """A source.base.Source of one resource, in one namespace or ("") in all of them."""

    def __init__(
        self,
        server: ApiConnection,
        resource: str | ApiResource,
        *,
        namespace: str = "",
        metadata_only: bool = False,
        managed_fields: bool = False,
        list_silence: float = LIST_SILENCE,
        compress: bool = True,
        shard: ShardSelector | None = None,
    ) -> None:
        self._client = Client(server)
        self._name = resource if isinstance(resource, str) else ""
        self._resource = None if isinstance(resource, str) else resource
        if self._name:
            next(discovery.NameReading.readings(self._name))  # refuses what can be no name
        self._namespace = namespace
        self._metadata_only = metadata_only
        self._managed_fields = managed_fields
        self._list_silence = list_silence
        self._compress = compress
        self._shard = shard
        self.foreign = 0
        """Objects of other shards that came in spite of the selector (PORTION2)."""
        self._listed: ListedKeys | None = None
        """Of the list that goes on at `_next`."""
        self._next = ""
        self.behind = False
        self.bytes_received = 0
        """Of bodies, after decompression, since the source was made."""

    def resource(self) -> ApiResource:
        """The resource as discovery has it, which is read if need be. SourceFailed."""
        if self._resource is None:
            self._resource = discovery.find(
                self._client.server.documents,
                self._read,
                self._name,
                check=lambda: self._client.check(f"discovery of {self._name}"),
            )
        return self._resource

    def definition(self) -> dict[str, Any]:
        """The CustomResourceDefinition of a custom resource. SourceFailed."""
        resource = self.resource()
        path = f"{DEFINITIONS}/{resource.plural}.{resource.group}"
        try:
            found = decoded(self._read(path, JSON))
        except ValueError as error:
            raise garbage(f"GET {path}", f"not JSON: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("spec"), dict):
            raise garbage(f"GET {path}", "not a CustomResourceDefinition")
        return found

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[KubePage]:
        """One page of a list. Is entered when its headers have come."""
        self.behind = False
        listed, token = self._listed, options.continue_token
        if listed is None or not token or token != self._next:
            listed = ListedKeys()
        with self._page(options, listed, silence=self._list_silence) as page:
            yield page
        self._next = page.next
        self._listed = listed if self._next else None

    def probe(self, options: ListOptions) -> str:
        """The version of a LIST with these options."""
        silence = min(PROBE_SILENCE, self._list_silence)
        with (
            self._client.within(silence, f"GET {self._path()}"),
            self._page(options, ListedKeys(), silence=silence) as page,
        ):
            for _ in page:
                pass
            return page.meta.version

    def identity(self, namespace: str, name: str) -> Identity | None:
        """The state of an object as the server has it now; None if it does not exist."""
        if not is_segment(name) or (namespace and not is_segment(namespace)):
            return None
        path = f"{self.resource().path(namespace)}/{quote(name, safe='')}"
        silence = min(PROBE_SILENCE, self._list_silence)
        try:
            text = self._client.document(path, accept=GET_METADATA, silence=silence)
        except SourceFailed as failed:
            if failed.failure.code == 404:
                return None
            raise
        try:
            metadata = decoded(text)["metadata"]
            return Identity(str(metadata.get("uid") or ""), str(metadata["resourceVersion"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise garbage(f"GET {path}", f"no object: {error!r}") from error

    @contextmanager
    def _page(
        self, options: ListOptions, listed: ListedKeys, *, silence: float
    ) -> Iterator[KubePage]:
        with self._get(
            options,
            accept=self._accept(LIST_METADATA),
            silence=silence,
            gzip=self._compress,
        ) as body:
            kind, version = self._of_items()
            path, asked = self._path(), options.continue_token
            yield KubePage(
                self._counted(body), kind, version, path, self._own, asked=asked, listed=listed
            )

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """A watch. Is entered when its headers have come."""
        self.behind = False
        initial = bool(options.send_initial_events)
        refusals = self._client.server.watch_lists
        if initial:
            refusals.check(self.resource())
        with ExitStack() as stack:
            request = self._get(
                options,
                accept=self._accept(WATCH_METADATA),
                silence=silence,
                gzip=self._compress and initial,
                bounded=True,
            )
            try:
                body = stack.enter_context(request)
            except SourceFailed as failed:
                if initial and self._resource is not None:
                    refusals.note(self._resource, failed.failure)
                raise
            yield self._events(body)

    @property
    def client(self) -> Client:
        """Its requests."""
        return self._client

    @property
    def speaks_for_all(self) -> bool:
        """Whether the version of the last answer is that of the whole server: not of a relay."""
        return stated(self._client.answered) is None

    def cancel(self) -> None:
        """Makes the request under way fail as CANCELLED, and every later one. From any thread."""
        self._client.cancel()

    def interrupt(self) -> None:
        """Breaks the connection, so that a watch ends at once. From any thread."""
        self._client.interrupt()

    def close(self) -> None:
        """Closes the connection that is kept for the next request."""
        self._client.close()

    def _read(self, path: str, accept: str) -> bytes:
        return self._client.document(path, accept=accept, silence=self._list_silence)

    def _path(self) -> str:
        return self.resource().path(self._namespace)

    def _accept(self, of_metadata: str) -> str:
        """The form of the answer; without managedFields if the server can leave them out."""
        form = of_metadata if self._metadata_only else JSON
        return form if self._managed_fields else f"{form};{DROP}, {form}"

    def _of_items(self) -> tuple[str, str]:
        """Kind and apiVersion of listed items that do not say it, as a watch has them."""
        if self._metadata_only:
            return METADATA_KIND, METADATA_VERSION
        resource = self.resource()
        return resource.kind, resource.api_version

    @contextmanager
    def _get(
        self,
        options: ListOptions,
        *,
        accept: str,
        silence: float,
        gzip: bool,
        bounded: bool = False,
    ) -> Iterator[Iterator[bytes]]:
        if self._shard is not None:
            options = replace(options, shard_selector=str(self._shard))
        query = options.query()
        path = self._path() + (f"?{query}" if query else "")
        moment = self._client.server.documents.moment()
        with ExitStack() as stack:
            request = self._client.get(
                path, silence=silence, accept=accept, gzip=gzip, bounded=bounded
            )
            try:
                body = stack.enter_context(request)
            except SourceFailed as failed:
                self._forget_if_gone(failed, moment)
                raise
            yield body

    def _forget_if_gone(self, failed: SourceFailed, moment: int) -> None:
        """After a 404 the name is looked up again: another version may be served by now.

        Documents whose request began after the refused one are recent enough.
        """
        status = failed.failure.status
        if status is not None and status.code == 404 and self._name:
            self._resource = None
            self._client.server.documents.forget(moment)

    def _counted(self, body: Iterator[bytes]) -> Iterator[bytes]:
        for data in body:
            self.bytes_received += len(data)
            yield data

    def _own(self, items: list[Item]) -> list[Item]:
        """Without the objects of other shards (PORTION1)."""
        shard = self._shard
        if shard is None:
            return items
        kept = [item for item in items if not item.key or _is_in(shard, item)]
        if len(kept) < len(items):
            if not self.foreign:
                _log.warning(
                    "%s: the server does not filter by shard: objects of other shards are dropped "
                    "here, before they are decoded",
                    self._path(),
                )
            self.foreign += len(items) - len(kept)
        return kept

    def _events(self, body: Iterator[bytes]) -> Iterator[list[Item]]:
        frames = Frames()
        for data in body:
            self.bytes_received += len(data)
            found = frames.feed(data)
            if found:
                self._client.renew()
            items = self._own(found)
            self.behind = len(data) >= SMALL and self._client.waiting > 0
            yield items
        if frames.pending:
            raise ended_early(f"GET {self._path()}")


class KubePage:
    """A base.ListStream: to be iterated once, to its end; then `meta` is known.

    A page that leads to itself, as of a proxy that drops the query, is garbage, and so is a list
    that does not go on (LISTED1): a reader of its tokens would send requests for ever.
    """

    def __init__(
        self,
        body: Iterator[bytes],
        kind: str,
        version: str,
        path: str,
        own: Callable[[list[Item]], list[Item]],
        *,
        asked: str,
        listed: ListedKeys,
    ) -> None:
        """`asked`: the token of the request for this page; `listed`: of the pages before it."""
        self._asked = asked
        self._listed = listed
        self._body = body
        self._own = own
        self._scanner = ItemScanner(kind=kind, api_version=version)
        self._path = path
        self._meta: ListMeta | None = None

    def __iter__(self) -> Iterator[list[Item]]:
        try:
            for data in self._body:
                items = self._scanner.feed(data)
                self._listed.take(items, len(data))
                yield self._own(items)
            yield self._own(self._scanner.feed(b""))  # or what has kept it from going on
            self._meta = self._ended()
        except ValueError as error:
            raise garbage(f"GET {self._path}", f"no list: {error}") from error

    def _ended(self) -> ListMeta:
        try:
            rest = self._scanner.finish()
        except ValueError as error:
            raise ended_early(f"GET {self._path}") from error
        found = _meta_of(decoded(rest))
        if found.continue_token:
            self._listed.end_page()
            if found.continue_token == self._asked:
                raise ValueError("its page leads to itself")
        return found

    @property
    def next(self) -> str:
        """The token of the next page; "" of the last page, and before the end of this one."""
        return self._meta.continue_token if self._meta is not None else ""

    @property
    def meta(self) -> ListMeta:
        """Of the page; RuntimeError before its items have ended."""
        if self._meta is None:
            raise RuntimeError("the list has not ended: its metadata is not known yet")
        return self._meta


def _meta_of(found: Any) -> ListMeta:
    meta, kind, api_version = (found.get(name) for name in ("metadata", "kind", "apiVersion"))
    meta = {} if meta is None else meta
    if not isinstance(meta, dict) or not all(
        one is None or isinstance(one, str) for one in (kind, api_version)
    ):
        raise ValueError("its kind, version or metadata has another type than that of a list")
    return ListMeta(
        version=str(meta.get("resourceVersion") or ""),
        continue_token=str(meta.get("continue") or ""),
        remaining=meta.get("remainingItemCount"),
        kind=kind,
        api_version=api_version,
    )


def _is_in(shard: ShardSelector, item: Item) -> bool:
    """Whether an object that has not been decoded is of the shard."""
    if shard.field == UID:
        return shard.has(item.uid)
    return shard.has(item.key.partition("/")[0] if "/" in item.key else None)
