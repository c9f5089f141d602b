"""`shmcache completion bash|zsh`: completes commands, resources and names of caches.

source <(shmcache completion bash)
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "Prints a completion script for a shell; use it with: source <(shmcache completion bash)"

_BASH = """\
_shmcache() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} found=
    if [ "$COMP_CWORD" = 1 ]; then found=$(shmcache completion --words commands)
    elif [ "$prev" = --cache ]; then
        found=$(shmcache completion --words caches)
    else case ${COMP_WORDS[1]} in
        get|watch) found=$(shmcache completion --words resources) ;;
        completion) found="bash zsh" ;;
    esac; fi
    COMPREPLY=($(compgen -W "$found" -- "$cur"))
}
complete -o default -F _shmcache shmcache
"""
_SCRIPTS = {"bash": _BASH, "zsh": "autoload -U +X bashcompinit && bashcompinit\n" + _BASH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    import argparse

    parser.usage = "shmcache completion [bash | zsh]"
    parser.add_argument(
        "shell",
        nargs="?",
        choices=sorted(_SCRIPTS),
        default="bash",
        help="bash (the default) or zsh",
    )
    parser.add_argument(
        "--words", choices=["commands", "caches", "resources"], help=argparse.SUPPRESS
    )


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    if options.words is None:
        sys.stdout.write(_SCRIPTS[options.shell])
    else:
        print(" ".join(_words(options.words)))
    return 0


def _words(what: str) -> list[str]:
    if what == "commands":
        from shmcache.__main__ import COMMANDS

        return list(COMMANDS)
    from shmcache.cli.output import finding
    from shmcache.memory.segments import cache_names

    if what == "caches":
        return cache_names()
    try:
        with finding.open_cache(None) as cache:
            return list(cache.resources)
    except finding.Trouble:
        return []
