"""Writes the man pages, docs/man, from the parsers of the commands.

Run `python release/manual.py`. A test compares them with the parsers; the wheel installs them in
share/man/man1.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from shmcache import __version__  # noqa: E402 - from this folder's parent
from shmcache.__main__ import COMMANDS, EXIT_CODES  # noqa: E402
from shmcache.cli.arguments import Parser  # noqa: E402

PAGES = ROOT / "docs" / "man"
_STATUS = re.compile(r"\n*Exit status:.*", re.DOTALL)


def pages() -> Iterator[tuple[str, str]]:
    """The name of each file, and its text."""
    yield "shmcache.1", _overview()
    for name, about in COMMANDS.items():
        if name != "help":
            yield f"shmcache-{name}.1", _page(name, about)


def parser_of(name: str) -> Parser:
    """The parser of a command, with all of its arguments."""
    module = importlib.import_module(f"shmcache.cli.commands.{name}")
    parser = Parser(name, module.HELP)
    module.add_arguments(parser)
    return parser


def _head(name: str, about: str) -> list[str]:
    title = name.upper().replace("-", "\\-")
    return [
        f'.TH {title} 1 "" "shmcache {__version__}" "User Commands"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(about)}",
        ".SH SYNOPSIS",
    ]


def _overview() -> str:
    lines = _head("shmcache", "a Kubernetes informer cache for a whole machine")
    lines += [".B shmcache", ".I COMMAND", "[\\fIARGUMENTS\\fR]", ".SH DESCRIPTION"]
    lines += _filled(
        "One process watches the API server and decodes each object once into shared memory; any "
        "number of worker processes read it there, without parsing, and sleep until something "
        "changes.\n\nCommands that read a cache take its name from --cache or SHMCACHE_NAME; if "
        "neither is given and there is only one cache, they use that one."
    )
    lines.append(".SH COMMANDS")
    for name, about in COMMANDS.items():
        shown = f"shmcache-{name}(1)" if name != "help" else name
        lines += [".TP", f".B {_text(shown)}", _text(_sentence(about))]
    codes = EXIT_CODES.partition("\n\n")[2]
    lines += [".SH EXIT STATUS", *_verbatim(codes)]
    return "\n".join([*lines, ""])


def _page(name: str, about: str) -> str:
    parser = parser_of(name)
    lines = _head(f"shmcache-{name}", about)
    lines += [_text(_usage(parser)), ".SH DESCRIPTION", *_filled(parser.description or about)]
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no other way
        shown = [one for one in group._group_actions if one.help != argparse.SUPPRESS]  # noqa: SLF001
        if shown:
            lines.append(f".SH {_text(str(group.title).upper())}")
        for action in shown:
            lines += [".TP", _names(action), *_filled(_sentence(_help(parser, action)))]
    notes = _STATUS.sub("", parser.epilog or "").strip("\n")
    if notes:
        lines += [".SH NOTES", *_verbatim(notes)]
    status = _STATUS.search(parser.epilog or "")
    if status:
        text = status[0].strip().removeprefix("Exit status:")
        lines += [".SH EXIT STATUS", *_filled(" ".join(text.split()))]
    lines += [".SH SEE ALSO", ".BR shmcache (1)"]
    return "\n".join([*lines, ""])


def _usage(parser: Parser) -> str:
    return " ".join(parser.format_usage().removeprefix("usage: ").split())


def _names(action: argparse.Action) -> str:
    """`-o, --output FORMAT`: names are bold, the value is in italics."""
    if not action.option_strings:
        return f"\\fI{_text(str(action.metavar or action.dest))}\\fR"
    value = ""
    if action.nargs != 0:
        choices = "|".join(map(str, action.choices or ()))
        shown = action.metavar or choices or action.dest.upper()
        value = f" \\fI{_text(str(shown))}\\fR"
    return ", ".join(f"\\fB{_text(name)}\\fR" for name in action.option_strings) + value


def _help(parser: Parser, action: argparse.Action) -> str:
    return str(parser._get_formatter()._expand_help(action))  # noqa: SLF001 - %-formats of help


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text + ("" if text.endswith(".") else ".")


def _filled(text: str) -> list[str]:
    """Paragraphs that man fills."""
    found: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        found += ([".PP"] if found else []) + [_text(" ".join(paragraph.split()))]
    return found


def _verbatim(text: str) -> list[str]:
    """Lines as they are."""
    return [".nf", *(_text(line) if line else "" for line in text.strip("\n").split("\n")), ".fi"]


def _text(text: str) -> str:
    """In roff: no character of the text is a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    for character, name in (("…", "..."), ("–", "\\(en"), ("×", "\\(mu"), ("▸", "\\(->")):
        escaped = escaped.replace(character, name)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main() -> None:
    """Writes every page, and removes those of commands that are gone."""
    found = dict(pages())
    PAGES.mkdir(exist_ok=True)
    for file in PAGES.glob("*.1"):
        if file.name not in found:
            file.unlink()
    for name, text in found.items():
        (PAGES / name).write_text(text)


if __name__ == "__main__":
    main()
