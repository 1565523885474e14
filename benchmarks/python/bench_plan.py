"""Plan an epoch: Evenstride against the same work in plain Python, numpy and numba.

Every contender's plan is checked before any is timed. Compiled code is warmed up outside the
timing, and the edges are given, so that only the planning is timed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from answers import check, flat, flattened
from baselines import plan_numba, plan_numpy, plan_plain
from harness import (
    EDGES,
    Contender,
    alternate,
    compare,
    finish,
    load_lengths,
    parse_arguments,
)
from planners import NUMBA, NUMBA_ALONE, NUMPY, Planner, baseline, one_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from answers import IntArray
    from harness import Row


# --------------------------------------------------------------------------- tables


def against_plain(lengths: IntArray, rounds: int) -> list[Row]:
    """Compare with plain Python, which gets its lengths as the list of ints that it likes."""
    sampler, plain = Planner(lengths), baseline(plan_plain, lengths.tolist())
    reference = flattened(plain())
    check("plain Python", reference, lengths, EDGES, like=reference, spread=0.001)
    check("sampler", flat(sampler()), lengths, EDGES, like=reference, spread=0.001)

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
        check(name, call(), lengths, EDGES, like=reference, spread=0.001)
    for name, call in calls.items():
        check(name, flat(call()), lengths, EDGES, like=reference, spread=0.001)

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
        check(name, call(), lengths, edges, like=reference, spread=tolerance)
    check("sampler", flat(sampler()), lengths, edges, like=reference, spread=tolerance)

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
    check("sampler", flat(sampler()), lengths, EDGES, like=reference, spread=0.001)
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
