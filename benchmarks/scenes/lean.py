"""A child process that imports nothing but its target's imports.

`multiprocessing` brings 10 MB of modules into every child, and the parent's main module. In
comparisons of whole processes' memory that would appear on both sides of a ratio, so a child is
`python -m benchmarks.scenes.lean MODULE FUNCTION ARGUMENT...`, and both ends exchange JSON lines.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

TIMEOUT_S = 600


class ChildFailed(Exception):
    """The child ended, or was silent for too long; its traceback is on the terminal."""


class Child:
    """The parent's end; a context manager that ends the child."""

    def __init__(self, target: str, *arguments: Any) -> None:
        import subprocess

        module, _, function = target.partition(":")
        command = [sys.executable, "-m", "benchmarks.scenes.lean", module, function]
        self._process = subprocess.Popen(
            [*command, *(json.dumps(each) for each in arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import subprocess

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # the child's next() raises EOFError
        try:
            self._process.wait(5 if kind is None else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def send(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        import select

        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ChildFailed(f"{self._process.args!r}: no answer")
        return json.loads(line)


class Pipe:
    """The child's end, as children.Pipe."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)  # printed text is not an answer

    def answer(self, value: object) -> None:
        self._out.write(json.dumps(value).encode() + b"\n")

    def next(self) -> Any:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def ready(self) -> Any:
        self.answer("ready")
        return self.next()


if __name__ == "__main__":
    _, place, name, *texts = sys.argv
    target = getattr(importlib.import_module(place), name)
    try:
        target(Pipe(), *(json.loads(text) for text in texts))
    except EOFError:
        pass  # the parent has left
    os._exit(0)  # threads of some clients would never end
