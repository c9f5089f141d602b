"""A terminal that is drawn over itself: whole lines, cut to its width, only when they differ."""

from __future__ import annotations

import os
import select
import shutil
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
OTHER, BACK = "\x1b[?1049h", "\x1b[?1049l"
BOLD, DIM, RED, GREEN, YELLOW, PLAIN = (
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[0m",
)


class Screen:
    """A picture on a terminal's other page, which leaves what was there before as it was.

    Where there is no terminal each picture follows the last one, if `repeats`.
    """

    def __init__(self, *, repeats: bool = True) -> None:
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.colours = self.live and not os.environ.get("NO_COLOR")
        self.repeats = repeats
        self._last: list[str] = []
        self._shape = (0, 0)
        self._before: Any = None

    def __enter__(self) -> Self:
        if self.live:
            self._quiet_keys()
            sys.stdout.write(OTHER + HIDE)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.live:
            sys.stdout.write(SHOW + BACK)
            sys.stdout.flush()
            if self._before is not None:
                import termios

                termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _quiet_keys(self) -> None:
        """Keys are neither shown nor kept until return is pressed: `q` ends."""
        if not sys.stdin.isatty():
            return
        import termios

        self._before = termios.tcgetattr(0)
        after = termios.tcgetattr(0)
        after[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(0, termios.TCSADRAIN, after)

    @property
    def shape(self) -> tuple[int, int]:
        """Columns and lines."""
        found = shutil.get_terminal_size((100, 40))
        return (found.columns, found.lines)

    def paint(self, text: str, *codes: str) -> str:
        """The text in a colour, where there are colours."""
        return f"{''.join(codes)}{text}{PLAIN}" if self.colours else text

    def draw(self, lines: list[str]) -> None:
        """Shows the lines; on a terminal only those that changed are written."""
        if not self.live:
            if self.repeats:
                print("\n".join(lines), flush=True)
            return
        columns, rows = shape = self.shape
        if len(lines) > rows:
            lines = [*lines[: rows - 1], f"… {len(lines) - rows + 1} more lines: a taller terminal"]
        lines = [_cut(line, columns) for line in lines]
        out = []
        if shape != self._shape:
            self._shape, self._last = shape, []
            out.append("\x1b[2J")
        for number, line in enumerate(lines):
            if number >= len(self._last) or self._last[number] != line:
                out.append(f"\x1b[{number + 1};1H\x1b[K{line}")
        if len(lines) < len(self._last):
            out.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._last = lines
        sys.stdout.write("".join(out))
        sys.stdout.flush()

    def wait(self, seconds: float) -> bool:
        """Sleeps; True if somebody wants to end it by pressing q."""
        if self._before is None:
            select.select([], [], [], seconds)
            return False
        ready, _, _ = select.select([0], [], [], seconds)
        return bool(ready) and os.read(0, 64)[:1] in {b"q", b"Q", b""}


def _cut(line: str, columns: int) -> str:
    """The line without what does not fit; codes of colours take no place."""
    if len(line) <= columns:
        return line
    shown, taken, at = [], 0, 0
    while at < len(line):
        if line[at] == "\x1b":
            end = line.index("m", at) + 1
            shown.append(line[at:end])
            at = end
        else:
            if taken < columns:
                shown.append(line[at])
                taken += 1
            at += 1
    return "".join(shown)
