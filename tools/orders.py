"""Writes the tables of docs/orders.md, or checks that they are up to date.

`python tools/orders.py` plans over the lengths of the benchmarks and writes each table between
``<!-- table: NAME -->`` and ``<!-- end -->``. With `--check` it writes nothing; where the page is
out of date it shows the difference and exits with 1.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenstride import plan_epoch
from evenstride._tables import percent
from evenstride.compare import compare_orders, comparison_tables
from evenstride.read_lengths import read_lengths
from generated import markdown, with_tables, write_or_check

if TYPE_CHECKING:
    from evenstride.lengths import LengthArray
    from evenstride.stats import PlanStats

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "orders.md"
LENGTHS = ROOT / "benchmarks" / "data" / "length_histogram.csv"
OPTIONS: dict[str, Any] = {
    "token_budget": 49_152,
    "max_batch_size": 64,
    "buckets": [770, 1216, 1728, 2432, 3296],
}

COMPOSITIONS = {
    "shuffle": "neighbours in a fresh permutation of each bucket",
    "window": "neighbours in runs of 1,024 samples of it, sorted by length up and down by turns",
    "frozen": "the same in every epoch: only the order of the batches changes",
}


def orders(lengths: LengthArray) -> str:
    """Return what `evenstride compare` prints, as Markdown."""
    stats: dict[str, PlanStats] = {}
    for order, plan in compare_orders(lengths, **OPTIONS):
        if isinstance(plan, ValueError):
            raise plan
        stats[order] = plan.stats()
    table = comparison_tables(stats, quarters=False)[0]
    header, *rows = (re.split(" {2,}", line) for line in table.splitlines())
    return markdown(header, ([f"`{order}`", *cells] for order, *cells in rows), left=1)


def accumulation(lengths: LengthArray) -> str:
    """Return how much of `mixed` is real, by the batches of an optimizer step."""
    steps = (1, 4, 8, 16, 32)
    real = [efficiency(lengths, order="mixed", accumulation_steps=n) for n in steps]
    return markdown(["batches an optimizer step", *map(str, steps)], [["real", *real]], left=1)


def compositions(lengths: LengthArray) -> str:
    """Return how many batches each composition has, and how much of them is real."""
    rows = []
    for composition, meaning in COMPOSITIONS.items():
        stats = planned(lengths, composition=composition)
        real = percent(stats.padding_efficiency)
        rows.append([f"`{composition}`", meaning, f"{stats.batches:,}", real])
    return markdown(["composition", "samples of a batch", "batches", "real"], rows, 2)


def edges(lengths: LengthArray) -> str:
    """Return how much is real with the page's edges, and with those that are found."""
    found = (6, 8, 16)
    header = ["edges", "the six buckets above", *(f"{n} found" for n in found)]
    real = [efficiency(lengths), *(efficiency(lengths, buckets=n) for n in found)]
    return markdown(header, [["real", *real]], left=1)


TABLES = {
    "orders": orders,
    "accumulation": accumulation,
    "compositions": compositions,
    "edges": edges,
}


def planned(lengths: LengthArray, **changed: Any) -> PlanStats:
    """Return the statistics of the page's plan with some options changed."""
    return plan_epoch(lengths, **{**OPTIONS, **changed}).stats()


def efficiency(lengths: LengthArray, **changed: Any) -> str:
    """Return the padding efficiency of such a plan."""
    return percent(planned(lengths, **changed).padding_efficiency)


def updated() -> str:
    """Return the page with every table as it is now."""
    lengths = read_lengths(LENGTHS, counts=True)
    tables = {name: partial(table, lengths) for name, table in TABLES.items()}
    return with_tables(PAGE, tables)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, updated, __doc__, "python tools/orders.py"))
