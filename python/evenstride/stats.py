"""What can be asked of an epoch plan: how full its batches are, and how evenly its buckets come."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evenstride import _core
from evenstride._tables import table_of
from evenstride.options import as_num_threads

if TYPE_CHECKING:
    from evenstride.plan import EpochPlan

__all__ = ["BucketStats", "PlanStats"]

_UNLIMITED = 2**64 - 1
_LIMITS = ("token_budget", "max_batch_size", "batch_size_multiple", "samples")


@dataclass(frozen=True, slots=True)
class BucketStats:
    """What one bucket has in an epoch.

    Samples, batches and tokens are those of the bucket's own batches, wherever they are; steps are
    those with its label. The two differ only in mixed steps. Means of a bucket without batches are
    NaN.

    Attributes
    ----------
    bucket : int
        Which one; at least 0.
    start, stop : int
        Its lengths are in ``[start, stop)``, in tokens.
    samples : int
        Samples in its batches, repeats included. At least 0.
    batches, steps : int
        Batches of it, and steps with its label. At least 0.
    share, batch_share : float
        The same as fractions of all steps and of all batches. In ``[0, 1]``.
    tokens, padded_tokens : int
        Real tokens, and tokens once padded; at most ``2**64 - 1``, where they saturate.
    padding_efficiency : float
        ``tokens / padded_tokens``. In ``[0, 1]``, or NaN.
    mean_length : float
        Tokens a sample. At least 0, or NaN.
    mean_samples : float
        Samples a batch. At least 1, or NaN.
    longest_width : int
        Tokens of its widest batch; 0 if it has none.
    budget_fill : float
        Mean of a batch's padded tokens over the token budget. In ``(0, 1]``, or NaN; above 1 only
        with ``too_long="alone"``.
    quarters : tuple of float
        Its share of the steps of each quarter of the epoch; step ``t`` of ``T`` is in quarter
        ``4 * t // T``. Each in ``[0, 1]``, or NaN if the quarter has no step.
    limited_by : str
        What kept most of its batches from being larger: "token_budget", "max_batch_size",
        "batch_size_multiple", or "samples" (it had no more of them, or spread them over more
        batches, so that all ranks have equally many).
    limits : dict of str to int
        Batches by what limited them; these four keys, always.

    """

    bucket: int
    start: int
    stop: int
    samples: int
    batches: int
    steps: int
    share: float
    batch_share: float
    tokens: int
    padded_tokens: int
    padding_efficiency: float
    mean_length: float
    mean_samples: float
    longest_width: int
    budget_fill: float
    quarters: tuple[float, ...]
    limited_by: str
    limits: dict[str, int]


@dataclass(frozen=True, slots=True)
class PlanStats:
    """What can be asked of an epoch plan.

    Orders, shares, runs and discrepancy count steps. A number that is not defined, such as the
    correlation of equal values, is NaN.

    Attributes
    ----------
    steps, num_replicas, batches, samples : int
        Of the whole epoch; at least 1. Samples include repeats.
    tokens, padded_tokens : int
        Real tokens, and tokens once padded; at most ``2**64 - 1``, where they saturate.
    padding_efficiency : float
        ``tokens / padded_tokens``. In ``[0, 1]``.
    token_budget : int
        The hard limit on a batch's padded tokens.
    buckets : tuple of BucketStats
        From the shortest to the longest.
    mixed_steps : int
        Steps whose batches are of several buckets.
    runs : dict of int to int
        Numbers of runs of steps with one label, by length in steps, rising.
    longest_run : int
        In steps; at least 1.
    share_in_runs_of_one : float
        Share of the steps whose neighbours have other labels. In ``[0, 1]``.
    prefix_discrepancy : float
        Greatest distance, in steps, between the steps of a bucket among the first ``t`` and ``t``
        times its share, over all ``t`` and buckets. At least 0.
    earliest_exhaustion : float
        Fraction of the epoch after which the first bucket has no more steps. In ``(0, 1]``.
    crowded_windows : float
        Share of the whole windows of 4 steps, one after the other, that have three or more steps of
        one bucket. In ``[0, 1]``, or NaN.
    length_correlation : float
        Of the mean lengths of neighbouring steps. In ``[-1, 1]``, or NaN.
    width_correlation : float
        Of the widths of neighbouring steps of one bucket, less their bucket's mean. In ``[-1, 1]``,
        or NaN. Near 0 unless widths climb and fall inside the buckets.
    mean_rank_imbalance, worst_rank_imbalance : float
        Padded tokens of a step's most expensive rank over the mean of its ranks: the mean over all
        steps, and the worst. At least 1, which is perfect balance.
    distinct_shapes : int
        Pairs of samples and width among the batches.
    removed : dict of str to dict
        Samples that are no part of the epoch, by reason ("too_long", "empty"): their "samples" and
        "tokens".
    dropped_samples, repeated_samples : int
        Samples that ``drop_last`` left out of this epoch, and that come once more to fill a step.

    Examples
    --------
    >>> import evenstride as es
    >>> plan = es.plan_epoch([5] * 8 + [9] * 4, token_budget=20, buckets=[6])
    >>> stats = plan.stats()
    >>> stats.steps, stats.padding_efficiency
    (4, 1.0)
    >>> [(bucket.batches, bucket.share, bucket.limited_by) for bucket in stats.buckets]
    [(2, 0.5, 'token_budget'), (2, 0.5, 'token_budget')]

    """

    steps: int
    num_replicas: int
    batches: int
    samples: int
    tokens: int
    padded_tokens: int
    padding_efficiency: float
    token_budget: int
    buckets: tuple[BucketStats, ...]
    mixed_steps: int
    runs: dict[int, int]
    longest_run: int
    share_in_runs_of_one: float
    prefix_discrepancy: float
    earliest_exhaustion: float
    crowded_windows: float
    length_correlation: float
    width_correlation: float
    mean_rank_imbalance: float
    worst_rank_imbalance: float
    distinct_shapes: int
    removed: dict[str, dict[str, int]]
    dropped_samples: int
    repeated_samples: int

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, ready for JSON: None for NaN, string keys, lists."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def table(self) -> str:
        """Return the statistics as text for people, at most 110 columns wide."""
        return table_of(self)


def stats_of(plan: EpochPlan) -> PlanStats:
    """Return the statistics of a plan."""
    max_batch_size = plan.options["max_batch_size"]
    core = _core.plan_statistics(
        plan.offsets,
        plan.buckets,
        plan.widths,
        plan.tokens,
        num_replicas=plan.num_replicas,
        num_buckets=len(plan.edges) - 1,
        token_budget=plan.options["token_budget"],
        max_batch_size=_UNLIMITED if max_batch_size is None else max_batch_size,
        batch_size_multiple=plan.options["batch_size_multiple"],
        num_threads=as_num_threads(None),
    )
    runs = dict(core.runs)
    return PlanStats(
        steps=core.steps,
        num_replicas=plan.num_replicas,
        batches=core.batches,
        samples=core.samples,
        tokens=core.tokens,
        padded_tokens=core.padded_tokens,
        padding_efficiency=_ratio(core.tokens, core.padded_tokens),
        token_budget=plan.options["token_budget"],
        buckets=_buckets_of(core, plan),
        mixed_steps=core.mixed_steps,
        runs=runs,
        longest_run=max(runs),
        share_in_runs_of_one=runs.get(1, 0) / core.steps,
        prefix_discrepancy=core.prefix_discrepancy,
        earliest_exhaustion=core.earliest_exhaustion,
        crowded_windows=_ratio(core.crowded_windows, core.windows),
        length_correlation=core.length_correlation,
        width_correlation=core.width_correlation,
        mean_rank_imbalance=core.mean_rank_imbalance,
        worst_rank_imbalance=core.worst_rank_imbalance,
        distinct_shapes=core.distinct_shapes,
        removed={reason: dict(amount) for reason, amount in plan.removed.items()},
        dropped_samples=len(plan.dropped),
        repeated_samples=len(plan.repeats),
    )


def _buckets_of(core: _core.PlanStatistics, plan: EpochPlan) -> tuple[BucketStats, ...]:
    buckets = core.buckets
    edges = plan.edges.tolist()
    token_budget = plan.options["token_budget"]
    quarters = [sum(steps) for steps in zip(*(b.quarter_steps for b in buckets), strict=True)]
    return tuple(
        BucketStats(
            bucket=k,
            start=edges[k],
            stop=edges[k + 1],
            samples=bucket.samples,
            batches=bucket.batches,
            steps=bucket.steps,
            share=_ratio(bucket.steps, core.steps),
            batch_share=_ratio(bucket.batches, core.batches),
            tokens=bucket.tokens,
            padded_tokens=bucket.padded_tokens,
            padding_efficiency=_ratio(bucket.tokens, bucket.padded_tokens),
            mean_length=_ratio(bucket.tokens, bucket.samples),
            mean_samples=_ratio(bucket.samples, bucket.batches),
            longest_width=bucket.longest_width,
            budget_fill=_ratio(bucket.padded_tokens, bucket.batches * token_budget),
            quarters=tuple(map(_ratio, bucket.quarter_steps, quarters)),
            limited_by=max(_LIMITS, key=_limits_of(bucket).__getitem__),
            limits=_limits_of(bucket),
        )
        for k, bucket in enumerate(buckets)
    )


def _limits_of(bucket: _core.BucketStatistics) -> dict[str, int]:
    return {limit: getattr(bucket, f"limited_by_{limit}") for limit in _LIMITS}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _plain(value: Any) -> Any:
    """Return `value` in the types that JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
