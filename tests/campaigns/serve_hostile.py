"""`shmcache serve` under clients that are slow or greedy in every way of tests/support/hostile.py.

Run by `make hostile`: HOSTILE="--connections 4096 --seconds 60 --clients 64". Two questions:

    memory    how much more the process needs than when idle while so many connections misbehave,
              for each way and for all of them together; at most LIMIT
    others    how long a well-behaved client waits for a GET while 64 hostile clients without a
              token do their worst: p99 against the quiet p99, and no probe is ever refused
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

import hostile

LIMIT = 64 << 20
RATIO = 10.0
QUIET_SECONDS = 5.0


def misbehave(port: int, ways: list[str], count: int, seconds: float) -> None:
    """Clients in a process of their own, whose work must not take the CPU from the others."""
    os.nice(19)
    with hostile.Crowd(port, ways, count) as crowd:
        crowd.pump(seconds)


def _why(refused: list[str]) -> str:
    """The different reasons, as far as there are any."""
    return f" ({'; '.join(sorted(set(refused)))})" if refused else ""


def memory(ways: list[str], count: int, seconds: float) -> bool:
    """Prints the cost of each way; returns whether it is within the limit."""
    flags = [flag for way in ways for flag in hostile.WAYS[way].flags]
    with hostile.target(*flags, pods=10_000) as target, hostile.Others(target.port) as others:
        cost = hostile.cost(target, ways, count, seconds)
    beyond = cost.peak - cost.idle
    refused = [one for one in others.refused if one.startswith("probe")]
    name = ways[0] if len(ways) == 1 else "all of them"
    print(f"{name:36} {beyond / (1 << 20):7.1f} MiB beyond idle, {cost.ended} ended, "
          f"{len(others.probes)} probes, {len(refused)} refused{_why(refused)}",
          flush=True)  # fmt: skip
    return beyond <= LIMIT and not refused


def others(ways: list[str], clients: int, seconds: float) -> bool:
    """Prints how long others wait; returns whether that is short enough."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens"
        tokens.write_text("secret,ann\n")
        with hostile.target("--tokens", str(tokens)) as target:
            with hostile.Others(target.port, "secret") as quiet:
                time.sleep(QUIET_SECONDS)
            spawn = multiprocessing.get_context("spawn")
            crowd = spawn.Process(target=misbehave, args=(target.port, ways, clients, seconds + 2))
            crowd.start()
            time.sleep(1.0)
            with hostile.Others(target.port, "secret") as disturbed:
                time.sleep(seconds)
            crowd.join()
    ratio = disturbed.p99() / quiet.p99()
    name = ways[0] if len(ways) == 1 else "all of them"
    print(f"{name:36} GET p99 {disturbed.p99() * 1e3:6.2f} ms, quiet {quiet.p99() * 1e3:5.2f} ms: "
          f"{ratio:4.1f} times, {len(disturbed.waits)} GETs; {len(disturbed.probes)} probes, "
          f"slowest {max(disturbed.probes) * 1e3:.0f} ms; {len(disturbed.refused)} refused"
          f"{_why(disturbed.refused)}",
          flush=True)  # fmt: skip
    return ratio <= RATIO and not disturbed.refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=4096)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--way", action="append", choices=list(hostile.WAYS))
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ways = asked.way or list(hostile.WAYS)
    plain = [way for way in ways if way in hostile.PLAIN]
    groups = [[way] for way in ways] + ([plain] if len(plain) > 1 else [])
    fine = [memory(group, asked.connections, asked.seconds) for group in groups]
    guarded = [way for way in ways if way in hostile.GUARDED]
    groups = [[way] for way in guarded] + ([guarded] if len(guarded) > 1 else [])
    fine += [others(group, asked.clients, asked.seconds) for group in groups]
    print(f"{sum(fine)} of {len(fine)} within their limits")
    os._exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
