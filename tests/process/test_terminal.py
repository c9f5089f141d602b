"""Invariant tested: on a real terminal a first list shows its progress, `top` is one picture that
responds to keys and resizing, and both leave the terminal as they found it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

import pytest
from workers import Command

import shmcache
from shmcache.cli.output.screen import GREEN
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60
OTHER_PAGE, FIRST_PAGE, SHOWN = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """A command on a terminal of its own, 100 columns wide."""

    def __init__(self, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shmcache", *arguments],
            cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, *texts: str) -> str:
        """Returns the text shown since the last call, once it holds all of these."""
        deadline = time.monotonic() + PATIENCE
        while not all(text in self.text for text in texts):
            left = deadline - time.monotonic()
            assert left > 0, f"no {texts} in {self.text!r}"
            if select.select([self.ours], [], [], left)[0]:
                self.text += os.read(self.ours, 65536).decode(errors="replace")
        shown, self.text = self.text, ""
        return shown

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


def test_a_slow_first_list_shows_its_progress_and_then_removes_its_line(
    name: str, tmp_path: Path
) -> None:
    with ApiServer(seed=1) as server:
        for number in range(50):
            server.create("configmaps", {"metadata": {"name": f"c{number}", "namespace": "a"}})
        # the bar comes after 0.3 s, and then ten times a second
        server.faults.slow(1.0, resource="configmaps", times=None)
        kubeconfig = server.kubeconfig(str(tmp_path / "kubeconfig"))
        with Terminal(
            "run", "pods", "configmaps", "--kubeconfig", kubeconfig, "--cache", name
        ) as terminal:
            shown = terminal.until("all first lists are stored")
            terminal.process.terminate()
            assert terminal.process.wait(PATIENCE) == 0

    bar, _, after = shown.rpartition("configmaps: listing [")
    assert "━━━━" in after, "no bar was drawn"
    assert "\r\x1b[K" in after, "the line is still there"
    assert bar.endswith("\r\x1b[K"), "not redrawn in place"


def _widest(shown: str) -> int:
    """The width of the widest line of a picture, without its escape codes."""
    rows = re.split(r"\x1b\[\d+;1H\x1b\[K", shown.rpartition("\x1b[2J")[2])
    return max(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", row)) for row in rows)


def test_top_is_one_picture_until_q(writer: shmcache.Writer) -> None:
    for number in range(3):
        writer.put("pods", f"a/p{number}", {"metadata": {"namespace": "a", "name": f"p{number}"}})
    with Terminal("top", "--cache", writer.name) as terminal:
        shown = terminal.until(OTHER_PAGE, "pods", "nodes")
        assert "\x1b[2J" in shown
        assert not termios.tcgetattr(terminal.ours)[3] & termios.ECHO

        terminal.resize(30, 60)
        again = terminal.until("\x1b[2J", "pods")  # redrawn for the new width
        assert _widest(shown) > 60 >= _widest(again), "not cut to the terminal"

        terminal.press("q")
        terminal.until(FIRST_PAGE)
        assert terminal.process.wait(PATIENCE) == 0
        assert termios.tcgetattr(terminal.ours)[3] == terminal.before[3]


@pytest.mark.slow
def test_the_demo_shows_synced_in_green_and_after_q_the_rate_of_all_time() -> None:
    begin = time.monotonic()
    with Terminal("demo", "--pods", "100", "--workers", "1", "--seconds", "3600") as terminal:
        terminal.until(f"{GREEN}synced")
        for _ in range(4):
            terminal.until(" s left")  # one second less
        terminal.press("q")
        last = terminal.until(FIRST_PAGE, "nothing was left behind").split(FIRST_PAGE)[1]
        assert terminal.process.wait(PATIENCE) == 0
    row = re.search(r"^ +1 +\d+ +([\d,]+) +([\d,]+) ", last, re.MULTILINE)
    assert row, last
    events, rate = (int(text.replace(",", "")) for text in row.groups())
    assert (rate + 0.5) * (time.monotonic() - begin) >= events > 0


@pytest.mark.parametrize("form", [[], ["-o", "json"]], ids=["text", "json"])
def test_each_picture_goes_through_a_pipe_at_once(writer: shmcache.Writer, form: list[str]) -> None:
    command = [sys.executable, "-m", "shmcache", "top", "--cache", writer.name, "-d", "1h", *form]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Command(command, cwd=ROOT, stdout=subprocess.PIPE, env=environment) as top:
        assert top.stdout is not None
        shown = b""
        while b"nodes" not in shown:
            assert select.select([top.stdout], [], [], PATIENCE)[0], "no picture"
            shown += os.read(top.stdout.fileno(), 65536)
        top.terminate()


def test_top_leaves_the_terminal_as_it_was_when_it_is_interrupted(writer: shmcache.Writer) -> None:
    with Terminal("top", "--cache", writer.name) as terminal:
        terminal.until(OTHER_PAGE, "nodes")
        terminal.process.send_signal(signal.SIGINT)
        shown = terminal.until(FIRST_PAGE)
        assert SHOWN in shown
        terminal.process.wait(PATIENCE)
        assert termios.tcgetattr(terminal.ours)[3] == terminal.before[3]
