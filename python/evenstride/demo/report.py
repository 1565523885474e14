"""The report: a page that needs nothing beside it, the plots, and all numbers as JSON."""

from __future__ import annotations

import base64
import html
import json
import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenstride._tables import aligned, count, number, percent
from evenstride.demo.screen import say
from evenstride.demo.words import findings, introduction, method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evenstride.demo.results import Results, Run

__all__ = ["results_table", "write_report"]

_COLUMNS = (
    "order",
    "batches",
    "longest run",
    "quarters off",
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

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>evenstride: three orders of an epoch</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; color: #303030; max-width: 66rem;
          margin: 2rem auto; padding: 0 1rem }}
  h1, h2 {{ line-height: 1.2 }}
  h2 {{ margin-top: 2.5rem }}
  img {{ width: 100%; height: auto }}
  figure {{ margin: 1.5rem 0 }}
  figcaption {{ color: #606060; font-size: 0.9rem }}
  table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem }}
  th, td {{ padding: 0.25rem 0.7rem; text-align: right; border-bottom: 1px solid #e0e0e0 }}
  th:first-child, td:first-child {{ text-align: left; padding-left: 0 }}
  pre {{ overflow-x: auto; font-size: 0.8rem; line-height: 1.35; background: #f6f6f6;
         padding: 0.8rem }}
</style>
<h1>Three orders of an epoch</h1>
{introduction}
<h2>Result</h2>
{results}
{findings}
{loss}
<h2>The epoch, bucket by bucket</h2>
{epoch}
{lengths}
{plans}
<h2>How it was done</h2>
{method}
</html>
"""


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
    page = output / "report.html"
    page.write_text(_page(results, plots), encoding="utf-8")
    return page


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
    plans = "".join(
        f"<details><summary>The plan of <code>{run.order}</code></summary>"
        f"<pre>{html.escape(run.stats.table())}</pre></details>\n"
        for run in results.runs
    )
    return _PAGE.format(
        introduction=_paragraphs([introduction(results.facts)]),
        results=_table(_COLUMNS, _rows(results)),
        findings=_paragraphs(findings(results)),
        method=_paragraphs(method(results.facts)),
        plans=plans.replace("<details>", "<details open>", 1),
        **{name: _figure(name, plots.get(name)) for name in _CAPTIONS},
    )


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{html.escape(text)}</p>" for text in texts)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "\n".join(
        ["<table>", row(header, "th"), *(row(cells, "td") for cells in rows), "</table>"]
    )


def _figure(name: str, png: bytes | None) -> str:
    if png is None:
        return ""
    caption = html.escape(_CAPTIONS[name])
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )
