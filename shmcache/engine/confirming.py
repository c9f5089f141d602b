"""Confirms for readers that the cache is current: that it shows the server's state of now.

A confirmer has one plan, and a thread while there are questions about it. A *flight* takes all
questions that wait, and answers them with the same few requests.

    question ▸ flight ▸ evidence of the server (evidence.py) ▸ the cache reaches it ▸ answer

Invariants
    CONFIRM1  the requests of a flight begin after its questions came: a question that comes while a
        flight is under way waits for the next one.
    CONFIRM2  an answer names a generation whose content is at least the version that the server had
        in that evidence; or holds the very versions that the server listed; or is of a version
        after which, as a watch has shown, nothing happened up to it. Versions are compared, never
        times: an event that arrives says by its version whether it is late enough.
    CONFIRM3  one flight at a time for each resource, and after it a pause in proportion to its
        requests and to the questions that it and those just before it answered, with those that
        came meanwhile (a millisecond for each after the first, 0.8 s at most, for each request):
        one reader does not notice it, a thousand in a closed loop cost the server less than two
        requests a second.
    CONFIRM4  evidence that contradicts the cache, of whatever way, is an error for its readers,
        never an answer; the feed then repairs the keys (repairing.py).
    CONFIRM5  a server whose version, of everything or of one object, is before the cache's proves
        nothing (members of a pair that disagree, a restored backup): the question is refused.
    CONFIRM6  with several feeds, one for each namespace, each is confirmed by itself; a generation
        counts that holds all of it. Nothing is confirmed before the feeds have begun.
    CONFIRM7  a flight waits FLIGHT_SECONDS at most for the cache, however long its questions may
        wait: those with time left take the next one, and others do not wait for them.
    CONFIRM8  a thread that ends, for whatever reason, is replaced at the next question.
    CONFIRM9  where the evidence is of one state, not of all up to a version, the answer states it:
        the absence of an object, a list whose version the cache has yet to reach. Changes that
        happened before the evidence may still be on their way to the cache, and none of the states
        between is the present; readers that find one ask again.
    CONFIRM10  evidence counts for all after it. A server that states a lower version than one that
        was stated before is refused, until it has done so for FORGET_SECONDS, or the cache itself
        went back; and an object that was shown at a version has to reach the cache before a GET,
        which shows no version of the server, confirms anything.
    CONFIRM11  versions show how far a server is, not in which history. After a resume, at another
        upstream, and where a server was behind, the objects of a scope are listed and compared,
        whatever their number, until that or a claim (proof.py) has found the same history. Objects
        that cannot be compared (a transform, refused ones) have versions alone.

Nothing here distinguishes a server that lags behind all that was shown from one that is current:
API servers answer such requests from a quorum of etcd, and CONFIRM10 is for those that do not.

A refusal (429, no answer, no bookmark) is passed on to the readers, who have their own fallback.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from shmcache.engine import desk
from shmcache.engine.comparing import Disagreement
from shmcache.engine.evidence import NotYet, Refusal, ServerAsker
from shmcache.engine.object_way import BRIEF, ObjectWay
from shmcache.engine.scope_way import ScopeWay
from shmcache.engine.shown import ShownContent
from shmcache.errors import ShmCacheError

if TYPE_CHECKING:
    from shmcache.engine.desk import Asked
    from shmcache.engine.feed import SourceFeed
    from shmcache.engine.open_source import Opener
    from shmcache.engine.plans import Plan
    from shmcache.reader.cache import Cache

    Way = Callable[[float], dict[str, Any]]

logger = logging.getLogger(__name__)

FEW_KEYS = 4
"""For so many different objects of a flight there is one GET each."""
SECONDS_PER_QUESTION, LONGEST_PAUSE = 0.001, 0.8
FADING = 0.7
"""A crowd of readers comes back after its answer, not all at the same moment: the pause after the
next flight, which may find a few of them, is shorter only by this factor."""
LONGEST_WAIT = 0.25
"""Seconds after which questions are looked through while the server takes no requests (429)."""
FLIGHT_SECONDS = 5.0
IDLE_SECONDS = 10.0
"""A thread without questions ends, and its connections with it."""


class ResourceConfirmer:
    """The confirmer of one plan: submit() from any thread."""

    def __init__(
        self,
        plan: Plan,
        opener: Opener,
        cache: Callable[[], Cache],
        feeds: Callable[[], Iterable[SourceFeed]],
        refused: Callable[[], int],
    ) -> None:
        self.flights = self.questions = self.refusals = self.contradictions = 0
        self.shown = ShownContent(plan, cache, feeds, refused)
        self.server = ServerAsker(plan, opener)
        self._plan = plan
        self._objects = ObjectWay(self.shown, self.server, self._contradict)
        self._scopes = ScopeWay(self.shown, self.server, self._contradict)
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._waiting: list[Asked] = []
        self._running = self._over = False

    # ---- its life ------------------------------------------------------------------------------

    def submit(self, asked: Asked) -> None:
        """See desk.py."""
        with self._lock:
            if len(self._waiting) >= 2 * desk.CONNECTIONS:  # DESK2: half of them have left
                self._waiting = [one for one in self._waiting if one.lives()]
            self._waiting.append(asked)
            self._came.notify()
            if self._running or self._over:
                return
            self._running = True
        name = f"shmcache-confirm-{self._plan.name}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:  # no more threads: CONFIRM8
            with self._lock:
                self._running = False
                waiting, self._waiting = self._waiting, []
            self._refuse(waiting, f"the reflector cannot ask the server: {error}")

    def end(self) -> None:
        """Cuts the request under way, and answers nobody any more."""
        with self._lock:
            self._over = True
            self._came.notify()
        self.shown.end()
        self.server.cancel()

    def _run(self) -> None:
        try:
            self._fly_on()
        except BaseException:
            with self._lock:
                self._running = False  # CONFIRM8
            raise

    def _fly_on(self) -> None:
        crowd = 0.0
        while asked := self._next():
            before = self.server.requests
            self._fly(asked)
            crowd = max(len(asked) + len(self._waiting), crowd * FADING)
            requests = max(self.server.requests - before, 1)
            pause = min(SECONDS_PER_QUESTION * (crowd - 1), LONGEST_PAUSE) * requests
            if self._waiting:  # they may be those for which the server takes no requests
                pause = max(pause, min(self.server.not_before - time.monotonic(), LONGEST_WAIT))
            with self._lock:
                self._came.wait_for(lambda: self._over, pause)

    def _next(self) -> list[Asked]:
        """All that wait (CONFIRM1); nothing when the thread is to end."""
        with self._lock:
            while not self._over:
                self._came.wait_for(lambda: self._waiting or self._over, IDLE_SECONDS)
                now, waiting, self._waiting = time.monotonic(), self._waiting, []
                found = [asked for asked in waiting if asked.deadline > now and asked.lives()]
                if found:
                    return found
                if not waiting:
                    break
            self.server.close()  # here: the next thread opens its own
            self._running = False
            return []

    # ---- a flight ------------------------------------------------------------------------------

    def _fly(self, asked: list[Asked]) -> None:
        self.flights += 1
        self.questions += len(asked)
        end = time.monotonic() + FLIGHT_SECONDS
        for some, way in self._groups(asked):
            until = max(end, time.monotonic() + BRIEF)  # CONFIRM7
            try:
                found = way(min(until, max(one.deadline for one in some)))
                for one in some:
                    one.answer(found)
            except Refusal as refusal:
                self._refuse(self._impatient(some, refusal), str(refusal))
            except ShmCacheError as error:  # no seat for the reflector's own reader, the end
                self._refuse(some, f"the reflector cannot read its cache: {error}")
            except Exception as error:
                logger.exception("%s: a confirmation failed", self._plan.name)
                self._refuse(some, f"a bug of the reflector: {error!r}")

    def _impatient(self, asked: list[Asked], refusal: Refusal) -> list[Asked]:
        """Those that cannot wait for the next flight; the others do.

        Until the server takes requests again, or after a flight that was too short (CONFIRM7).
        """
        now = time.monotonic()
        again = max(self.server.not_before, now)
        if again == now and not isinstance(refusal, NotYet):
            return asked
        with self._lock:
            self._waiting += [one for one in asked if one.deadline > again and one.lives()]
        return [one for one in asked if one.deadline <= again]

    def _refuse(self, asked: list[Asked], text: str) -> None:
        self.refusals += len(asked)
        for one in asked:
            one.answer({"error": text})

    def _groups(self, asked: list[Asked]) -> list[tuple[list[Asked], Way]]:
        """The questions, and the way to answer each: by GET, or for a namespace, or for all."""
        keys = {one.key for one in asked if one.key}
        if len(keys) <= FEW_KEYS and all(one.key for one in asked):
            return [
                ([one for one in asked if one.key == key], self._object_way(key)) for key in keys
            ]
        scopes = {one.key.rpartition("/")[0] if one.key else one.namespace for one in asked}
        scope = scopes.pop() if len(scopes) == 1 else ""
        return [(asked, lambda until: self._scopes.confirm(scope, until).named())]

    def _object_way(self, key: str) -> Way:
        return lambda until: self._objects.confirm(key, until).named()

    def _contradict(self, feed: str, found: list[Disagreement], version: str) -> None:
        """CONFIRM4."""
        self.contradictions += 1
        text = "; ".join(map(str, found[:3]))
        if source := self.shown.feed(feed):
            source.disagree(found, version)
        raise Refusal(f"the cache is not the server's, and is being repaired: {text}")
