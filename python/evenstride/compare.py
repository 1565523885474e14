"""Every order on the same lengths, side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from evenstride._tables import (
    ORDER_FIGURES,
    REAL,
    aligned,
    count,
    named,
    number,
    percent,
    points,
    quarter_deviation,
)
from evenstride.planner import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenstride.lengths import Lengths
    from evenstride.plan import EpochPlan
    from evenstride.stats import PlanStats

__all__ = [
    "COLUMNS",
    "ORDERS",
    "compare_orders",
    "comparison_dict",
    "comparison_tables",
    "order_cells",
]

ORDERS = (
    "stride",
    "balanced",
    "stratified",
    "mixed",
    "shuffle",
    "anti_repeat",
    "diversity",
    "diversity_2",
    "round_robin",
    "ascending",
    "descending",
)
"""All orders, the default first."""

COLUMNS = {
    "batches": "of the epoch, over all ranks",
    "real": REAL,
    **ORDER_FIGURES,
}
"""What is said of each order, and what it means."""


def compare_orders(
    lengths: Lengths, **options: Any
) -> Iterator[tuple[str, EpochPlan | ValueError]]:
    """Yield each order's name and its plan, or why it cannot be had with the options.

    Parameters
    ----------
    lengths : array_like of int, shape (n_samples,)
        Tokens of each sample.
    **options
        Those of :func:`plan_epoch` but ``order``. Edges are found once, for all orders.

    Raises
    ------
    TypeError, ValueError
        If the first order cannot be had: the options are wrong for all of them.

    Examples
    --------
    >>> plans = dict(compare_orders([3, 9, 4, 8, 3, 9] * 50, token_budget=18, buckets=[6]))
    >>> [plans[order].stats().longest_run for order in ("balanced", "ascending")]
    [4, 75]

    """
    first = plan_epoch(lengths, order=ORDERS[0], **options)
    yield ORDERS[0], first
    options = {**options, "buckets": first.edges[1:-1].tolist(), "merge_buckets": 1}
    for order in ORDERS[1:]:
        try:
            plan: EpochPlan | ValueError = plan_epoch(lengths, order=order, **options)
        except ValueError as error:
            plan = error
        yield order, plan


def order_cells(stats: PlanStats) -> list[str]:
    """Return an order's row below :data:`COLUMNS`."""
    return [
        count(stats.batches),
        percent(stats.padding_efficiency),
        number(100 * quarter_deviation(stats), 2),
        percent(stats.earliest_exhaustion),
        count(stats.longest_run),
        percent(stats.share_in_runs_of_one),
        number(stats.prefix_discrepancy, 1),
        percent(stats.crowded_windows),
        number(stats.length_correlation, 3),
    ]


def comparison_tables(orders: Mapping[str, PlanStats], *, quarters: bool) -> list[str]:
    """Return the comparison as blocks of text: a row for each order, then what columns mean.

    Parameters
    ----------
    orders : mapping of str to PlanStats
        The statistics of each order's plan.
    quarters : bool
        Whether to append the share of each bucket in each quarter.

    """
    rows = [[order, *order_cells(stats)] for order, stats in orders.items()]
    blocks = ["\n".join(aligned(["order", *COLUMNS], rows, left=1))]
    blocks.append("\n".join(named(COLUMNS)))
    if quarters:
        blocks.append(_quarters(orders))
    return blocks


def _quarters(orders: Mapping[str, PlanStats]) -> str:
    header = ["order", "bucket", "lengths", "share", "Q1", "Q2", "Q3", "Q4"]
    rows = [
        [
            order,
            str(bucket.bucket),
            f"[{bucket.start}, {bucket.stop})",
            *map(points, (bucket.share, *bucket.quarters)),
        ]
        for order, stats in orders.items()
        for bucket in stats.buckets
    ]
    return "\n".join(aligned(header, rows, left=1))


def comparison_dict(
    orders: Mapping[str, PlanStats], left_out: Mapping[str, str], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the comparison as plain values, ready for JSON: None for NaN.

    Parameters
    ----------
    orders : mapping of str to PlanStats
        The statistics of each order's plan.
    left_out : mapping of str to str
        Why other orders are not there.
    options : mapping of str to Any
        What all plans were made with; the dictionary names those that make an optimizer step.

    """
    return {
        "num_replicas": options["num_replicas"],
        "accumulation_steps": options["accumulation_steps"],
        "orders": [_row(order, stats) for order, stats in orders.items()],
        "left_out": dict(left_out),
    }


def _row(order: str, stats: PlanStats) -> dict[str, Any]:
    plain = stats.to_dict()
    names = (
        "batches",
        "padding_efficiency",
        "earliest_exhaustion",
        "longest_run",
        "share_in_runs_of_one",
        "prefix_discrepancy",
        "crowded_windows",
        "length_correlation",
    )
    buckets = ("bucket", "start", "stop", "share", "quarters")
    deviation = quarter_deviation(stats)
    return {
        "order": order,
        **{name: plain[name] for name in names},
        "quarter_deviation": None if math.isnan(deviation) else deviation,
        "buckets": [{name: bucket[name] for name in buckets} for bucket in plain["buckets"]],
    }
