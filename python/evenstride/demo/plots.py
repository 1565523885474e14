"""The plots of the report. Each is a figure of its own, which pyplot knows nothing of."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter

from evenstride.demo.noise import running_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from evenstride.demo.results import Results, Run
    from evenstride.plan import EpochPlan

__all__ = ["draw_plots"]

_DPI = 150
_WIDTH = 11.0  # Inches, of every figure.
_INK = "#303030"
_FAINT = "#d8d8d8"
_SHADES = (0.9, 0.05)  # Of viridis: light for the shortest bucket, dark for the longest.
_BINS = 80
_STEEP = 0.15  # Of the steps: the beginning, which is left out when the axis is chosen.


def draw_plots(results: Results) -> dict[str, bytes]:
    """Return the plots by name, as PNG files."""
    figures = {"lengths": _lengths(results), "epoch": _epoch(results), "loss": _loss(results)}
    return {name: _png(figure) for name, figure in figures.items()}


def _lengths(results: Results) -> Figure:
    """Draw how many samples have which length, in the colours of the buckets."""
    figure = Figure(figsize=(_WIDTH, 2.8), dpi=_DPI, layout="constrained")
    ax = figure.subplots()
    edges = results.runs[0].plan.edges
    bins = np.linspace(0, edges[-1], _BINS + 1)
    lengths = results.lengths
    by_bucket = [lengths[(lengths >= a) & (lengths < b)] for a, b in pairwise(edges)]
    ax.hist(by_bucket, bins.tolist(), stacked=True, color=list(_colours(results.runs[0].plan)))
    for edge in edges[1:-1]:
        ax.axvline(edge, color=_INK, linewidth=0.8, linestyle=":")
    ax.set_xlim(0, edges[-1])
    ax.set_xlabel("length (tokens)")
    ax.set_ylabel("functions")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _style(ax)
    _legend(figure, results.runs[0].plan)
    return figure


def _epoch(results: Results) -> Figure:
    """Draw when in the epoch the batches of each bucket come, below each other for each order."""
    figure = Figure(figsize=(_WIDTH, 1.7 * len(results.runs) + 0.7), dpi=_DPI, layout="constrained")
    for ax, run in zip(_column(figure, len(results.runs)), results.runs, strict=True):
        plan = run.plan
        num_buckets = len(plan.edges) - 1
        places = [(np.flatnonzero(plan.buckets == k) + 0.5) / len(plan) for k in range(num_buckets)]
        ax.eventplot(places, colors=list(_colours(plan)), linelengths=0.8, linewidths=1.1, zorder=2)
        for quarter in (0.25, 0.5, 0.75):
            ax.axvline(quarter, color=_FAINT, linewidth=0.8, zorder=1)
        ax.set_xlim(0, 1)
        ax.set_yticks(range(num_buckets), [_range_of(plan, k) for k in range(num_buckets)])
        ax.tick_params(axis="y", labelsize="x-small", length=0)
        ax.xaxis.set_major_formatter(PercentFormatter(1))
        ax.set_title(_epoch_title(run), loc="left", fontsize="medium", color=_INK)
        _style(ax)
    ax.set_xlabel("place in the epoch")
    return figure


def _epoch_title(run: Run) -> str:
    return (
        f"{run.order}: longest run {run.stats.longest_run}; quarters within "
        f"{100 * run.worst_quarter:.1f} points"
    )


def _loss(results: Results) -> Figure:
    """Draw the loss of each batch, in the colour of its bucket, and the running mean."""
    runs = results.runs
    figure = Figure(figsize=(_WIDTH, 4.6), dpi=_DPI, layout="constrained")
    axes = figure.subplots(1, len(runs), sharex=True, sharey=True, squeeze=False)[0]
    window = 4 * results.facts.accumulation_steps
    for ax, run in zip(axes, runs, strict=True):
        colours = _colours(run.plan)[[step.bucket for step in run.steps]]
        ax.scatter(
            range(len(run.steps)),
            [step.loss for step in run.steps],
            s=9,
            c=colours,
            linewidths=0,
            alpha=0.85,
        )
        ax.plot(*running_mean(run.steps, window), color=_INK, linewidth=1.3)
        noise = run.noise(results.facts.accumulation_steps).optimizer_step
        ax.set_title(
            f"{run.order}\nnoise between optimizer steps {_shown(noise)}",
            loc="left",
            fontsize="medium",
            color=_INK,
        )
        ax.set_xlabel("batch")
        _style(ax)
    axes[0].set_ylabel("loss (nats a byte)")
    axes[0].set_xlim(0, max(1, *(len(run.steps) for run in runs)))
    axes[0].set_ylim(*_shown_losses(runs))
    _legend(figure, runs[0].plan, Line2D([], [], color=_INK, label=f"mean of {window} batches"))
    return figure


def _shown_losses(runs: Sequence[Run]) -> tuple[float, float]:
    """Return the range of losses to show: all of them, but for the steep beginning."""
    shown = [step.loss for run in runs for step in run.steps[round(_STEEP * len(run.steps)) :]]
    if not shown:
        return 0.0, 1.0
    margin = 0.05 * (max(shown) - min(shown)) + 0.01
    return min(shown) - margin, max(shown) + margin


def _colours(plan: EpochPlan) -> NDArray[np.float64]:
    """Return a colour for each bucket, shape (n_buckets, 4)."""
    shades = np.linspace(*_SHADES, len(plan.edges) - 1)
    return np.asarray(mpl.colormaps["viridis"](shades))


def _range_of(plan: EpochPlan, bucket: int) -> str:
    return f"[{plan.edges[bucket]:,}, {plan.edges[bucket + 1]:,})"


def _legend(figure: Figure, plan: EpochPlan, *more: Line2D) -> None:
    handles = [
        Line2D([], [], color=colour, marker="o", linestyle="", label=_range_of(plan, k))
        for k, colour in enumerate(_colours(plan))
    ]
    figure.legend(
        handles=[*handles, *more],
        loc="outside lower center",
        ncols=len(handles) + len(more),
        fontsize="small",
        frameon=False,
        labelcolor=_INK,
        handletextpad=0.3,
    )


def _column(figure: Figure, count: int) -> Sequence[Axes]:
    return list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])


def _style(ax: Axes) -> None:
    ax.tick_params(colors=_INK)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_color(_INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(_FAINT)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _shown(noise: float) -> str:
    return "unknown: too few batches" if math.isnan(noise) else f"{noise:.3f}"
