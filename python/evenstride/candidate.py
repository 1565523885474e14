"""What options for a plan give: how little it pads, and how far its batches mix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride.plan import EpochPlan

    _Integers = NDArray[np.int64]

__all__ = ["Candidate", "measured"]


@dataclass(frozen=True)
class Candidate:
    """Options for a plan, and what they give.

    Attributes
    ----------
    options : dict
        Those of :func:`plan_epoch` that set the candidate apart.
    padding_efficiency : float
        Real tokens over padded tokens. In ``[0, 1]``.
    companions : float
        Other samples in a sample's batch, on average. At least 0.
    recurrence : float
        Of two samples that share a batch in one epoch, the probability that they share one in the
        next. In ``[0, 1]``, or NaN if no batch has two samples.
    diversity : float
        Share of all samples that a sample's companions are drawn from. Of a pool of ``m`` others,
        uniform draws meet a companion of one epoch again in ``d / m`` of the cases, with ``d``
        companions in the next; `diversity` is the size of the pool that the mean sample meets
        again as often as it does, over the number of samples. In ``[0, 1]``: 1 if any two samples
        may meet, ``1 / k`` with ``k`` shuffled buckets, nearly 0 if batches stay as they are.
    largest_share : float
        Share of the steps that the bucket with most of them has. In ``(0, 1]``.
    longest_run : int
        Longest run of steps of one bucket. At least 1.

    """

    options: dict[str, Any]
    padding_efficiency: float
    companions: float
    recurrence: float
    diversity: float
    largest_share: float
    longest_run: int


def measured(
    options: dict[str, Any], plan: EpochPlan, following: EpochPlan, num_samples: int
) -> Candidate:
    """Return what the plans of two epochs, one after the other, give with `options`."""
    sizes, following_sizes = np.diff(plan.offsets), np.diff(following.offsets)
    batch, following_batch = (_batch_of_each(each, num_samples) for each in (plan, following))
    places = batch * len(following) + following_batch
    places, together = _counted(places[(batch >= 0) & (following_batch >= 0)])
    companions = sizes[places // len(following)] - 1
    following_companions = following_sizes[places % len(following)] - 1
    meeting = (companions > 0) & (following_companions > 0)
    met_again = (together * (together - 1))[meeting]
    chances = (companions * following_companions)[meeting]
    pairs = int((sizes * (sizes - 1)).sum())
    mean_rate = float((met_again / chances).sum()) / max(1, int(together[meeting].sum()))
    # Where nobody met again, the pool may have any size.
    pool = 1 / mean_rate if mean_rate else (num_samples if meeting.any() else 0)
    stats = plan.stats()
    return Candidate(
        options=options,
        padding_efficiency=stats.padding_efficiency,
        companions=pairs / num_samples,
        recurrence=int(met_again.sum()) / pairs if pairs else math.nan,
        diversity=min(1.0, pool / num_samples),
        largest_share=max(bucket.share for bucket in stats.buckets),
        longest_run=stats.longest_run,
    )


def _batch_of_each(plan: EpochPlan, num_samples: int) -> _Integers:
    """Return the batch of each sample, -1 for none."""
    batch = np.full(num_samples, -1, np.int64)
    batch[plan.indices] = np.repeat(np.arange(len(plan)), np.diff(plan.offsets))
    return batch


def _counted(values: _Integers) -> tuple[_Integers, _Integers]:
    """Return the distinct values, and how often each is there."""
    values.sort()
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    return values[starts], np.diff(starts, append=len(values))
