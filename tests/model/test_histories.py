"""Invariant tested: the checker of histories accepts what one register could do, and finds every
planted fault; a second, much simpler search agrees with it about small random histories.
"""

from __future__ import annotations

import itertools
import random

import pytest
from linear import (
    Monotonic,
    Op,
    ReadState,
    ServerLog,
    Written,
    check_lists,
    check_past,
    check_register,
    linearizable,
)


def r(call: float, ret: float, value: str | None) -> Op:
    return Op(call, ret, "read", value)


def w(call: float, ret: float, value: str | None) -> Op:
    return Op(call, ret, "write", value)


GOOD = {
    "nothing": [],
    "one after the other": [w(0, 1, "a"), r(2, 3, "a"), w(4, 5, None), r(6, 7, None)],
    "a read next to a write sees the old value": [w(0, 1, "a"), w(2, 9, "b"), r(3, 4, "a")],
    "a read next to a write sees the new value": [w(0, 1, "a"), w(2, 9, "b"), r(3, 4, "b")],
    "two writes in either order": [w(0, 5, "a"), w(0, 5, "b"), r(6, 7, "a"), r(8, 9, "a")],
    "a write without an answer happened": [w(0, float("inf"), "a"), r(3, 4, "a")],
    "a write without an answer did not happen": [w(0, float("inf"), "a"), r(3, 4, None)],
}
BAD = {
    "a stale read": [w(0, 1, "a"), w(2, 3, "b"), r(4, 5, "a")],
    "a read from the future": [r(0, 1, "a"), w(2, 3, "a")],
    "a value that nobody wrote": [w(0, 1, "a"), r(2, 3, "z")],
    "back and forth": [w(0, 1, "a"), w(2, 20, "b"), r(3, 4, "b"), r(5, 6, "a")],
    "a deletion undone": [w(0, 1, "a"), w(2, 3, None), r(4, 5, "a")],
    "two readers that disagree about the order": [
        w(0, 10, "a"),
        w(0, 10, "b"),
        r(11, 12, "a"),
        r(13, 14, "b"),
    ],
}


@pytest.mark.parametrize("history", GOOD)
def test_good_histories_are_accepted(history: str) -> None:
    assert linearizable(GOOD[history])
    assert [] == check_register(GOOD[history])


@pytest.mark.parametrize("history", BAD)
def test_planted_faults_are_found(history: str) -> None:
    assert not linearizable(BAD[history])
    assert check_register(BAD[history])


def naive(ops: list[Op]) -> bool:
    """Every order of all operations, also of those without an answer, which may not happen."""
    sure = [op for op in ops if op.ret != float("inf")]
    open_ = [op for op in ops if op.ret == float("inf")]
    for count in range(len(open_) + 1):
        for some in itertools.combinations(open_, count):
            for order in itertools.permutations([*sure, *some]):
                if _fits(order):
                    return True
    return False


def _fits(order: tuple[Op, ...]) -> bool:
    state: str | None = None
    for number, op in enumerate(order):
        if any(later.ret < op.call for later in order[number + 1 :]):
            return False
        if op.kind == "write":
            state = op.value
        elif op.value != state:
            return False
    return True


def test_a_search_of_all_orders_agrees(rng: random.Random) -> None:
    outcomes = [0, 0]
    for _ in range(400):
        ops = []
        for _ in range(rng.randrange(1, 6)):
            call = rng.randrange(8)
            ret = float("inf") if rng.random() < 0.1 else call + rng.randrange(1, 6)
            kind = "write" if rng.random() < 0.5 else "read"
            if kind == "read" and ret == float("inf"):
                continue
            ops.append(Op(call, ret, kind, rng.choice(["a", "b", None])))
        expected = naive(ops)
        outcomes[expected] += 1
        assert expected == linearizable(ops), ops
        assert expected == (not check_register(ops)), ops
    assert min(outcomes) > 50


def test_a_long_history_is_cut_where_nothing_is_under_way(rng: random.Random) -> None:
    ops, state, now = [], None, 0.0
    for number in range(3000):
        now += 1
        if rng.random() < 0.3:
            state = str(number)
            ops.append(w(now, now + 0.5, state))
        else:
            ops.append(r(now, now + 0.5, state))
    assert [] == check_register(ops)

    place = next(n for n in range(2000, 3000) if ops[n].kind == "read")
    ops[place] = ops[place]._replace(value="never")
    assert ops[place] in check_register(ops)


WRITES = [
    Written(0, 1, "a", 1),
    Written(2, 3, "b", 2),
    Written(4, 5, "a", 3),
    Written(6, 7, "b", 4, deleted=True),
]


@pytest.mark.parametrize(
    ("call", "ret", "versions", "right"),
    [
        (1.5, 1.8, {"a": "1"}, True),
        (1.5, 2.5, {"a": "1", "b": "2"}, True),
        (3.5, 3.8, {"a": "1"}, False),  # b is there since before the call
        (3.5, 3.8, {"a": "3", "b": "2"}, False),  # from the future
        (5.5, 5.8, {"a": "1", "b": "2"}, False),  # stale
        (5.5, 9, {"a": "3"}, True),
        (0, 9, {"a": "3", "b": "4"}, False),  # never was
        (0, 9, {}, True),
        (1.5, 9, {}, False),
    ],
)
def test_lists_are_states_of_their_time(
    call: float, ret: float, versions: dict[str, str], *, right: bool
) -> None:
    assert right == (not check_lists(WRITES, [ReadState(call, ret, versions)]))


def test_a_log_of_any_length_has_the_states_of_its_writes(rng: random.Random) -> None:
    writes: list[Written] = []
    states: list[tuple[int, dict[str, str]]] = [(0, {})]
    for version in sorted(rng.sample(range(1, 5000), 700)):
        key, now = rng.choice("abcdef"), dict(states[-1][1])
        deleted = rng.random() < 0.4
        writes.append(Written(version, version + rng.random() * 3, key, version, deleted=deleted))
        now.pop(key, None)
        states.append((version, now if deleted else now | {key: str(version)}))

    def at(version: int) -> dict[str, str]:
        return next(state for begin, state in reversed(states) if begin <= version)

    rng.shuffle(writes)
    log = ServerLog(writes)
    for _ in range(500):
        first = rng.randrange(5001)
        last = first + rng.randrange(60)
        wanted = [at(first), *(state for begin, state in states if first < begin <= last)]
        assert [dict(state) for state in log.states(first, last)] == wanted
        assert log.begun_by(first) == max((w.version for w in writes if w.call <= first), default=0)
        ended = max((w.version for w in writes if w.ret < first), default=0)
        assert log.ended_before(first) == ended
        assert check_past(writes, [(first, at(first))]) == []
        assert len(check_past(writes, [(first, at(first) | {"x": "1"})])) == 1
    assert [{}] == [dict(state) for state in ServerLog([]).states(3, 9)]


def test_reads_that_go_back_are_found() -> None:
    one, other = Monotonic(1), Monotonic(2)
    for at, seen, key, version in (
        (0.0, one, "a", 1), (1.0, one, "a", 2), (1.0, other, "a", 1), (2.0, one, "b", 1),
    ):  # fmt: skip
        seen.saw(at, key, version)
    assert [] == one.wrong == other.wrong
    one.saw(3.0, "a", 1)
    assert 1 == len(one.wrong)
