"""Whether a cache is as it should be, as an exit status: for probes of containers, and scripts.

    python -m shmcache.integrations.probe --full NAME      0: every first list is stored
    python -m shmcache.integrations.probe --alive NAME     0: its reflector does its duties

1 says why not, in one line; so a sidecar is ready when `--full` is, and is to be restarted when
`--alive` is not. An API server that cannot be reached is no reason to restart a reflector, which
goes on trying and serves what it has: neither asks how old the content is.
"""

from __future__ import annotations

import argparse
import sys
import time

import shmcache
from shmcache import waiting
from shmcache._native import ffi, lib

ALIVE_SECONDS = 30.0
"""A reflector tends its cache four times a second."""


def missing(cache: shmcache.Cache) -> str:
    """Which resources are not listed yet, and why; empty if all are."""
    lacking = [name for name in cache.resources if not cache[name].synced]
    return "; ".join(f"{name}: {cache[name].status}" for name in lacking)


def silence(cache: shmcache.Cache) -> float:
    """Seconds since the writer did its duties last."""
    held = waiting.attachment(cache.reader)
    info = ffi.new("struct shmc_data_info *")
    held.use()
    try:
        lib.shmc_data_info(held.segments.data, info)
    finally:
        held.leave()
    beat = int(info.heartbeat_ns)
    return (time.monotonic_ns() - beat) / 1e9 if beat else 0.0  # it has just begun


def verdict(name: str | None, *, full: bool, alive: bool) -> str:
    """What is wrong; empty if nothing is."""
    try:
        with shmcache.attach(name) as cache:
            if full and (found := missing(cache)):
                return found
            if alive and silence(cache) > ALIVE_SECONDS:
                return f"the reflector did nothing for {silence(cache):.0f} s"
    except shmcache.ShmCacheError as error:
        return str(error)
    return ""


def main(words: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="shmcache.integrations.probe")
    parser.add_argument("name", nargs="?", help="of the cache (or SHMCACHE_NAME)")
    parser.add_argument("--full", action="store_true", help="every first list is stored")
    parser.add_argument("--alive", action="store_true", help="the reflector does its duties")
    options = parser.parse_args(words)
    found = verdict(options.name, full=options.full, alive=options.alive)
    if found:
        sys.stderr.write(found + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
