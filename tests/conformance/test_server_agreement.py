"""A client that follows lists and watches by the rules ends with the content of the server."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Callable
from typing import Any

from asking import PATIENCE

from shmcache.testing import ApiServer
from shmcache.testing.apiserver import faults

State = dict[str, str]

PATH = "/api/v1/configmaps"


class Follower(threading.Thread):
    """The simplest client that is right: list, watch from there, list again on 410."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(daemon=True)
        self._server = server
        self.state: State = {}
        self.version = ""
        self.seen = threading.Condition()
        self.ended = False
        self.lists = 0

    def run(self) -> None:
        while not self.ended:
            connection = http.client.HTTPConnection(
                "127.0.0.1", self._server.port, timeout=PATIENCE
            )
            try:
                if not self.version:
                    self._list(connection)
                self._watch(connection)
            except (OSError, http.client.HTTPException, ValueError):
                continue  # the next round goes on from the version that it has
            finally:
                connection.close()

    def reaches(self, state: State) -> bool:
        """Whether it has this state in the end."""
        with self.seen:
            return self.seen.wait_for(lambda: self.state == state, PATIENCE)

    def _list(self, connection: http.client.HTTPConnection) -> None:
        found: State = {}
        token = ""
        while True:
            connection.request("GET", f"{PATH}?limit=7&continue={token}")
            response = connection.getresponse()
            page = json.loads(response.read())
            if response.status != 200:
                raise ValueError(page)
            found |= {_name(item): _version(item) for item in page["items"]}
            token = page["metadata"].get("continue", "")
            if not token:
                break
        self.lists += 1
        self._show(found, page["metadata"]["resourceVersion"])

    def _watch(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", f"{PATH}?watch=1&resourceVersion={self.version}")
        response = connection.getresponse()
        while line := response.readline():
            event = json.loads(line)
            if event["type"] == "ERROR":
                self.version = ""
                return
            state = {**self.state, _name(event["object"]): _version(event["object"])}
            if event["type"] == "DELETED":
                del state[_name(event["object"])]
            self._show(state, _version(event["object"]))

    def _show(self, state: State, version: str) -> None:
        with self.seen:
            self.state, self.version = state, version
            self.seen.notify_all()


def _name(obj: dict[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _version(obj: dict[str, Any]) -> str:
    version: str = obj["metadata"]["resourceVersion"]
    return version


def trouble(server: ApiServer, rng: random.Random) -> None:
    """One thing that goes wrong, or none."""
    where = rng.choice([faults.CLEAN, faults.LINE, faults.CHUNK, faults.TRUNCATED])
    choices: list[Callable[[], object]] = [
        server.compact,
        server.end_watches,
        server.abort_connections,
        server.send_bookmarks,
        lambda: server.faults.cut("watch", where=where, after=rng.randrange(9)),
        lambda: server.faults.cut("list", where=where, after=rng.randrange(9)),
        lambda: server.faults.cut("watch", reset=True, after=rng.randrange(9)),
        lambda: server.faults.garbage(after=rng.randrange(9)),
        lambda: server.faults.error(503),
    ]
    rng.choice(choices)()


def test_followers_agree_with_the_server_after_faults_of_every_kind(rng: random.Random) -> None:
    with ApiServer(seed=1, history=200) as server:
        followers = [Follower(server) for _ in range(3)]
        for follower in followers:
            follower.start()
        try:
            change_and_compare(server, followers, rng)
        finally:
            for follower in followers:
                follower.ended = True
    for follower in followers:
        follower.join(PATIENCE)
        assert not follower.is_alive()


def change_and_compare(server: ApiServer, followers: list[Follower], rng: random.Random) -> None:
    """Three thousand changes with troubles between them; everybody agrees twenty times."""
    alive: set[str] = set()
    for number in range(3000):
        name = f"c-{rng.randrange(40)}"
        obj = {
            "metadata": {"name": name, "namespace": f"ns-{len(name)}"},
            "data": {"n": f"{number}"},
        }
        if name not in alive:
            server.create("configmaps", obj)
            alive.add(name)
        elif rng.random() < 0.3:
            server.delete("configmaps", name, f"ns-{len(name)}")
            alive.discard(name)
        else:
            server.update("configmaps", obj)
        if rng.random() < 0.05:
            trouble(server, rng)
        if number % 150 == 149:
            expected = {_name(obj): _version(obj) for obj in server.list("configmaps")}
            assert all(follower.reaches(expected) for follower in followers)
