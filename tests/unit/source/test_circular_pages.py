"""LISTED1: a list whose pages do not go on fails, for each reader of its tokens."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Never
from urllib.parse import parse_qs, urlsplit

import pytest

from shmcache.engine.evidence import Refusal
from shmcache.engine.proof import Claim, Prover
from shmcache.engine.rate_limit import Pace
from shmcache.protocol.items import Item
from shmcache.protocol.options import ListOptions
from shmcache.source.access import ServerAccess
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.client import ApiConnection
from shmcache.source.discovery import ApiResource
from shmcache.source.kube import KubeSource
from shmcache.source.listed import IDLE_OBJECTS, IDLE_PAGES, MOST_TEXT, ListedKeys

PODS = ApiResource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
NEXT = "next"
DEADLINE = 60.0

Page = tuple[list[str], str]
"""Names of objects, and the token of the next page."""


def dropping(_: str) -> Page:
    """As a proxy that drops the query: each page is the first one."""
    return [], NEXT


def circle(token: str) -> Page:
    """A circle of three pages."""
    number = int(token or "0")
    return [f"{number}-{one}" for one in range(5)], str((number + 1) % 3)


def renamed(token: str) -> Page:
    """A circle whose tokens are always new."""
    number = int(token or "0")
    return [f"{number % 3}-{one}" for one in range(5)], str(number + 1)


def hollow(token: str) -> Page:
    """Pages without objects, after a first one."""
    number = int(token or "0")
    return ["a"] if not number else [], str(number + 1)


def chosen(token: str) -> Page:
    """One object again and again, between others that were listed before in any order."""
    number = int(token or "0")
    return random.Random(number).sample([str(one) for one in range(20)], 5), str(number + 1)


def answering(page: Callable[[str], Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if "watch" in query:
                self.send_error(400)
                return
            names, token = page(query.get("continue", [""])[0])
            body = json.dumps(
                {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": "5", "continue": token},
                    "items": [{"metadata": {"name": one, "namespace": "n"}} for one in names],
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler


@contextmanager
def server_of(page: Callable[[str], Page]) -> Iterator[ApiConnection]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering(page))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield ApiConnection(lambda: ServerAccess(url=f"http://127.0.0.1:{server.server_port}"))
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def source_of(page: Callable[[str], Page]) -> Iterator[KubeSource]:
    with server_of(page) as server:
        found = KubeSource(server, PODS)
        yield found
        found.close()


def pages(source: KubeSource, most: int) -> Iterator[list[str]]:
    """The keys of each page, following the tokens."""
    token = ""
    for _ in range(most):
        with source.page(ListOptions(limit=5, continue_token=token)) as page:
            yield [item.key for items in page for item in items]
        token = page.meta.continue_token
        if not token:
            return


def test_a_page_that_leads_to_itself_is_garbage() -> None:
    with source_of(dropping) as source, pytest.raises(SourceFailed) as caught:
        assert len(list(pages(source, 3))) < 2
    assert caught.value.failure.kind is FailureKind.GARBAGE


@pytest.mark.parametrize("page", [circle, renamed, hollow, chosen])
def test_a_list_without_anything_new_is_garbage(page: Callable[[str], Page]) -> None:
    seen: list[list[str]] = []
    with source_of(page) as source, pytest.raises(SourceFailed) as caught:
        seen.extend(pages(source, 10 * IDLE_PAGES))
    assert caught.value.failure.kind is FailureKind.GARBAGE
    assert "new" in str(caught.value)
    assert IDLE_PAGES <= len(seen) < 2 * IDLE_PAGES


def test_pages_that_go_on_in_any_order_are_a_list() -> None:
    """Objects in no order, empty pages between them, a few objects twice."""
    names = [str(one) for one in range(20)]
    random.Random(7).shuffle(names)

    def page(token: str) -> Page:
        number, empty = divmod(int(token or "0"), IDLE_PAGES // 2)
        found = [] if empty else names[number : number + 2]
        return found, str(int(token or "0") + 1) if number + 2 < len(names) else ""

    with source_of(page) as source:
        for _ in range(2):  # a list forgets the one before it
            found = [key for keys in pages(source, 20 * IDLE_PAGES) for key in keys]
            assert {key.removeprefix("n/") for key in found} == set(names)


def test_a_page_that_is_asked_for_again_belongs_to_its_list() -> None:
    """After a 429, for instance: what the list knows by then counts."""
    asked = 0
    with source_of(circle) as source, pytest.raises(SourceFailed):
        token = ""
        while asked < 10 * IDLE_PAGES:
            options = ListOptions(limit=5, continue_token=token)
            with pytest.raises(InterruptedError), source.page(options):
                raise InterruptedError
            with source.page(options) as page:
                list(page)
            token = page.meta.continue_token
            asked += 1
    assert IDLE_PAGES <= asked < 2 * IDLE_PAGES


# ---- within a page -----------------------------------------------------------------------------


def item(name: str) -> Item:
    return Item("LISTED", f"n/{name}", "5", None, None, None, b"{}")


def keys_of(names: Iterable[str]) -> list[Item]:
    return [item(name) for name in names]


def test_a_page_that_repeats_objects_without_end_is_invalid() -> None:
    listed = ListedKeys()
    listed.take(keys_of(["a", "b"]), 100)
    with pytest.raises(ValueError, match="listed before"):
        for _ in range(IDLE_OBJECTS):
            listed.take(keys_of(["b", "a"]), 100)


def test_objects_without_a_name_differ_by_their_text() -> None:
    listed = ListedKeys()
    for number in range(3 * IDLE_OBJECTS):
        text = str(number).encode()
        listed.take([Item("LISTED", "", None, None, None, None, text)], 100)


def test_white_space_without_end_is_invalid() -> None:
    listed = ListedKeys()
    piece = MOST_TEXT // 4
    for number in range(10):
        listed.take(keys_of([str(number)]), piece)
    with pytest.raises(ValueError, match="no object"):
        for _ in range(5):
            listed.take([], piece)


def test_many_objects_are_a_list() -> None:
    listed = ListedKeys()
    for number in range(200):
        listed.take(keys_of(f"{number}-{one}" for one in range(500)), 100)
        listed.end_page()


# ---- the users of lists --------------------------------------------------------------------------


def fails() -> Never:
    raise AssertionError("nothing was compared")


def growing(token: str) -> Page:
    """Objects that are always new."""
    number = int(token or "0")
    return [f"{number}-{one}" for one in range(50)], str(number + 1)


@pytest.mark.parametrize("page", [dropping, renamed])
def test_a_proof_ends_where_pages_go_in_circles(page: Callable[[str], Page]) -> None:
    unknown = threading.Event()
    prover = Prover(Pace(1000.0), threading.Event())
    with source_of(page) as source:
        claim = Claim(
            label="pods", version="5", digest=(0, 0), source=source, labels="", fields="",
            disproved=pytest.fail, unknown=unknown.set,
            difference=lambda _: fails(), repair=lambda _: fails(),
        )  # fmt: skip
        prover.submit(claim)
        thread = threading.Thread(target=prover.run, daemon=True)
        thread.start()
        assert unknown.wait(DEADLINE)
        prover.end()
        thread.join(DEADLINE)
    assert not thread.is_alive()


def test_a_proof_ends_where_a_list_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmcache.engine.proof.MOST_MORE", 1000)
    compared = threading.Event()

    def difference(_: threading.Event) -> Never:
        compared.set()
        raise Refusal("the list has no end")

    prover = Prover(Pace(1000.0), threading.Event())
    with source_of(growing) as source:
        claim = Claim(
            label="pods", version="5", digest=(7, 0), source=source, labels="", fields="",
            disproved=lambda _: None, unknown=lambda: pytest.fail("unknown"),
            difference=difference, repair=lambda _: fails(),
        )  # fmt: skip
        prover.submit(claim)
        thread = threading.Thread(target=prover.run, daemon=True)
        thread.start()
        assert compared.wait(DEADLINE)
        prover.end()
        thread.join(DEADLINE)
    assert prover.disproved == 1
