"""The processes that `reflector.py` puts together: server, reflector, workers, peers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.scenes import canned
from benchmarks.scenes.children import Children
from benchmarks.scenes.following import READY_S, reflect, work
from benchmarks.scenes.objects import FIRST_UPDATE_VERSION
from benchmarks.scenes.shared import directory

POLL_S = 0.002


class Server:
    """The canned server and its commands."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self.url = f"http://127.0.0.1:{children.receive()[0]}"
        self._next = FIRST_UPDATE_VERSION

    def ask(self, *command: Any) -> Any:
        return ask(self._children, *command)[0]

    def versions(self, count: int) -> str:
        """The version of the last of the next `count` events."""
        self._next += count
        return str(self._next - 1)

    def asked(self, client: str) -> list[canned.Asked]:
        """The requests of this client since the last call, up to its watch, which is awaited."""
        asked: list[canned.Asked] = []

        def watches() -> bool:
            asked.extend(self.ask("asked", client))
            return bool(asked) and asked[-1][0] == "watch"

        await_(watches, f"watch of {client}")
        return asked

    def took(self, client: str) -> float:
        """Seconds from this client's LIST until its watch, which is awaited."""
        asked = self.asked(client)
        kinds = [kind for kind, _ in asked]
        if kinds.count("list") != 1 or kinds.count("watch") != 1:
            raise RuntimeError(f"{client} asked for {kinds}")
        return asked[-1][1] - asked[0][1]


def ask(children: Children, *command: Any) -> list[Any]:
    children.send(command)
    return children.receive()


@contextlib.contextmanager
def serving(count: int, how: str) -> Iterator[Server]:
    with Children(canned.serve, [(count, how)]) as children:
        yield Server(children)


@contextlib.contextmanager
def started(target: Any, *arguments: Any) -> Iterator[Children]:
    """A process that is ready, and has received its command to go."""
    with Children(target, [arguments]) as children:
        children.receive()
        children.send("go")
        yield children


@contextlib.contextmanager
def reflecting(url: str) -> Iterator[tuple[str, Children]]:
    """A cache's name, and its reflector, which is synced."""
    with directory() as name, started(reflect, name, url) as reflector:
        reflector.receive()
        yield name, reflector


@contextlib.contextmanager
def working(name: str, count: int) -> Iterator[Children]:
    with Children(work, [(name,)] * count) as workers:
        workers.receive()
        yield workers


def await_(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_S
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {READY_S} s")
        time.sleep(POLL_S)
