"""Invariant tested: the lines of `top` fit any terminal, and wrapping loses nothing."""

from __future__ import annotations

import os
import sys

import pytest

import shmcache
from shmcache.cli.output.report import wrapped
from shmcache.monitor.observing import observe

TEXT = "12.5 MiB shared of at most 4 GiB, values 1,234 KiB, trees 3 KiB, past 0 B, free 7 MiB"


@pytest.mark.parametrize("columns", [45, 60, 80, 85, 86, 95, 120])
def test_a_line_is_wrapped_at_its_commas(columns: int) -> None:
    lines = wrapped("memory  ", TEXT, columns)

    assert max(map(len, lines)) <= columns
    assert "memory  " + TEXT == " ".join([lines[0], *(line.lstrip() for line in lines[1:])])
    assert all(line.startswith(" " * 8) for line in lines[1:])
    assert all(line.endswith(",") for line in lines[:-1])


def test_a_part_that_is_wider_than_the_terminal_has_its_own_line() -> None:
    assert ["a  " + "x" * 40 + ",", "   b"] == wrapped("a  ", "x" * 40 + ", b", 20)


def test_a_worker_is_shown_with_its_command(cache: shmcache.Cache) -> None:
    [own] = [one for one in observe(cache).workers if one.own]

    program, *arguments = sys.orig_argv
    assert " ".join([os.path.basename(program), *arguments])[:60] == own.command[:60]
