"""Pictures of benchmarks/results.json, as SVG and PNG: footprint by workers, waking, growth.

    python -m benchmarks.pictures        draws what there are numbers for, into benchmarks/pictures

They are drawn from the numbers behind the tables, and only where a run has left some.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PLACE = HERE / "pictures"
MIB = 1 << 20
OURS = "#0b6e4f"
OTHERS = ("#b8b8b8", "#8d99ae", "#c9ada7", "#9a8c98", "#a5a58d", "#6b705c", "#d4a373", "#adb5bd",
          "#7f7f7f", "#bc8f8f", "#a3b18a", "#778da9")  # fmt: skip

Results = dict[str, Any]
Drawing = tuple[str, Callable[[Any], None]]


def draw(results: Results, place: Path = PLACE) -> list[str]:
    """The names of the pictures that were drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "shmcache", "font.size": 9, "axes.grid": True,
                         "grid.alpha": 0.25, "axes.spines.top": False,
                         "axes.spines.right": False})  # fmt: skip
    from matplotlib import pyplot as plt

    place.mkdir(exist_ok=True)
    drawn = []
    for name, fill in _drawings(results):
        figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
        fill(axes)
        figure.savefig(place / f"{name}.svg", metadata={"Date": None})
        figure.savefig(place / f"{name}.png", dpi=144)
        plt.close(figure)
        drawn.append(name)
    return drawn


def _drawings(results: Results) -> Iterator[Drawing]:
    sides = [data for data in _data(results, "footprint") if "costs" in data]
    if sides:
        yield "footprint", lambda axes: _footprint(axes, sides)
    waking = [data for data in _data(results, "wake") if "sleepers" in data]
    if waking:
        yield "waking", lambda axes: _waking(axes, waking)
    growth = [data for data in _data(results, "growth") if "objects" in data]
    if growth:
        yield "growth", lambda axes: _growth(axes, growth)


def _data(results: Results, question: str) -> list[dict[str, Any]]:
    rows = results.get(question, {}).get("rows", [])
    return [row["data"] for row in rows if row.get("data")]


def _footprint(axes: Any, sides: list[dict[str, Any]]) -> None:
    colours = iter(OTHERS)
    for side in sides:
        ours = side["side"] == "shmcache"
        costs = side["costs"]
        axes.plot(
            [cost["workers"] for cost in costs],
            [cost["net"] / MIB for cost in costs],
            marker="o",
            markersize=3,
            linewidth=2.6 if ours else 1.2,
            color=OURS if ours else next(colours),
            zorder=3 if ours else 2,
            label=side["side"] + (" (stopped)" if side["stopped"] else ""),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("worker processes")
    axes.set_ylabel("MiB, all processes, imports subtracted")
    axes.set_title("10,000 pods, a field of each read in every worker", loc="left")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _waking(axes: Any, waking: list[dict[str, Any]]) -> None:
    for each in waking:
        style = "-" if each["sleepers"] == 1 else "--"
        for name, colour in (("ours", OURS), ("sem_t in C", OTHERS[1])):
            percents, took = zip(*each[name], strict=True)
            label = "a Python consumer runs" if name == "ours" else "limit: sem_t in C"
            axes.plot(took, percents, style, color=colour, label=f"{label}, {each['sleepers']}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("µs from publication, by the number of sleepers")
    axes.set_ylabel("percent of wake-ups")
    axes.set_title("How soon after a change does a sleeping worker run?", loc="left")
    axes.legend(fontsize=7)


def _growth(axes: Any, growth: list[dict[str, Any]]) -> None:
    for name in sorted({key for each in growth for key in each["relative"]}):
        points = [(each["objects"], each["relative"][name]) for each in growth]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    axes.set_xscale("log")
    axes.set_xlabel("objects")
    axes.set_ylabel("against 1,000 objects")
    axes.set_title("What grows with the number of objects?", loc="left")
    axes.legend(fontsize=7)


if __name__ == "__main__":
    print("\n".join(draw(json.loads((HERE / "results.json").read_text()))))
    sys.stdout.flush()
