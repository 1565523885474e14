"""What the page about an epoch shows: the plan, and the same samples planned in other ways."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.advice import MOST_SAMPLES_TO_REPLAN, advise
from evenstride.compare import ORDERS
from evenstride.lengths import as_lengths
from evenstride.options import PlanOptions, as_num_threads
from evenstride.page_charts import Ramp
from evenstride.picture_data import step_labels, strip_of
from evenstride.planner import make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from evenstride import _core
    from evenstride.advice import Advice
    from evenstride.lengths import LengthArray, Lengths
    from evenstride.picture_data import Strip
    from evenstride.plan import EpochPlan
    from evenstride.stats import PlanStats

__all__ = ["Facts", "InOrder", "Limits", "facts_of"]

_COLUMNS, _MOST_ROWS = 720, 72  # Of a strip.
_FIRST_STEPS = 80
_WINDOW_CHANGES: dict[str, dict[str, Any]] = {
    "shuffle": {"composition": "shuffle"},
    **{
        f"{window:,}": {"composition": "window", "window": window}
        for window in (16, 64, 256, 1024, 4096)
    },
    "frozen": {"composition": "frozen"},
}


@dataclass
class InOrder:
    """What a report shows of an order."""

    stats: PlanStats
    strip: Strip
    start: Strip


@dataclass
class Limits:
    """What cannot be compared as it should be, by name.

    `left_out` has why it is not possible at all, and `other_steps` how many steps it has where it
    is not possible in ``steps_per_epoch``.
    """

    left_out: dict[str, str] = field(default_factory=dict)
    other_steps: dict[str, int] = field(default_factory=dict)


@dataclass
class Facts:
    """What a report shows.

    `orders` are the plan's own and all others by name, and `windows` the padding efficiency by
    window, between those of the other two compositions, each with what limits it. They and `advice`
    have nothing else where nothing is compared, for the `reason`.
    """

    plan: EpochPlan
    stats: PlanStats
    labels: NDArray[np.int16]
    ramp: Ramp
    name: str
    reason: str = ""
    orders: dict[str, InOrder] = field(default_factory=dict)
    order_limits: Limits = field(default_factory=Limits)
    windows: dict[str, float] = field(default_factory=dict)
    window_limits: Limits = field(default_factory=Limits)
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
    replanner = _Replanner(plan, lengths)
    own = plan.options["order"]
    orders = {order: {"order": order} for order in ORDERS if order != own}
    for order, other in replanner.plans(orders, facts.order_limits):
        facts.orders[order] = _in_order(other)
    windows = {name: {"order": "stride", **change} for name, change in _WINDOW_CHANGES.items()}
    for name, other in replanner.plans(windows, facts.window_limits):
        facts.windows[name] = other.stats().padding_efficiency
    facts.advice = list(
        advise(facts.stats, plan.options, lambda change: replanner.plan(change).stats())
    )


class _Replanner:
    """Plans the samples of a plan with other options, where its own are the same.

    A sampler settles on one number of steps for all epochs, and would with other options too.
    :func:`plan_epoch` takes each epoch by itself.
    """

    def __init__(self, plan: EpochPlan, lengths: LengthArray) -> None:
        edges = {"buckets": plan.edges[1:-1].tolist(), "merge_buckets": 1}
        self._options = PlanOptions.of(**{**plan.options, **edges})
        self._lengths = lengths
        self._epoch, self._num_replicas = plan.epoch, plan.num_replicas
        self._is_settled = self._may_be_settled(plan)

    def _may_be_settled(self, plan: EpochPlan) -> bool:
        try:
            settlement = self._settlement(self._planner(self._options), self._options)
        except ValueError:  # Other epochs than this one have no step.
            return False
        return settlement.steps == plan.num_steps

    def _planner(self, options: PlanOptions) -> _core.Planner:
        return options.planner(self._lengths, as_num_threads(None))

    def _settlement(self, planner: _core.Planner, options: PlanOptions) -> _core.Settlement:
        return planner.settle(
            num_replicas=self._num_replicas,
            drop_last=options.drop_last,
            steps_per_epoch=options.steps_per_epoch,
        )

    def plan(self, change: dict[str, Any]) -> EpochPlan:
        """Return the plan with some options changed; raise a ValueError if it is impossible."""
        options = replace(self._options, **change)
        planner = self._planner(options)
        return make_plan(
            planner,
            self._lengths,
            options,
            epoch=self._epoch,
            num_replicas=self._num_replicas,
            settlement=self._settlement(planner, options) if self._is_settled else None,
        )

    def plans(
        self, changes: dict[str, dict[str, Any]], limits: Limits
    ) -> Iterator[tuple[str, EpochPlan]]:
        """Yield the plan of each change by its name, unless there is none."""
        for name, change in changes.items():
            try:
                plan = self._possible_plan(change)
            except ValueError as error:
                limits.left_out[name] = str(error)
                continue
            if self._options.steps_per_epoch not in {None, plan.num_steps}:
                limits.other_steps[name] = plan.num_steps
            yield name, plan

    def _possible_plan(self, change: dict[str, Any]) -> EpochPlan:
        """Return the plan, without ``steps_per_epoch`` if it is not possible with it."""
        try:
            return self.plan(change)
        except ValueError:
            if self._options.steps_per_epoch is None:
                raise
            return self.plan({**change, "steps_per_epoch": None})


def _in_order(plan: EpochPlan) -> InOrder:
    labels = step_labels(plan)
    strip = strip_of(labels, _COLUMNS, _MOST_ROWS)
    return InOrder(plan.stats(), strip, strip_of(labels[:_FIRST_STEPS], _FIRST_STEPS, 1))
