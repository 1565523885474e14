"""What the page about an epoch shows: the plan, and the same samples planned in other ways."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.advice import MOST_SAMPLES_TO_REPLAN, advise
from evenstride.compare import compare_orders
from evenstride.lengths import as_lengths
from evenstride.page_charts import Ramp
from evenstride.picture_data import step_labels, strip_of
from evenstride.planner import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from evenstride.advice import Advice
    from evenstride.lengths import LengthArray, Lengths
    from evenstride.picture_data import Strip
    from evenstride.plan import EpochPlan
    from evenstride.stats import PlanStats

__all__ = ["Facts", "InOrder", "facts_of"]

_COLUMNS, _MOST_ROWS = 720, 72  # Of a strip.
_FIRST_STEPS = 80
_WINDOWS = (16, 64, 256, 1024, 4096)


@dataclass
class InOrder:
    """What a report shows of an order."""

    stats: PlanStats
    strip: Strip
    start: Strip


@dataclass
class Facts:
    """What a report shows.

    `orders` are the plan's own and all others by name, `left_out` why some cannot be had, and
    `windows` the padding efficiency by window, between those of the other two compositions. Those,
    `advice` and `lengths` are empty where nothing is compared, for the `reason`.
    """

    plan: EpochPlan
    stats: PlanStats
    labels: NDArray[np.int16]
    ramp: Ramp
    name: str
    reason: str = ""
    orders: dict[str, InOrder] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    windows: dict[str, float] = field(default_factory=dict)
    advice: list[Advice] = field(default_factory=list)

    @property
    def own_order(self) -> str:
        """What the plan's own order is called."""
        options = self.plan.options
        return str(options["order"]) if options["shuffle"] else "sorted"


def facts_of(plan: EpochPlan, lengths: Lengths | None, name: str) -> Facts:
    """Return what a page about a plan shows. See :func:`evenstride.report_page.write_report`."""
    labels = step_labels(plan)
    facts = Facts(plan, plan.stats(), labels, Ramp(len(plan.edges) - 1), name)
    facts.orders[facts.own_order] = _in_order(plan)
    if lengths is None:
        facts.reason = "the lengths are not at hand"
    elif not plan.options["shuffle"]:
        facts.reason = "a plan that is not shuffled has one order only"
    elif len(array := _checked(as_lengths(lengths), plan)) > MOST_SAMPLES_TO_REPLAN:
        facts.reason = f"there are more than {MOST_SAMPLES_TO_REPLAN:,} samples"
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # This plan's own warning was given.
            _compare(facts, array)
    return facts


def _checked(lengths: LengthArray, plan: EpochPlan) -> LengthArray:
    """Return the lengths if they may be those that the plan was made of."""
    if len(lengths) > int(plan.indices.max()):
        tokens = np.add.reduceat(lengths[plan.indices], plan.offsets[:-1], dtype=np.uint64)
        if np.array_equal(tokens, plan.tokens):
            return lengths
    msg = "`lengths` must be those that the plan was made of, but its batches have other tokens."
    raise ValueError(msg)


def _compare(facts: Facts, lengths: LengthArray) -> None:
    """Plan the same samples in other ways."""
    plan = facts.plan
    options: dict[str, Any] = {
        **plan.options,
        "epoch": plan.epoch,
        "num_replicas": plan.num_replicas,
        "buckets": plan.edges[1:-1].tolist(),
        "merge_buckets": 1,
        "steps_per_epoch": None,  # It may be out of what is possible otherwise.
    }
    own = options.pop("order")
    for order, other in compare_orders(lengths, **_without(options, "shuffle")):
        if isinstance(other, ValueError):
            facts.left_out[order] = str(other)
        elif order != own:
            facts.orders[order] = _in_order(other)

    def replan(change: dict[str, Any]) -> PlanStats:
        return plan_epoch(lengths, **{**options, "order": own, **change}).stats()

    facts.windows = _windows(lambda change: replan({"order": "stride", **change}))
    facts.advice = list(advise(facts.stats, plan.options, replan))


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


def _windows(replan: Callable[[dict[str, Any]], PlanStats]) -> dict[str, float]:
    """Return the padding efficiency of each window, between its two ends."""
    changes: dict[str, dict[str, Any]] = {
        "shuffle": {"composition": "shuffle"},
        **{f"{window:,}": {"composition": "window", "window": window} for window in _WINDOWS},
        "frozen": {"composition": "frozen"},
    }
    return {name: replan(change).padding_efficiency for name, change in changes.items()}


def _in_order(plan: EpochPlan) -> InOrder:
    labels = step_labels(plan)
    strip = strip_of(labels, _COLUMNS, _MOST_ROWS)
    return InOrder(plan.stats(), strip, strip_of(labels[:_FIRST_STEPS], _FIRST_STEPS, 1))
