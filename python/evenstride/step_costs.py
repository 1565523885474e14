"""What the ranks of each step have to do, and how unevenly: for all steps at once, in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from evenstride.lengths import LengthArray
    from evenstride.plan import EpochPlan

    _Floats = NDArray[np.float64]

__all__ = ["COSTS", "Imbalance", "StepCosts"]

COSTS = {
    "padded_tokens": "samples times width",
    "tokens": "real tokens",
    "padded_cost": "samples times width + width^2 / c",
    "cost": "the sum of length + length^2 / c over the samples",
}
"""What a batch may cost; c is the length with which attention costs as much as all the rest."""

_SAMPLES_AT_ONCE = 2**21


@dataclass(frozen=True)
class Imbalance:
    """The cost of a step's most expensive rank over the mean of its ranks.

    Attributes
    ----------
    mean, worst : float
        Over all steps. At least 1, which is perfect balance.

    """

    mean: float
    worst: float


class StepCosts:
    """Sums over a plan's steps, taken some at a time, so that no array is as long as the plan.

    Parameters
    ----------
    plan : EpochPlan
        Its batches are looked at, and nothing of it is kept.
    lengths : ndarray of int, shape (n_samples,)
        Those that it was made of.
    quadratic : float
        The ``c`` of :data:`COSTS`, in tokens. Above 0.

    """

    def __init__(self, plan: EpochPlan, lengths: LengthArray, quadratic: float) -> None:
        self._ranks = plan.num_replicas
        self._quadratic = quadratic
        self._mean = dict.fromkeys(COSTS, 0.0)
        self._worst = dict.fromkeys(COSTS, 1.0)
        self.tokens = 0.0
        self.padded_tokens = 0.0
        self.slowest_tokens = 0.0
        """The sum over the steps of the padded tokens of the most expensive rank."""
        self.small_samples = 0
        self.mixed_steps = 0
        for batches in _chunks(plan):
            self._add(plan, lengths, batches)
        self.imbalance = {
            name: Imbalance(self._mean[name] / plan.num_steps, self._worst[name]) for name in COSTS
        }

    def _add(self, plan: EpochPlan, lengths: LengthArray, batches: slice) -> None:
        bounds = plan.offsets[batches.start : batches.stop + 1]
        samples = np.diff(bounds)
        widths = plan.widths[batches].astype(np.float64)
        # Squares of lengths need not fit into integers.
        real = lengths[plan.indices[bounds[0] : bounds[-1]]].astype(np.float64)
        starts = bounds[:-1] - bounds[0]
        tokens = np.add.reduceat(real, starts)
        squares = np.add.reduceat(real * real, starts)
        padded = samples * widths
        self.tokens += float(tokens.sum())
        self.padded_tokens += float(padded.sum())
        self.slowest_tokens += float(padded.reshape(-1, self._ranks).max(axis=1).sum())
        self._compare_ranks("padded_tokens", padded)
        self._compare_ranks("tokens", tokens)
        self._compare_ranks("padded_cost", padded + padded * widths / self._quadratic)
        self._compare_ranks("cost", tokens + squares / self._quadratic)
        self.small_samples += int(samples[_are_small(plan, batches, samples)].sum())
        labels = plan.buckets[batches].reshape(-1, self._ranks)
        self.mixed_steps += int((labels != labels[:, :1]).any(axis=1).sum())

    def _compare_ranks(self, name: str, costs: _Floats) -> None:
        of_ranks = costs.reshape(-1, self._ranks)
        most, mean = of_ranks.max(axis=1), of_ranks.mean(axis=1)
        # Nothing costs anything in a step of empty samples.
        ratio = np.divide(most, mean, out=np.ones_like(mean), where=mean > 0)
        self._mean[name] += float(ratio.sum())
        self._worst[name] = max(self._worst[name], float(ratio.max()))


def _are_small(plan: EpochPlan, batches: slice, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which batches have fewer than half of the samples that their width admits."""
    admitted = plan.options["token_budget"] // plan.widths[batches].astype(np.int64)
    most = plan.options["max_batch_size"]
    if most is not None:
        admitted = np.minimum(admitted, most)
    small: NDArray[np.bool_] = 2 * samples < admitted
    return small


def _chunks(plan: EpochPlan) -> Iterator[slice]:
    """Yield the batches of whole steps: few samples at a time, but at least one step."""
    ends = plan.offsets[:: plan.num_replicas]
    step = 0
    while step < plan.num_steps:
        place = np.searchsorted(ends, ends[step] + _SAMPLES_AT_ONCE, side="right")
        following = max(step + 1, int(place) - 1)
        yield slice(step * plan.num_replicas, following * plan.num_replicas)
        step = following
