"""Five hundred commands of kubectl next to `shmcache get`, and next to `shmcache serve`.

    python tests/campaigns/kubectl_matrix.py --seed 7 --count 500

One API server has objects of sixty kinds, one cache holds them. Each command runs three times:
kubectl against the server, `shmcache get` against the cache, kubectl against `shmcache serve`.
Standard output and status must be equal, byte for byte; standard error, too, between the two of
kubectl. The dates of the objects are years ago, so that ages stay equal. A difference is printed
and makes the status 1, unless REASONS names it.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kubectl_commands import Words, commands
from kubectl_world import Ended, KubectlWorld, kubectl_world

import shmcache
from shmcache.reader import resolving

STATUSES = {2: 1}
"""An invalid command line is 2 at `shmcache`, 1 at kubectl."""
REASONS: tuple[tuple[str, str], ...] = (
    (r"--sort-by=\.spec\.nothing$", "kubectl prints no table if no object has the value"),
    (r"^(?!pods).*--field-selector.\S*metadata\.namespace", "the server refuses this field"),
)
"""Commands, as regular expressions, for which `shmcache get` differs, and why."""


class Difference(NamedTuple):
    """One command that ends otherwise than kubectl against the server."""

    words: Words
    where: str
    text: str


def compared(world: KubectlWorld, words: Words) -> list[Difference]:
    """The differences of one command."""
    expected = _ordered(words, world.kubectl("get", *words))
    ours = _ordered(words, world.ours("get", *words))
    served = _ordered(words, world.kubectl("get", *words, served=True))
    found = []
    if expected.out != ours.out or STATUSES.get(ours.status, ours.status) != expected.status:
        found.append(Difference(words, "get", differing(expected, ours)))
    if _timeless(expected) != _timeless(served):
        found.append(Difference(words, "serve", differing(expected, served)))
    return found


def _ordered(words: Words, ended: Ended) -> Ended:
    """The values of `..name` in order: kubectl itself prints them in a random one."""
    if not any(".." in word for word in words):
        return ended
    return ended._replace(out=" ".join(sorted(re.split(r"[\s,]+", ended.out))))


def _timeless(ended: Ended) -> Ended:
    """Without the time and the process in kubectl's own log lines."""
    return ended._replace(err=re.sub(r"(?m)^[FEWI]\d{4} [\d:.]+ +\d+ ", "", ended.err))


def differing(expected: Ended, found: Ended) -> str:
    """The differing lines."""
    lines = [f"status {expected.status} -> {found.status}"] * (expected.status != found.status)
    lines += difflib.unified_diff(
        expected.out.splitlines(), found.out.splitlines(), "kubectl", "found", lineterm="", n=1
    )
    lines += [f"kubectl's error: {expected.err.strip()}", f"the other error: {found.err.strip()}"]
    return "\n".join("    " + line for line in lines[:24])


def reason(words: Words) -> str | None:
    """Why `shmcache get` differs from kubectl for this command, where that is intended."""
    text = shlex.join(words)
    return next((why for pattern, why in REASONS if re.search(pattern, text)), None)


def main(arguments: list[str] | None = None) -> int:
    """Prints each difference; 1 if there is one without a reason."""
    parser = argparse.ArgumentParser(description="kubectl next to shmcache")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    options = parser.parse_args(arguments)
    reasons: Counter[str] = Counter()
    different = 0
    with (
        tempfile.TemporaryDirectory(prefix="kubectl-") as home,
        kubectl_world(Path(home)) as world,
    ):
        with shmcache.attach(world.cache) as cache:
            kinds = list(resolving.kinds(cache).values())
        chosen = list(commands(kinds, options.seed, options.count))
        print(world.kubectl("version", "--client").out.strip())
        print(f"{len(chosen)} commands over {len(kinds)} kinds, seed {options.seed}", flush=True)
        for words in chosen:
            for one in compared(world, words):
                why = reason(words) if one.where == "get" else None
                if why:
                    reasons[why] += 1
                    continue
                different += 1
                print(f"{one.where}: get {shlex.join(words)}\n{one.text}", flush=True)
    for why, times in reasons.items():
        print(f"{times} differ for a reason: {why}")
    print(f"{len(chosen)} commands, {different} differences without a reason")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
