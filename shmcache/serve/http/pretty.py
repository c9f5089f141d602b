"""JSON laid out for people: for curl, browsers and requests with `?pretty=true`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shmcache._hot import Pretty
from shmcache.protocol import accept
from shmcache.serve.http import answers

if TYPE_CHECKING:
    from shmcache.serve.http.requests import HttpRequest


def wanted(request: HttpRequest) -> bool:
    """Whether this request's answer is shown to people."""
    return accept.pretty(request.query, request.headers)


def whole(body: bytes) -> bytes:
    """A body that is there."""
    return Pretty().feed(body)


def pieces(some: Iterator[bytes]) -> Iterator[bytes]:
    """A body that comes; none of its pieces is kept."""
    return map(Pretty().feed, some)


def document(request: HttpRequest, answer: answers.Answer) -> answers.Answer:
    """Documents and refusals; objects were laid out before they were compressed."""
    if not answer.ready and answer.media == answers.JSON and wanted(request):
        answer.body = whole(answer.body)
    return answer
