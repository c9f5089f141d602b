"""Pictures of benchmarks/results.json, as SVG and PNG: footprint by workers, waking, growth.

They are drawn from the numbers behind the tables, and only where a run has left some; each says
which run that was. `python -m benchmarks.tables` draws them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
OURS = "#00734d"
OTHERS = ("#d62728", "#1f77b4", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#e377c2",
          "#7f7f7f", "#393b79", "#ad494a", "#637939")  # fmt: skip
MARKS = "sDv^<>Pxd*ph"
STYLES = {1: "-", 4: "--", 16: ":"}
"""Of lines, by the number of sleepers."""
HALF = 50

Results = dict[str, Any]
Drawing = tuple[str, str, Callable[[Any], None]]
"""Name, the question whose run it is drawn from, and who draws it."""


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
        figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
        fill(axes)
        figure.supxlabel(_source(results[question]), fontsize=7, color="#555555", x=0.01, ha="left")
        figure.savefig(place / f"{name}.svg", metadata={"Date": None})
        figure.savefig(place / f"{name}.png", dpi=144)
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
    growth = [data for data in _data(results, "growth") if "objects" in data]
    if growth:
        yield "growth", "growth", lambda axes: _growth(axes, growth)


def _data(results: Results, question: str) -> list[dict[str, Any]]:
    rows = results.get(question, {}).get("rows", [])
    return [row["data"] for row in rows if row.get("data")]


def _beside(axes: Any) -> None:
    """The legend where no line runs."""
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _footprint(axes: Any, sides: list[dict[str, Any]]) -> None:
    """The most expensive side stands first in the legend, as it does in the picture."""
    pods = max(side.get("pods", 0) for side in sides)
    asked = [side for side in sides if side.get("pods", 0) == pods]
    looks = zip(OTHERS, MARKS, strict=True)
    for side in sorted(asked, key=_most, reverse=True):
        ours = side["side"] == "shmcache"
        colour, mark = (OURS, "o") if ours else next(looks)
        costs = side["costs"]
        axes.plot(
            [cost["workers"] for cost in costs],
            [cost["net"] / MIB for cost in costs],
            marker=mark,
            markersize=4,
            linewidth=3 if ours else 1.3,
            color=colour,
            zorder=3 if ours else 2,
            label=side["side"],
        )
        if side["stopped"]:
            axes.annotate("stopped", (costs[-1]["workers"], costs[-1]["net"] / MIB), fontsize=7,
                          xytext=(5, 0), textcoords="offset points", va="center")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("worker processes")
    axes.set_ylabel("MiB of all processes, their imports subtracted")
    axes.set_title(
        f"{pods:,} pods, a field of each read in every worker" if pods else "", loc="left"
    )
    _beside(axes)


def _most(side: dict[str, Any]) -> float:
    """What a worker costs in the end."""
    last = side["costs"][-1]
    return float(last["net"] / last["workers"])


def _waking(axes: Any, waking: list[dict[str, Any]]) -> None:
    limits = set()
    for each in waking:
        sleepers = each["sleepers"]
        style, asleep = STYLES.get(sleepers, "-."), f"{sleepers} asleep"
        colour = OURS if "consumer" in each["what"] else OTHERS[1]
        _line(axes, each["ours"], f"{each['what']}, {asleep}", style, colour)
        if sleepers not in limits:
            limits.add(sleepers)
            _line(axes, each["sem_t in C"], f"limit: sem_t in C, {asleep}", style, "#888888")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axhline(HALF, color="#bbbbbb", linewidth=0.8)
    axes.set_xlabel("microseconds from publication")
    axes.set_ylabel("percent that run by then")
    axes.set_title("How soon after a change does a sleeping worker run?", loc="left")
    _beside(axes)


def _line(axes: Any, points: list[list[float]], label: str, style: str, colour: str) -> None:
    percents, took = zip(*points, strict=True)
    axes.plot(took, percents, style, color=colour, label=label, linewidth=1.6)


def _growth(axes: Any, growth: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(key for each in growth for key in each["relative"]))
    peers = zip(OTHERS, MARKS, strict=True)
    for name in names:
        points = [
            (each["objects"], each["relative"][name]) for each in growth if name in each["relative"]
        ]
        colour, mark = (OURS, "o") if name == "get" else next(peers)
        width = 3 if name == "get" else 1.6
        axes.plot(*zip(*points, strict=True), marker=mark, markersize=4, color=colour,
                  linewidth=width, label=name)  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g} ×")
    axes.set_xlabel("objects")
    axes.set_ylabel(f"against {min(each['objects'] for each in growth):,} objects")
    axes.set_title("What grows with the number of objects?", loc="left")
    _beside(axes)
