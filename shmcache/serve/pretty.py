"""JSON laid out for people: to curl and browsers, and to whoever asks for it (`?pretty=true`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shmcache._hot import Pretty
from shmcache.protocol import accept
from shmcache.serve import answers

if TYPE_CHECKING:
    from shmcache.serve.requests import Request


def wanted(request: Request) -> bool:
    """Whether this request's answer is shown to people."""
    return accept.pretty(request.query, request.headers)


def whole(body: bytes) -> bytes:
    """A body that is there."""
    return Pretty().feed(body)


def pieces(some: Iterator[bytes]) -> Iterator[bytes]:
    """A body that comes; its memory is a piece's."""
    lay_out = Pretty().feed
    for piece in some:
        yield lay_out(piece)


def document(request: Request, answer: answers.Answer) -> answers.Answer:
    """Documents and refusals; objects were laid out before they were compressed."""
    if not answer.ready and answer.media == answers.JSON and wanted(request):
        answer.body = whole(answer.body)
    return answer
