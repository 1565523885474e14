"""Pictures of epoch plans."""

from __future__ import annotations

import math
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import matplotlib as mpl
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
except ImportError as error:
    _MESSAGE = "Pictures need matplotlib: pip install 'evenstride[plot]'."
    raise ImportError(_MESSAGE, name=error.name) from error

from evenstride._tables import counted
from evenstride.picture_data import (
    bucket_name,
    histogram_of,
    shares_of,
    step_labels,
    strip_of,
)
from evenstride.picture_labels import placed
from evenstride.tune import kind_of, on_front

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

    from evenstride.plan import EpochPlan
    from evenstride.tune import Candidate

__all__ = ["plot_compare", "plot_plan", "plot_tuning"]

DPI = 150
_SLICES = 50
_FINE_SLICES = 400
_BINS = 60
_COLUMNS = 600  # Of a strip, about as many as its pixels.
_MOST_ROWS = 200
_FIRST_STEPS = 100
_MOST_IN_LEGEND = 12
_MARKS = "osD^vPX"
_SIZE, _RING = 45, 190  # Areas of marks, in square points.
_LEAST = 1e-6  # What is nothing has no place on a logarithmic axis.
INK = "#303030"
FAINT = "#d0d0d0"
TITLE: dict[str, Any] = {"loc": "left", "fontsize": "medium", "color": INK}


def plot_plan(plan: EpochPlan, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw an epoch: where the steps of each bucket come, how wide and how full the batches are.

    Parameters
    ----------
    plan : EpochPlan
        What to draw.
    path : path-like, optional
        Where to save the picture; its suffix says the format.

    Returns
    -------
    matplotlib.figure.Figure
        A figure of its own, which pyplot knows nothing of.

    Raises
    ------
    ValueError
        If matplotlib does not know the format.

    """
    figure = Figure(figsize=(11, 9), dpi=DPI, layout="constrained")
    rows: list[Any] = [["strip", "start"], ["shares", "shares"], ["widths", "fills"]]
    axes = figure.subplot_mosaic(rows, height_ratios=[2, 3, 3])
    palette = _Palette(plan)
    labels = step_labels(plan)
    budget = plan.options["token_budget"]

    _draw_strip(axes["strip"], labels, palette)
    _draw_start(axes["start"], labels[:_FIRST_STEPS], palette)
    axes["start"].set_title("The first steps, one by one", **TITLE)
    axes["start"].set_xlabel("step")
    _draw_shares(axes["shares"], labels, palette, _SLICES)
    axes["shares"].set_title(f"Share of each bucket in {min(_SLICES, len(labels))} slices", **TITLE)
    axes["shares"].set_ylabel("share of the steps")
    for name in ("strip", "shares"):
        axes[name].set_xlabel("place in the epoch")
    _draw_histogram(axes["widths"], plan, plan.widths.astype(np.float64), palette)
    axes["widths"].set_title("Width of the batches", **TITLE)
    axes["widths"].set_xlabel("width (tokens)")
    _count_along(axes["widths"].xaxis)
    _draw_histogram(axes["fills"], plan, plan.padded_tokens / budget, palette)
    axes["fills"].set_title("How full the batches are", **TITLE)
    axes["fills"].set_xlabel(f"padded tokens / token budget of {budget:,}")
    axes["fills"].xaxis.set_major_formatter(PercentFormatter(1))
    style(axes.values())
    figure.suptitle(_summary(plan), color=INK)
    palette.explain(figure, [*axes.values()])
    return saved(figure, path)


def plot_compare(
    plans: Mapping[str, EpochPlan], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw epochs of the same lengths below each other: their bucket mix from beginning to end.

    Parameters
    ----------
    plans : mapping of str to EpochPlan
        The plans by the names of their orders; at least one. They have the same buckets.
    path : path-like, optional
        As for :func:`plot_plan`.

    Returns
    -------
    matplotlib.figure.Figure
        As from :func:`plot_plan`.

    Raises
    ------
    ValueError
        If there is no plan, or matplotlib does not know the format.

    """
    if not plans:
        msg = "`plans` must have at least 1 plan, but has 0."
        raise ValueError(msg)
    figure = Figure(figsize=(13, 1.8 + 0.72 * len(plans)), dpi=DPI, layout="constrained")
    axes = figure.subplots(len(plans), 2, squeeze=False, sharex="col", width_ratios=[5, 2])
    palette = _Palette(next(iter(plans.values())))
    for (mix, start), (order, plan) in zip(axes, plans.items(), strict=True):
        labels = step_labels(plan)
        _draw_shares(mix, labels, palette, _FINE_SLICES)
        mix.set_yticks([])
        mix.set_ylabel(
            f"{order}\nlongest run {_longest_run(labels):,}",
            rotation=0,
            ha="right",
            va="center",
            fontsize="small",
            color=INK,
        )
        _draw_start(start, labels[:_FIRST_STEPS], palette)
    axes[0, 0].set_title("Share of each bucket in the steps, over the epoch", **TITLE)
    axes[0, 1].set_title("The first steps, one by one", **TITLE)
    axes[-1, 0].set_xlabel("place in the epoch")
    axes[-1, 1].set_xlabel("step")
    style(axes.flat)
    palette.explain(figure, [*axes.flat])
    return saved(figure, path)


def plot_tuning(
    candidates: Sequence[Candidate],
    choice: Candidate,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw padding against diversity: a mark a candidate, and a line along the Pareto front.

    Both axes are logarithmic.

    Parameters
    ----------
    candidates : sequence of Candidate
        What :func:`evenstride.tune.tune` found; at least one.
    choice : Candidate
        The one to point out.
    path : path-like, optional
        As for :func:`plot_plan`.

    Returns
    -------
    matplotlib.figure.Figure
        As from :func:`plot_plan`.

    """
    figure = Figure(figsize=(9, 6), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    best = [c for c, front in zip(candidates, on_front(candidates), strict=True) if front]
    best.sort(key=lambda c: c.padding_efficiency)
    ax.plot(*_figures(best), color=FAINT, linewidth=4, zorder=1, label="Pareto front")
    kinds: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        kinds.setdefault(kind_of(candidate), []).append(candidate)
    shades = mpl.colormaps["viridis"](np.linspace(0.92, 0.04, len(kinds)))
    for (kind, some), colour, mark in zip(kinds.items(), shades, cycle(_MARKS), strict=False):
        ax.scatter(*_figures(some), s=_SIZE, color=colour, marker=mark, label=kind, zorder=2)
    ax.scatter(
        *_figures([choice]),
        s=_RING,
        facecolors="none",
        edgecolors=INK,
        linewidths=1.5,
        label="recommended",
        zorder=3,
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("padding: 100% less the padding efficiency")
    ax.set_ylabel("diversity: share of all samples that companions are drawn from")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        axis.set_minor_formatter(NullFormatter())
    ax.set_title("Up and to the left is better; a number is that of the buckets", **TITLE)
    ax.legend(frameon=False, labelcolor=INK, loc="lower right")
    style([ax])
    _label(figure, ax, candidates, choice)
    return saved(figure, path)


def _label(figure: Figure, ax: Axes, candidates: Sequence[Candidate], choice: Candidate) -> None:
    """Write the number of buckets beside each mark that has one."""
    ordered = sorted(candidates, key=lambda c: "buckets" not in c.options)
    texts = [str(c.options["buckets"]) for c in candidates if "buckets" in c.options]
    figure.draw_without_rendering()  # Only now is it known where the marks are.
    pixels = ax.transData.transform([_place(candidate) for candidate in ordered])
    marks = [(x, y) for x, y in (pixels * 72 / figure.dpi).tolist()]
    halves = [math.sqrt(_RING if c is choice else _SIZE) / 2 for c in ordered]
    for candidate, text, label in zip(ordered, texts, placed(marks, halves, texts), strict=False):
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        ax.annotate(
            text,
            _place(candidate),
            (label.x, label.y),
            textcoords="offset points",
            arrowprops=None if label.is_near else line,
            ha="center",
            va="center",
            fontsize="x-small",
            color=INK,
        ).set_in_layout(False)  # Or the marks would move.


def _figures(candidates: Sequence[Candidate]) -> tuple[list[float], list[float]]:
    x, y = zip(*map(_place, candidates), strict=True)
    return list(x), list(y)


def _place(candidate: Candidate) -> tuple[float, float]:
    return max(_LEAST, 1 - candidate.padding_efficiency), max(_LEAST, candidate.diversity)


class _Palette:
    """A colour for each bucket, from light for the shortest to dark for the longest."""

    def __init__(self, plan: EpochPlan) -> None:
        self._edges = plan.edges.tolist()
        self.num_buckets = len(self._edges) - 1
        shades = np.linspace(0.96, 0.04, self.num_buckets) if self.num_buckets > 1 else [0.5]
        self.colours = mpl.colormaps["viridis"](np.asarray(shades))

    def for_images(self) -> dict[str, Any]:
        """Return what `Axes.imshow` needs to draw buckets."""
        return {
            "cmap": ListedColormap(self.colours),
            "vmin": -0.5,
            "vmax": self.num_buckets - 0.5,
            "aspect": "auto",
            "interpolation": "nearest",
        }

    def explain(self, figure: Figure, axes: list[Axes]) -> None:
        """Say below the picture which colour is which bucket."""
        title = "bucket: lengths (tokens)"
        if self.num_buckets <= _MOST_IN_LEGEND:
            handles = [
                Patch(color=colour, label=bucket_name(self._edges, k))
                for k, colour in enumerate(self.colours)
            ]
            figure.legend(
                handles=handles,
                loc="outside lower center",
                ncols=min(6, self.num_buckets),
                title=title,
                frameon=False,
                labelcolor=INK,
            )
            return
        norm = BoundaryNorm(range(self.num_buckets + 1), self.num_buckets)
        mappable = ScalarMappable(norm, ListedColormap(self.colours))
        bar = figure.colorbar(mappable, ax=axes, location="bottom", aspect=80, fraction=0.03)
        ticks = np.unique(np.linspace(0, self.num_buckets, 9).round().astype(int))
        bar.set_ticks([*ticks], labels=[str(self._edges[tick]) for tick in ticks])
        bar.set_label(f"edges of the {self.num_buckets:,} buckets (tokens)", color=INK)


def _draw_strip(ax: Axes, labels: NDArray[np.int16], palette: _Palette) -> None:
    """Draw step after step, column by column."""
    strip = strip_of(labels, _COLUMNS, _MOST_ROWS)
    image = np.ma.masked_less(strip.image, 0)
    ax.imshow(image, extent=(0, image.size / strip.shown, 1, 0), **palette.for_images())
    ax.set_xlim(0, 1)
    ax.set_yticks([])
    ax.set_title(strip.reading, **TITLE)
    ax.xaxis.set_major_formatter(PercentFormatter(1))


def _draw_start(ax: Axes, labels: NDArray[np.int16], palette: _Palette) -> None:
    """Draw some steps, one by one."""
    ax.imshow(labels[None], extent=(0, len(labels), 0, 1), **palette.for_images())
    ax.set_yticks([])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def _longest_run(labels: NDArray[np.int16]) -> int:
    ends = np.flatnonzero(np.diff(labels, append=-1))
    return int(np.diff(ends, prepend=-1).max())


def _draw_shares(ax: Axes, labels: NDArray[np.int16], palette: _Palette, most: int) -> None:
    """Draw each bucket's share of the steps of each slice of the epoch, stacked."""
    shares, bounds = shares_of(labels, palette.num_buckets, most)
    _stack(ax, shares, bounds, palette)
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    ax.yaxis.set_major_formatter(PercentFormatter(1))


def _draw_histogram(
    ax: Axes, plan: EpochPlan, values: NDArray[np.float64], palette: _Palette
) -> None:
    """Draw how many batches have which value, stacked by bucket."""
    heights, bounds = histogram_of(plan, values, _BINS)
    _stack(ax, heights, bounds, palette, headroom=1.05)
    ax.set_ylabel("batches")
    _count_along(ax.yaxis)


def _count_along(axis: Axis) -> None:
    axis.set_major_locator(MaxNLocator(integer=True, nbins="auto", steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _stack(
    ax: Axes,
    heights: NDArray[np.float64],
    bounds: NDArray[np.float64],
    palette: _Palette,
    headroom: float = 1.0,
) -> None:
    """Draw rows of `heights` on top of each other, the first at the bottom."""
    tops = heights.cumsum(axis=0)
    shown = heights > 0
    left, right = (
        np.broadcast_to(side, heights.shape)[shown] for side in (bounds[:-1], bounds[1:])
    )
    low, high = (tops - heights)[shown], tops[shown]
    corners = [(left, low), (left, high), (right, high), (right, low)]
    ax.add_collection(
        PolyCollection(
            list(np.moveaxis(np.array(corners), 2, 0)),
            facecolors=palette.colours[np.nonzero(shown)[0]],
            linewidths=0,
            antialiased=False,  # Or the background would shine through between two of them.
        ),
        autolim=False,
    )
    ax.set_xlim(bounds[0], bounds[-1])
    ax.set_ylim(0, tops[-1].max() * headroom)


def style(axes: Iterable[Axes]) -> None:
    """Give axes the looks of all pictures."""
    for ax in axes:
        ax.tick_params(colors=INK, length=3)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(FAINT)


def _summary(plan: EpochPlan) -> str:
    batches = counted(plan.num_replicas, "batch", "batches")
    efficiency = float(plan.tokens.sum()) / float(plan.padded_tokens.sum())
    options = plan.options
    how = f"order {options['order']}, composition {options['composition']}"
    if not options["shuffle"]:
        how = "sorted, longest first"
    return (
        f"Epoch {plan.epoch}: {counted(plan.num_steps, 'step')} of {batches}, {how}, "
        f"padding efficiency {100 * efficiency:.1f} %"
    )


def saved(figure: Figure, path: str | os.PathLike[str] | None) -> Figure:
    """Return a figure, and save it if there is a path."""
    if path is not None:
        figure.savefig(path)
    return figure
