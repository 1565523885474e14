"""Plan an epoch: Evenstride against the same work in plain Python, numpy and numba.

Every contender's plan is checked before any is timed. Compiled code is warmed up outside the
timing, and the edges are given, so that only the planning is timed.
"""

from __future__ import annotations

import sys
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

import evenstride as es
from baselines import FlatPlan, IntArray, plan_numba, plan_numpy, plan_plain
from harness import (
    EDGES,
    MAX_BATCH_SIZE,
    TOKEN_BUDGET,
    Contender,
    alternate,
    compare,
    finish,
    load_lengths,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from harness import Row

LIMITS: dict[str, Any] = {"token_budget": TOKEN_BUDGET, "max_batch_size": MAX_BATCH_SIZE}


# --------------------------------------------------------------------------- answers


def check(
    name: str,
    plan: FlatPlan,
    lengths: IntArray,
    edges: Sequence[int],
    *,
    like: FlatPlan | None = None,
    quarter_tolerance: float = 0.001,
) -> None:
    """Assert that `plan` is an epoch: every sample once, every batch in one bucket and its limits.

    With `like`, also that each bucket has as many batches as there, to 0.5 %, and in each quarter
    of the epoch the same share of the batches as in all of it, to `quarter_tolerance`.
    """
    indices, offsets = plan
    assert offsets[0] == 0, name
    assert offsets[-1] == lengths.size == indices.size, name
    seen = np.zeros(lengths.size, np.uint8)
    seen[indices] = 1
    assert seen.all(), f"{name}: a sample is missing"

    sizes = np.diff(offsets)
    assert sizes.min() >= 1, name
    assert sizes.max() <= MAX_BATCH_SIZE, name
    widths = np.maximum.reduceat(lengths[indices], offsets[:-1]).astype(np.int64)
    assert (widths * sizes).max() <= TOKEN_BUDGET, name

    buckets = buckets_of(plan, lengths, edges)
    assert np.array_equal(np.repeat(buckets, sizes), np.digitize(lengths[indices], edges)), (
        f"{name}: a batch spans two buckets"
    )
    if like is None:
        return
    counts = np.bincount(buckets, minlength=len(edges) + 1)
    expected = np.bincount(buckets_of(like, lengths, edges), minlength=len(edges) + 1)
    assert np.allclose(counts, expected, rtol=0.005, atol=2), f"{name}: {counts}, not {expected}"
    for quarter in np.array_split(buckets, 4):
        share = np.bincount(quarter, minlength=len(edges) + 1) / quarter.size
        off = np.abs(share - counts / buckets.size).max()
        assert off <= quarter_tolerance, f"{name}: a quarter is off by {off:.3%}"


def buckets_of(plan: FlatPlan, lengths: IntArray, edges: Sequence[int]) -> NDArray[np.int64]:
    """Return the bucket of each batch's first sample."""
    indices, offsets = plan
    return np.digitize(lengths[indices[offsets[:-1]]], edges)


def flat(plan: Any) -> FlatPlan:
    """Return an EpochPlan's indices and offsets."""
    return plan.indices, plan.offsets


def flattened(batches: Sequence[Sequence[int]]) -> FlatPlan:
    """Return lists of indices as one array and the batches' offsets."""
    offsets = np.cumsum([0, *map(len, batches)])
    return np.fromiter(chain.from_iterable(batches), np.int64, offsets[-1]), offsets


# --------------------------------------------------------------------------- contenders


class Planner:
    """A `BucketBatchSampler` that plans one epoch after another."""

    def __init__(self, lengths: IntArray, edges: Sequence[int] = EDGES, **options: Any) -> None:
        options = {"num_threads": 2, "num_replicas": 1, "rank": 0} | options
        self._sampler = es.BucketBatchSampler(lengths, buckets=list(edges), **LIMITS, **options)
        self._epoch = count(1)

    def __call__(self) -> Any:
        self._sampler.set_epoch(next(self._epoch))
        return self._sampler.plan


def one_call(lengths: IntArray, edges: Sequence[int] = EDGES, **options: Any) -> Callable[[], Any]:
    """Return a call of `plan_epoch` for one epoch after another."""
    options = {"num_threads": 2} | options
    epoch = count(1)
    buckets = list(edges)
    return lambda: es.plan_epoch(lengths, buckets=buckets, epoch=next(epoch), **LIMITS, **options)


def baseline(
    plan: Callable[..., Any], lengths: Any, edges: Sequence[int] = EDGES, **options: Any
) -> Callable[[], Any]:
    """Return a call of one of the baselines for one seed after another."""
    seed = count(1)
    return lambda: plan(lengths, edges, TOKEN_BUDGET, MAX_BATCH_SIZE, next(seed), **options)


NUMPY = "numpy, jitted fill"
NUMBA = "numba throughout, 2 threads"
NUMBA_ALONE = "numba throughout, 1 thread"


# --------------------------------------------------------------------------- tables


def against_plain(lengths: IntArray, rounds: int) -> list[Row]:
    """Compare with plain Python, which gets its lengths as the list of ints that it likes."""
    sampler, plain = Planner(lengths), baseline(plan_plain, lengths.tolist())
    reference = flattened(plain())
    check("plain Python", reference, lengths, EDGES, like=reference)
    check("sampler", flat(sampler()), lengths, EDGES, like=reference)

    ours, theirs = Contender(sampler, per_round=5), Contender(plain)
    alternate({"ours": ours, "theirs": theirs}, rounds=rounds)
    work = f"plan {lengths.size:,} samples"
    return [
        compare(work, ours, items=lengths.size, baseline="plain Python", theirs=theirs, reach=200)
    ]


def against_arrays(lengths: IntArray, rounds: int, reach: float) -> list[Row]:
    """Compare with numpy and numba; also one call of `plan_epoch`, and one thread."""
    calls: dict[str, Callable[[], Any]] = {
        "sampler": Planner(lengths),
        "one call": one_call(lengths),
        "one thread": Planner(lengths, num_threads=1),
    }
    rivals = {
        NUMPY: baseline(plan_numpy, lengths),
        NUMBA: baseline(plan_numba, lengths),
        NUMBA_ALONE: baseline(plan_numba, lengths, num_threads=1),
    }
    reference = rivals[NUMPY]()
    for name, call in rivals.items():
        check(name, call(), lengths, EDGES, like=reference)
    for name, call in calls.items():
        check(name, flat(call()), lengths, EDGES, like=reference)

    timed = {name: Contender(call) for name, call in (calls | rivals).items()}
    alternate(timed, rounds=rounds)
    work = f"plan {lengths.size:,} samples"
    rows = [
        (work, "sampler", NUMPY, reach),
        (work, "sampler", NUMBA, reach),
        (f"{work}, one call of plan_epoch", "one call", NUMPY, None),
        (f"{work}, one call of plan_epoch", "one call", NUMBA, None),
        (f"{work}, one thread", "one thread", NUMPY, None),
        (f"{work}, one thread", "one thread", NUMBA_ALONE, None),
    ]
    return [
        compare(
            work,
            timed[our],
            items=lengths.size,
            baseline=their,
            theirs=timed[their],
            reach=target,
        )
        for work, our, their, target in rows
    ]


def with_many_buckets(lengths: IntArray, rounds: int, num_buckets: int = 64) -> list[Row]:
    """Compare with numpy and numba on buckets of equally many samples."""
    quantiles = np.arange(1, num_buckets) / num_buckets
    edges = np.unique(np.quantile(lengths, quantiles).astype(np.int64)).tolist()
    sampler = Planner(lengths, edges)
    rivals = {
        NUMPY: baseline(plan_numpy, lengths, edges),
        NUMBA: baseline(plan_numba, lengths, edges),
    }
    reference = rivals[NUMPY]()
    # With 64 buckets and a bucket's place known to a few steps, a share is off by a little more.
    tolerance = 0.002
    for name, call in rivals.items():
        check(name, call(), lengths, edges, like=reference, quarter_tolerance=tolerance)
    check("sampler", flat(sampler()), lengths, edges, like=reference, quarter_tolerance=tolerance)

    timed = {name: Contender(call) for name, call in ({"ours": sampler} | rivals).items()}
    alternate(timed, rounds=rounds)
    work = f"plan {lengths.size:,} samples, {len(edges) + 1} buckets"
    return [
        compare(work, timed["ours"], items=lengths.size, baseline=name, theirs=timed[name])
        for name in rivals
    ]


def with_wide_lengths(lengths: IntArray, rounds: int) -> list[Row]:
    """Compare with numpy and numba on int64 lengths, four times as many bytes to read."""
    lengths = lengths.astype(np.int64)
    sampler = Planner(lengths)
    rivals = {
        NUMPY: baseline(plan_numpy, lengths),
        NUMBA: baseline(plan_numba, lengths),
    }
    reference = rivals[NUMPY]()
    check("sampler", flat(sampler()), lengths, EDGES, like=reference)
    timed = {name: Contender(call) for name, call in ({"ours": sampler} | rivals).items()}
    alternate(timed, rounds=rounds)
    work = f"plan {lengths.size:,} samples, int64 lengths"
    return [
        compare(work, timed["ours"], items=lengths.size, baseline=name, theirs=timed[name])
        for name in rivals
    ]


def other_options(lengths: IntArray, rounds: int) -> list[Row]:
    """Time options that no baseline has, beside the default."""
    calls = {
        "defaults": Planner(lengths),
        'composition="window"': Planner(lengths, composition="window"),
        'order="balanced"': Planner(lengths, order="balanced"),
        "num_replicas=8": Planner(lengths, num_replicas=8),
    }
    for name, call in calls.items():
        check(name, flat(call()), lengths, EDGES)
    timed = {name: Contender(call) for name, call in calls.items()}
    alternate(timed, rounds=rounds)
    return [
        compare(
            f"plan {lengths.size:,} samples, {name}",
            contender,
            items=lengths.size,
            baseline="ours, defaults",
            theirs=timed["defaults"],
        )
        for name, contender in timed.items()
        if name != "defaults"
    ]


def tiny(lengths: IntArray, rounds: int, size: int) -> list[Row]:
    """Compare on so few samples that the fixed cost of a call is all there is."""
    few = lengths[:size]
    call = one_call(few, num_threads=1)
    plain = baseline(plan_plain, few.tolist())
    jitted = baseline(plan_numba, few, num_threads=1)
    check("one call", flat(call()), few, EDGES)
    check("plain Python", flattened(plain()), few, EDGES)
    check(NUMBA_ALONE, jitted(), few, EDGES)

    ours = Contender(call, per_round=20)
    rivals = {
        "plain Python": Contender(plain, per_round=20),
        NUMBA_ALONE: Contender(jitted, per_round=20),
    }
    alternate({"ours": ours} | rivals, rounds=rounds, pause=0)
    work = f"plan {size} samples, one call of plan_epoch"
    return [
        compare(work, ours, items=size, baseline=name, theirs=theirs)
        for name, theirs in rivals.items()
    ]


def main() -> int:
    arguments = parse_arguments(__doc__, "plan")
    quick = arguments.quick
    lengths = load_lengths()
    rounds = 2 if quick else 31
    rows = against_plain(lengths[:100_000] if quick else lengths, 1 if quick else 3)
    rows += against_arrays(lengths, rounds, reach=12)
    if not quick:
        rows += against_arrays(load_lengths(10), 15, reach=15)
    rows += with_wide_lengths(lengths, rounds)
    rows += with_many_buckets(lengths, rounds)
    rows += other_options(lengths, rounds)
    for size in (10, 100):
        rows += tiny(lengths, rounds, size)
    return finish("plan", rows, arguments)


if __name__ == "__main__":
    sys.exit(main())
