"""Invariants tested: SUPERVISOR1 to SUPERVISOR3 of supervisor.py, CHILD1 to CHILD3 of child.py."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pytest
from workers import PATIENCE, Worker, eventually, state_of_process

from shmcache.processes.stop_requests import AGAIN_SECONDS
from shmcache.processes.supervisor import Exit, Supervisor, command, spawned
from shmcache.testing import ManualClock

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def sleep() -> None:
    while True:
        signal.pause()


def gone(pid: int) -> bool:
    try:
        return state_of_process(pid) == "Z"  # an orphan's, which this process does not reap
    except (FileNotFoundError, ProcessLookupError):
        return True


def children() -> set[int]:
    """Processes that live, or that this process has to reap."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


class Kept(Supervisor):
    """A supervisor on a clock that only the test moves, and that records exits."""

    def __init__(self, *bodies: Any, **settings: Any) -> None:
        self.time = ManualClock()
        self.exits: list[Exit] = []
        super().__init__(bodies, clock=self.time, on_exit=self.exits.append, **settings)

    def await_exits(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(self.exits) < count:
            assert time.monotonic() < deadline, "no child ends"
            self.turn(1.0)

    def __enter__(self) -> Self:
        self.others = children()  # of earlier tests: multiprocessing's own helpers
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        assert children() <= self.others  # SUPERVISOR2: no child of ours is left to reap


def test_a_child_that_ends_restarts_with_a_growing_delay() -> None:
    with Kept(sleep, sleep) as kept:
        other, delays = kept.children[1].pid, []
        for count in (1, 2, 3):
            pid = kept.children[0].pid
            kept.kill(0)
            kept.await_exits(count)
            assert (kept.exits[-1].pid, kept.exits[-1].status) == (pid, -signal.SIGKILL)
            kept.turn(0)
            assert not kept.children[0].alive  # not before it is due
            assert kept.children[0].due is not None
            delays.append(kept.children[0].due - kept.time())
            kept.time.advance(delays[-1])
            kept.turn(0)
            assert kept.children[0].alive
        assert kept.children[1].pid == other
        assert 0.1 <= delays[0] < 0.2 <= delays[1] < 0.4 <= delays[2] < 0.8


def test_waiting_does_not_loop() -> None:
    ticks = []
    with Kept(sleep, tick=lambda: ticks.append(1)) as kept:
        kept.kill(0)
        kept.turn(PATIENCE)
        kept.turn(0)
        assert len(kept.exits) == 1
        assert len(ticks) == 2  # one for each turn, and the first one slept until the end came


def test_exits_state_their_reason(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def refuse() -> None:
        logging.getLogger().addHandler(logging.FileHandler(tmp_path / "log"))
        raise ValueError("so it is")

    def leave() -> None:
        sys.exit(3)

    bodies = (lambda: 5, lambda: None, refuse, leave, command("/nonexistent/program"))
    with Kept(*bodies) as kept, caplog.at_level(logging.WARNING):
        kept.await_exits(5)
        status = {exited.index: exited.status for exited in kept.exits}
        assert {0: 5, 1: 0, 2: 70, 3: 3, 4: 127} == status
    assert "ended with status 5 after" in caplog.text
    assert "ValueError: so it is" in (tmp_path / "log").read_text()


def test_a_child_has_signal_handlers_of_its_own() -> None:
    """O2."""

    def look() -> int:
        ours = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        ours &= signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        ours &= signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return 0 if ours and signal.set_wakeup_fd(-1) == -1 else 1

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with Kept(look) as kept:
            kept.await_exits(1)
            assert kept.exits[0].status == 0
    finally:
        signal.signal(signal.SIGTERM, before)


def test_programs_and_fresh_interpreters(tmp_path: Path) -> None:
    there, here = tmp_path / "spawned", tmp_path / "program"
    inherited.append("by a fork")
    program = command("sh", "-c", f"echo $WHO > {here}", env={"WHO": "me"})
    with Kept(spawned(write, str(there), "fresh"), program) as kept:
        kept.await_exits(2)
        assert [0, 0] == [exited.status for exited in kept.exits]
    assert here.read_text() == "me\n"
    assert there.read_text() == "fresh []"


inherited: list[str] = []


def write(path: str, text: str) -> None:
    Path(path).write_text(f"{text} {inherited}", encoding="utf-8")


# ---- run(), in a process of its own ------------------------------------------------------------


def child(pipe: Connection, *, stubborn: bool) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else leave_at_once)
    pipe.send(os.getpid())
    while True:
        signal.pause()


def leave_at_once(*_: object) -> None:
    sys.exit(0)


def run(pipe: Connection, stubborn: tuple[bool, ...], settings: dict[str, Any]) -> None:
    bodies = [lambda stubborn=each: child(pipe, stubborn=stubborn) for each in stubborn]
    supervisor = Supervisor(bodies, on_exit=pipe.send, **settings)
    pipe.send(("over", supervisor.run()))


def fail(pipe: Connection) -> None:
    supervisor = Supervisor([sleep, lambda: 78], fatal=(78,))
    pipe.send((supervisor.run(), supervisor.alive))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_drains_its_children(number: int) -> None:
    with Worker("spawn", run, (False, False), {}) as parent:
        pids = {parent.hear(), parent.hear()}
        parent.send_signal(number)
        exits = [parent.hear(), parent.hear()]
        assert pids == {exited.pid for exited in exits}
        assert [(0, True)] * 2 == [(exited.status, exited.wanted) for exited in exits]
        assert parent.hear() == ("over", 0)


def test_a_child_that_does_not_drain_in_time_is_killed() -> None:
    with Worker("spawn", run, (True, False), {"drain_seconds": 0.3}) as parent:
        parent.hear(), parent.hear()
        parent.send_signal(signal.SIGTERM)
        assert {0, -signal.SIGKILL} == {parent.hear().status, parent.hear().status}
        assert parent.hear() == ("over", 0)


def test_a_later_signal_kills_at_once_and_repeated_ones_do_not() -> None:
    with Worker("spawn", run, (True, False), {"drain_seconds": 3600.0}) as parent:
        parent.hear(), parent.hear()
        parent.send_signal(signal.SIGTERM)
        parent.send_signal(signal.SIGTERM)  # as timeout(1) and process groups repeat it
        assert parent.hear().status == 0
        time.sleep(AGAIN_SECONDS)
        parent.send_signal(signal.SIGTERM)
        assert parent.hear().status == -signal.SIGKILL
        assert parent.hear() == ("over", 0)


def test_no_child_outlives_a_supervisor_that_is_killed() -> None:
    """CHILD1: stubborn ones, too."""
    with Worker("spawn", run, (True, False), {}) as parent:
        pids = [parent.hear(), parent.hear()]
        parent.kill()
        for pid in pids:
            eventually(lambda pid=pid: gone(pid), f"{pid} lives on")  # type: ignore[misc]


def test_signals_can_be_passed_on() -> None:
    with Worker("spawn", run, (False,), {"forward": (signal.SIGHUP,)}) as parent:
        parent.hear()
        parent.send_signal(signal.SIGHUP)
        assert parent.hear().status == -signal.SIGHUP  # the default action: it restarts
        parent.hear()
        parent.send_signal(signal.SIGTERM)
        assert parent.hear().status == 0
        assert parent.hear() == ("over", 0)


def test_a_fatal_status_ends_all_children() -> None:
    with Worker("spawn", fail) as parent:
        assert parent.hear() == (78, 0)


def raise_later(pipe: Connection) -> None:
    """A supervisor whose owner fails in the middle."""
    pids: list[int] = []

    def tick() -> float:
        pids.extend(child.pid for child in supervisor.children)
        raise RuntimeError("a bug of the owner")

    supervisor = Supervisor([sleep, sleep], tick=tick)
    with suppress(RuntimeError):
        supervisor.run()
    pipe.send((pids, supervisor.alive))


def test_an_error_leaves_no_child_behind() -> None:
    with Worker("spawn", raise_later) as parent:
        pids, alive = parent.hear()
        assert 2 == len(pids)
        assert 0 == alive
        assert all(map(gone, pids))
