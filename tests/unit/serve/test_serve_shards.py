"""shardSelector (KEP-5866) at `serve` and at testing.ApiServer: lists, pages, watches, WatchList.

Both servers take the same requests and must show the same objects.
"""

import contextlib
import http.client
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from served import Asked, Stream, pod, serving

from shmcache.protocol.selectors.shards import NAMESPACE, ShardSelector
from shmcache.testing import ApiServer

COUNT = 60
NAMESPACES = ("default", "prod", "test")
PODS = [pod(n, NAMESPACES[n % 3], n + 1000, app="a" if n % 2 else "b") for n in range(COUNT)]


class Server:
    """Either server: a GET, and writes."""

    def __init__(self, port: int, write: Callable[[dict[str, Any]], object]) -> None:
        self.port = port
        self.write = write

    def get(self, path: str, **query: str) -> Any:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            answer = connection.getresponse()
            return orjson.loads(answer.read()) | {"code": answer.status}

    @contextlib.contextmanager
    def watch(self, **query: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            text = urllib.parse.urlencode({"watch": "true", **query})
            connection.request("GET", f"/api/v1/pods?{text}")
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield ((event["type"], event["object"]) for event in map(orjson.loads, answer))
            answer.close()


@pytest.fixture(params=["serve", "apiserver"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "serve":
        with serving({"pods": PODS}, version="2000") as asked:
            yield Server(asked.serve.port, lambda obj: asked.apply(obj, version_of(obj)))
        return
    with ApiServer(seed=1) as api:
        for one in PODS:
            api.load("pods", one)
        yield Server(api.port, lambda obj: api.load("pods", obj))


def version_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def shards(count: int, field: str = "uid") -> list[ShardSelector]:
    return [ShardSelector.of(index, count, field) for index in range(count)]


@pytest.mark.parametrize("field", ["uid", NAMESPACE])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_lists_of_all_shards_are_the_whole_list(server: Server, count: int, field: str) -> None:
    """Each says of which shard it is."""
    whole = names(server.get("/api/v1/pods")["items"])
    parts = []
    for shard in shards(count, field):
        answer = server.get("/api/v1/pods", shardSelector=str(shard))
        assert answer["metadata"]["shardInfo"] == {"selector": str(shard)}
        assert all(shard.matches(item) for item in answer["items"])
        parts += names(answer["items"])

    assert sorted(parts) == sorted(whole)
    assert len(parts) == COUNT


def test_a_list_without_a_shard_says_nothing_of_one(server: Server) -> None:
    assert "shardInfo" not in server.get("/api/v1/pods")["metadata"]
    assert "shardInfo" not in server.get("/api/v1/pods", shardSelector="")["metadata"]


def test_several_ranges_and_other_selectors_together(server: Server) -> None:
    first, _, third = shards(3)
    both = f"{first} || {third}"
    answer = server.get("/api/v1/pods", shardSelector=both, labelSelector="app=a")

    wanted = [one for one in PODS if first.matches(one) or third.matches(one)]
    assert sorted(names(answer["items"])) == [
        one["metadata"]["name"] for one in wanted if one["metadata"]["labels"]["app"] == "a"
    ]


def test_pages_of_a_shard_join_to_its_list(server: Server) -> None:
    shard = str(shards(2)[1])
    whole = server.get("/api/v1/pods", shardSelector=shard)
    found, token = [], ""
    while True:
        query = {"shardSelector": shard, "limit": "7", **({"continue": token} if token else {})}
        answer = server.get("/api/v1/pods", **query)
        assert answer["metadata"]["shardInfo"] == {"selector": shard}
        assert "remainingItemCount" not in answer["metadata"]
        found += names(answer["items"])
        token = answer["metadata"].get("continue", "")
        if not token:
            break

    assert found == names(whole["items"])


@pytest.mark.parametrize(
    "text", ["shardRange(object.metadata.name, '', '')", " ", "everything", "(" * 3000]
)
def test_an_invalid_shard_is_refused(server: Server, text: str) -> None:
    answer = server.get("/api/v1/pods", shardSelector=text)

    assert (answer["code"], answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("field", ["uid", NAMESPACE])
def test_watches_of_all_shards_see_each_change_once(server: Server, field: str) -> None:
    """A WatchList begins with the shard's objects; what comes later is of the shard only."""
    changed = [pod(n, NAMESPACES[n % 3], 3000 + n, app="c") for n in range(COUNT)]
    last = pod(99, "prod", 4000)
    begun: list[str] = []
    seen: list[str] = []
    with contextlib.ExitStack() as stack:
        watches = []
        for shard in shards(3, field):
            watch = stack.enter_context(
                server.watch(
                    sendInitialEvents="true",
                    resourceVersionMatch="NotOlderThan",
                    allowWatchBookmarks="true",
                    shardSelector=str(shard),
                )
            )
            for kind, obj in watch:
                if kind == "BOOKMARK":
                    break
                assert kind == "ADDED"
                assert shard.matches(obj)
                begun.append(obj["metadata"]["name"])
            watches.append((shard, watch))
        for one in [*changed, last]:
            server.write(one)
        for shard, watch in watches:
            mine = [one for one in [*changed, last] if shard.matches(one)]
            for wanted in mine:
                kind, obj = next(watch)
                assert obj["metadata"]["name"] == wanted["metadata"]["name"]
                assert version_of(obj) == version_of(wanted)
                assert kind == ("MODIFIED" if wanted is not last else "ADDED")
                seen.append(obj["metadata"]["name"])

    assert sorted(begun) == sorted(names(PODS))
    assert len(seen) == len(set(seen)) == COUNT + 1


def test_a_watch_resumes_with_its_shard_alone() -> None:
    """From a version of the past, along the ring, as for watches that lag."""
    with serving({"pods": PODS}, version="2000") as asked:
        for n in range(COUNT):
            asked.apply(pod(n, NAMESPACES[n % 3], 3000 + n), str(3000 + n))
        shard = shards(4)[2]
        wanted = [n for n in range(COUNT) if shard.matches(pod(n, NAMESPACES[n % 3]))]
        text = urllib.parse.quote(str(shard))
        with Stream(asked, f"resourceVersion=2000&shardSelector={text}") as watch:
            assert [watch.next_event() for _ in wanted] == [
                ("MODIFIED", f"p-{n:04}") for n in wanted
            ]


def scoped(shard: ShardSelector) -> Any:
    from shmcache.settings import Resource

    settings = {"namespaces": [], "shard": str(shard)}
    return (Resource("pods", {}, settings=settings),)


def test_a_cache_of_one_shard_refuses_everything_beyond_it() -> None:
    """Nothing is left out silently: who asks for less, gets it."""
    half, quarter, other = shards(2)[0], shards(4)[1], shards(2)[1]
    mine = [one for one in PODS if half.matches(one)]

    def ask(asked: Asked, shard: ShardSelector) -> Any:
        return asked.get(f"/api/v1/pods?shardSelector={urllib.parse.quote(str(shard))}")

    with serving({"pods": mine}, resources=scoped(half)) as asked:
        refused = asked.get("/api/v1/pods")
        assert refused.code == 403
        assert "this cache holds the shard" in refused.json["message"]
        assert ask(asked, other).code == 403
        assert ask(asked, ShardSelector.of(0, 2, NAMESPACE)).code == 403
        assert len(ask(asked, half).json["items"]) == len(mine)
        assert 0 < len(ask(asked, quarter).json["items"]) < len(mine)
        missing = asked.get("/api/v1/namespaces/default/pods/none")
        assert missing.code == 403
        assert "may exist" in missing.json["message"]
