"""The files of the page, as they lie in the package: read once, answered with a tag.

PAGE1  The page loads nothing from anywhere else: its policy allows this server alone.
PAGE2  The files hold no data of a cache, so they need no token: the page asks the user for one.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from shmcache.serve.http import zipping
from shmcache.serve.http.answers import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "/ui"
FOLDER = os.path.join(os.path.dirname(__file__), "static")
MEDIA = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
)


class Page(NamedTuple):
    """One file."""

    media: bytes
    body: bytes
    zipped: bytes
    tag: str


def load() -> dict[str, Page]:
    """All of them, by their paths."""
    found: dict[str, Page] = {}
    for name in sorted(os.listdir(FOLDER)):
        media = MEDIA.get(os.path.splitext(name)[1])
        if media is None:
            continue
        with open(os.path.join(FOLDER, name), "rb") as file:
            body = file.read()
        tag = hashlib.sha256(body).hexdigest()[:16]
        found[f"{ROOT}/{name}"] = Page(media, body, zipping.whole(body), f'"{tag}"')
    found[f"{ROOT}/"] = found[f"{ROOT}/index.html"]
    return found


def answer(page: Page, headers: Mapping[str, str]) -> Answer:
    """A file; nothing where the client has it already."""
    lines = POLICY + b"ETag: %b\r\nVary: Accept-Encoding\r\n" % page.tag.encode()
    if headers.get("if-none-match") == page.tag:
        return Answer(b"", code=304, media=page.media, headers=lines, ready=True)
    if zipping.wanted(headers):
        lines += b"Content-Encoding: gzip\r\n"
        return Answer(page.zipped, media=page.media, headers=lines, ready=True)
    return Answer(page.body, media=page.media, headers=lines, ready=True)
