"""A picture of what an epoch is on more and more ranks."""

# ruff: noqa: I001 - The first one says how to install matplotlib.

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evenstride.report import DPI, FAINT, INK, TITLE, saved, style
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from evenstride._tables import count
from evenstride.scaling import MOST_LOST

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from evenstride.scaling import Scaling

__all__ = ["plot_scaling"]


def plot_scaling(results: Sequence[Scaling], path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw what is lost to too many ranks: a line for each kind of loss, and one at a percent.

    Both axes are logarithmic, and what is nothing is not on them.

    Parameters
    ----------
    results : sequence of Scaling
        What :func:`evenstride.scaling.scale` found; at least one.
    path : path-like, optional
        Where to save the picture; its suffix says the format.

    Returns
    -------
    matplotlib.figure.Figure

    """
    figure = Figure(figsize=(9, 5.5), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    results = sorted(results, key=lambda result: result.num_replicas)
    ranks = [result.num_replicas for result in results]
    lines = {
        "more batches than on 1 rank": [r.more_batches for r in results],
        "waiting for the slowest rank": [r.waiting for r in results],
        "samples in small batches": [r.small_samples / r.samples for r in results],
    }
    for (name, shares), colour in zip(
        lines.items(), ("#d1495b", "#00798c", "#edae49"), strict=True
    ):
        ax.plot(
            ranks,
            [share if share > 0 else math.nan for share in shares],
            "o-",
            color=colour,
            label=name,
        )
    ax.axhline(MOST_LOST, color=FAINT, linewidth=2, zorder=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(ranks, [count(number) for number in ranks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("ranks")
    ax.set_title(
        f"{count(results[0].samples)} samples in {results[0].num_buckets} buckets", **TITLE
    )
    ax.legend(frameon=False, labelcolor=INK, loc="upper left")
    style([ax])
    return saved(figure, path)
