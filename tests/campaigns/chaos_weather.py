"""Chaos, the weather: every kind of fault that the server offers, and breaks of all connections."""

from __future__ import annotations

import collections
import json
import random
from collections.abc import Callable

from chaos_world import POPULATION, Writes

from shmcache.protocol import failures
from shmcache.testing import ApiServer
from shmcache.testing.apiserver import faults as places
from shmcache.testing.apiserver.faults import ANY, Fault

WAITING = 14
"""Faults that wait for their requests at a time; more would only meet the same ones."""
VAIN = "gzip members"
"""Met, and never to be seen: a watch does not take gzip."""

EVENTS = [
    failures.internal_error("chaos").status,
    failures.expired("too old resource version: 1 (2)").status,
    failures.too_many_requests().status,
]


def error_event(rng: random.Random) -> bytes:
    """A line of a watch with an error."""
    return json.dumps({"type": "ERROR", "object": rng.choice(EVENTS)}).encode() + b"\n"


class Weather:
    """Sets up faults, and counts those that showed."""

    def __init__(self, server: ApiServer, writes: Writes, rng: random.Random) -> None:
        self.acts: collections.Counter[str] = collections.Counter()
        self._server = server
        self._writes = writes
        self._rng = rng
        self._asked: list[tuple[str, Fault]] = []
        self._counted: collections.Counter[str] = collections.Counter()
        self._next: list[str] = []
        self._acts: list[Callable[[], object]] = []
        self._kinds = self._of_bytes() | self._of_answers()

    # ---- faults that requests meet ---------------------------------------------------------------

    def _of_bytes(self) -> dict[str, Callable[[str], Fault]]:
        faults, rng = self._server.faults, self._rng

        def cut(where: str, *, reset: bool = False) -> Callable[[str], Fault]:
            return lambda name: faults.cut(
                rng.choice(("watch", "watch", "list")),
                name,
                where=where,
                after=rng.choice((0, 1, 5, 30)),
                reset=reset,
            )

        return {
            "cut in a line": cut(places.LINE),
            "cut in a chunk": cut(places.CHUNK),
            "clean end": cut(places.CLEAN),
            "truncated line": cut(places.TRUNCATED),
            "reset": cut(places.LINE, reset=True),
            "half-open": lambda name: faults.half_open(
                rng.choice(("watch", "list", ANY)), name, after=rng.choice((-1, 0, 3))
            ),
            "slow": lambda name: faults.slow(
                rng.uniform(0.05, 0.6), ANY, name, each_chunk=rng.choice((0, 0.002))
            ),
            "garbage": lambda name: faults.garbage(
                rng.choice(("watch", "list")), name, after=rng.randrange(9)
            ),
            "error event": lambda name: faults.garbage(
                "watch", name, text=error_event(rng), after=rng.randrange(9)
            ),
            "no end bookmark": faults.no_end_bookmark,
            "no bookmarks": faults.no_bookmarks,
            VAIN: faults.gzip_members,
        }

    def _of_answers(self) -> dict[str, Callable[[str], Fault]]:
        faults, rng = self._server.faults, self._rng

        def refuse(make: Callable[[], failures.Failure], verb: str = ANY) -> Callable[[str], Fault]:
            return lambda name: faults.refuse(make(), verb, name)

        def newer() -> int:
            return int(self._server.version) + rng.randrange(1, 1000)

        def spoken() -> failures.Failure:
            return failures.plain(
                504, f"Timeout: Too large resource version: {newer()}, current: 1"
            )

        now = self._server.version
        return {
            "429 storm": lambda name: faults.too_many_requests(
                ANY, name, times=rng.randrange(2, 6)
            ),
            "5xx of a proxy": lambda name: faults.error(
                rng.choice((500, 502, 503, 504)), ANY, name, times=rng.randrange(1, 3)
            ),
            "5xx storm": lambda name: faults.error(
                rng.choice((500, 502, 503, 504)), ANY, name, times=rng.randrange(9, 18)
            ),
            "5xx of the server": refuse(lambda: failures.internal_error("chaos")),
            "not ready": refuse(lambda: failures.not_ready(1)),
            "401": lambda name: faults.unauthorized(ANY, name),
            "400 of a watch": refuse(
                lambda: failures.bad_request("sendInitialEvents is not understood"), "watch"
            ),
            "410 of a list": refuse(lambda: failures.expired(failures.LIST_TOO_OLD), "list"),
            "too large, retry": refuse(lambda: failures.too_large(newer(), int(now)), "list"),
            "too large, at once": refuse(
                lambda: failures.too_large(newer(), int(now), retry=False), "list"
            ),
            "too large, in words": refuse(spoken, "list"),
            "too large, watch": refuse(lambda: failures.too_large(newer(), int(now)), "watch"),
            "a proxy's page": lambda name: faults.wrong_content_type("text/html", ANY, name),
            "wrong content type": lambda name: faults.wrong_content_type(
                "text/plain", ANY, name, body=None
            ),
        }

    def begin(self) -> None:
        """The first watch-list of pods will have no end."""
        self._asked.append(("no end bookmark", self._server.faults.no_end_bookmark("pods")))

    def ask(self) -> None:
        """Sets up one more fault: each kind once in a random order, and then again."""
        if len(self._server.faults._waiting) >= WAITING:
            return
        if not self._next:
            self._next = self._rng.sample(sorted(self._kinds), len(self._kinds))
        kind = self._next.pop()
        name = self._rng.choice([*POPULATION, "pods", ANY])
        self._asked.append((kind, self._kinds[kind](name)))

    def counts(self) -> dict[str, int]:
        """How often each kind showed; for VAIN, how often one was met and did not show."""
        found = collections.Counter(dict.fromkeys(self._kinds, 0))
        for kind, fault in self._asked:
            found[kind] += fault.happened if kind != VAIN else fault.met - 1000 * fault.happened
        return dict(found)

    # ---- faults that break connections, so that requests follow ----------------------------------

    def blow(self) -> None:
        """Does something to all connections now."""
        if not self._acts:
            self._acts = [
                *[self._server.end_watches] * 4,
                *[self._server.abort_connections] * 2,
                *[self._forget] * 2,
                self._server.compact,
                self._server.send_bookmarks,
                self._skip,
            ]
            self._rng.shuffle(self._acts)
        act = self._acts.pop()
        self.acts[act.__name__.strip("_")] += 1
        act()

    def _forget(self) -> None:
        """Cut-off clients return too late: the server has compacted meanwhile."""
        self._server.abort_connections()
        self._writes.some(60)
        self._server.compact()

    def _skip(self) -> None:
        """Many writes happen to resources that no client watches."""
        self._server.advance(int(self._server.version) + self._rng.randrange(1, 1000))

    def down(self) -> None:
        """The server is unreachable, until up()."""
        self.acts["down"] += 1
        self._server.go_down()

    def clear(self) -> None:
        """Removes all faults."""
        self._server.faults.clear()
