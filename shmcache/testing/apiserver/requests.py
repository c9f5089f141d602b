"""One request and its answer, as they pass between the connection and the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

import orjson

from shmcache.protocol import failures, framing, paths

if TYPE_CHECKING:
    from shmcache.testing.apiserver.watches import ServedWatch

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """The request of a client; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    target: paths.Target | None
    verb: str

    @classmethod
    def of(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> ApiRequest:
        """Of the parts of an HTTP request."""
        path, _, text = url.partition("?")
        query = dict(reversed(parse_qsl(text, keep_blank_values=True)))
        if method in {"GET", "HEAD"}:
            path, query = paths.without_watch(path, query)
        target = paths.parse(path)
        watch = query.get("watch", "false").lower() not in {"0", "false"}
        verb = method.lower() if target is None else paths.verb(method, target, watch=watch)
        return cls(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=body,
            target=target,
            verb=verb,
        )

    @property
    def resource(self) -> str:
        """The key of its resource (deployments.apps, pods/status), or the path of a document."""
        if self.target is None:
            return self.path
        group, _, resource, _, _, sub = self.target
        return (f"{resource}.{group}" if group else resource) + (f"/{sub}" if sub else "")

    def json(self) -> object:
        """The body, decoded; a Failure (400) where it is no JSON."""
        try:
            value: object = orjson.loads(self.body)
        except ValueError as error:
            raise failures.bad_request(
                f"couldn't get version/kind; json parse error: {error}"
            ) from error
        return value


@dataclass(slots=True, kw_only=True)
class Response:
    """An answer with a body that is there; `pieces` are written one by one, as in earnest."""

    code: int = 200
    pieces: list[bytes]
    content_type: str = JSON
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.pieces))


class Streaming(NamedTuple):
    """An answer that goes on: a watch."""

    watch: ServedWatch
    headers: list[tuple[str, str]]


def document(value: object, code: int = 200) -> Response:
    """A JSON document, with the newline that ends the real server's."""
    return Response(code=code, pieces=[framing.encode(value) + b"\n"])


def refusal(failure: failures.Failure) -> Response:
    """A Failure as the client sees it."""
    retry = failure.retry_after
    headers = [] if retry is None else [("Retry-After", str(retry))]
    if failure.text is None:
        answer = document(failure.status, failure.code)
        answer.headers = headers
        return answer
    return Response(
        code=failure.code,
        pieces=[failure.text],
        content_type=failures.TEXT,
        headers=[*headers, ("X-Content-Type-Options", "nosniff")],
    )
