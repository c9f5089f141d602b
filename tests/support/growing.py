"""How the work of a parser grows with its input, measured without any absolute time.

Each parser reads an input that doubles four times, and the CPU time that it takes may grow only as
the input does: 16 times the input costs 16 times the work where the parser is linear, 256 times
where it is quadratic, and an exponential one fails at the first doublings.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

DOUBLINGS = 4
GREATEST = 64.0
"""Of the work for 16 times the input: 16 where it is linear, 256 where it is quadratic."""
SHORT = 1e-3
"""CPU seconds below which the clock and the fixed parts of a call decide, not its input."""

Parser = Callable[[int], Callable[[], object]]
"""Makes an input of about so many bytes, and returns the call that reads it."""


def cost(call: Callable[[], object], refusals: tuple[type[Exception], ...]) -> float:
    """CPU seconds of one call: the least of several, since others use the machine as well.

    Without the garbage collector, whose work depends on all other objects of the process.
    """
    gc.collect()
    gc.disable()
    try:
        return _least(call, refusals)
    finally:
        gc.enable()


def _least(call: Callable[[], object], refusals: tuple[type[Exception], ...]) -> float:
    found = []
    for _ in range(5):
        begun = time.thread_time()
        try:
            call()
        except refusals:
            pass
        found.append(time.thread_time() - begun)
        if len(found) > 1 and found[-1] > 0.2:
            break
    return min(found)


def growth(
    parser: Parser, refusals: tuple[type[Exception], ...] = (ValueError,), least: int = 1 << 5
) -> tuple[float, list[float]]:
    """By how much the work grows over all doublings, beginning where it can be measured."""
    costs = [SHORT]
    while least < 1 << 20:
        found = cost(parser(least), refusals)
        if found >= SHORT:
            costs[1:] = [found]
            costs[0] = found if found < SHORT * GREATEST else SHORT
            break
        least *= 2
    else:
        return 1.0, []  # a mebibyte costs next to nothing
    for doubling in range(1, DOUBLINGS + 1):
        if costs[-1] >= costs[0] * GREATEST:
            break  # an exponential parser would never finish the next one
        costs.append(cost(parser(least << doubling), refusals))
    whole = costs[-1] / costs[0]
    if len(costs) < 4:
        return whole, costs
    last = costs[-1] / costs[-3]  # two doublings; a cache may have helped with the first inputs
    return min(whole, last**2), costs
