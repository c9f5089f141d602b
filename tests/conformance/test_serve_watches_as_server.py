"""The cases of test_server_watches.py, from the API server's own storage tests, asked of serve.

Writes go to an ApiServer, which decides on versions; each is copied into the cache at once, as by a
reflector that is never late.
"""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
import test_server_watches as cases
from test_server_watches import *  # noqa: F403 - the cases

import shmcache
from shmcache import Resource
from shmcache.serve.server import Serving
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache.testing.apiserver.stored import StoredChange

PATIENCE = 60.0
_number = itertools.count()

del server  # noqa: F821 - theirs
# They make servers of their own: with another feature, other bookmarks, another definition.
del test_without_watch_list_an_old_watch_has_no_end_bookmark  # noqa: F821
del test_bookmarks_come_unprompted_if_the_client_allows_them  # noqa: F821
del test_a_resource_that_is_defined_again_has_no_past  # noqa: F821


class Mirror:
    """The part of an ApiServer that the cases know; serve answers the requests."""

    def __init__(self, source: ApiServer, writer: shmcache.Writer, serve: ServeThread) -> None:
        self._source = source
        self._writer = writer
        self._serve = serve
        self.create, self.update, self.delete = source.create, source.update, source.delete
        writer.replace("pods", [], "1")
        store: Any = source._store
        apply = store._apply

        def copied(resource: str, change: StoredChange) -> None:
            apply(resource, change)
            self._copy(resource, change)

        store._apply = copied

    def _copy(self, resource: str, change: StoredChange) -> None:
        version = str(change.version)
        with self._writer.batch():
            if resource == "pods" and change.new is not None:
                obj = {"kind": "Pod", "apiVersion": "v1", **change.new.obj}
                self._writer.put("pods", change.key, obj, version)
            elif resource == "pods":
                self._writer.delete("pods", change.key, version)
            self._writer.set_version("pods", version)

    @property
    def port(self) -> int:
        return self._serve.port

    @property
    def version(self) -> str:
        return self._source.version

    def compact(self) -> str:
        """Makes all changes so far known by a list alone, of the next version."""
        self._source.advance(int(self.version) + 1)
        objects = [{"kind": "Pod", "apiVersion": "v1", **obj} for obj in self._source.list("pods")]
        self._writer.replace("pods", objects, self.version)
        return self.version

    def wait_for_watches(self, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while (found := self._serve.call(lambda: self._serve.server.watches.count)) != count:
            assert time.monotonic() < deadline, f"{found} watches are open, not {count}"

    def send_bookmarks(self) -> None:
        self._serve.call(self._serve.server.watches.send_bookmarks)

    def end_watches(self) -> None:
        self._serve.call(self._serve.server.watches.catch_up)
        self._serve.call(self._serve.server.watches.end)


@pytest.fixture(name="server")
def mirror() -> Iterator[Mirror]:
    name = f"mirror-{os.getpid()}-{next(_number)}"
    with (
        ApiServer(seed=1) as source,
        shmcache.Writer(name, [Resource("pods")]) as writer,
        shmcache.attach(name) as cache,
        ServeThread(cache, Serving(fresh_seconds=0.01)) as serve,
    ):
        yield Mirror(source, writer, serve)


def test_these_are_the_cases(server: Any) -> None:
    assert isinstance(server, Mirror)
    ours = {name for name in globals() if name.startswith("test_")}
    theirs = {name for name in vars(cases) if name.startswith("test_")}

    assert len(theirs - ours) == 3
