"""Writes the tables of docs/choosing.md, or checks that they are up to date.

`python tools/choosing.py` plans over the lengths of the benchmarks and writes each table between
``<!-- table: NAME -->`` and ``<!-- end -->``. With `--check` it writes nothing; where the page is
out of date it shows the difference and exits with 1.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride import plan_epoch
from evenstride._tables import percent
from evenstride.read_lengths import read_lengths
from generated import markdown, with_tables, write_or_check
from orders import LENGTHS, OPTIONS, ROOT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.lengths import LengthArray
    from evenstride.plan import EpochPlan

PAGE = ROOT / "docs" / "choosing.md"


def budgets(lengths: LengthArray) -> str:
    """Return what a budget makes of the shortest and the longest bucket."""
    rows = []
    for budget in (16_384, 32_768, 49_152, 98_304, 196_608):
        stats = planned(lengths, token_budget=budget, composition="window").stats()
        full = sum(bucket.limits["max_batch_size"] for bucket in stats.buckets)
        samples = [f"{bucket.mean_samples:.1f}" for bucket in stats.buckets]
        share = percent(full / stats.batches)
        rows.append([f"{budget:,}", f"{stats.batches:,}", samples[0], samples[-1], share])
    header = ["token budget", "batches", "samples, shortest bucket", "longest", "limited to 64"]
    return markdown(header, rows, left=0)


def buckets(lengths: LengthArray) -> str:
    """Return what the number of buckets does to padding, and to runs."""
    rows = []
    for number in (1, 2, 4, 6, 8, 16, 32, 64):
        shuffle = planned(lengths, buckets=number).stats()
        window = planned(lengths, buckets=number, composition="window").stats()
        largest = max(bucket.share for bucket in window.buckets)
        real = [percent(stats.padding_efficiency) for stats in (shuffle, window)]
        rows.append([str(number), *real, percent(largest), f"{window.longest_run:,}"])
    header = ["buckets", "real, `shuffle`", "real, `window`", "largest share", "longest run"]
    return markdown(header, rows, left=0)


def windows(lengths: LengthArray) -> str:
    """Return what the window does to padding, and to how batches mix."""
    choices: dict[str, dict[str, Any]] = {
        "`shuffle`": {},
        **{f"`window`, {n:,}": {"composition": "window", "window": n} for n in (64, 256, 1024)},
        **{f"`window`, {n:,}": {"composition": "window", "window": n} for n in (4096, 16_384)},
        "`frozen`": {"composition": "frozen"},
    }
    rows = []
    for name, options in choices.items():
        first, second = (planned(lengths, epoch=epoch, **options) for epoch in (0, 1))
        real = percent(first.stats().padding_efficiency)
        again = 100 * share_that_meets_again(first, second, len(lengths))
        rows.append([name, f"{len(first):,}", real, f"{again:.2f}%"])
    return markdown(["composition", "batches", "real", "meet again"], rows, left=1)


def share_that_meets_again(first: EpochPlan, second: EpochPlan, num_samples: int) -> float:
    """Return which part of the pairs in batches of one epoch are in a batch of the next too."""
    together = batch_of(first, num_samples) * len(second) + batch_of(second, num_samples)
    both, before = np.unique(together, return_counts=True)[1], np.diff(first.offsets)
    return float((both * (both - 1)).sum() / (before * (before - 1)).sum())


def batch_of(plan: EpochPlan, num_samples: int) -> NDArray[np.int64]:
    """Return the batch of each sample."""
    batches = np.empty(num_samples, np.int64)
    batches[plan.indices] = np.repeat(np.arange(len(plan)), np.diff(plan.offsets))
    return batches


def ranks(lengths: LengthArray) -> str:
    """Return what the number of ranks does."""
    rows = []
    for number in (1, 8, 64, 256):
        stats = planned(lengths, num_replicas=number, composition="window").stats()
        costs = [f"{stats.mean_rank_imbalance:.3f}", f"{stats.worst_rank_imbalance:.2f}"]
        real = percent(stats.padding_efficiency)
        rows.append([str(number), f"{stats.steps:,}", real, str(stats.mixed_steps), *costs])
    header = ["ranks", "steps", "real", "mixed steps", "slowest rank, mean", "worst"]
    return markdown(header, rows, left=0)


TABLES = {"budgets": budgets, "buckets": buckets, "windows": windows, "ranks": ranks}


def planned(lengths: LengthArray, **changed: Any) -> EpochPlan:
    """Return the page's plan with some options changed."""
    return plan_epoch(lengths, **{**OPTIONS, **changed})


def updated() -> str:
    """Return the page with every table as it is now."""
    lengths = read_lengths(LENGTHS, counts=True)
    return with_tables(PAGE, {name: partial(table, lengths) for name, table in TABLES.items()})


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, updated, __doc__, "python tools/choosing.py"))
