"""Invariant tested: after any sequence of changes every reader, in this process or another, sees
exactly the content of plain dicts with the same changes, and can rebuild it from the deltas (G1,
G4, G5, G6).

SEED= repeats a run, SHMCACHE_EXAMPLES= requests more sequences than the few of every day.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from conftest import MINE, SEED
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twin import Change, State, Twin
from witness import OtherProcess, Seen, Witness, change_of, see

import shmcache
from shmcache.errors import ShmCacheError, StaleObjectError, UnsupportedValue
from shmcache.writer.staging import Staged

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
STEPS = 80

PATHS = ["spec.node", "metadata.labels", "owners[*].uid", "zone", "data", "data[*][*]"]
INDICES: dict[str, dict[str, str | None]] = {
    "pods": {"node": "spec.node", "labels": "metadata.labels", "owner": "owners[*].uid"},
    "nodes": {"zone": "zone", "lucky": None},
}

# ---- the form of objects and changes ------------------------------------------------------------

WORDS = ["", "a", "b", "node-1", "node-10", "é", "𝄞", "\0", "a\0", "a\0b", "\1", "a\1b", "x" * 90]
KEYS = [
    "a", "b", "c", "prod/a", "prod/b", "prod/web-0", "prod/web-00", "test/a", "é", "𝄞", "\1",
    "\uffff", "x" * 60 + "/a", "x" * 60 + "/b", "x" * 60, "y" * 300,
]  # fmt: skip

words = st.sampled_from(WORDS)
scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 2**60 - 1, -(2**60), 2**60, 2**63 - 1, -(2**63), 2**64 - 1])
    | st.sampled_from([0.0, -0.0, 1.0, 0.1, 5e-324, 1e300])
    | words
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": st.dictionaries(words, scalars, max_size=3)}
        ),
        "spec": st.fixed_dictionaries({}, optional={"node": scalars, "more": values}),
        "owners": st.lists(st.fixed_dictionaries({}, optional={"uid": scalars}), max_size=3),
        "zone": scalars | st.lists(scalars, max_size=3),
        "data": values,
    },
)
names = st.sampled_from(["pods", "pods", "nodes", "more"])
keys = st.sampled_from(KEYS)
versions = st.none() | st.sampled_from(["", "1", "2", "184467440737095516150"])
choices = st.lists(st.integers(0, 9), min_size=1, max_size=5)


@dataclass(frozen=True)
class Op:
    """One change of one resource: a method of the machine and its arguments."""

    method: str
    name: str
    arguments: tuple[Any, ...]


def op(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Op]:
    return st.builds(Op, st.just(method), names, st.tuples(*arguments))


items = st.lists(st.tuples(keys, objects, versions), max_size=5)
ops = st.one_of(
    op("put", keys, objects, versions),
    op("mutate", choices, scalars, versions),
    op("mutate", choices, scalars, versions),
    op("copy", choices, keys, versions),
    op("put_many", items),
    op("apply", items),
    op("bulk", st.integers(0, 300), st.integers(1, 150), st.integers(1, 3)),
    op("bulk_delete", st.integers(0, 300), st.integers(1, 150), st.integers(1, 3)),
    op("delete", choices, versions, st.booleans()),
    op("set_state", st.integers(0, 3), versions),
    op("add_index", st.sampled_from(PATHS)),
    op("add_function"),
    op("add_resource"),
    op("refused"),
    op("stage", items),
)


def pick(among: list[Any], number: int) -> Any:
    return among[number % len(among)]


def mutated(value: Any, path: list[int], leaf: Any) -> Any:
    """The same but for one place: replaced, removed or added, as the numbers in `path` choose."""
    value = copy.copy(value)
    if isinstance(value, dict):
        if not value or path[0] == 9:
            value[f"new-{len(value)}"] = leaf
        elif len(path) == 1:
            key = pick(sorted(value), path[0])
            if path[0] % 3:
                value[key] = leaf
            else:
                del value[key]
        else:
            key = pick(sorted(value), path[0])
            value[key] = mutated(value[key], path[1:], leaf)
        return value
    if isinstance(value, list) and value and len(path) > 1:
        place = path[0] % len(value)
        value[place] = mutated(value[place], path[1:], leaf)
        return value
    return [*value, leaf] if isinstance(value, list) else leaf


class Lucky:
    """An index function with random answers, which it remembers."""

    def __init__(self, number: int) -> None:
        self._rng = random.Random(number)
        self.said: list[tuple[str, ...]] = []

    def __call__(self, obj: Any) -> list[str] | str | None:
        assert isinstance(obj, Mapping)
        self.said.append(())
        match self._rng.randrange(6):
            case 0:
                return None
            case 1:
                raise LookupError("an index function may fail")
            case 2:
                self.said[-1] = (word := self._rng.choice(WORDS),)
                return word
            case _:
                chosen = self._rng.choices(WORDS, k=self._rng.randrange(4))
                self.said[-1] = tuple(chosen)
                return chosen


# ---- consumers ----------------------------------------------------------------------------------


class Follower:
    """Rebuilds the state from deltas alone; takes the difference after a lapse."""

    def __init__(self, twin: Twin, ask: Any) -> None:
        self.twin = twin
        self.ask = ask
        self.position = twin.head
        self.state: State = ask("seen").state

    def take(self, count: int, tail: int) -> None:
        answer = self.ask("take", count)
        if self.position < tail:
            assert answer == self.twin.head, "a lapped cursor must report the head"
            happened["lapped"] += 1
            self.resynchronise(answer)
            return
        assert isinstance(answer, list), "lapped inside the window"
        assert answer == self.twin.log[self.position : self.position + count]
        self.position += len(answer)
        for change in answer:
            if change.kind == "RELIST":
                happened["RELIST"] += 1
                self.resynchronise(self.ask("skip"))
                return
            self.apply(change)

    def apply(self, change: Change) -> None:
        name = list(self.twin.resources)[change.resource]
        known = self.state.setdefault(name, {})
        happened[change.kind] += 1
        assert change.key is not None
        assert known.get(change.key) == change.old
        assert (change.kind == "ADDED") == (change.old is None)
        if change.new is None:
            del known[change.key]
        else:
            known[change.key] = change.new

    def resynchronise(self, position: int) -> None:
        assert position == self.twin.head
        self.position = position
        self.state = self.ask("seen").state

    def finish(self, tail: int) -> None:
        """Goes on to the head; then it must know everything."""
        while self.position != self.twin.head:
            self.take(64, max(tail, 0))
        known = {name: self.state.get(name, {}) for name in self.twin.resources}
        assert {name: dict(sorted(found.items())) for name, found in known.items()} == (
            self.twin.state()
        )


@dataclass
class Kept:
    """A snapshot and deltas that are checked again much later."""

    snapshot: shmcache.Snapshot
    seen: Seen
    deltas: list[shmcache.Delta]
    changes: list[Change]


other_process: OtherProcess
numbers = iter(range(1_000_000))
happened: Counter[str] = Counter()
"""Events that must happen in a run, or it proved nothing."""


# ---- the machine --------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.replacing: dict[str, tuple[ExitStack, Staged, list[Any]]] = {}
        self.kept: list[Kept] = []
        self.batching = False
        self.touched = False
        self.sound = True

    @initialize(
        slots=st.sampled_from([8, 16, 64, 1024]),
        tight=st.booleans(),
        revoking=st.booleans(),
        number=st.integers(0, 2**32),
    )
    def open(self, slots: int, tight: bool, revoking: bool, number: int) -> None:
        self.exact_tail = not tight
        self.revoking = revoking
        self.lucky_numbers = iter(range(number, number + 1_000_000))
        self.functions: dict[str, list[Lucky]] = {"pods": [], "nodes": []}
        self.twin = Twin(slots)
        resources = []
        for name, indices in INDICES.items():
            specs = {
                index: path if path is not None else self.lucky(name)
                for index, path in indices.items()
            }
            resources.append(shmcache.Resource(name, specs))
            self.twin.declare(name, indices)
        self.writer = shmcache.Writer(
            f"{MINE}model-{next(numbers)}",
            resources,
            arena_max="64MiB",
            ring_slots=slots,
            ring_bytes="2KiB" if tight else "64MiB",
            garbage_max="16KiB" if revoking else "32MiB",
        )
        self.witness = Witness(self.writer.name)
        other_process("open", self.writer.name)
        self.followers = [
            Follower(self.twin, lambda method, *more: getattr(self.witness, method)(*more)),
            Follower(self.twin, other_process),
        ]

    def teardown(self) -> None:
        if not hasattr(self, "followers"):
            return
        happened["sequences"] += 1
        if self.sound:
            self.catch_up(0)
            self.catch_up(1)
        happened["reused"] += self.writer.stats()["reused_bytes"] > 0
        for stack, _, _ in self.replacing.values():
            stack.close()
        for kept in self.kept:
            kept.snapshot.close()
        self.kept.clear()
        self.witness.close()
        other_process("close")
        self.writer.close()

    def lucky(self, name: str) -> Lucky:
        made = Lucky(next(self.lucky_numbers))
        self.functions[name].append(made)
        return made

    # ---- changes: the writer and the model receive each -----------------------------------------

    def perform(self, change: Op) -> None:
        if change.name in self.twin.resources or change.method == "add_resource":
            getattr(self, "do_" + change.method)(change.name, *change.arguments)

    def emitted(self, name: str, count: int) -> list[Any]:
        """The answers of the index functions for the last `count` objects."""
        said = [lucky.said[len(lucky.said) - count :] for lucky in self.functions[name]]
        return [tuple(each[n] for each in said) for n in range(count)]

    def model_puts(self, name: str, items: list[tuple[str, Any, str | None]]) -> int:
        """Repeats the writer's latest puts in the model; returns how many changed something."""
        emitted = self.emitted(name, len(items))
        changed = [
            self.twin.put(name, key, obj, version, said)
            for (key, obj, version), said in zip(items, emitted, strict=True)
        ]
        self.touched |= any(changed)
        return sum(changed)

    def do_put(self, name: str, key: str, obj: Any, version: str | None) -> None:
        changed = self.writer.put(name, key, obj, version)
        assert changed == bool(self.model_puts(name, [(key, obj, version)]))

    def do_mutate(self, name: str, path: list[int], leaf: Any, version: str | None) -> None:
        known = self.twin.resources[name].entries
        if known:
            key = pick(sorted(known), path[0])
            obj = mutated(orjson.loads(known[key].json), path[1:] or [0], leaf)
            self.do_put(name, key, obj, version)

    def do_copy(self, name: str, path: list[int], key: str, version: str | None) -> None:
        known = self.twin.resources[pick(list(self.twin.resources), path[0])].entries
        if known:
            entry = known[pick(sorted(known), path[-1])]
            self.do_put(name, key, orjson.loads(entry.json), version)

    def do_put_many(self, name: str, items: list[Any]) -> None:
        changed = self.writer.put_many(name, iter(items))
        assert changed == self.model_puts(name, items)

    def as_kubernetes(self, items: list[Any]) -> list[Any]:
        """The same items as objects that carry their key and version."""
        found = []
        for key, obj, version in items:
            namespace, _, short = key.rpartition("/")
            metadata = {**obj.get("metadata", {}), "name": short}
            metadata |= {"namespace": namespace} if namespace else {}
            metadata |= {"resourceVersion": version} if version is not None else {}
            found.append((key, {**obj, "metadata": metadata}, version))
        return found

    def do_apply(self, name: str, items: list[Any]) -> None:
        items = self.as_kubernetes(items)
        changed = self.writer.apply(name, [obj for _, obj, _ in items])
        assert changed == self.model_puts(name, items)

    def do_bulk(self, name: str, start: int, count: int, step: int) -> None:
        self.do_put_many(
            name,
            [
                (f"bulk/{n:05d}", {"spec": {"node": f"node-{n % 7}"}, "zone": n}, None)
                for n in range(start, start + count * step, step)
            ],
        )

    def do_bulk_delete(self, name: str, start: int, count: int, step: int) -> None:
        with self.writer.batch():
            for n in range(start, start + count * step, step):
                self.delete(name, f"bulk/{n:05d}", None, unknown=False)

    def do_delete(self, name: str, path: list[int], version: str | None, unknown: bool) -> None:
        known = sorted(self.twin.resources[name].entries)
        self.delete(name, pick([*known, "absent"], sum(path)), version, unknown=unknown)

    def delete(self, name: str, key: str, version: str | None, *, unknown: bool) -> None:
        was_there = self.writer.delete(name, key, version, unknown=unknown)
        assert was_there == self.twin.delete(name, key, version, unknown=unknown)
        self.touched |= was_there

    def do_set_state(self, name: str, state: int, version: str | None) -> None:
        self.writer.set_state(name, state, version)
        resource = self.twin.resources[name]
        wanted = state, resource.version if version is None else version or None
        self.touched |= wanted != (resource.state, resource.version)
        resource.state, resource.version = wanted

    def do_add_index(self, name: str, path: str) -> None:
        indices = self.twin.resources[name].indices
        if len(indices) < 8:
            self.writer.add_index(name, f"added-{len(indices)}", path)
            indices[f"added-{len(indices)}"] = path
            self.touched = True

    def do_add_function(self, name: str) -> None:
        resource = self.twin.resources[name]
        function, index = Lucky(next(self.lucky_numbers)), f"added-{len(resource.indices)}"
        if self.batching:
            with pytest.raises(ShmCacheError, match="cannot come inside a batch"):
                self.writer.add_index(name, index, function)
        elif len(resource.indices) < 8:
            self.writer.add_index(name, index, function)
            self.functions[name].append(function)
            resource.indices[index] = None
            there = sorted(resource.entries)  # each function runs again for all of them
            for key, said in zip(there, self.emitted(name, len(there)), strict=True):
                resource.entries[key] = resource.entries[key]._replace(emitted=said)
            self.touched = True

    def do_add_resource(self, name: str) -> None:
        if name in self.twin.resources:
            with pytest.raises(ValueError, match="declared already"):
                self.writer.add_resource(name)
            if self.batching:
                raise _Doomed
            return
        self.writer.add_resource(shmcache.Resource(name, {"zone": "zone"}))
        self.twin.declare(name, {"zone": "zone"})
        self.functions[name] = []
        self.touched = True

    def do_refused(self, name: str) -> None:
        for key, obj in [("a", {"x": [{1}]}), ("a", {1: 2}), ("", {}), ("a\0b", {"x": 1})]:
            with pytest.raises((UnsupportedValue, ValueError)):
                self.writer.put(name, key, obj)

    def do_stage(self, name: str, items: list[Any]) -> None:
        if name in self.replacing:
            _, staged, so_far = self.replacing[name]
            for key, obj, version in items:
                staged.put(key, obj, version)
            said = self.emitted(name, len(items))
            so_far += [(*item, each) for item, each in zip(items, said, strict=True)]

    # ---- rules: changes -------------------------------------------------------------------------

    def committed(self, before: int) -> None:
        self.twin.commit()
        assert self.touched == (self.writer.stats()["generation"] > before)
        self.touched = False

    @rule(change=ops)
    def one(self, change: Op) -> None:
        before = self.writer.stats()["generation"]
        self.perform(change)
        self.committed(before)
        self.verify()

    @rule(change=ops)
    def another(self, change: Op) -> None:
        """Changes are to be most of the steps."""
        self.one(change)

    @rule(change=ops)
    def and_another(self, change: Op) -> None:
        self.one(change)

    @rule(changes=st.lists(ops, min_size=1, max_size=6))
    def batch(self, changes: list[Op]) -> None:
        before = self.writer.stats()["generation"]
        try:
            self.perform_batch(changes, None)
        except _Doomed:
            assert before == self.writer.stats()["generation"]
        self.committed(before)
        self.verify()

    @rule(changes=st.lists(ops, min_size=1, max_size=4))
    def batch_that_raises(self, changes: list[Op]) -> None:
        before = self.writer.stats()["generation"]
        with pytest.raises((ZeroDivisionError, _Doomed)):
            self.perform_batch(changes, ZeroDivisionError())
        assert before == self.writer.stats()["generation"]
        self.verify()

    def perform_batch(self, changes: list[Op], error: Exception | None) -> None:
        saved, touched = self.twin.saved(), self.touched
        functions = {name: list(each) for name, each in self.functions.items()}
        staged = {name: len(so_far) for name, (_, _, so_far) in self.replacing.items()}
        self.batching = True
        try:
            with self.writer.batch():
                for change in changes:
                    self.perform(change)
                if error is not None:
                    raise error
        except (ZeroDivisionError, _Doomed):
            self.twin.restore(saved)
            self.functions, self.touched = functions, touched
            for name, count in staged.items():
                del self.replacing[name][2][count:]
            raise
        finally:
            self.batching = False

    @rule(name=names, items=items, version=versions)
    def replace(self, name: str, items: list[Any], version: str | None) -> None:
        if name not in self.twin.resources:
            return
        items = self.as_kubernetes(items)
        if name in self.replacing:
            with pytest.raises(shmcache.BusyError):
                self.writer.replace(name, [])
            return
        self.writer.replace(name, (obj for _, obj, _ in items), version)
        said = self.emitted(name, len(items))
        self.twin.replace(
            name, [(*item, each) for item, each in zip(items, said, strict=True)], version
        )
        self.after_replace()

    def after_replace(self) -> None:
        self.twin.commit()
        self.touched = False
        self.verify()

    @rule(name=names, version=versions)
    def begin_replace(self, name: str, version: str | None) -> None:
        if name in self.twin.resources and name not in self.replacing:
            stack = ExitStack()
            staged = stack.enter_context(self.writer.begin_replace(name, version))
            self.replacing[name] = stack, staged, []
            self.versions_of_replacements = {
                **getattr(self, "versions_of_replacements", {}),
                name: version,
            }

    @precondition(lambda self: self.replacing)
    @rule(number=st.integers(0, 5))
    def finish_replace(self, number: int) -> None:
        name = pick(sorted(self.replacing), number)
        stack, _, staged = self.replacing.pop(name)
        stack.close()
        self.twin.replace(name, staged, self.versions_of_replacements[name])
        self.after_replace()

    @precondition(lambda self: self.replacing)
    @rule(number=st.integers(0, 5))
    def fail_replace(self, number: int) -> None:
        stack, _, _ = self.replacing.pop(pick(sorted(self.replacing), number))
        with pytest.raises(ZeroDivisionError), stack:
            raise ZeroDivisionError
        self.verify()

    @rule(drop=st.booleans())
    def housekeeping(self, drop: bool) -> None:
        if drop:
            self.writer.drop_window()
            self.twin.tail = self.twin.head
        self.writer.reclaim()
        assert self.writer._tend()
        self.verify()

    # ---- rules: readers -------------------------------------------------------------------------

    @property
    def tail(self) -> int:
        """The start of the window: as in the model, unless it is bounded by bytes."""
        tail = self.witness.cache._reader.root().tail
        if self.exact_tail:
            assert self.twin.tail == tail
        assert self.twin.tail <= tail <= self.twin.head
        return tail

    @rule(which=st.integers(0, 1), count=st.integers(1, 40))
    def take(self, which: int, count: int) -> None:
        self.followers[which].take(count, self.tail)

    @rule(which=st.integers(0, 1))
    def catch_up(self, which: int) -> None:
        happened["caught up"] += 1
        self.followers[which].finish(self.tail)

    @precondition(lambda self: len(self.kept) < 20)
    @rule(back=st.integers(0, 20))
    def keep(self, back: int) -> None:
        """A snapshot, and deltas from before it."""
        snapshot = self.witness.cache.snapshot()
        start = max(self.tail, self.twin.head - back)
        deltas, _ = snapshot._root.take(start, 1000)
        changes = self.twin.log[start:]
        assert [delta.number for delta in deltas] == list(range(start, self.twin.head))
        seen = self.expected()
        self.kept.append(Kept(snapshot, seen, deltas, changes))

    @precondition(lambda self: self.kept)
    @rule(number=st.integers(0, 19), drop=st.booleans())
    def look_again(self, number: int, drop: bool) -> None:
        kept = pick(self.kept, number)
        try:
            assert see(kept.snapshot) == kept.seen
            assert [change_of(delta) for delta in kept.deltas] == kept.changes
        except StaleObjectError:
            assert self.revoking, "nothing had to be revoked"
            happened["stale"] += 1
            assert self.writer.stats()["revoked"] > 0
            with pytest.raises(StaleObjectError):  # and so it stays
                see(kept.snapshot)
        if drop:
            self.kept.remove(kept)
            kept.snapshot.close()

    @rule(
        name=names,
        bounds=st.fixed_dictionaries(
            {}, optional={"start": keys | words, "stop": keys | words, "after": keys}
        ),
        prefix=st.none() | st.sampled_from(["", "a", "prod/", "x" * 60, "bulk/000", "\uffff", "é"]),
        limit=st.integers(0, 5),
        now=st.booleans(),
    )
    def scan(
        self, name: str, bounds: dict[str, str], prefix: str | None, limit: int, now: bool
    ) -> None:
        if name not in self.twin.resources:
            return
        expected: list[Any] = []
        for key, json in self.twin.state()[name].items():
            if within(key, bounds, prefix) and key > bounds.get("after", ""):
                expected.append((key, json))
        more: dict[str, Any] = {**bounds, "prefix": prefix, "limit": limit}
        with self.witness.cache.snapshot() as at:
            resource = self.witness.cache[name] if now else at[name]
            found = [(key, view.json()) for key, view in resource.scan(**more)]
            assert found == (expected[:limit] if limit else expected)
            assert [key for key, _ in found] == resource.scan(**more, want="keys")

    @rule(
        name=names,
        bounds=st.fixed_dictionaries(
            {}, optional=dict.fromkeys(["start", "stop", "prefix"], words)
        ),
        after=st.none() | st.tuples(words, keys),
        limit=st.integers(0, 5),
        number=st.integers(0, 9),
    )
    def scan_index(
        self,
        name: str,
        bounds: dict[str, str],
        after: tuple[str, str] | None,
        limit: int,
        number: int,
    ) -> None:
        if name not in self.twin.resources:
            return
        index = pick(list(self.twin.resources[name].indices), number)
        entries = self.twin.resources[name].index(index)
        inside = [pair for pair in entries if within(pair[0], bounds, None)]
        expected = [pair for pair in inside if after is None or pair > after]
        resource = self.witness.cache[name]
        found = resource.scan_index(index, **bounds, after=after, limit=limit)
        assert [(value, key) for value, key, _ in found] == (
            expected[:limit] if limit else expected
        )
        if after is not None:
            value, last = after
            rest = [key for one, key in entries if one == value and key > last]
            assert resource.index_keys(index, value, after=last) == rest
            later = sorted({one for one, _ in entries if one > value})
            assert resource.index_values(index, after=value, limit=limit) == (
                later[:limit] if limit else later
            )

    # ---- invariants after each step -------------------------------------------------------------

    def expected(self) -> Seen:
        twin = self.twin
        return Seen(twin.state(), twin.indices(), twin.versions(), twin.head)

    def verify(self) -> None:
        self.sound = False  # from here on, unless all holds
        self.writer.check()
        happened["looks"] += 1
        happened["kept"] += len(self.kept)
        expected = self.expected()
        assert self.witness.seen() == expected
        assert other_process("seen") == expected
        for name, resource in self.twin.resources.items():
            assert self.witness.cache[name].state == resource.state
            assert len(self.witness.cache[name]) == len(resource.entries)
        self.sound = True


class _Doomed(Exception):
    """A call inside the batch failed half-way: the batch cannot continue."""


def within(text: str, bounds: dict[str, str], prefix: str | None) -> bool:
    return (
        bounds.get("start", "") <= text
        and ("stop" not in bounds or text < bounds["stop"])
        and text.startswith(prefix or bounds.get("prefix", ""))
    )


@pytest.fixture(scope="module", autouse=True)
def other() -> Iterator[None]:
    global other_process  # noqa: PLW0603 - a machine's rules can be given nothing
    other_process = OtherProcess()
    yield
    other_process.end()


def test_every_reader_sees_what_plain_dicts_hold() -> None:
    met = ["ADDED", "MODIFIED", "DELETED", "RELIST", "lapped", "kept", "reused"]
    for number in range(8):  # sequences that were too tame are followed by others
        run(SEED + number)
        if all(happened[what] for what in met):
            return
    raise AssertionError(f"too tame: {happened}")


def run(number: int) -> None:
    run_state_machine_as_test(
        seed(number)(Machine),
        settings=settings(
            max_examples=EXAMPLES * 5 // 8,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
