"""Child processes for a measurement: started by spawn, ready together, each with a pipe.

A target runs as `target(pipe, *arguments)`. It prepares, calls `ready(pipe)`, which returns when
the parent says `go`, and sends its answer through the pipe. An exception in a child is raised
again in the parent, with the child's traceback.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

TIMEOUT_S = 600


class ChildFailed(Exception):
    """A child raised; the text is its traceback."""


class Children:
    """Several children with the same target; a context manager that ends them."""

    def __init__(self, target: Callable[..., None], each: Sequence[tuple[Any, ...]]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for arguments in each:
            ours, theirs = context.Pipe()
            process = context.Process(target=_child, args=(theirs, target, arguments), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(2 if kind is None else 0)
            if process.is_alive():
                process.kill()
                process.join()

    def send(self, message: object) -> None:
        for pipe in self._pipes:
            pipe.send(message)

    def receive(self) -> list[Any]:
        """One answer of each child."""
        answers = []
        for pipe in self._pipes:
            if not pipe.poll(TIMEOUT_S):
                raise ChildFailed(f"no answer within {TIMEOUT_S} s")
            failed, answer = pipe.recv()
            if failed:
                raise ChildFailed(answer)
            answers.append(answer)
        return answers


class Pipe:
    """The child's end: its messages reach `Children.receive`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def answer(self, value: object) -> None:
        self._connection.send((False, value))

    def next(self) -> Any:
        """The parent's next message; EOFError when the parent is done."""
        return self._connection.recv()

    def asked(self) -> bool:
        """Whether there is a message that next() would return at once."""
        return self._connection.poll()

    def ready(self) -> Any:
        """Reports to the parent that this child is ready, and waits for its command."""
        self.answer("ready")
        return self.next()


def _child(connection: Connection, target: Callable[..., None], arguments: Sequence[Any]) -> None:
    try:
        target(Pipe(connection), *arguments)
    except EOFError:
        pass  # the parent has left
    except BaseException:
        connection.send((True, traceback.format_exc()))
        raise
