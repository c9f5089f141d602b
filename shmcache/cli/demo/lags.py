"""Counts of lags in narrow buckets: added up over processes, shown as a histogram.

A bucket is an eighth of a doubling: quantiles are exact to nine percent, however long the run.
"""

from __future__ import annotations

import math

STEPS = 8
EDGES = (0.5, 1, 2, 5, 10, 20, 50, 100)
"""Upper bounds of the histogram's columns in milliseconds; the last column has the rest."""
BLOCKS = " ▁▂▃▄▅▆▇█"
CELL = 8


class Lags:
    """How many events had which lag."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, nanoseconds: int) -> None:
        """One event."""
        bucket = int(math.log2(max(nanoseconds, 1000) / 1000) * STEPS)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def merge(self, counts: dict[int, int]) -> None:
        """The events of another process."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def __len__(self) -> int:
        return sum(self.counts.values())

    def quantile(self, part: float) -> float:
        """Milliseconds that this part of the events did not exceed; 0.0 without events."""
        left = part * len(self)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return _upper(bucket)
        return 0.0

    def columns(self) -> list[int]:
        """The events between one edge and the next."""
        found = [0] * (len(EDGES) + 1)
        for bucket, count in self.counts.items():
            column = next((n for n, edge in enumerate(EDGES) if _upper(bucket) <= edge), len(EDGES))
            found[column] += count
        return found

    def picture(self) -> list[str]:
        """Three lines: bars, upper bounds, shares."""
        columns, total = self.columns(), max(len(self), 1)
        most = max(*columns, 1)
        bars = [BLOCKS[math.ceil(8 * count / most)] * (CELL - 2) for count in columns]
        titles = [*(f"≤ {edge:g}" for edge in EDGES), f"> {EDGES[-1]:g}"]
        shares = [_percent(count / total) for count in columns]
        first, second, third = (
            "".join(f"{cell:>{CELL}}" for cell in row) for row in (bars, titles, shares)
        )
        return [first, f"{second} ms", third]


def _upper(bucket: int) -> float:
    """The largest lag of a bucket in milliseconds."""
    return float(2 ** ((bucket + 1) / STEPS) / 1000)


def _percent(share: float) -> str:
    if not share:
        return "-"
    return "<0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
