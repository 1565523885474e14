"""What an epoch is on more and more ranks, as text for people and as plain values."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evenstride._tables import REAL, aligned, count, counted, named, number, percent, points
from evenstride.scaling import FEWEST_STEPS, MOST_LOST
from evenstride.step_costs import COSTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from evenstride.scaling import Scaling

__all__ = ["scaling_dict", "scaling_notes", "scaling_tables"]

_STEPS = {
    "a bucket": "steps over the buckets that have some",
    "mixed": "steps whose batches are of several buckets",
    "repeats": "samples that come once more to fill a step",
    "real": REAL,
    "small": "share of the samples in batches with fewer than half of what their width admits",
    "more": "batches more than on 1 rank, which is lost if each takes as long as a full one",
    "padded": "padded tokens more than on 1 rank",
    "waiting": "share of the ranks' time in which they wait for the slowest of their step, if time "
    "is in proportion to padded tokens",
}
_IMBALANCE = {name.replace("_", " "): text for name, text in COSTS.items()}
_PLANNING = {
    "seconds": "of planning, without the search for edges",
    "plan": "bytes of the plan's arrays, on each rank unless ranks share them",
    "peak": "bytes by which the process grew while planning, the plan included, as Linux measures",
}
_MOST_LESS_BUDGET = 4  # Nobody divides the budget by more than this.


def scaling_tables(results: Sequence[Scaling], quadratic: float) -> list[str]:
    """Return the results as blocks of text: steps, ranks of a step, planning, what columns mean.

    Parameters
    ----------
    results : sequence of Scaling
        What :func:`evenstride.scaling.scale` found; at least one.
    quadratic : float
        The ``c`` that it was given.

    """
    meanings = {
        **_STEPS,
        **_IMBALANCE,
        "of these": "the most expensive rank of a step over the mean of its ranks: the mean of all "
        "steps, and the worst",
        "c": f"{quadratic:,.6g} tokens",
        **_PLANNING,
    }
    return [
        _table(["steps", *_STEPS], results, _step_cells),
        _table(list(_IMBALANCE), results, _imbalance_cells),
        _table(list(_PLANNING), results, _planning_cells),
        "\n".join(named(meanings)),
    ]


def _table(
    columns: list[str], results: Sequence[Scaling], cells: Callable[[Scaling], list[str]]
) -> str:
    rows = [[count(result.num_replicas), *cells(result)] for result in results]
    return "\n".join(aligned(["ranks", *columns], rows))


def _step_cells(result: Scaling) -> list[str]:
    return [
        count(result.steps),
        number(result.steps_per_bucket, 1),
        count(result.mixed_steps),
        count(result.repeated_samples),
        points(result.padding_efficiency),
        points(result.small_samples / result.samples),
        _signed(result.more_batches),
        _signed(result.more_padded_tokens),
        points(result.waiting),
    ]


def _imbalance_cells(result: Scaling) -> list[str]:
    figures = (result.imbalance[name] for name in COSTS)
    return [f"{figure.mean:.4f}, {figure.worst:.4f}" for figure in figures]


def _planning_cells(result: Scaling) -> list[str]:
    return [
        number(result.seconds, 2),
        count(result.plan_bytes),
        "-" if result.peak_bytes is None else count(result.peak_bytes),
    ]


def _signed(share: float) -> str:
    return f"{round(100 * share, 2) + 0.0:+.2f}%"  # Nothing is above 0, not below.


def scaling_notes(results: Sequence[Scaling], options: Mapping[str, Any]) -> Iterator[str]:
    """Yield for which numbers of ranks these samples are too few, and what to do, in sentences.

    Parameters
    ----------
    results : sequence of Scaling
        What :func:`evenstride.scaling.scale` found, that on 1 rank first.
    options : mapping of str to Any
        Those of :func:`plan_epoch` that it was given.

    """
    alone, *others = results
    enough = [result for result in others if not result.too_small]
    if enough:
        most = max(enough, key=lambda result: result.num_replicas)
        yield (
            f"{counted(most.samples, 'sample')} are enough for {_ranks(most)}: "
            f"{number(most.steps_per_bucket, 1)} steps a bucket, and "
            f"{percent(most.more_batches)} more batches than on 1 rank."
        )
    for result in others:
        if result.too_small:
            yield (
                f"Too few samples for {_ranks(result)}: {number(result.steps_per_bucket, 1)} steps "
                f"a bucket, {percent(result.more_batches)} more batches than on 1 rank, and ranks "
                f"that wait for {percent(result.waiting)} of the time. At least {FEWEST_STEPS} "
                f"steps a bucket and at most {percent(MOST_LOST)} more batches come with "
                f"{_ways_out(alone, result, options)}."
            )


def _ranks(result: Scaling) -> str:
    return counted(result.num_replicas, "rank")


def _ways_out(alone: Scaling, result: Scaling, options: Mapping[str, Any]) -> str:
    """Return what makes enough steps a bucket: each of them alone would do."""
    wanted = FEWEST_STEPS * result.num_buckets
    # Against the steps that there were if no bucket had to be completed, against those that there
    # are, fewer where `drop_last` left some out, and by what is lost. Above 1 in any case.
    lack = max(
        wanted * result.num_replicas / alone.batches,
        wanted / result.steps,
        result.more_batches / MOST_LOST,
    )
    ways = [f"about {counted(_rounded_up(lack * result.samples), 'sample')}"]
    buckets = int(result.num_buckets / lack)
    if buckets > 1:
        ways.append(f"--buckets {buckets}")
    ranks = int(result.num_replicas / lack)
    if ranks >= 1:
        ways.append(f"--num-replicas {ranks}")
    budget = int(options["token_budget"] / lack)
    if budget >= options["token_budget"] / _MOST_LESS_BUDGET:
        ways.append(f"--token-budget {budget}")
    return f"{', '.join(ways[:-1])} or {ways[-1]}" if len(ways) > 1 else ways[0]


def _rounded_up(samples: float) -> int:
    """Return a number of two digits and zeros, and not less than `samples`."""
    unit = int(10 ** max(0, math.floor(math.log10(samples)) - 1))
    return math.ceil(samples / unit) * unit


def scaling_dict(
    results: Sequence[Scaling],
    left_out: Mapping[int, str],
    quadratic: float,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the results as plain values, ready for JSON.

    Parameters
    ----------
    results : sequence of Scaling
        What :func:`evenstride.scaling.scale` found, that on 1 rank first.
    left_out : mapping of int to str
        Why there can be no epoch on other numbers of ranks.
    quadratic : float
        The ``c`` that it was given.
    options : mapping of str to Any
        Those of :func:`plan_epoch` that it was given.

    """
    return {
        "quadratic": quadratic,
        "ranks": [asdict(result) for result in results],
        "left_out": {str(ranks): why for ranks, why in left_out.items()},
        "notes": list(scaling_notes(results, options)),
    }
