"""Pictures of benchmarks/results.json, as SVG: footprint by workers, waking, growth.

They are drawn from the numbers of the tables, and only if a run has left some; each names its run.
`python -m benchmarks.report.tables` draws them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
OURS = "#00734d"
OTHERS = ("#d62728", "#1f77b4", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#e377c2",
          "#7f7f7f", "#393b79", "#ad494a", "#637939")  # fmt: skip
WORKERS = 8
SHOWN = (1, 4)
STYLES = {1: "-", 4: "--"}
"""Of lines, by the number of sleepers that are shown."""
HALF = 50
BELOW = 23
"""Percent: labels of the second number of sleepers are lower, so that none hides another."""
SIZE = (6, 4.4)
"""Inches: small for the letters, so that they can be read on a telephone."""
DARK = """
  <style type="text/css">
   @media (prefers-color-scheme: dark) { svg { filter: invert(.88) hue-rotate(180deg) } }
  </style>
 </defs>"""
"""White becomes nearly black, and each colour keeps its hue."""

Results = dict[str, Any]
Drawing = tuple[str, str, Callable[[Any], None]]
"""Name, the question of the run, and the function that draws it."""


def draw(results: Results, place: Path) -> list[str]:
    """The names of the pictures that were drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "shmcache", "font.size": 9, "axes.grid": True,
                         "grid.alpha": 0.25, "axes.spines.top": False,
                         "axes.spines.right": False})  # fmt: skip
    from matplotlib import pyplot as plt

    place.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, question, fill in _drawings(results):
        figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
        fill(axes)
        figure.supxlabel(_source(results[question]), fontsize=7, color="#555555", x=0.01, ha="left")
        file = place / f"{name}.svg"
        figure.savefig(file, metadata={"Date": None})
        file.write_text(file.read_text().replace("\n </defs>", DARK, 1))
        plt.close(figure)
        drawn.append(name)
    return drawn


def _source(answer: dict[str, Any]) -> str:
    about = answer["machine"]
    return (
        f"{'a quick run' if answer['quick'] else 'a full run'} of commit {about['commit']} on "
        f"{about['cores']} cores of {about['cpu']}, Python {about['python']}"
    )


def _drawings(results: Results) -> Iterator[Drawing]:
    sides = [data for data in _data(results, "footprint") if "costs" in data]
    if sides:
        yield "footprint", "footprint", lambda axes: _footprint(axes, sides)
    waking = [data for data in _data(results, "wake") if "sleepers" in data and "what" in data]
    if waking:
        yield "waking", "wake", lambda axes: _waking(axes, waking)
    growth = [data for data in _data(results, "growth") if "ns" in data]
    if growth:
        yield "growth", "growth", lambda axes: _growth(axes, growth)


def _data(results: Results, question: str) -> list[dict[str, Any]]:
    rows = results.get(question, {}).get("rows", [])
    return [row["data"] for row in rows if row.get("data")]


def _footprint(axes: Any, sides: list[dict[str, Any]]) -> None:
    """A bar for each side at WORKERS workers, on a linear scale, each with its number."""
    pods = max(side.get("pods", 0) for side in sides)
    found = {
        side["side"]: cost["net"] / MIB
        for side in sides
        for cost in side["costs"]
        if side.get("pods", 0) == pods and cost["workers"] == WORKERS
    }
    ordered = sorted(found, key=lambda name: found[name], reverse=True)
    sizes = [found[name] for name in ordered]
    colours = [OURS if name == "shmcache" else "#9aa5b1" for name in ordered]
    bars = axes.barh(ordered, sizes, color=colours, height=0.7)
    axes.bar_label(bars, [f"{size:,.0f} MiB" for size in sizes], padding=4, fontsize=8)
    for label in axes.get_yticklabels():
        if label.get_text() == "shmcache":
            label.set(color=OURS, fontweight="bold")
    axes.set_xlim(right=max(sizes) * 1.12)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"MiB of {WORKERS} workers together, their imports subtracted")
    axes.set_title(f"{pods:,} pods, a field of each read in every worker", loc="left")


def _waking(axes: Any, waking: list[dict[str, Any]]) -> None:
    """Three lines for each number of sleepers; each carries its name at its end."""
    limits = set()
    for each in waking:
        sleepers = each["sleepers"]
        if sleepers not in SHOWN:
            continue
        handler = "handler" in each["what"]
        at = f"{sleepers} asleep"
        lower = BELOW if sleepers == SHOWN[-1] else 0
        _line(axes, each["ours"], f"{'handler' if handler else 'consumer'}, {at}", STYLES[sleepers],
              OTHERS[1] if handler else OURS, (78 if handler else 62) - lower)  # fmt: skip
        if sleepers not in limits:
            limits.add(sleepers)
            _line(axes, each["sem_t in C"], f"sem_t in C, {at}", STYLES[sleepers], "#777777",
                  42 - lower)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(2, 300)
    axes.set_xticks([2, 5, 10, 20, 50, 100, 200])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.axhline(HALF, color="#bbbbbb", linewidth=0.8)
    axes.set_xlabel("microseconds from publication")
    axes.set_ylabel("percent that run by then")
    axes.set_title("How soon after a change does a sleeping worker run?", loc="left")


def _line(
    axes: Any, points: list[list[float]], label: str, style: str, colour: str, at: int
) -> None:
    """A line with its label next to the point that is nearest to `at` percent."""
    percents, took = zip(*points, strict=True)
    axes.plot(took, percents, style, color=colour, linewidth=1.8)
    nearest = min(range(len(points)), key=lambda number: abs(percents[number] - at))
    axes.annotate(label, (took[nearest], percents[nearest]), xytext=(6, -4), fontsize=8,
                  textcoords="offset points", color=colour,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip


def _growth(axes: Any, growth: list[dict[str, Any]]) -> None:
    """Nanoseconds of a look-up, the dict's as well; each line carries its name at its end."""
    for name, colour, width in (("get", OURS, 3.0), ("get of a dict", "#777777", 1.6)):
        points = [(each["objects"], each["ns"][name]) for each in growth]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colour,
                  linewidth=width)  # fmt: skip
        for at in (points[0], points[-1]):
            axes.annotate(f"{at[1]:,.0f} ns", at, xytext=(0, 7), fontsize=8, color=colour,
                          textcoords="offset points", ha="center")  # fmt: skip
        axes.annotate({"get": "get from shared memory"}.get(name, name), points[-2], fontsize=9,
                      xytext=(-8, 8), textcoords="offset points", color=colour,
                      ha="right")  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("objects")
    axes.set_ylabel("nanoseconds of a look-up")
    axes.set_title("What does a look-up cost as the cache grows?", loc="left")
