"""The report: a page that needs nothing beside it, the plots, and all numbers as JSON."""

from __future__ import annotations

import json
import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenstride._tables import aligned, count, number, percent
from evenstride.demo.screen import say
from evenstride.demo.words import findings, introduction, method
from evenstride.pages import Markup, element, figure, page, paragraphs, png_uri, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from evenstride.demo.results import Results, Run

__all__ = ["results_table", "write_report"]

_COLUMNS = (
    "order",
    "batches",
    "longest run",
    "quarter",
    "real tokens",
    "tokens/s",
    "data wait",
    "batch noise",
    "step noise",
    "validation",
)

_CAPTIONS = {
    "lengths": "Lengths of the functions, and where the edges of the buckets are.",
    "epoch": (
        "When in the epoch the batches of each bucket come: one mark a batch, one row a bucket. "
        "Grey lines divide the quarters."
    ),
    "loss": (
        "The loss of every batch, in the colour of its bucket, and the running mean. All plots "
        "have the same axes; the steep beginning is above them."
    ),
}


def results_table(results: Results) -> str:
    """Return a row of numbers for each run, as text."""
    return "\n".join(aligned(_COLUMNS, _rows(results), left=1))


def write_report(results: Results, output: Path) -> Path:
    """Write page, plots and numbers into a folder, and return the path of the page.

    Without matplotlib there are no plots, and a line on the screen says so.
    """
    output.mkdir(parents=True, exist_ok=True)
    plots = _plots(results)
    for name, png in plots.items():
        (output / f"{name}.png").write_bytes(png)
    numbers = {**results.to_dict(), "steps": {run.order: _steps(run) for run in results.runs}}
    text = json.dumps(numbers, indent=1, allow_nan=False)
    (output / "report.json").write_text(text + "\n", encoding="utf-8")
    path = output / "report.html"
    path.write_text(_page(results, plots), encoding="utf-8")
    return path


def _plots(results: Results) -> dict[str, bytes]:
    with _no_note_of_fonts():
        try:
            from evenstride.demo.plots import draw_plots  # noqa: PLC0415 - An extra.
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "matplotlib":
                raise
            say("\nThere are no plots, since matplotlib is missing: pip install 'evenstride[plot]'")
            return {}
        return draw_plots(results)


@contextmanager
def _no_note_of_fonts() -> Iterator[None]:
    """Keep matplotlib from announcing, on its first use, that it lists the machine's fonts."""
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _rows(results: Results) -> list[list[str]]:
    rows = []
    for run in results.runs:
        noise = run.noise(results.facts.accumulation_steps)
        done = f"{len(run.steps):,} of " if len(run.steps) < run.stats.steps else ""
        rows.append(
            [
                run.order,
                f"{done}{run.stats.steps:,}",
                count(run.stats.longest_run),
                f"{100 * run.worst_quarter:.1f} points",
                percent(run.stats.padding_efficiency),
                "-" if math.isnan(run.tokens_per_second) else count(round(run.tokens_per_second)),
                _wait(run),
                number(noise.batch, 3),
                number(noise.optimizer_step, 3),
                number(run.validation_loss, 3),
            ]
        )
    return rows


def _wait(run: Run) -> str:
    if math.isnan(run.waited_share):
        return "-"
    return f"{1e3 * run.waited_s:.1f} ms, {100 * run.waited_share:.2f}%"


def _steps(run: Run) -> dict[str, list[float]]:
    """Return the steps of a run, column by column."""
    return {
        "bucket": [step.bucket for step in run.steps],
        "tokens": [step.tokens for step in run.steps],
        "loss": [step.loss for step in run.steps],
    }


def _page(results: Results, plots: dict[str, bytes]) -> str:
    plans = [_plan_of(run, unfolded=run is results.runs[0]) for run in results.runs]
    return page(
        "Three orders of an epoch",
        element("h1", "Three orders of an epoch"),
        paragraphs([introduction(results.facts)]),
        element("h2", "Result"),
        table(_COLUMNS, _rows(results), caption="What came of each order"),
        paragraphs(findings(results)),
        _figure("loss", plots),
        element("h2", "The epoch, bucket by bucket"),
        _figure("epoch", plots),
        _figure("lengths", plots),
        *plans,
        element("h2", "How it was done"),
        paragraphs(method(results.facts)),
    )


def _plan_of(run: Run, *, unfolded: bool) -> Markup:
    summary = element("summary", "The plan of ", element("code", run.order))
    opened = {"open": ""} if unfolded else {}
    return element("details", summary, element("pre", run.stats.table()), **opened)


def _figure(name: str, plots: dict[str, bytes]) -> Markup:
    if name not in plots:
        return Markup()
    caption = _CAPTIONS[name]
    return figure(element("img", src=png_uri(plots[name]), alt=caption), caption)
