"""Chaos: `shmcache run` on a server of random faults and writes, killed now and then; two readers
whose handlers check every event. Whenever the faults end, the cache equals the server's state.

    python tests/campaigns/chaos.py --seconds 600 --writes 200000 --seed 7

SEED= is the default seed. Storms of about 40 seconds are each followed by a calm, in which
everything is compared: object by object, by digest, with the readers' mirrors; and then by a
restored backup, and the same again. Nothing is written until every feed has noticed the backup,
since no client can recognize a server that went back and passed its version before the next
request. The last line is "passed"; anything else is a failure.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import chaos_history
import chaos_reader
import orjson
from chaos_history import Sample, differences, digest, versions, versions_in, versions_of
from chaos_proof import Asked, Measured, all_know, bound, measure
from chaos_reader import Back, Report, digest_of
from chaos_reflector import Reflector, logged
from chaos_server import State, serve
from chaos_weather import VAIN
from chaos_world import CACHED, CONFIGURATION, NAMED
from workers import PATIENCE, Worker

import shmcache
from shmcache.memory.segments import Place

STORM = 40.0
LONG = 120.0
"""A run of so many seconds must have met every kind of fault, and this often each minute:"""
EACH_MINUTE = 2
FEW = 6
"""A shorter one must have met more kinds."""


class Chaos:
    """One run."""

    def __init__(self, stack: ExitStack, seed: int, name: str, log: str) -> None:
        self.log = log
        self.asked: list[Asked] = []
        self.restores: list[tuple[float, int, int]] = []
        self.reports: list[dict[str, Report]] = []
        self.digests: dict[str, str] = {}
        self.slowest = 0.0
        self.writes = self.samples = 0
        self._rng = random.Random(f"{seed} chaos")
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        self.server = stack.enter_context(
            Worker("spawn", serve, seed, os.path.join(place, "kubeconfig"))
        )
        configuration = os.path.join(place, "shmcache.toml")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(name=name, kubeconfig=self.server.hear()))
        stack.callback(Place(name).unlink)
        self._base = versions_of(self.server.ask(("state",)))
        self.server.ask(("written",))
        open(log, "wb").close()
        self.reflector = Reflector(configuration, log)
        stack.callback(self.reflector.abandon)
        self.cache = stack.enter_context(shmcache.attach(name, timeout=PATIENCE))
        self.readers = [
            stack.enter_context(Worker("spawn", chaos_reader.read, name)) for _ in range(2)
        ]
        for reader in self.readers:
            reader.hear()
        for named in NAMED.values():
            assert self.cache[named].wait_synced(PATIENCE), self.cache[named].status

    # ---- storms --------------------------------------------------------------------------------

    def storm(self, seconds: float, writes: int) -> None:
        """Writes and faults; meanwhile the reflector is ended, and a reader is stopped."""
        self.server.tell(("storm", seconds, writes))
        due = self._deeds(time.monotonic(), seconds)
        samples: list[Sample] = []
        while not self.server._pipe.poll(0.05):
            self.reflector.look()
            samples += self._samples()
            if due and due[0][0] <= time.monotonic():
                due.pop(0)[1]()
        for _, act in due:
            act()
        self.writes += self.server.hear()
        self.samples += len(samples)
        chaos_history.check(self._base, self.server.ask(("written",)), samples)

    def _samples(self) -> list[Sample]:
        """The present content of the cache."""
        with self.cache.snapshot() as now:
            return [
                Sample(name, int(version), versions_in(now[named]))
                for name, named in NAMED.items()
                if (version := now[named].version)
            ]

    def _deeds(self, start: float, seconds: float) -> list[tuple[float, Callable[[], object]]]:
        """The disturbances of a storm, and their times."""
        rng, stopped = self._rng, self._rng.choice(self.readers)
        stop = start + rng.uniform(0.1, 0.5) * seconds
        deeds: list[tuple[float, Callable[[], object]]] = [
            (start + rng.uniform(0.2, 0.5) * seconds, self.reflector.kill),
            (stop, stopped.stop),
            (stop + rng.uniform(0.1, 0.3) * seconds, lambda: stopped.send_signal(signal.SIGCONT)),
        ]
        if rng.random() < 0.6:
            deeds.append((start + rng.uniform(0.6, 0.9) * seconds, self.reflector.drain))
        return sorted(deeds, key=lambda deed: deed[0])

    # ---- calms ---------------------------------------------------------------------------------

    def calm(self) -> None:
        """Waits until all sides agree, and compares them."""
        self.server.ask(("calm",))
        self.compare()
        restored = self.server.ask(("restore",))
        if restored is not None:
            self.restores.append(restored)
            self._until(
                lambda: self._all_know(*restored), lambda: "a feed does not know of the backup"
            )
            self.compare()
        self.server.ask(("written",))

    def _all_know(self, since: float, _was: int, now: int) -> bool:
        self.take_log()
        return all_know(self.asked, since, now)

    def take_log(self) -> None:
        self.asked += [Asked(*one) for one in self.server.ask(("asked",))]

    def compare(self) -> None:
        """Compares the cache and the mirrors with the server's state, once they have its
        version."""
        state: State = self.server.ask(("state",))
        wanted = self._base = versions_of(state)
        start = time.monotonic()
        self._until(lambda: self._is_there(wanted), lambda: self._differences(wanted))
        self.slowest = max(self.slowest, time.monotonic() - start)
        for name, objects in state.items():
            self._compare_objects(name, objects, wanted[name])
        self._compare_index(state)
        self._compare_mirrors(state, wanted)

    def _is_there(self, wanted: dict[str, dict[str, int]]) -> bool:
        self.reflector.look()
        version = self.server.ask(("bookmark",))
        with self.cache.snapshot() as now:
            return all(
                resource.status.state == "synced"
                and resource.version == version
                and versions_in(resource) == wanted[name]
                for name, resource in ((name, now[named]) for name, named in NAMED.items())
            )

    def _differences(self, wanted: dict[str, dict[str, int]]) -> str:
        """The errors, as seen by this process and by one that attaches now."""
        lines = [f"the cache is not the server's, at {self.server.ask(('bookmark',))}:"]
        with shmcache.attach(self.cache.name) as anew:
            for name, named in NAMED.items():
                for cache in (self.cache, anew):
                    found = versions_in(cache[named])
                    wrong = sorted(differences(found, wanted[name]))
                    lines.append(f"{cache.instance:x} {named}: {cache[named].status} {wrong[:5]}")
        return "\n".join(lines)

    def _compare_objects(self, name: str, objects: dict[str, bytes], wanted: Any) -> None:
        with self.cache.snapshot() as now:
            found = {
                key: orjson.dumps(obj.to_dict(), option=orjson.OPT_SORT_KEYS)
                for key, obj in now[NAMED[name]].items()
            }
        different = sorted(key for key in found | objects if found.get(key) != objects.get(key))
        assert not different, f"{name}: differs from the server's: {different[:5]}"
        self.digests[name] = digest(versions(found))
        assert self.digests[name] == digest(wanted)

    def _compare_index(self, state: State) -> None:
        """The index on nodes finds the pods of each node."""
        nodes: dict[str, list[str]] = {}
        for key, text in sorted(state["pods"].items()):
            nodes.setdefault(orjson.loads(text)["spec"]["nodeName"], []).append(key)
        for node, keys in nodes.items():
            found = self.cache["pods"].list(fields=f"spec.nodeName={node}")
            assert keys == [f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in found]

    def _compare_mirrors(self, state: State, wanted: dict[str, dict[str, int]]) -> None:
        web = {
            key: text
            for key, text in state["pods"].items()
            if orjson.loads(text)["metadata"]["labels"]["tier"] == "web"
        }
        whole = state | {f"pods {chaos_reader.TIER}": web}
        asked = wanted | {f"pods {chaos_reader.TIER}": versions(web)}
        for reader in self.readers:
            reader.tell(asked)
        self.reports = [reader.hear() for reader in self.readers]
        for report in self.reports:
            for which, found in report.items():
                self._judge(
                    which, found, {key: digest_of(text) for key, text in whole[which].items()}
                )

    def _judge(self, which: str, report: Report, wanted: dict[str, bytes]) -> None:
        assert not report.problems, f"{which}: {report.problems[:5]}"
        assert report.errors == 0, f"{which}: {report.errors} handler calls raised"
        different = sorted(
            k for k in report.digests | wanted if report.digests.get(k) != wanted.get(k)
        )
        assert report.settled, f"{which}: a mirror is not the server's: {different[:5]}"
        assert not different, f"{which}: a mirror has other objects: {different[:5]}"
        for back in report.backs:
            assert self._is_explained(back), f"{which}: a version went back: {back}"

    def _is_explained(self, back: Back) -> bool:
        """By a backup from before the object's last version, whose number may then belong to
        another one; or by one from before its deletion, which restores the very same object."""
        return any(
            at <= back.seconds
            and (
                (back.since <= at and now < back.was)
                or (back.was == back.now and back.since < back.ended <= at)
            )
            for at, _, now in self.restores
        )

    def _until(self, fact: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Checks after each publication, and now and then."""
        deadline = time.monotonic() + PATIENCE
        while True:
            since = self.cache.latest
            if fact():
                return
            assert time.monotonic() < deadline, otherwise()
            self.cache.wait(since, 0.2)

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self, seconds: float) -> None:
        """The reflector ends in order; enough happened, and nothing happened too often."""
        self.reflector.finish()
        self.take_log()
        assert self.server.ask(("total",)) == len(self.asked), "the log of requests has a gap"
        measured = measure(self.asked, self.reflector.lives)
        counts = logged(self.log)
        showed, acts = self.server.ask(("faults",))
        self._tell(measured, counts, showed, acts)
        assert counts["checks"] == self.reflector.drains
        for one in self.asked:
            assert one.verb != "watch" or "gzip" not in one.encoding, f"a watch in gzip: {one}"
        self._enough(seconds, measured, counts, showed)

    def _enough(self, seconds: float, measured: Measured, counts: Any, showed: Any) -> None:
        for name in ("relists", "410", "fallbacks") if seconds >= LONG else ("relists",):
            assert counts[name], f"no {name}: nothing was tested"
        assert measured.resumes
        assert self.reflector.kills
        assert self.restores
        least = EACH_MINUTE * seconds / 60 if seconds >= LONG else 0
        rare = {kind: count for kind, count in showed.items() if count < least}
        assert not rare, f"too rare: {rare}"
        assert sum(1 for count in showed.values() if count > 0) > FEW, showed

    def _tell(self, measured: Measured, counts: Any, showed: Any, acts: Any) -> None:
        reflector = self.reflector
        print(
            f"{self.writes:,} writes; {reflector.kills} kills, {reflector.drains} drains, "
            f"{len(self.restores)} restored backups; slowest calm {self.slowest:.1f} s; "
            f"{self.samples:,} states seen, each of them true\n"
            f"faults: {sum(showed.values()) - showed[VAIN]:,}: {showed}\n"
            f"connections: {acts}\n"
            f"log: {dict(counts)}\n"
            f"requests: {dict(measured.requests)}, {measured.resumes} resumed; at most "
            f"{measured.row} of a feed without a wait"
        )
        for size, most in measured.windows.items():
            print(
                f"  in {size:g} s: {most} of a feed (bound {bound(size)}), "
                f"{measured.together[size]} of all, {measured.documents[size]} documents"
            )
        for number, report in enumerate(self.reports):
            for which, one in report.items():
                print(
                    f"reader {number}, {which}: {one.calls:,} calls, {one.lapses} lapses, "
                    f"{one.tombstones} tombstones, {len(one.backs)} back"
                )
        for name, found in self.digests.items():
            print(f"digest of {name} in {', '.join(CACHED[name])}: {found}")


def run(seconds: float, writes: int, seed: int, *, name: str = "", log: str = "") -> None:
    """A whole run; AssertionError names the first failure."""
    storms = max(1, round(seconds / STORM))
    with ExitStack() as stack:
        if not log:
            log = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "reflector.log")
        chaos = Chaos(stack, seed, name or f"chaos-{os.getpid()}", log)
        for number in range(storms):
            share = writes * (number + 1) // storms - writes * number // storms
            chaos.storm(seconds / storms, share)
            chaos.calm()
            print(f"storm {number + 1} of {storms}: {chaos.writes:,} writes, equal", flush=True)
        chaos.finish(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of storm, all together")
    parser.add_argument("--writes", type=int, default=20_000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--log", default="", help="where the reflector's log lines go")
    options = parser.parse_args()
    seed = options.seed
    if seed is None:
        seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"SEED={seed}", flush=True)
    run(options.seconds, options.writes, seed, log=options.log)
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
