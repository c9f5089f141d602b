"""The command-line parser of every command.

It takes complete option names, checks values, and ends an invalid command line with one sentence
that names the option, the right spelling and the page to read next.

Options are never abbreviated: `--names` must not become `--namespaces`. A spelling of an earlier
release still works for one more release; using it prints a warning on standard error.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

_ABOUT = r"(?s)argument (?P<names>\S+): (?P<text>.*)"
_REFUSED: dict[str, str] = {
    "--raw": "it reads the cache, not the API; `shmcache serve` answers API requests",
    "--template": "use -o jsonpath=TEMPLATE",
    "--filename": "it takes resources and names, not files",
    "-f": "it takes resources and names, not files",
    "--kustomize": "it takes resources and names, not files",
    "-k": "it takes resources and names, not files",
    "--server-print": "tables are made from the cache",
    "--subresource": "subresources are not cached",
    "--as": "it reads the cache, not the API; `shmcache serve --review` checks the caller's rights",
    "--kubeconfig": "it reads the cache, not the API; choose a cache with --cache",
    "--context": "it reads the cache, not the API; choose a cache with --cache",
    "--server": "it reads the cache, not the API; choose a cache with --cache",
    "-s": "it reads the cache, not the API; choose a cache with --cache",
}
"""Options of kubectl that a command may lack, and why."""


_TRUE, _FALSE = frozenset(("true", "t", "1")), frozenset(("false", "f", "0"))


def _columns() -> int:
    """Of the terminal, as argparse finds them for each argument: it imports shutil for that."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
        except (ValueError, OSError):
            columns = 0
    return columns or 80


class Parser(argparse.ArgumentParser):
    """argparse with complete option names and errors in plain English."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"shmcache {command}",
            usage=f"shmcache {command} [OPTIONS]",
            description=description,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=_columns() - 2),
            allow_abbrev=False,
            add_help=False,
        )
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="show this help and exit")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Flags take =true and =false, as those of kubectl do."""
        given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(list(self._plain(given)), namespace)

    def _plain(self, given: list[str]) -> Iterator[str]:
        """The arguments with `--flag` for `--flag=true`, and without `--flag=false`."""
        flags = {
            name
            for action in self._actions
            if action.nargs == 0 and action.const is True
            for name in action.option_strings
        }
        for number, argument in enumerate(given):
            name, equals, text = argument.partition("=")
            if argument == "--":
                yield from given[number:]
                return
            if not equals or name not in flags:
                yield argument
            elif text.lower() in _TRUE:
                yield name
            elif text.lower() not in _FALSE:
                self.error(f"{name} must be true or false, not {text!r}")

    def error(self, message: str) -> NoReturn:
        """Prints one sentence and exits with status 2."""
        text = _sentence(self, message)
        see = "" if f"{self.prog} --help" in text else f" (see `{self.prog} --help`)"
        self.exit(2, f"{self.prog}: {text}{see}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            near = closest(str(value), choices)
            hint = f"; did you mean {near}?" if near else ""
            raise argparse.ArgumentError(
                action, f"must be {' or '.join(choices)}, not {value!r}{hint}"
            )

    def options(self) -> list[str]:
        """Every option that help lists."""
        shown = (one for one in self._actions if one.help != argparse.SUPPRESS)
        return [name for one in shown for name in one.option_strings]


def _sentence(parser: Parser, message: str) -> str:
    unknown = message.removeprefix("unrecognized arguments: ")
    if unknown != message:
        return _unknown(parser, unknown.split(" ")[0])
    needed = message.removeprefix("the following arguments are required: ")
    if needed != message:
        return f"{needed.split(', ')[0].split(' ')[0]} is missing"
    about = re.fullmatch(_ABOUT, message)
    if about is None:
        return message
    name, text = about["names"].rpartition("/")[2], about["text"]
    if text.startswith("expected"):
        return f"{name} needs a value"
    if text.startswith("ignored explicit argument"):
        return f"{name} takes no value"
    return f"{name} {text}"


def _unknown(parser: Parser, argument: str) -> str:
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {argument!r}"
    if name in _REFUSED:
        return f"{name} is not supported: {_REFUSED[name]}"
    near = closest(name, parser.options())
    return f"unknown option {name}" + (f"; did you mean {near}?" if near else "")


def closest(typed: str, known: list[str], cutoff: float = 0.6) -> str:
    """The known name that was probably meant; "" if none is close."""
    from difflib import get_close_matches

    begun = [one for one in known if len(typed) > _STEM and one.startswith(typed)]
    if begun:
        return min(begun, key=len)
    found = get_close_matches(typed, known, 1, cutoff)
    return found[0] if found else ""


_STEM = 4


class _Renamed(argparse.Action):
    """An option under the name of an earlier release: works, and warns once."""

    def __init__(self, option_strings: list[str], dest: str, **how: Any) -> None:
        self._now: str = how.pop("now")
        super().__init__(option_strings, dest, help=argparse.SUPPRESS, **how)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        print(
            f"{parser.prog}: warning: {option_string} is now {self._now}; the old spelling will "
            "be removed in the next release",
            file=sys.stderr,
        )
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


def renamed(
    parser: argparse.ArgumentParser,
    *old: str,
    now: str,
    dest: str,
    convert: Callable[[str], Any] = str,
    nargs: int | None = None,
) -> None:
    """Accepts the spellings of an earlier release for the option `now`."""
    parser.add_argument(
        *old, action=_Renamed, now=now, dest=dest, type=convert, nargs=nargs,
        default=argparse.SUPPRESS,
    )  # fmt: skip


def value(kind: str) -> Callable[[str], Any]:
    """An argparse type: one of the value types of the configuration, such as "seconds"."""

    def convert(text: str) -> Any:

        from shmcache.engine.config import value_types

        try:
            return getattr(value_types, kind)(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, not {text!r}") from None

    return convert


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type: a whole number that is not smaller."""

    def convert(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}, not {text!r}"
            )
        return int(text)

    return convert
