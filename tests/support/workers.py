"""Other processes for tests: each runs one function and talks over a pipe; none outlives its test.

    def reader(pipe, name): ...                        # at module level, for spawn

    with Worker("spawn", reader, name) as worker:
        assert "ready" == worker.hear()

The next hear() raises any exception of the function.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, AnyStr, Literal, Self

import shmcache
from shmcache._native import check, ffi, lib, struct_values

PATIENCE = 60.0
"""Seconds after which a wait fails; nothing here takes as long."""

Method = Literal["fork", "spawn", "forkserver"]
METHODS: list[Method] = ["fork", "spawn", "forkserver"]


class _Raised:
    def __init__(self, text: str) -> None:
        self.text = text


def _run(target: Callable[..., Any], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    try:
        target(pipe, *arguments)
    except BaseException:  # noqa: BLE001 - the test shows it
        pipe.send(_Raised(traceback.format_exc()))


class Command(subprocess.Popen[AnyStr]):
    """A command that does not outlive its block when that fails."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, trace)


class Worker:
    """A process that runs target(pipe, *arguments)."""

    def __init__(self, method: Method, target: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context(method)
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(target, theirs, arguments)
        )
        self.process.start()
        theirs.close()
        self.pid: int = self.process.pid

    def tell(self, what: Any) -> None:
        try:
            self._pipe.send(what)
        except BrokenPipeError:
            self.hear()  # raises the process's own exception, if any
            raise

    def hear(self) -> Any:
        """Its next message; EOFError if it is dead."""
        if not self._pipe.poll(PATIENCE):
            raise TimeoutError(f"process {self.pid} is silent")
        heard = self._pipe.recv()
        if isinstance(heard, _Raised):
            raise AssertionError(f"in process {self.pid}:\n{heard.text}")
        return heard

    def ask(self, what: Any) -> Any:
        self.tell(what)
        return self.hear()

    def silent(self) -> bool:
        return not self._pipe.poll(0)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP; returns once it has stopped."""
        self.send_signal(signal.SIGSTOP)
        eventually(lambda: state_of_process(self.pid) == "T", "a process does not stop")

    def kill(self) -> None:
        """SIGKILL; returns when it is gone, and its locks with it."""
        self.process.kill()
        self.process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.close()
        self._pipe.close()


def stop_child(pid: int) -> None:
    """SIGSTOP to a child of this process; returns once all its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def state_of_process(pid: int) -> str:
    """R, S, D, T, Z: as in /proc."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


def hear_all(workers: list[Worker]) -> list[Any]:
    """One answer of each, in the order of arrival."""
    return [worker.hear() for worker in workers]


def eventually(condition: Callable[[], object], otherwise: str) -> None:
    """Returns once the condition holds; a failure if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        wait([], 0.002)


def seat_of(writer: shmcache.Writer, index: int) -> dict[str, int]:
    """The content of a seat, as the writer sees it."""
    info = ffi.new("struct shmc_seat_info *")
    seats = writer._handle.mapped.seats
    check(lib.shmc_seat_info(seats, index, info), "looking at a seat")
    return struct_values(info)


def await_sleep(writer: shmcache.Writer, seats: Iterable[int]) -> None:
    """Returns once the processes on these seats sleep in wait()."""
    for seat in seats:
        eventually(
            lambda seat=seat: (  # type: ignore[misc]
                (info := seat_of(writer, seat))["asleep"] and state_of_process(info["pid"]) == "S"
            ),
            f"seat {seat} does not sleep",
        )
