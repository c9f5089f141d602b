"""`shmcache completion bash|fish|zsh`: completes commands, options, resources and names of caches.

    source <(shmcache completion bash)
    shmcache completion fish | source

The scripts ask this module for candidates (`--line`), so that all shells, and kubectl for its
plugin, offer the same.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "Prints a completion script for a shell; use it with: source <(shmcache completion bash)"

_BASH = """\
_shmcache() {
    local found
    found=$(shmcache completion --line "${COMP_WORDS[@]:1:$COMP_CWORD}" 2> /dev/null)
    COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _shmcache shmcache
"""
_FISH = """\
function __shmcache_offers
    set -l before (commandline --tokenize --cut-at-cursor --current-process)
    set -l last (commandline --current-token)
    shmcache completion --line $before[2..-1] $last 2> /dev/null | string split " "
end
complete --command shmcache --no-files --arguments "(__shmcache_offers)"
complete --command shmcache --force-files --condition "test -z (__shmcache_offers | string collect)"
"""
_SCRIPTS = {
    "bash": _BASH,
    "fish": _FISH,
    "zsh": "autoload -U +X bashcompinit && bashcompinit\n" + _BASH,
}
_OF_CACHE = frozenset(("get", "watch", "diff", "blame", "verify"))
"""Commands whose arguments are resources."""
_NO_FILES = 4
"""kubectl's directive for completions that are not names of files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    import argparse

    parser.usage = "shmcache completion [bash | fish | zsh]"
    parser.add_argument(
        "shell",
        nargs="?",
        choices=sorted(_SCRIPTS),
        default="bash",
        help="bash (the default), fish or zsh",
    )
    parser.add_argument("--line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    if options.line is None:
        sys.stdout.write(_SCRIPTS[options.shell])
    else:
        print(" ".join(candidates(options.line)))
    return 0


def kubectl() -> int:
    """`kubectl_complete-shmcache`: kubectl runs it to complete `kubectl shmcache ...`."""
    typed = sys.argv[1:]
    print("\n".join([*candidates(typed), f":{_NO_FILES}"]))
    return 0


def candidates(typed: list[str]) -> list[str]:
    """All arguments that may replace the last one, which may be empty or unfinished."""
    from shmcache.__main__ import COMMANDS

    before, last = typed[:-1], typed[-1] if typed else ""
    if not before:
        return list(COMMANDS)
    command, previous = before[0], before[-1]
    if command == "help":
        return [*COMMANDS, "exit-codes"]
    if command not in COMMANDS:
        return []
    if previous == "--cache":
        return _caches()
    return _options(command) if last.startswith("-") else _arguments(command, before)


def _arguments(command: str, before: list[str]) -> list[str]:
    """Arguments of a command that are not options."""
    if command == "completion":
        return sorted(_SCRIPTS)
    return _resources(before) if command in _OF_CACHE else []


def _options(command: str) -> list[str]:
    """Every option that the help of a command lists."""
    import importlib

    from shmcache.cli.arguments import Parser

    module = importlib.import_module(f"shmcache.cli.commands.{command}")
    parser = Parser(command, module.HELP)
    module.add_arguments(parser)
    return parser.options()


def _caches() -> list[str]:
    from shmcache.memory.segments import cache_names

    return cache_names()


def _resources(before: list[str]) -> list[str]:
    """Those of the cache that the line names, or of the only cache."""
    from itertools import pairwise

    from shmcache.cli.output import finding

    named = [name for option, name in pairwise(before) if option == "--cache"]
    try:
        with finding.open_cache(named[-1] if named else None) as cache:
            return list(cache.resources)
    except finding.Trouble:
        return []
