"""Draws the chart of docs/experiment.md from benchmarks/results/training_effect.json.

The image names the results that it is made of, so that a test sees where it is out of date.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from evenstride.compare import ORDERS
from experiment import RESULTS, ROOT, Experiment, loss_noise, norm_share, validation

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from experiment import Measure
    from intervals import Interval

CHART = ROOT / "docs" / "images" / "training_effect.png"

INK = "#303030"
FAINT = "#d8d8d8"
ACCENT = "#3b528b"

PANELS: dict[str, Measure] = {
    "validation loss,\nless that of stride": validation,
    "between-bucket share of the gradient\nnorm's variance, optimizer steps": norm_share(
        "optimizer_step"
    ),
    "loss noise (nats),\noptimizer steps": loss_noise("optimizer_step"),
}


def draw(results: Path, chart: Path) -> None:
    """Draw a panel for each measure: every order's mean, and its 95 % interval."""
    experiment = Experiment.load(results)
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for ax, (title, measure) in zip(axes, PANELS.items(), strict=True):
        if measure is validation:
            panel(ax, [experiment.against(order, "stride", measure) for order in ORDERS])
            ax.axvline(0, color=INK, linewidth=0.8)
        else:
            panel(ax, [experiment.of(order, measure) for order in ORDERS])
            ax.set_xlim(left=0)
        ax.set_title(title, loc="left", fontsize="small", color=INK)
    axes[0].set_yticks(range(len(ORDERS)), ORDERS)
    axes[0].invert_yaxis()
    chart.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(chart, metadata={"Source": digest(results), "Software": None})


def panel(ax: Axes, intervals: list[Interval]) -> None:
    """Draw intervals below each other."""
    ax.errorbar(
        [one.mean for one in intervals],
        range(len(intervals)),
        xerr=[one.half for one in intervals],
        fmt="o",
        color=ACCENT,
        markersize=4.5,
        linewidth=1.3,
        capsize=2.5,
    )
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)


def digest(results: Path) -> str:
    """Return what names the contents of a results file."""
    return hashlib.sha256(results.read_bytes()).hexdigest()


if __name__ == "__main__":
    draw(RESULTS, CHART)
