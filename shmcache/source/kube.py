"""KubeSource: one resource of an API server over HTTP.

Lists come item by item while their body streams, watches as many events at a time as one read
brings. Nothing is retried here, apart from one request after a 401 that new credentials answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from shmcache._hot import Frames, ItemScanner
from shmcache.protocol.items import Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.source import discovery
from shmcache.source.base import SourceFailed
from shmcache.source.client import JSON, Client, Server
from shmcache.source.discovery import Resource
from shmcache.source.failures import ended_early, garbage

LIST_SILENCE = 70.0
"""A server gives a list at most 60 seconds; after that it has forgotten us."""
METADATA_KIND, METADATA_VERSION = "PartialObjectMetadata", "meta.k8s.io/v1"
LIST_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
WATCH_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class KubeSource:
    """A source.base.Source of one resource, in one namespace or ("") in all of them."""

    def __init__(
        self,
        server: Server,
        resource: str | Resource,
        *,
        namespace: str = "",
        metadata_only: bool = False,
        list_silence: float = LIST_SILENCE,
        compress: bool = True,
    ) -> None:
        self._client = Client(server)
        self._name = resource if isinstance(resource, str) else ""
        self._resource = None if isinstance(resource, str) else resource
        if self._name:
            next(discovery.Wanted.readings(self._name))  # refuses what can be no name
        self._namespace = namespace
        self._metadata_only = metadata_only
        self._list_silence = list_silence
        self._compress = compress
        self.bytes_received = 0
        """Of bodies, after decompression, since the source was made."""

    def resource(self) -> Resource:
        """What the server calls it; asks for it unless that is known. SourceFailed."""
        if self._resource is None:
            kept = self._client.server.documents
            self._resource = discovery.find(kept, self._read, self._name)
        return self._resource

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[KubePage]:
        """One page of a list. Is entered when its headers have come."""
        with self._get(
            options,
            accept=LIST_METADATA if self._metadata_only else JSON,
            silence=self._list_silence,
            gzip=self._compress,
        ) as body:
            kind, version = self._of_items()
            yield KubePage(self._counted(body), kind, version, self._path())

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """A watch. Is entered when its headers have come."""
        with self._get(
            options,
            accept=WATCH_METADATA if self._metadata_only else JSON,
            silence=silence,
            gzip=False,  # a server may end a gzip member with each write
            bounded=True,
        ) as body:
            yield self._events(self._counted(body))

    def cancel(self) -> None:
        """Makes the request under way fail as CANCELLED, and every later one. From any thread."""
        self._client.cancel()

    def close(self) -> None:
        """Closes the connection that is kept for the next request."""
        self._client.close()

    def _read(self, path: str, accept: str) -> bytes:
        return self._client.document(path, accept=accept, silence=self._list_silence)

    def _path(self) -> str:
        return self.resource().path(self._namespace)

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
        query = options.query()
        path = self._path() + (f"?{query}" if query else "")
        with ExitStack() as stack:
            request = self._client.get(
                path, silence=silence, accept=accept, gzip=gzip, bounded=bounded
            )
            try:
                body = stack.enter_context(request)
            except SourceFailed as failed:
                self._forget_if_gone(failed)
                raise
            yield body

    def _forget_if_gone(self, failed: SourceFailed) -> None:
        """After a 404 the name is looked up again: another version may be served by now."""
        status = failed.failure.status
        if status is not None and status.code == 404 and self._name:
            self._resource = None
            self._client.server.documents.clear()

    def _counted(self, body: Iterator[bytes]) -> Iterator[bytes]:
        for data in body:
            self.bytes_received += len(data)
            yield data

    def _events(self, body: Iterator[bytes]) -> Iterator[list[Item]]:
        frames = Frames()
        for data in body:
            yield frames.feed(data)
        if frames.pending:
            raise ended_early(f"GET {self._path()}")


class KubePage:
    """A base.ListStream: to be iterated once, to its end; then `meta` is known."""

    def __init__(self, body: Iterator[bytes], kind: str, version: str, path: str) -> None:
        self._body = body
        self._scanner = ItemScanner(kind=kind, api_version=version)
        self._path = path
        self._meta: ListMeta | None = None

    def __iter__(self) -> Iterator[list[Item]]:
        try:
            for data in self._body:
                yield self._scanner.feed(data)
            yield self._scanner.feed(b"")  # or what has kept it from going on
            self._meta = self._ended()
        except ValueError as error:
            raise garbage(f"GET {self._path}", f"no list: {error}") from error

    def _ended(self) -> ListMeta:
        try:
            rest = self._scanner.finish()
        except ValueError as error:
            raise ended_early(f"GET {self._path}") from error
        return _meta_of(json.loads(rest))

    @property
    def meta(self) -> ListMeta:
        """Of the page; RuntimeError before its items have ended."""
        if self._meta is None:
            raise RuntimeError("the list has not ended: its metadata is not known yet")
        return self._meta


def _meta_of(found: Any) -> ListMeta:
    meta = found.get("metadata") or {}
    return ListMeta(
        version=str(meta.get("resourceVersion") or ""),
        continue_token=str(meta.get("continue") or ""),
        remaining=meta.get("remainingItemCount"),
        kind=found.get("kind"),
        api_version=found.get("apiVersion"),
    )
