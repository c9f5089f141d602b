"""Records `shmcache demo` as docs/pictures/demo.svg: python release/recording.py [SECONDS].

The demo runs in a terminal of its own (pty); pyte interprets what it prints. The picture shows one
frame a second in a loop that rests on the last one. With reduced motion, only
that one is shown.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import select
import struct
import sys
import termios
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS, LINES = 92, 30
WIDTH, HEIGHT, MARGIN = 8.4, 19, 16
REST_SECONDS = 5
LEAVE = b"\x1b[?1049l"
COLOURS = {"default": "#d7dee4", "green": "#5fd38d", "red": "#ff7b72"}
DIM = "#8b98a5"

Cell = tuple[str, bool]
"""A colour, and whether the text is bold."""


class DimScreen(pyte.Screen):
    """pyte does not know dim text: it becomes brown, which the demo does not use."""

    def select_graphic_rendition(self, *attributes: int, **more: Any) -> None:
        """Replaces dim by a colour."""
        super().select_graphic_rendition(*(33 if one == 2 else one for one in attributes), **more)


def recorded(seconds: float) -> list[list[list[tuple[Cell, str]]]]:
    """The frames of a run: lines of pieces with one colour each."""
    screen = DimScreen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    pid, fd = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "shmcache", "demo", "--seconds", f"{seconds:g}"]
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        os.execve(sys.executable, words, environment)  # noqa: S606 - no shell is wanted
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    frames, due = [], time.monotonic() + 1
    while True:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:  # the terminal is gone with its process
                break
            if not piece:
                break
            _feed(stream, screen, piece)
        if time.monotonic() >= due:
            due += 1
            frames.append(frame_of(screen))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    if status:
        raise SystemExit(f"the demo ended with status {status}")
    return [frame for frame in frames if any(frame)] + [frame_of(screen)]


def _feed(stream: Any, screen: Any, piece: bytes) -> None:
    """Pyte has no alternate screen: leaving it shows an empty one."""
    inside, left, after = piece.partition(LEAVE)
    stream.feed(inside)
    if left:
        screen.reset()
        stream.feed(after)


def frame_of(screen: Any) -> list[list[tuple[Cell, str]]]:
    """The lines of the terminal, now."""
    lines = []
    for number in range(LINES):
        row = screen.buffer[number]
        cells = [row[column] for column in range(COLUMNS)]
        pieces = [
            (style, "".join(cell.data for cell in some))
            for style, some in groupby(cells, key=lambda cell: (cell.fg, bool(cell.bold)))
        ]
        while pieces and not pieces[-1][1].strip():
            pieces.pop()
        lines.append(pieces)
    return lines


def drawn(frames: list[list[list[tuple[Cell, str]]]]) -> str:
    """The picture."""
    used = max(number for frame in frames for number, line in enumerate(frame) if line) + 1
    width, height = COLUMNS * WIDTH + 2 * MARGIN, used * HEIGHT + 2 * MARGIN
    whole = len(frames) + REST_SECONDS
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img">'
        ),
        "<title>shmcache demo: one reflector, four workers</title>",
        "<style>",
        "text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}",
        "g.f{visibility:hidden}g.f:last-of-type{visibility:visible}",
        "@media (prefers-reduced-motion:no-preference){",
    ]
    for number in range(len(frames)):
        start = 100 * number / whole
        stop = 100 * (number + 1) / whole if number + 1 < len(frames) else 100
        before = f"0%{{visibility:hidden}}{start:.3f}%" if number else "0%"
        after = f"{stop:.3f}%{{visibility:hidden}}" if stop < 100 else ""
        parts.append(f"@keyframes k{number}{{{before}{{visibility:visible}}{after}}}")
        parts.append(f"#f{number}{{animation:k{number} {whole}s step-end infinite}}")
    parts += [
        "}",
        "</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#12181f"/>',
    ]
    for number, frame in enumerate(frames):
        parts.append(f'<g class="f" id="f{number}">')
        parts += [_line(row, line) for row, line in enumerate(frame) if line]
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _line(row: int, line: list[tuple[Cell, str]]) -> str:
    pieces, column = [], 0
    for (colour, bold), text in line:
        if text.strip():
            x = MARGIN + column * WIDTH
            fill = DIM if colour == "brown" else COLOURS.get(colour, COLOURS["default"])
            weight = ' font-weight="700"' if bold else ""
            length = f'textLength="{len(text) * WIDTH:.1f}"'
            pieces.append(
                f'<tspan x="{x:.1f}" {length} fill="{fill}"{weight}>'
                f"{html.escape(text, quote=False)}</tspan>"
            )
        column += len(text)
    return f'<text y="{MARGIN + (row + 0.75) * HEIGHT:.1f}">{"".join(pieces)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(drawn(recorded(float(sys.argv[1]) if len(sys.argv) > 1 else 12)))
