"""What limits a plan's batches, and what would help, in sentences for people."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from evenstride._tables import counted, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from evenstride.stats import BucketStats, PlanStats

__all__ = ["MOST_SAMPLES_TO_REPLAN", "Advice", "advise", "explain", "flags_of"]

MOST_SAMPLES_TO_REPLAN = 20_000_000
"""Beyond it, nothing is planned anew to see what would help."""

_POOR = 0.9
_NOTABLE = 0.01


class Advice(NamedTuple):
    """Options as they are on the command line, and the rest of a sentence about them."""

    flags: str
    effect: str

    def __str__(self) -> str:
        return f"With {self.flags} {self.effect}"


def explain(stats: PlanStats, options: dict[str, Any]) -> list[str]:
    """Return a sentence for each kind of limit that batches have, and one for what is left out.

    Parameters
    ----------
    stats : PlanStats
        Of the plan.
    options : dict
        Those that the plan was made with.

    """
    limited: defaultdict[str, list[BucketStats]] = defaultdict(list)
    for bucket in stats.buckets:
        if bucket.batches > 0:
            limited[bucket.limited_by].append(bucket)
    limits = {
        "token_budget": f"The token budget of {stats.token_budget:,} limits",
        "max_batch_size": f"The largest batch size, {options['max_batch_size']}, limits",
        "batch_size_multiple": f"The batch size multiple, {options['batch_size_multiple']}, limits",
        "samples": "A lack of samples limits",
    }
    sentences = [_limit(limits[limit], limit, limited[limit]) for limit in limits if limited[limit]]
    return [*sentences, _left_out(stats)]


def _limit(limits: str, limit: str, buckets: Sequence[BucketStats]) -> str:
    share = sum(b.limits[limit] for b in buckets) / sum(b.batches for b in buckets)
    fills = sorted(bucket.budget_fill for bucket in buckets)
    least, most = percent(fills[0]), percent(fills[-1])
    fill = least if least == most else f"{least} to {most}"
    return (
        f"{limits} {percent(share)} of the batches of {_named([b.bucket for b in buckets])}; they "
        f"fill {fill} of the budget."
    )


def _named(buckets: Sequence[int]) -> str:
    """Return "bucket 3" or "buckets 0, 2-4"."""
    runs = [
        [bucket for _, bucket in run]
        for _, run in groupby(enumerate(buckets), lambda item: item[1] - item[0])
    ]
    names = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ("bucket " if len(buckets) == 1 else "buckets ") + ", ".join(names)


def _left_out(stats: PlanStats) -> str:
    removed = {reason: amount for reason, amount in stats.removed.items() if amount["samples"] > 0}
    total = stats.tokens + sum(amount["tokens"] for amount in removed.values())
    parts = [
        f"{counted(amount['samples'], 'sample')} ({percent(amount['tokens'] / max(1, total))} of "
        f"the tokens) as {reason.replace('_', ' ')}"
        for reason, amount in removed.items()
    ]
    if stats.dropped_samples > 0:
        parts.append(
            f"{counted(stats.dropped_samples, 'sample')} by drop_last, others in each epoch"
        )
    if not parts:
        return "Nothing is left out."
    return f"Left out: {', and '.join(parts)}."


def advise(
    stats: PlanStats, options: dict[str, Any], replan: Callable[[dict[str, Any]], PlanStats]
) -> Iterator[Advice]:
    """Yield what would help, in a sentence each: only what another plan proved to help.

    Parameters
    ----------
    stats, options
        As for :func:`explain`.
    replan : callable
        Returns the statistics of the plan with some options changed; may raise a ValueError.

    """
    for change in _changes(stats, options):
        try:
            changed = replan(change)
        except ValueError:
            continue  # This change is not possible together with the other options.
        gains = _order_gains(stats, changed) if "order" in change else _gains(stats, changed)
        if gains:
            yield Advice(flags_of(change), f"there would be {' and '.join(gains)}.")


def flags_of(options: dict[str, Any]) -> str:
    """Return options as they are on the command line.

    Examples
    --------
    >>> flags_of({"composition": "window", "max_batch_size": 64})
    '--composition window --max-batch-size 64'

    """
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())


def _changes(stats: PlanStats, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes that may help, by what the plan is poor at."""
    changes: list[dict[str, Any]] = []
    poor = [b for b in stats.buckets if b.batches > 0 and b.budget_fill < _POOR]
    short = [b for b in poor if b.limited_by == "max_batch_size"]
    if short:
        sizes = [stats.token_budget * b.samples // max(1, b.padded_tokens) for b in short]
        changes.append({"max_batch_size": max(sizes)})
    if any(b.limited_by == "batch_size_multiple" for b in poor):
        changes.append({"batch_size_multiple": 1})
    reorders = options["shuffle"] and options["order"] != "mixed"
    if reorders and stats.padding_efficiency < _POOR and options["composition"] == "shuffle":
        changes.append({"composition": "window"})
    sorts = options["order"] in {"ascending", "descending"}
    if reorders and not sorts and stats.earliest_exhaustion < _POOR:
        changes.append({"order": "stride"})
    return changes


def _gains(before: PlanStats, after: PlanStats) -> list[str]:
    gains = []
    if after.steps < before.steps * (1 - _NOTABLE):
        saved = percent(1 - after.steps / before.steps)
        gains.append(f"{counted(after.steps, 'step')} ({saved} fewer)")
    if after.padding_efficiency > before.padding_efficiency + _NOTABLE:
        pair = percent(after.padding_efficiency), percent(before.padding_efficiency)
        gains.append(f"a padding efficiency of {pair[0]} instead of {pair[1]}")
    return gains


def _order_gains(before: PlanStats, after: PlanStats) -> list[str]:
    gains = []
    if after.earliest_exhaustion > before.earliest_exhaustion + _NOTABLE:
        pair = percent(after.earliest_exhaustion), percent(before.earliest_exhaustion)
        gains.append(f"no bucket used up before {pair[0]} of the epoch, instead of {pair[1]}")
    return gains
