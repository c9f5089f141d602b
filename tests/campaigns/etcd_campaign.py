"""A campaign: members of an etcd cluster die, freeze, compact and restart under a cache.

    python tests/campaigns/etcd_campaign.py --seconds 60 --seed 7

Writers put, delete and move objects between two prefixes; the reflector restarts now and then; a
reader samples snapshots. At the end the cache must equal etcd by key and revision, and the recorded
run must keep etcd's watch guarantees (tests/support/etcd_history.py). Then a backup is put back and
written over, and the cache must equal that. With --auth etcd has users, who change; with --tls
certificates and their authority are rotated under open connections.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

import trustme
from etcd_history import Change, Ledger, Sample, problems
from etcds import GADGETS, PROGRESS, WIDGETS, Following, Users, equals, until, widget

from shmcache.errors import Lapped
from shmcache.source.base import SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.testing.etcd import EtcdMember, EtcdServer, operation, programs

PREFIXES = {"widgets": WIDGETS, "gadgets": GADGETS}
TOKENS = 8
SETTLE = 60.0
_DEFRAGMENT = messages.Method(
    "/etcdserverpb.Maintenance/Defragment",
    messages.build({"DefragmentRequest": ""}, "shmcache.etcd.defragment")["DefragmentRequest"],
    messages.build({"DefragmentResponse": ""}, "shmcache.etcd.defragmented")["DefragmentResponse"],
)
_ALARM = messages.Method(
    "/etcdserverpb.Maintenance/Alarm",
    messages.build({"AlarmRequest": "action=1:number memberID=2:uint64 alarm=3:number"},
                   "shmcache.etcd.alarm")["AlarmRequest"],
    messages.build({"AlarmResponse": ""}, "shmcache.etcd.alarmed")["AlarmResponse"],
)  # fmt: skip
ACTIVATE, DEACTIVATE, NOSPACE = 1, 2, 1
PASSWORD = "open sesame"  # noqa: S105 - of the campaign's own etcd


class Authority:
    """The files of certificates, which clients and members share."""

    def __init__(self, folder: str) -> None:
        self.files = {name: f"{folder}/{name}" for name in ("ca", "cert", "key")}
        self._current = trustme.CA()
        self._next = self._current
        self.rotate()

    def announce(self) -> None:
        """There will be another authority: both are trusted."""
        self._next = trustme.CA()
        pems = self._current.cert_pem.bytes() + self._next.cert_pem.bytes()
        Path(self.files["ca"]).write_bytes(pems)

    def rotate(self) -> None:
        """Certificates are the next authority's, which alone is trusted."""
        self._current = self._next
        made = self._current.issue_cert("127.0.0.1")
        self._current.cert_pem.write_to_path(self.files["ca"])
        made.private_key_pem.write_to_path(self.files["key"])
        made.cert_chain_pems[0].write_to_path(self.files["cert"])


class Author(threading.Thread):
    """Writes keys of its own, each transaction into the ledger."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(name=f"author-{number}", daemon=True)
        self.world = world
        self.number = number
        self.rng = random.Random(f"{world.seed} {number}")
        self.there: dict[tuple[str, str], bool] = {}
        self.made = 0
        self.failed = 0
        self.connection = EtcdConnection(world.etcd.access(**world.user))

    def run(self) -> None:
        while not self.world.quiet.is_set():
            self.write(self.changes())
            time.sleep(self.rng.uniform(0, 0.02))
        self.connection.close()

    def changes(self) -> dict[tuple[str, str], bool]:
        if self.number == 0 and self.rng.random() < 0.5:
            return self.moved()
        found = {}
        for _ in range(self.rng.choice([1, 1, 1, 2, 5, 20])):
            own = f"a{self.number}/"
            known = [p for p, there in self.there.items() if there and p[1].startswith(own)]
            if known and self.rng.random() < 0.6:
                place = self.rng.choice(known)
                found[place] = self.rng.random() < 0.7
            else:
                self.made += 1
                place = self.rng.choice(list(PREFIXES)), f"a{self.number}/{self.made % 200}"
                if place not in self.world.ledger.doubtful:
                    found[place] = True
        return found

    def moved(self) -> dict[tuple[str, str], bool]:
        """A token, from one resource to the other."""
        key = f"tokens/{self.rng.randrange(TOKENS)}"
        places = [(name, key) for name in PREFIXES]
        if any(place in self.world.ledger.doubtful for place in places):
            return {}
        return {place: not self.there.get(place, False) for place in places}

    def write(self, changes: dict[tuple[str, str], bool]) -> None:
        changes = {
            place: there
            for place, there in changes.items()
            if place not in self.world.ledger.doubtful and (there or self.there.get(place))
        }
        if not changes:
            return
        operations = [
            operation(PREFIXES[name] + key, widget(key, n=self.rng.random()) if there else None)
            for (name, key), there in changes.items()
        ]
        before = dict(self.there)
        self.there |= changes
        try:
            answer = self.connection.call(
                messages.TXN, messages.TxnRequest(success=operations), "write", timeout=3.0,
                writes=True,
            )  # fmt: skip
        except SourceFailed as failed:
            if failed.failure.code == 429:  # no space: nothing was written
                self.there = before
                self.world.refused += 1
                return
            self.failed += 1
            self.world.ledger.lost(changes)
            return
        self.world.ledger.wrote(answer.header.revision, changes)


class World:
    """The cluster, the cache that follows it, and everything that is recorded."""

    def __init__(
        self, name: str, seed: int, members: int, path: str, *, auth: bool = False, tls: str = ""
    ) -> None:
        """`tls`: a folder for certificates."""
        self.name = name
        self.seed = seed
        self.rng = random.Random(seed)
        self.authority = Authority(tls) if tls else None
        files = self.authority.files if self.authority else {}
        self.etcd = EtcdServer(members, options=[PROGRESS], path=path, tls=files)
        self.user = {"user": "root", "password": PASSWORD} if auth else {}
        self.users = 0
        self.refused = 0
        self.ledger = Ledger()
        self.quiet = threading.Event()
        self.changes: list[Change] = []
        self.samples: list[Sample] = []
        self.gaps: list[tuple[int, int]] = []
        self.faults: Counter[str] = Counter()
        self.following: Following | None = None
        self.start = 0
        self._position: int | None = None
        self._relists: list[tuple[int, int]] = []  # positions in the ring
        self._lock = threading.Lock()

    # ---- the cache -------------------------------------------------------------------------

    def follow(self) -> None:
        """Begins, or goes on, with a reflector whose relists are noted."""
        user = {f"etcd_{name}": value for name, value in self.user.items()}
        files = self.authority.files if self.authority else {}
        user |= {f"etcd_{name}": path for name, path in files.items()}
        following = Following(self.name, self.etcd, PREFIXES, **user)
        if self._position is not None:
            following.cursor = following.cache.follow(start=self._position)
        self._note_relists(following)
        following.engine.start()
        self.following = following

    def _note_relists(self, following: Following) -> None:
        engine: Any = following.engine
        make = engine._content

        def content(kept: Any, namespace: str, version: str | None) -> Any:
            made = make(kept, namespace, version)
            finish = made.finish

            def finished(to: str) -> int:
                if made.version is not None:
                    with self._lock:
                        self.gaps.append((int(made.version), int(to)))
                return int(finish(to))

            made.finish = finished
            return made

        engine._content = content

    def look(self) -> None:
        """Takes the deltas and a sample."""
        following = self.following
        if following is None:
            return
        with self._lock:
            names = list(following.cache.resources)
            try:
                while found := following.cursor.take():
                    self.changes += [
                        Change(names[d.resource], str(d.kind), d.key or "", int(d.version or 0))
                        for d in found
                    ]
            except Lapped as error:
                raise AssertionError("the campaign's cursor was lapped") from error
        seen = following.cache.snapshot()
        versions = seen.resource_versions
        if all(versions.get(name) for name in PREFIXES):
            self.samples.append(
                Sample(
                    {name: int(versions[name] or 0) for name in PREFIXES},
                    {
                        name: {
                            key: int(view["metadata"]["resourceVersion"])
                            for key, view in seen[name].range()
                        }
                        for name in PREFIXES
                    },
                )
            )

    # ---- faults ------------------------------------------------------------------------------

    def fault(self) -> None:
        """One of them, at random, and its end."""
        faults = [self.kill, self.kill_leader, self.freeze, self.freeze_leader, self.compact,
                  self.defragment, self.restart_reflector, self.no_space]  # fmt: skip
        if self.user:
            faults.append(self.add_user)
        if self.authority:
            faults.append(self.rotate)
        chosen = self.rng.choice(faults)
        self.faults[chosen.__name__] += 1
        chosen()

    def kill(self) -> None:
        self._kill(self.rng.choice(self.etcd.members))

    def kill_leader(self) -> None:
        self._kill(self.etcd.leader() or self.etcd.members[0])

    def _kill(self, member: EtcdMember) -> None:
        member.kill()
        self.wait(self.rng.uniform(0.2, 3.0))
        member.start()

    def freeze(self) -> None:
        """As a disk that does not answer."""
        self._freeze(self.rng.choice(self.etcd.members))

    def freeze_leader(self) -> None:
        self._freeze(self.etcd.leader() or self.etcd.members[0])

    def _freeze(self, member: EtcdMember) -> None:
        member.stop()
        self.wait(self.rng.uniform(0.2, 4.0))
        member.thaw()

    def compact(self) -> None:
        with self.ledger.lock:
            last = max(self.ledger.past, default=0)
        with contextlib.suppress(SourceFailed):
            self.etcd.compact(last)

    def defragment(self) -> None:
        with contextlib.suppress(SourceFailed):
            self.etcd.connection.call(
                _DEFRAGMENT, _DEFRAGMENT.request(), "defragment", timeout=10.0, writes=True
            )

    def no_space(self) -> None:
        """As when the quota is reached: writes are refused until the alarm is disarmed."""
        self._alarm(ACTIVATE)
        self.wait(self.rng.uniform(0.1, 0.5))
        until(lambda: self._alarm(DEACTIVATE), "the alarm is disarmed", SETTLE)

    def _alarm(self, action: int) -> bool:
        try:
            request = _ALARM.request(action=action, memberID=1, alarm=NOSPACE)
            self.etcd.connection.call(_ALARM, request, "alarm", timeout=5.0, writes=True)
        except SourceFailed:
            return False
        return True

    def add_user(self) -> None:
        """etcd refuses all tokens of before."""
        self.users += 1
        with contextlib.suppress(SourceFailed):
            Users(self.etcd, PASSWORD).add(f"user{self.users}", "root")

    def rotate(self) -> None:
        """Another authority, as operators do it: both are trusted while members restart."""
        assert self.authority is not None
        for step in (self.authority.announce, self.authority.rotate):
            step()
            for member in self.etcd.members:
                self._kill(member)
                until(self._answers, "an answer", SETTLE)

    def _answers(self) -> bool:
        try:
            self.etcd.content(f"{WIDGETS}tokens/")
        except SourceFailed:
            return False
        return True

    def restart_reflector(self) -> None:
        """Sometimes over a compaction: then it must list again, by difference."""
        assert self.following is not None
        self.following.stop_feeds()
        self.look()
        self._position = self.following.cursor.position
        self.following.stop(keep=True)
        self.following = None
        if self.rng.random() < 0.5:
            self.wait(0.5)
            self.compact()
        self.follow()

    def wait(self, seconds: float) -> None:
        """Meanwhile it looks."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            time.sleep(0.02)

    # ---- the run -----------------------------------------------------------------------------

    def run(self, seconds: float) -> list[str]:
        """Everything; the problems."""
        self.etcd.start()
        if self.user:
            Users(self.etcd, PASSWORD).enable()
            self.etcd.authenticate(**self.user)
        authors = [Author(self, number) for number in range(3)]
        for number in range(TOKENS):
            authors[0].write({("widgets", f"tokens/{number}"): True})
        self.start = max(self.ledger.past)
        self.follow()
        assert self.following is not None
        assert self.following.engine.ready.wait(SETTLE)
        self.start = int(self.following.cache["widgets"].version or 0)
        for author in authors:
            author.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.wait(self.rng.uniform(0.2, 1.5))
            self.fault()
        self.quiet.set()
        for author in authors:
            author.join()
        self.etcd.ready()
        self.settle()
        self.look()
        lost = sum(author.failed for author in authors)
        print(f"{len(self.ledger.past)} transactions, {lost} unanswered, "
              f"{len(self.changes)} deltas, {len(self.samples)} samples, "
              f"{len(self.gaps) // 2} relists, {self.refused} refused, "
              f"faults {dict(self.faults)}")  # fmt: skip
        span = self.start, max(self.ledger.past)
        found = problems(self.ledger, self.marked(), self.samples, self.gaps, span)
        self.restore()
        return found

    def restore(self) -> None:
        """A backup is put back, under the same names; its revisions may overtake ours."""
        following = self.following
        assert following is not None
        folders = [member.folder for member in self.etcd.members]
        self._stop_all()
        for folder in folders:
            shutil.copytree(folder, f"{folder}.backup")
        self.etcd.start()
        self._write("lost", 20)
        self.settle()
        lists = following.lists()
        self._stop_all()
        for folder in folders:
            shutil.rmtree(folder)
            shutil.move(f"{folder}.backup", folder)
        self.etcd.start()
        self._write("new", self.rng.randrange(40))
        self.settle()
        # counted when the feed has also opened its watch, after readers see the content
        until(lambda: following.lists() > lists, "the restored history was listed", SETTLE)

    def _stop_all(self) -> None:
        for member in self.etcd.members:
            member.kill()

    def _write(self, name: str, count: int) -> None:
        for number in range(count):
            key = f"{name}/{number}"
            until(partial(self._put, key), "a write", SETTLE)

    def _put(self, key: str) -> bool:
        try:
            self.etcd.put(f"{WIDGETS}{key}", widget(key))
        except SourceFailed:
            return False
        return True

    def settle(self) -> None:
        """Until the cache equals etcd."""
        following = self.following
        assert following is not None

        def equal() -> bool:
            self.look()
            return all(equals(self.etcd, following, *each) for each in PREFIXES.items())

        until(equal, "equality by key and revision", SETTLE)

    def marked(self) -> list[Change]:
        """The deltas after the first list; those inside a gap came by a relist."""
        return [
            change._replace(relist=any(a < change.revision <= b for a, b in self.gaps))
            for change in self.changes
            if change.revision > self.start
        ]

    def close(self) -> None:
        if self.following is not None:
            self.following.stop()
        self.etcd.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or time.time()))
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--auth", action="store_true", help="etcd has users")
    parser.add_argument("--tls", action="store_true", help="certificates, which are rotated")
    parser.add_argument("--etcd", default=programs()[0], help="the etcd program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tls = f"{folder}.certificates" if options.tls else ""
        if tls:
            os.mkdir(tls, 0o700)
        world = World(
            folder, options.seed, options.members, options.etcd, auth=options.auth, tls=tls
        )
        try:
            found = world.run(options.seconds)
        finally:
            world.close()
            if tls:
                shutil.rmtree(tls)
    kinds = Counter(problem.partition(":")[0] for problem in found)
    print(json.dumps({"seed": options.seed, "problems": found[:20], "count": kinds}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
