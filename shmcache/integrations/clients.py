"""API objects of the official clients whose reads the cache answers.

    core = CachedApi(kubernetes.client.CoreV1Api(), "web")
    core.list_namespaced_pod("prod", label_selector="app=web").items    # models, nothing is decoded
    core.read_namespaced_pod("web-0", "prod").spec.node_name
    core.create_namespaced_pod("prod", pod)                             # the API server's

Reads of `kubernetes`, `kubernetes.aio` and `kubernetes_asyncio`. These go to the API
server: reads that the cache cannot answer whole (reads.py), objects that it does not have, and
everything but plain reads (watches, pages, versions, raw responses, writes, logs).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.errors import ShmCacheError
from shmcache.integrations.reads import MAX_AGE, CacheReads
from shmcache.models.dialect import dialect_of
from shmcache.models.naming import snake

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache.models.dialect import Dialect
    from shmcache.reader.resources import CachedResource
    from shmcache.serve.catalogue import Served

_METHOD = re.compile(r"(list|read)_(namespaced_)?([a-z0-9_]+?)(_for_all_namespaces)?$")
_CLASS = re.compile(r"([A-Z][A-Za-z]*?)(V\d+(?:(?:alpha|beta)\d+)?)Api")
_UNIMPORTANT = frozenset({"pretty", "_request_timeout", "timeout_seconds"})
_ANY_VERSION = ("", "0", None)


class CachedList:
    """The answer of a list, with models as items; else as the library's own."""

    def __init__(self, api_version: str, kind: str, items: list[Any], metadata: Any) -> None:
        self.api_version = api_version
        self.kind = kind
        self.items = items
        self.metadata = metadata

    def to_dict(self) -> dict[str, Any]:
        """As the library's, with plain dicts in it."""
        return {
            "api_version": self.api_version,
            "items": [item.to_dict() for item in self.items],
            "kind": self.kind,
            "metadata": self.metadata.to_dict(),
        }

    def __repr__(self) -> str:
        return f"<shmcache.CachedList of {len(self.items)} {self.kind.removesuffix('List')}>"


class _Asked(NamedTuple):
    """A read, as a method's name and arguments say it."""

    name: str
    """Of one object; empty for a list."""
    namespace: str
    labels: str
    fields: str
    limit: int


class CachedApi:
    """One API object of a client, such as CoreV1Api; its reads come from the cache."""

    def __init__(
        self,
        api: Any,
        name: str | None = None,
        *,
        max_age: float = MAX_AGE,
        consistent: bool = False,
        copies: bool = False,
    ) -> None:
        """`name`: as in attached(). Older data than `max_age` seconds is left to the API server.

        `consistent`: each read is as new as its call. `copies`: items are the library's own objects
        instead of models, for programs that change them or keep them for minutes.
        """
        self._api = api
        self._reads = CacheReads(name, max_age=max_age)
        self._how: dict[str, Any] = {"consistent": True} if consistent else {}
        self._copies = copies
        self._group = _CLASS.fullmatch(type(api).__name__)
        self._library = _library_of(type(api).__module__)
        self._methods: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "_api":  # of a copy that is not made yet
            raise AttributeError(name)
        theirs = getattr(self._api, name)
        asked = _METHOD.fullmatch(name) if self._group is not None else None
        if asked is None or not callable(theirs):
            return theirs
        found = self._methods.get(name)
        if found is None:
            found = self._methods[name] = self._method(theirs, *asked.groups())
        return found

    def __eq__(self, other: object) -> bool:
        """An API equals the one that it wraps."""
        return bool(self._api == (other._api if isinstance(other, CachedApi) else other))

    def __hash__(self) -> int:
        return hash(self._api)

    def __repr__(self) -> str:
        return f"<shmcache.CachedApi of {self._api!r}>"

    def _method(
        self, theirs: Callable[..., Any], verb: str, namespaced: str | None, noun: str, every: str
    ) -> Callable[..., Any]:
        """A method that asks the cache first."""
        parts = (("name", verb == "read"), ("namespace", bool(namespaced)))
        names = tuple(name for name, there in parts if there)
        everywhere = bool(every) or not namespaced

        def method(*args: Any, **kwargs: Any) -> Any:
            asked = _asked(names, args, kwargs)
            found = None if asked is None else self._answer(noun, asked, everywhere=everywhere)
            if found is None:
                return theirs(*args, **kwargs)
            return found if self._library == "kubernetes" else _ready(found)

        method.__name__ = method.__qualname__ = theirs.__name__
        method.__doc__ = theirs.__doc__
        return method

    def _answer(self, noun: str, asked: _Asked, *, everywhere: bool) -> Any:
        """The cache's answer; None if the API server has to be asked."""
        served = self._served(noun)
        if served is None or (served.kind.namespaced and everywhere and asked.name):
            return None
        kind = served.kind
        resource = self._reads.resource(
            kind.group,
            kind.version,
            kind.resource,
            namespace=asked.namespace,
            labels=asked.labels,
            fields=asked.fields,
        )
        if resource is None:
            return None
        try:
            if asked.name:
                return self._one(resource, served.key(asked.namespace, asked.name))
            return self._many(resource, served, asked)
        except ShmCacheError:  # unconfirmed, too old by now, gone
            return None

    def _one(self, resource: CachedResource, key: str) -> Any:
        view = resource.get(key, **self._how)
        return None if view is None else self._item(view)

    def _many(self, resource: CachedResource, served: Served, asked: _Asked) -> CachedList | None:
        version = resource.version  # before the items: they are at least as new
        found = resource.list(
            asked.namespace or None, asked.labels or None, asked.fields or None, **self._how
        )
        if asked.limit and len(found) > asked.limit:
            return None
        items = [self._item(view) for view in found]
        metadata = self._dialect.decode("V1ListMeta", {"resourceVersion": version})
        return CachedList(served.kind.api_version, served.kind.list_kind, items, metadata)

    def _item(self, view: Any) -> Any:
        model = self._dialect.wrap(view)
        return model.to_model() if self._copies else model

    @property
    def _dialect(self) -> Dialect:
        return dialect_of(self._library)

    def _served(self, noun: str) -> Served | None:
        """The cache's resource of this noun of the API, such as replica_set of AppsV1Api."""
        assert self._group is not None
        nouns = {noun, noun.removesuffix("_status")}
        for served in self._reads.kinds():
            kind = served.kind
            group = "".join(
                part.capitalize() for part in kind.group.removesuffix(".k8s.io").split(".")
            )
            theirs = (group or "Core", kind.version.capitalize())
            if theirs == self._group.groups() and snake(kind.kind) in nouns:
                return served
        return None


def _library_of(module: str) -> str:
    if module.startswith("kubernetes.aio"):
        return "kubernetes.aio"
    return "kubernetes_asyncio" if module.startswith("kubernetes_asyncio") else "kubernetes"


def _asked(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Asked | None:
    """The meaning of a call; None if it is more than a plain read."""
    if len(args) > len(names):
        return None
    given = {**kwargs, **dict(zip(names, args, strict=False))}
    named = [given.pop(name, None) for name in names]
    if not all(isinstance(one, str) and one for one in named):
        return None
    values = dict(zip(names, named, strict=True))
    labels, fields = given.pop("label_selector", None), given.pop("field_selector", None)
    limit = given.pop("limit", None)
    if given.pop("resource_version", None) not in _ANY_VERSION:
        return None
    if any(value is not None for key, value in given.items() if key not in _UNIMPORTANT):
        return None
    return _Asked(
        str(values.get("name") or ""),
        str(values.get("namespace") or ""),
        labels or "",
        fields or "",
        limit or 0,
    )


async def _ready(found: Any) -> Any:
    """The answer of a client on asyncio."""
    return found
