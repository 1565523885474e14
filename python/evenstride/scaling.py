"""One epoch on more and more ranks: what its steps cost, and where they become too few."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

import numpy as np

from evenstride.lengths import as_lengths
from evenstride.options import as_count, as_uint64
from evenstride.peak_memory import PeakMemory
from evenstride.planner import plan_epoch
from evenstride.step_costs import Imbalance, StepCosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenstride.lengths import LengthArray, Lengths
    from evenstride.plan import EpochPlan

__all__ = [
    "DEFAULT_BUCKETS",
    "DEFAULT_QUADRATIC",
    "DEFAULT_RANKS",
    "FEWEST_STEPS",
    "MOST_LOST",
    "SIMULATED",
    "Scaling",
    "scale",
]

_MOST_QUADRATIC = 2.0**53
DEFAULT_RANKS = (8, 64, 512, 4096)
DEFAULT_BUCKETS = 64
DEFAULT_QUADRATIC = 6 * 4096
"""The length with which attention costs as much as all the rest, with a hidden size of 4,096.

A layer of hidden size h multiplies each token by 12 h^2 weights (4 h^2 around attention, 8 h^2 in a
feed-forward part four times as wide), which is 24 h^2 operations; attention to n tokens adds 2 n h
for the scores and 2 n h for the sums, so that both are equal for n = 6 h.
"""

MOST_LOST = 0.01
"""Of the batches, how many more than on one rank are still few."""
FEWEST_STEPS = 50
"""Steps a bucket, below which the ranks are too many.

Each bucket is brought to whole steps of W batches, for which it lacks W / 2 on average. With S
steps and K buckets, that is K W / 2 of S W batches: above 1 % where S < 50 K.
"""

SIMULATED = ("num_replicas", "order", "jitter", "accumulation_steps", "steps_per_epoch")
"""The options of `plan_epoch` that the simulation sets, or leaves as they are by default."""

_DRAWN_AT_ONCE = 2**20


@dataclass(frozen=True)
class Scaling:
    """What an epoch is on a number of ranks.

    Attributes
    ----------
    num_replicas, num_buckets : int
        Ranks, and buckets that have steps. At least 1.
    steps, batches, samples : int
        Of the epoch, over all ranks; at least 1. Samples include repeats.
    steps_per_bucket : float
        ``steps / num_buckets``.
    mixed_steps : int
        Steps whose batches are of several buckets.
    repeated_samples, dropped_samples : int
        Samples that come once more to fill a step, and that ``drop_last`` left out.
    small_samples : int
        Samples in batches with fewer than half of the samples that their width admits, which are
        ``token_budget // width``, and `max_batch_size` at most. Also on one rank there are some:
        the last batch of each bucket, and such that stopped at a sample much longer than theirs.
    padding_efficiency : float
        Real tokens over padded tokens. In ``[0, 1]``.
    imbalance : dict of str to Imbalance
        The most expensive rank of a step over the mean of its ranks, by what counts as cost: the
        keys are those of ``evenstride.step_costs.COSTS``.
    waiting : float
        Share of all ranks' time in which they wait for the slowest one of their step, if time is in
        proportion to padded tokens. In ``[0, 1)``.
    more_batches : float
        ``batches`` over those on one rank, less 1: what is lost if a step takes as long however
        full its batches are. Negative where `drop_last` left some out.
    more_padded_tokens : float
        The same for padded tokens. Smaller batches pad less, so it is often negative.
    too_small : bool
        Whether these are too few samples for so many ranks: fewer than ``FEWEST_STEPS`` steps a
        bucket, or more than ``MOST_LOST`` more batches.
    seconds : float
        What the planning took, without the search for edges.
    plan_bytes : int
        Size of the plan's arrays, which each rank keeps unless ranks share them.
    peak_bytes : int or None
        By how much the resident memory of the process grew while planning, at its peak; None where
        the system does not say.

    """

    num_replicas: int
    num_buckets: int
    steps: int
    batches: int
    samples: int
    steps_per_bucket: float
    mixed_steps: int
    repeated_samples: int
    dropped_samples: int
    small_samples: int
    padding_efficiency: float
    imbalance: dict[str, Imbalance]
    waiting: float
    more_batches: float
    more_padded_tokens: float
    too_small: bool
    seconds: float
    plan_bytes: int
    peak_bytes: int | None


def scale(
    lengths: Lengths,
    *,
    num_replicas: Sequence[SupportsIndex] = DEFAULT_RANKS,
    samples: SupportsIndex | None = None,
    quadratic: float = DEFAULT_QUADRATIC,
    **options: Any,
) -> Iterator[tuple[int, Scaling | ValueError]]:
    """Yield numbers of ranks, and what an epoch is on so many or why there can be none.

    The first is 1, with which the others are compared. One plan at a time is in memory. Another
    version of numpy may draw other `samples` by the same seed.

    Parameters
    ----------
    lengths : array_like of int, shape (n_samples,)
        Tokens of each sample.
    num_replicas : sequence of int, default (8, 64, 512, 4096)
        The numbers of ranks. Each at least 1.
    samples : int, optional
        Draw this many of the lengths, with replacement and by the seed, and plan with those. At
        least 1.
    quadratic : float, default 24576
        The length, in tokens, with which attention costs a sample as much as all the rest; see
        ``DEFAULT_QUADRATIC``. In ``[1, 2**53]``.
    **options
        Those of :func:`plan_epoch` but `SIMULATED`. There are 64 buckets by default, whose edges
        are found once.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of its kind or out of its range, one of `SIMULATED` is given, or there
        can be no epoch on one rank: the options are wrong for all of them.

    Examples
    --------
    >>> import numpy as np
    >>> lengths = np.arange(100_000) * 7919 % 500 + 1
    >>> found = dict(scale(lengths, num_replicas=[4, 64], token_budget=5000, buckets=8))
    >>> for ranks, result in found.items():
    ...     print(ranks, result.steps, result.num_buckets, result.too_small)
    1 5760 8 False
    4 1444 8 False
    64 95 8 True

    """
    for name in SIMULATED[1:]:
        if name in options:
            msg = f"`{name}` must be left to the simulation, but is given."
            raise TypeError(msg)
    counts = [as_count(f"num_replicas[{i}]", ranks) for i, ranks in enumerate(num_replicas)]
    if not isinstance(quadratic, SupportsFloat):
        msg = f"`quadratic` must be a number, but is {quadratic!r}."
        raise TypeError(msg)
    if not 1 <= float(quadratic) <= _MOST_QUADRATIC:
        msg = f"`quadratic` must be in [1, 2**53], but is {quadratic}."
        raise ValueError(msg)
    array = as_lengths(lengths)
    if samples is not None:
        seed = as_uint64("seed", options.get("seed", 0))
        array = _drawn(array, as_count("samples", samples), seed)
    return _results(array, counts, float(quadratic), {"buckets": DEFAULT_BUCKETS, **options})


def _results(
    lengths: LengthArray, counts: list[int], quadratic: float, options: dict[str, Any]
) -> Iterator[tuple[int, Scaling | ValueError]]:
    edges = plan_epoch(lengths, **options).edges[1:-1].tolist()
    options = {**options, "buckets": edges, "merge_buckets": 1}
    alone = None
    for ranks in dict.fromkeys([1, *counts]):
        begin = time.perf_counter()
        try:
            with PeakMemory() as peak:
                plan = plan_epoch(lengths, num_replicas=ranks, **options)
        except ValueError as error:
            yield ranks, error
            continue
        seconds = time.perf_counter() - begin
        costs = StepCosts(plan, lengths, quadratic)
        if alone is None:
            alone = len(plan), costs.padded_tokens
        result = _result(plan, costs, alone, seconds, peak.extra)
        del plan  # Before the next one.
        yield ranks, result


def _result(
    plan: EpochPlan,
    costs: StepCosts,
    alone: tuple[int, float],
    seconds: float,
    peak_bytes: int | None,
) -> Scaling:
    """Return all about a plan, given the batches and the padded tokens of that on 1 rank."""
    num_buckets = int(np.count_nonzero(np.bincount(plan.buckets)))
    more_batches = len(plan) / alone[0] - 1
    is_sparse = plan.num_replicas > 1 and plan.num_steps < FEWEST_STEPS * num_buckets
    arrays = (plan.indices, plan.offsets, plan.buckets, plan.widths, plan.repeats, plan.dropped)
    return Scaling(
        num_replicas=plan.num_replicas,
        num_buckets=num_buckets,
        steps=plan.num_steps,
        batches=len(plan),
        samples=len(plan.indices),
        steps_per_bucket=plan.num_steps / num_buckets,
        mixed_steps=costs.mixed_steps,
        repeated_samples=len(plan.repeats),
        dropped_samples=len(plan.dropped),
        small_samples=costs.small_samples,
        padding_efficiency=costs.tokens / costs.padded_tokens,
        imbalance=costs.imbalance,
        waiting=1 - costs.padded_tokens / (costs.slowest_tokens * plan.num_replicas),
        more_batches=more_batches,
        more_padded_tokens=costs.padded_tokens / alone[1] - 1,
        too_small=is_sparse or more_batches > MOST_LOST,
        seconds=seconds,
        plan_bytes=sum(array.nbytes for array in arrays),
        peak_bytes=peak_bytes,
    )


def _drawn(lengths: LengthArray, samples: int, seed: int) -> LengthArray:
    """Return lengths that were drawn with replacement, in the narrowest type that holds them."""
    if len(lengths) == 0:
        return lengths
    low, high = (np.min_scalar_type(int(end)) for end in (lengths.min(), lengths.max()))
    lengths = lengths.astype(np.promote_types(low, high))
    random = np.random.default_rng(seed)
    drawn = np.empty(samples, lengths.dtype)
    for begin in range(0, samples, _DRAWN_AT_ONCE):
        part = drawn[begin : begin + _DRAWN_AT_ONCE]
        part[:] = lengths[random.integers(0, len(lengths), len(part))]
    return drawn
