"""The page of `shmcache ui`: files, the stream of pictures and changes, objects, search, rights."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
from served import Asked, pod, serving
from test_serve_review import ANN, BOB, delegated

import shmcache
from shmcache.engine.instant_writer import InstantWriter
from shmcache.queue.workqueue import WorkQueue
from shmcache.serve.auth import permit
from shmcache.serve.auth.access import Access, Tokens
from shmcache.serve.limits import Limits
from shmcache.serve.server import Serving
from shmcache.serve.ui import changes, objects, past, viewers
from shmcache.serve.ui.pages import FOLDER
from shmcache.serve.ui.routes import Interface

PATIENCE = 30.0


@contextlib.contextmanager
def paged(
    found: dict[str, list[Any]] | None = None, how: Serving | None = None, **options: Any
) -> Iterator[Asked]:
    """A served cache whose server offers the page."""
    with serving(found or {"pods": [pod(n, app=f"a{n % 3}") for n in range(9)]}, how,
                 **options) as asked:  # fmt: skip
        offer(asked)
        yield asked


def offer(asked: Asked) -> Interface:
    server = asked.serve.server

    def begin() -> Interface:
        server.page = Interface(server)
        return server.page

    return asked.serve.call(begin)


class Viewed:
    """One open page's stream."""

    def __init__(self, asked: Asked, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", asked.serve.port, timeout=PATIENCE
        )
        self._connection.request("GET", f"/ui/stream{query}", headers=headers)
        self.response = self._connection.getresponse()

    def next(self, kind: str = "") -> Any:
        """The data of the next event (of this kind)."""
        while True:
            name = self.response.readline()
            assert name, "the stream has ended"
            data = self.response.readline()
            assert self.response.readline() == b"\n"
            if not kind or name == f"event: {kind}\n".encode():
                return orjson.loads(data.removeprefix(b"data: "))

    def rows(self, count: int) -> list[Any]:
        """So many changes."""
        found: list[Any] = []
        while len(found) < count:
            found += self.next("changes")["rows"]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()


def until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


# ---- files ---------------------------------------------------------------------------------------


def test_every_file_that_the_page_names_is_served_and_none_is_elsewhere() -> None:
    with paged() as asked:
        page = asked.get("/ui/")
        assert page.code == 200
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        for file in Path(FOLDER).iterdir():
            answer = asked.get(f"/ui/{file.name}")
            assert answer.body == file.read_bytes()
            assert b"http://" not in answer.body.replace(b"http://www.w3.org/", b"")
            assert b"https://" not in answer.body


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    with paged() as asked:
        tag = asked.get("/ui/app.js").headers["ETag"]
        again = asked.get("/ui/app.js", "GET", b"", If_None_Match=tag)
        assert (again.code, again.body) == (304, b"")


def test_the_page_weighs_less_than_150_kib_compressed() -> None:
    with paged() as asked:
        names = [file.name for file in Path(FOLDER).iterdir()]
        sizes = [len(asked.get(f"/ui/{name}", "GET", b"", Accept_Encoding="gzip").body)
                 for name in names]  # fmt: skip
        assert sum(sizes) < 150 << 10


def test_a_browser_finds_the_way_and_other_clients_their_404() -> None:
    with paged() as asked:
        found = asked.get("/", "GET", b"", Accept="text/html,*/*")
        assert (found.code, found.headers["Location"]) == (302, "/ui/")
        assert asked.get("/").code == 404
        assert asked.get("/ui/../etc/passwd").code == 404
        assert asked.get("/ui/stream", "POST").code == 405
        head = asked.get("/ui/stream", "HEAD")
        assert (head.code, head.headers["Content-Type"]) == (200, "text/event-stream")


def test_a_server_without_ui_answers_404() -> None:
    with serving() as asked:
        assert asked.get("/ui/").code == 404
        assert asked.get("/ui/stream").code == 404


# ---- the stream ----------------------------------------------------------------------------------


def test_a_picture_shows_resources_workers_queues_and_the_writer() -> None:
    with (
        paged() as asked,
        WorkQueue(asked.cache.place, "work") as queue,
        Viewed(asked) as viewed,
    ):
        queue.add("prod/web")
        at = viewed.next("picture")
        assert {"work": 1} == {name: one["depth"] for name, one in at["queues"].items()}
        assert {} == at["controllers"]
        (pods,) = [one for one in at["resources"] if one["name"] == "pods"]
        assert (pods["objects"], pods["kind"], pods["path"]) == (9, "Pod", "/api/v1/pods")
        assert pods["bytes"] > 0
        assert at["writer"]["alive"] is True
        assert at["memory"]["bytes"] > 0
        assert "partial" not in at


def test_changes_are_pushed_in_order_with_kind_key_and_version() -> None:
    with paged() as asked, Viewed(asked) as viewed:
        viewed.next("picture")
        asked.apply(pod(1, "default", 101), "101")
        asked.apply(pod(77, "default", 102), "102")
        asked.delete("default/p-0001", "103")
        rows = viewed.rows(3)
        assert [row[1:] for row in rows] == [
            ["M", "pods", "default/p-0001", "101"],
            ["A", "pods", "default/p-0077", "102"],
            ["D", "pods", "default/p-0001", "103"],
        ]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("?resource=configmaps", ["m"]),
        ("?q=P-0001", ["p-0001"]),
        ("?labels=app%3Dnew", ["p-0002"]),
        ("?labels=app%3Da1&resource=pods", ["p-0001"]),
    ],
)
def test_a_viewer_sees_the_changes_that_it_selects(query: str, shown: list[str]) -> None:
    last = {"metadata": {"name": "end-p-0001", "namespace": "default", "labels": {"app": "a1"}}}
    with paged() as asked, Viewed(asked, query) as viewed:
        viewed.next("picture")
        asked.apply(pod(1, "default", 101, app="other"), "101")
        asked.apply(pod(2, "default", 102, app="new"), "102")
        asked.apply(pod(3, "default", 103, app="x"), "103")
        made: dict[str, Any] = {"metadata": {"name": "m", "namespace": "default"}}
        asked.apply(made, "104", "configmaps")
        asked.apply(last, "105")
        rows = viewed.rows(1)
        assert [row[3].partition("/")[2] for row in rows][: len(shown)] == shown


def test_each_change_is_shown_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "TAKE", 50)
    with paged() as asked, Viewed(asked) as viewed:
        viewed.next("picture")
        before = asked.cache.reader.root().head
        with asked.held_up():
            for number in range(200):
                asked.apply(pod(number % 9, "default", 200 + number), str(200 + number))
        total = asked.cache.reader.root().head - before
        seen = shown = 0
        while seen < total:
            batch = viewed.next("changes")
            shown += len(batch["rows"])
            seen += len(batch["rows"]) + batch["skipped"]
        assert seen == total
        assert 0 < shown <= 2 * viewers.ROWS + 9


def test_nothing_runs_while_nobody_looks() -> None:
    with paged() as asked:
        page = asked.serve.server.page
        assert page is not None
        with Viewed(asked) as viewed:
            viewed.next("picture")
            assert len(page.viewers) == 1
        until(lambda: not len(page.viewers))
        taken: list[int] = []
        pictures = page.viewers._pictures
        take = pictures.take

        def counted() -> dict[str, Any]:
            taken.append(1)
            return take()

        pictures.take = counted  # type: ignore[method-assign]
        asked.apply(pod(1, "default", 101), "101")
        time.sleep(viewers.PICTURE_SECONDS * 1.5)
        assert not taken
        with Viewed(asked) as viewed:  # and it begins again
            assert viewed.next("picture")["cache"] == asked.cache.name
            asked.apply(pod(1, "default", 102), "102")
            assert viewed.rows(1)[0][4] == "102"


def test_a_viewer_that_reads_nothing_costs_no_more_than_its_backlog() -> None:
    how = Serving(limits=Limits(backlog_bytes=1 << 16))
    with paged(how=how) as asked:
        small = (socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        asked.serve._listener.setsockopt(*small)  # accepted sockets inherit it
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", asked.serve.port))
        slow.sendall(b"GET /ui/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page = asked.serve.server.page
        assert page is not None
        until(lambda: len(page.viewers))
        with Viewed(asked) as viewed:
            viewed.next("picture")
            number = 1000
            while not any(one._skipped for one in list(page.viewers._all)):
                with asked.writer.batch():
                    for _ in range(500):
                        number += 1
                        name = f"{number}" * 20
                        asked.writer.apply("configmaps", [{"metadata": {"name": name}}])
                viewed.next("changes")
            assert asked.serve.server.holding.total < 1 << 19
        slow.close()


def test_a_draining_server_ends_the_streams_in_order() -> None:
    with paged() as asked:
        viewed = Viewed(asked)
        viewed.next("picture")
    with viewed:
        assert viewed.response.read().endswith((b"\n\n", b""))  # whole: IncompleteRead otherwise


# ---- objects -------------------------------------------------------------------------------------


def test_an_object_with_its_versions_in_the_window() -> None:
    with paged() as asked:
        asked.apply(pod(1, "default", 101, app="b"), "101")
        asked.apply(pod(2, "default", 102), "102")
        asked.apply(pod(1, "default", 103, app="c"), "103")
        found = asked.get("/ui/object?resource=pods&key=default/p-0001").json
        assert found["object"]["metadata"]["labels"] == {"app": "c"}
        versions = [
            (one["event"], one["object"]["metadata"]["labels"]["app"])
            for one in found["versions"][-2:]
        ]
        assert versions == [("MODIFIED", "b"), ("MODIFIED", "c")]
        asked.delete("default/p-0001", "104")
        gone = asked.get("/ui/object?resource=pods&key=default/p-0001").json
        assert gone["object"] is None
        assert (gone["versions"][-1]["event"], gone["versions"][-1]["object"]) == ("DELETED", None)


def test_a_history_is_bounded_by_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "VERSIONS", 5)
    with paged() as asked:
        for number in range(12):
            asked.apply(pod(1, "default", 200 + number), str(200 + number))
        path = "/ui/object?resource=pods&key=default/p-0001"
        found = asked.get(path).json["versions"]
        assert [one["version"] for one in found] == ["207", "208", "209", "210", "211"]
        monkeypatch.setattr(objects, "BYTES", 10)
        assert [one["version"] for one in asked.get(path).json["versions"]] == ["211"]


def test_a_history_encodes_no_version_that_it_does_not_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LOOK2: thousands of versions of a large object lie in one look of a window."""
    made: list[str] = []
    encode = objects._version

    def counted(event: str, *rest: Any) -> bytes:
        made.append(event)
        return encode(event, *rest)

    monkeypatch.setattr(objects, "_version", counted)
    monkeypatch.setattr(objects, "VERSIONS", 5)
    with paged() as asked:
        for number in range(40):
            asked.apply(pod(1, "default", 200 + number), str(200 + number))
        found = asked.get("/ui/object?resource=pods&key=default/p-0001").json["versions"]
        assert len(found) == len(made) == 5


class Noted:
    """Instants, as a reflector notes them, with the clock of the test: `span` apart."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.span = time.monotonic() / 4  # the clock begins with the machine
        self._now = 0
        place = asked.serve.server.cache.place
        self._instants = InstantWriter(place, 0o600, clock=lambda: self._now)

    def note(self, spans_ago: int) -> None:
        self._now = time.monotonic_ns() - int(spans_ago * self.span * 1e9)
        self._instants.note(self._asked.writer.position())

    def spans(self, seconds: float) -> int:
        """Whole spans; a test lasts less than one."""
        return int(seconds / self.span)

    def ago(self, spans: float) -> int:
        return int(spans * self.span)

    def close(self) -> None:
        self._instants.close()


def test_versions_have_the_age_of_the_instant_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "KEPT_SECONDS", 0.0)
    with paged() as asked, contextlib.closing(Noted(asked)) as noted:
        for spans_ago, version in ((3, 101), (2, 102), (1, 103)):
            noted.note(spans_ago)
            asked.apply(pod(1, "default", version), str(version))
        found = asked.get("/ui/object?resource=pods&key=default/p-0001").json["versions"]

        assert [101, 102, 103] == [int(one["version"]) for one in found[-3:]]
        assert [2, 1] == [noted.spans(one["age"]) for one in found[-3:-1]]
        assert 0.0 == found[-1]["age"]  # no instant yet: just now
        assert found[0]["age"] is None


def test_the_changes_of_the_last_minutes_begin_with_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AGO1."""
    monkeypatch.setattr(past, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(past, "PAGE", 3)
    with paged() as asked, contextlib.closing(Noted(asked)) as noted:
        noted.note(3)
        asked.apply(pod(1, "default", 101), "101")
        noted.note(2)
        for version in range(102, 109):
            asked.apply(pod(2, "default", version), str(version))
        asked.delete("default/p-0003", "110")
        asked.apply(pod(20, "default", 111), "111")
        noted.note(1)

        def rows(query: str) -> list[Any]:
            changes = asked.get(f"/ui/past?{query}").json["changes"]
            return [(one["kind"], one["key"], one["times"]) for one in changes]

        found = asked.get(f"/ui/past?resource=pods&seconds={noted.ago(2.5)}").json
        assert [
            ("A", "default/p-0020", 1),
            ("D", "default/p-0003", 1),
            ("M", "default/p-0002", 7),
            ("M", "default/p-0001", 1),
        ] == rows(f"seconds={noted.ago(2.5)}")
        assert found["complete"]
        assert 3 == noted.spans(found["known"])
        assert [1, 1, 1, 2] == [noted.spans(one["age"]) for one in found["changes"]]
        assert 3 == len(rows(f"seconds={noted.ago(1.5)}"))
        assert [] == rows(f"seconds={noted.ago(0.5)}")
        assert [] == rows(f"resource=configmaps&seconds={noted.ago(2.5)}")
        monkeypatch.setattr(past, "MATCHES", 2)
        cut = asked.get(f"/ui/past?seconds={noted.ago(2.5)}").json
        assert (False, 2) == (cut["complete"], len(cut["changes"]))


class Counted:
    """A root that counts the places of the ring at which it was read."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self.tail, self.head = root.tail, root.head
        self.read = 0

    def take(self, cursor: int, *arguments: Any) -> Any:
        deltas, position = self._root.take(cursor, *arguments)
        self.read += position - cursor
        return deltas, position


def test_the_changes_of_a_rare_resource_are_found_in_one_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AGO1: each change of the window is read once."""

    async def turn(_loop: object) -> None:
        return None

    monkeypatch.setattr(past, "PAGE", 3)
    monkeypatch.setattr(past, "turn", turn)
    with paged({"pods": [], "nodes": []}) as asked, shmcache.attach(asked.cache.name) as cache:
        for version in range(1, 21):
            asked.apply(pod(1, "default", version), str(version))
        latest = cache.reader.root()
        root: Any = Counted(latest)
        found: dict[Any, Any] = {}
        rare = latest.names().index("nodes")
        asyncio.run(past._walk(asked.serve.server, root, (root.tail, (rare,)), found))

        assert ({}, root.head - root.tail) == (found, root.read)
        assert root.read >= 20


@pytest.mark.parametrize("seconds", ["", "-1", "1.5", "x", "99999999"])
def test_a_span_must_be_a_whole_number(seconds: str) -> None:
    with paged() as asked:
        assert 400 == asked.get(f"/ui/past?seconds={seconds}").code


def test_without_instants_the_past_is_unknown() -> None:
    with paged() as asked:
        asked.apply(pod(1, "default", 101), "101")
        found = asked.get("/ui/past?seconds=60").json
        assert ([], None) == (found["changes"], found["known"])
        versions = asked.get("/ui/object?resource=pods&key=default/p-0001").json["versions"]
        assert {None} == {one["age"] for one in versions}


def test_an_object_of_an_unknown_resource_is_404() -> None:
    with paged() as asked:
        assert asked.get("/ui/object?resource=nope&key=a/b").code == 404
        assert asked.get("/ui/object?resource=po&key=default/p-0001").code == 404
        assert asked.get("/ui/object?resource=pods&key=default/none").json["object"] is None


def test_a_search_over_all_resources_or_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with paged() as asked:
        one: dict[str, Any] = {"metadata": {"name": "p-0001-config", "namespace": "default"}}
        asked.apply(one, "101", "configmaps")

        def search(query: str) -> list[str]:
            answer = asked.get(f"/ui/search?{query}")
            return [f"{one['resource']} {one['key']}" for one in answer.json["matches"]]

        both = ["configmaps default/p-0001-config", "pods default/p-0001"]
        assert sorted(search("q=P-0001")) == both
        assert search("q=p-0001&resource=pods") == ["pods default/p-0001"]
        assert search("q=&labels=app%3Da1&resource=pods") == [
            f"pods default/p-{n:04}" for n in (1, 4, 7)
        ]
        assert asked.get("/ui/search?labels=%3D%3D").code == 400
        monkeypatch.setattr(objects, "PAGE", 2)
        monkeypatch.setattr(objects, "MATCHES", 4)
        found = asked.get("/ui/search?q=p-&resource=pods").json
        assert (len(found["matches"]), found["complete"]) == (4, False)


@pytest.mark.parametrize("path", ["search", "stream", "object", "past"])
def test_long_selectors_are_refused_as_those_of_lists_are(path: str) -> None:
    longest = "app=" + "a" * 63 + ",app!=a" * 1000
    most = Serving(limits=Limits(selector_bytes=len(longest)))
    with paged(how=most) as asked:
        if path == "search":
            assert asked.get(f"/ui/{path}?labels={longest}").code == 200
        answer = asked.get(f"/ui/{path}?labels={longest},")
        assert answer.code == 400
        assert f"more than {len(longest)} bytes" in answer.json["message"]


def test_a_search_for_rare_labels_leaves_others_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LOOK1: where nothing matches, one look does not lead through the whole resource."""
    turns: list[None] = []
    turn = objects.turn

    async def counted(loop: Any) -> None:
        turns.append(None)
        await turn(loop)

    monkeypatch.setattr(objects, "turn", counted)
    monkeypatch.setattr(objects, "PAGE", 2)
    with paged() as asked:
        found = asked.get("/ui/search?labels=app%3Dnone&resource=pods").json
        assert found == {"matches": [], "complete": True}
        assert len(turns) == 5
        found = asked.get("/ui/search?labels=app%3Da1&resource=pods").json
        assert [one["key"] for one in found["matches"]] == [f"default/p-{n:04}" for n in (1, 4, 7)]


# ---- rights --------------------------------------------------------------------------------------

DATA = ("/ui/stream", "/ui/object?resource=pods&key=default/p-0001", "/ui/search?q=p")


def test_data_need_a_token_and_files_do_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("secret,ann\n")
    with paged() as asked:
        asked.serve.server.access = Access(tokens=Tokens(str(file)))
        assert asked.get("/ui/").code == 200
        for path in DATA:
            assert asked.get(path).code == 401
            assert asked.get(path, "GET", b"", Authorization="Bearer wrong").code == 401
        assert asked.get(DATA[1], "GET", b"", Authorization="Bearer secret").code == 200
        with Viewed(asked, Authorization="Bearer secret") as viewed:
            assert viewed.next("picture")["resources"]


def test_a_page_of_another_site_gets_no_data() -> None:
    with paged() as asked:
        for path in DATA:
            assert asked.get(path, "GET", b"", Origin="https://evil.example").code == 403
            assert asked.get(path, "GET", b"", Host="evil.example").code == 403


def test_a_user_sees_the_resources_that_it_may_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "KEPT_SECONDS", 0.0)
    with delegated(tmp_path) as at:
        offer(at.asked)
        at.api.access.deny("bob", "list", "namespaces")
        at.api.access.deny("bob", "get", "namespaces")
        bob = {"Authorization": f"Bearer {BOB}"}
        with Viewed(at.asked, **bob) as viewed:
            picture = viewed.next("picture")
            assert [one["name"] for one in picture["resources"]] == ["pods"]
            assert (picture["partial"], picture["workers"]) == (True, [])
            at.asked.apply({"metadata": {"name": "n"}}, "101", "namespaces")
            at.asked.apply(pod(1, "default", 102), "102")
            assert [row[2] for row in viewed.rows(1)] == ["pods"]
        assert at.get(BOB, "/ui/object?resource=namespaces&key=n") == 403
        assert at.get(ANN, "/ui/object?resource=namespaces&key=n") == 200
        noting = InstantWriter(at.asked.serve.server.cache.place, 0o600)
        noting.note(at.asked.writer.position())
        at.asked.apply({"metadata": {"name": "n"}}, "103", "namespaces")
        at.asked.apply(pod(2, "default", 104), "104")
        earlier = at.asked.get("/ui/past?seconds=60", "GET", b"", **bob).json["changes"]
        assert ["pods"] == [one["resource"] for one in earlier]
        noting.close()
        found = at.asked.get("/ui/search?q=n", "GET", b"", **bob).json["matches"]
        assert {one["resource"] for one in found} <= {"pods"}


def test_a_key_that_no_path_of_the_api_names_is_reviewed_too(tmp_path: Path) -> None:
    """RIGHT1: it was once read without any review."""
    with delegated(tmp_path) as at:
        offer(at.asked)
        one: dict[str, Any] = {"metadata": {"namespace": "default", "name": "x/y"}}
        at.asked.apply(one, "101")
        at.asked.apply({"metadata": {"name": "n/m"}}, "102", "namespaces")
        at.api.access.deny("bob", "get", "pods")
        at.api.access.deny("bob", "get", "namespaces")
        for place in ("resource=pods&key=default/x/y", "resource=namespaces&key=n/m"):
            assert at.get(ANN, f"/ui/object?{place}") == 200
            assert at.get(BOB, f"/ui/object?{place}") == 403


def test_a_resource_that_comes_later_is_not_among_those_that_a_user_may_list(
    tmp_path: Path,
) -> None:
    """RIGHT2: neither its changes nor its name, until the next look at the user's rights."""
    with delegated(tmp_path) as at:
        page = offer(at.asked)
        with Viewed(at.asked, Authorization=f"Bearer {ANN}") as viewed:
            assert "partial" not in viewed.next("picture")
            (viewer,) = at.asked.serve.call(lambda: list(page.viewers._all))
            assert viewer.visible == frozenset({"pods", "namespaces"})
            rows = [{"name": name} for name in ("pods", "namespaces", "secrets")]
            part = viewers._part({"resources": rows, "workers": [1]}, viewer.visible)
            assert (part["resources"], part["workers"]) == (rows[:2], [])
            empty = viewers._part({"resources": [], "workers": [1]}, frozenset())
            assert empty["workers"] == []


def test_rights_that_are_taken_away_end_what_a_viewer_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewers, "RECHECK_SECONDS", 0.05)
    with delegated(tmp_path) as at:
        offer(at.asked)
        with Viewed(at.asked, Authorization=f"Bearer {BOB}") as viewed:
            assert len(viewed.next("picture")["resources"]) == 2
            at.api.access.deny("bob", "list", "pods")
            at.now += 60  # the kept answer expires
            deadline = time.monotonic() + PATIENCE
            while len(viewed.next("picture")["resources"]) == 2:
                assert time.monotonic() < deadline


def test_a_revoked_token_ends_the_stream_and_what_ran_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VIEW1, VIEW3."""
    monkeypatch.setattr(permit, "RECHECK_SECONDS", 0.05)
    with delegated(tmp_path) as at:
        page = offer(at.asked)
        with Viewed(at.asked, Authorization=f"Bearer {BOB}") as viewed:
            viewed.next("picture")
            del at.api.access.tokens[BOB]
            at.now += 60  # the kept answer expires
            assert viewed.next("refused")["code"] == 401
            assert viewed.response.read() == b""
            assert (len(page.viewers), at.asked.serve.server.lasting.taken) == (0, 0)


def test_viewers_take_places_of_lasting_requests() -> None:
    with paged(how=Serving(limits=Limits(connections=8))) as asked:
        most = asked.serve.server.limits.lasting
        some = [Viewed(asked) for _ in range(most)]
        try:
            with Viewed(asked) as further:
                assert further.response.status == 429
            assert asked.serve.server.lasting.taken <= most
        finally:
            for one in some:
                one.__exit__()
