"""Errors of other people's functions: which ones are the same, and when one is logged again.

Two errors are the same if the same lines raised the same types; their texts, which have keys in
them, do not count. The log has the first of each with its traceback, then the 10th, the 100th and
so on in one line each, so that a handler that always raises costs a few lines.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logging import Logger

    Identity = tuple[object, ...]

_FRAMES = 8  # innermost ones
_CAUSES = 8
_KINDS = 256
"""Different errors that are remembered; beyond that the oldest is logged as a new one."""


def identity(error: BaseException) -> Identity:
    """Equal for equal errors, also in other processes of the same code."""
    parts: list[object] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < _CAUSES:
        lines: list[tuple[str, int]] = []
        step = seen.__traceback__
        while step is not None:
            lines.append((step.tb_frame.f_code.co_filename, step.tb_lineno))
            step = step.tb_next
        kind = type(seen)
        parts.append((kind.__module__, kind.__qualname__, *lines[-_FRAMES:]))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return tuple(parts)


def is_due(count: int) -> bool:
    """Whether the count-th repetition is logged: the 1st, 10th, 100th, ..."""
    return str(count).strip("0") == "1"


class Distinct:
    """Counts the errors of one function in this process, and logs those that are due."""

    def __init__(self, logger: str) -> None:
        self._logger = logger
        self._counts: dict[Identity, int] = {}

    def report(self, error: BaseException, text: str, *args: object) -> None:
        """Counts an error; `text` and its arguments are the log line of the first one."""
        name = identity(error)
        count = self._counts.pop(name, 0) + 1
        while len(self._counts) >= _KINDS:
            del self._counts[next(iter(self._counts))]
        self._counts[name] = count
        if not is_due(count):
            return
        if count == 1:
            self._log().error(text, *args, exc_info=error)
        else:
            self._log().error(text + " (%d times so far: %r)", *args, count, error)

    def _log(self) -> Logger:
        import logging

        return logging.getLogger(self._logger)
