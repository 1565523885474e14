"""Padding against diversity: plans with many buckets, compositions and windows, side by side."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from evenstride._tables import REAL, aligned, count, counted, named, percent
from evenstride.advice import flags_of
from evenstride.candidate import Candidate, measured
from evenstride.lengths import as_lengths
from evenstride.options import as_uint64
from evenstride.planner import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenstride.lengths import LengthArray, Lengths

__all__ = [
    "CANDIDATES",
    "MOST_SAMPLES",
    "SEARCHED",
    "Candidate",
    "kind_of",
    "on_front",
    "reasons",
    "recommended",
    "tune",
    "tuning_dict",
    "tuning_tables",
]

MOST_SAMPLES = 1_000_000
"""Of more samples, this many are drawn to plan with."""

_BUCKETS = (1, 3, 6, 12, 24, 48)
_WINDOWS = (64, 256, 1024, 4096)
_DEFAULT_BUCKETS = 6
_MOST_MET_AGAIN = 0.1  # Above it, an epoch has much the same batches as the one before.
_MOST_FOR_MIXING = 0.1  # Padding efficiency that may be lost to stay below it.
_SHUFFLE: dict[str, Any] = {"composition": "shuffle"}
_COMPOSITIONS = (_SHUFFLE, *({"composition": "window", "window": window} for window in _WINDOWS))
SEARCHED = (
    "buckets",
    "merge_buckets",
    "composition",
    "window",
    "order",
    "jitter",
    "shuffle",
    "steps_per_epoch",
)
"""The options of `plan_epoch` that candidates set, or leave as they are by default."""

CANDIDATES: tuple[dict[str, Any], ...] = (
    *({"buckets": buckets, **how} for buckets in _BUCKETS for how in _COMPOSITIONS),
    {"buckets": _DEFAULT_BUCKETS, "composition": "frozen"},
    {"order": "mixed", **_SHUFFLE},
)
"""The options of each candidate."""

_MEANINGS = {
    "real": REAL,
    "diversity": "share of all samples that a sample's companions in a batch are drawn from, from "
    "epoch to epoch, as if all of them were equally likely",
    "companions": "the same in samples",
    "meet again": "share of the pairs of samples in a batch that are in one batch in the next "
    f"epoch, too; above {percent(_MOST_MET_AGAIN)}, another candidate is recommended if possible",
    "Pareto front": "no other candidate is better in padding or diversity and as good in the other",
}


def tune(
    lengths: Lengths, **options: Any
) -> Iterator[tuple[dict[str, Any], Candidate | ValueError]]:
    """Yield the options of each candidate, and what they give or why they cannot be had.

    Two epochs are planned for each, since diversity is what changes from one to the next.

    Parameters
    ----------
    lengths : array_like of int, shape (n_samples,)
        Tokens of each sample. Of more than a million, a million are drawn, by the seed; another
        version of numpy may draw others.
    **options
        Those of :func:`plan_epoch` but `SEARCHED`.

    Raises
    ------
    TypeError, ValueError
        If one of `SEARCHED` is given, or the first candidate cannot be had: the options are wrong
        for all of them.

    Examples
    --------
    >>> import numpy as np
    >>> lengths = np.arange(10_000) * 7919 % 500 + 1
    >>> found = [candidate for _, candidate in tune(lengths, token_budget=5000)]
    >>> one_bucket, frozen = found[0], found[-2]
    >>> print(f"{one_bucket.padding_efficiency:.2f} {frozen.padding_efficiency:.2f}")
    0.55 1.00
    >>> print(f"{one_bucket.diversity:.1f} {frozen.diversity:.3f}")
    0.8 0.002

    """
    for name in SEARCHED:
        if name in options:
            msg = f"`{name}` must be left to the search, but is given."
            raise TypeError(msg)
    array = _drawn(as_lengths(lengths), as_uint64("seed", options.get("seed", 0)))
    edges: dict[int, list[int]] = {}
    for number, change in enumerate(CANDIDATES):
        try:
            # Edges are found once for each number of them.
            buckets = change.get("buckets", _DEFAULT_BUCKETS)
            found = {**change, "buckets": edges.get(buckets, buckets)}
            plan = plan_epoch(array, **{**options, **found})
            edges[buckets] = found["buckets"] = plan.edges[1:-1].tolist()
            epoch = {"epoch": (plan.epoch + 1) % 2**64}
            following = plan_epoch(array, **{**options, **found, **epoch})
        except ValueError as error:
            if number == 0:
                raise
            yield change, error
            continue
        yield change, measured(change, plan, following, len(array))


def _drawn(lengths: LengthArray, seed: int) -> LengthArray:
    if len(lengths) <= MOST_SAMPLES:
        return lengths
    places = np.random.default_rng(seed).integers(0, len(lengths), MOST_SAMPLES)
    places.sort()
    return lengths[places]


def kind_of(candidate: Candidate) -> str:
    """Return the composition with its window, or the order where that is not the default."""
    options = candidate.options
    name = str(options.get("order", options["composition"]))
    return f"{name} {options['window']:,}" if "window" in options else name


def on_front(candidates: Sequence[Candidate]) -> list[bool]:
    """Return whether no other candidate is better in one respect and as good in the other."""
    figures = [(c.padding_efficiency, c.diversity) for c in candidates]
    return [
        not any(other != own and other[0] >= own[0] and other[1] >= own[1] for other in figures)
        for own in figures
    ]


def recommended(candidates: Sequence[Candidate], give_up: float = 1.0) -> Candidate:
    """Return the most diverse of those that pad little more than the one that pads least.

    Its batches are to be new in each epoch: where more than a tenth of their pairs of samples meet
    again in the next one, it is the one that pads least of those of which that is not so, if it
    costs no more than 10 points of padding efficiency.

    Parameters
    ----------
    candidates : sequence of Candidate
        What there is, but for frozen ones, whose batches never change, and those of one bucket,
        whose steps cannot be spread by length. At least one is left.
    give_up : float, default 1.0
        Padding efficiency that may be given up for diversity, in points. In ``[0, 100]``.

    Raises
    ------
    TypeError
        If `give_up` is no number.
    ValueError
        If it is out of its range, or no candidate may be recommended.

    """
    if not isinstance(give_up, SupportsFloat):
        msg = f"`give_up` must be a number, but is {give_up!r}."
        raise TypeError(msg)
    if not 0 <= give_up <= 100:  # noqa: PLR2004 - Percent.
        msg = f"`give_up` must be in [0, 100], but is {give_up}."
        raise ValueError(msg)
    eligible = _eligible(candidates)
    if not eligible:
        msg = (
            "`candidates` must have at least 1 that is not frozen and has not 1 bucket, but has 0."
        )
        raise ValueError(msg)
    least = _least_padding(candidates).padding_efficiency
    near = [c for c in eligible if c.padding_efficiency >= least - give_up / 100]
    best = max(near, key=lambda c: (c.diversity, c.padding_efficiency))
    if not _mixes(best):
        mixing = [
            c for c in eligible if _mixes(c) and c.padding_efficiency >= least - _MOST_FOR_MIXING
        ]
        best = max(mixing, key=lambda c: (c.padding_efficiency, c.diversity), default=best)
    return best


def _eligible(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates whose batches are new in each epoch, and whose steps can be spread."""
    return [
        candidate
        for candidate in candidates
        if candidate.options["composition"] != "frozen" and candidate.options.get("buckets") != 1
    ]


def _mixes(candidate: Candidate) -> bool:
    return not candidate.recurrence > _MOST_MET_AGAIN  # Nor if no batch has a pair.


def _least_padding(candidates: Sequence[Candidate]) -> Candidate:
    return max(_eligible(candidates), key=lambda c: (c.padding_efficiency, c.diversity))


def reasons(candidates: Sequence[Candidate], choice: Candidate, num_samples: int) -> Iterator[str]:
    """Yield which candidate is recommended and why, in sentences for people."""
    yield (
        f"Recommended: {flags_of(choice.options)}. {percent(choice.padding_efficiency)} of the "
        f"tokens are real, and a sample's companions are drawn from {_pool(choice, num_samples)}, "
        f"{_share(choice.diversity)} of all."
    )
    if not _mixes(choice):
        yield (
            f"There are few samples for such batches: {percent(choice.recurrence)} of the pairs in "
            f"one meet again in the next epoch, and less than {percent(_MOST_MET_AGAIN)} would "
            f"cost more than {100 * _MOST_FOR_MIXING:.0f} points. Smaller batches mix better."
        )
    if "buckets" in choice.options:
        yield from _evenness(candidates, choice, num_samples)
    least = _least_padding(candidates)
    if least is not choice:
        yield (
            f"The least padding is that of {flags_of(least.options)}: {_gain(least, choice)} more "
            f"real tokens, but companions from {_times(choice, least)} fewer samples."
        )
    near = _eligible(candidates)
    wider = [
        candidate
        for candidate, front in zip(near, on_front(near), strict=True)
        if front and candidate.diversity > choice.diversity
    ]
    if wider:
        following = min(wider, key=lambda c: c.diversity)
        yield (
            f"Companions from {_times(following, choice)} more samples, with "
            f"{flags_of(following.options)}, would cost {_gain(choice, following)}."
        )


def _evenness(
    candidates: Sequence[Candidate], choice: Candidate, num_samples: int
) -> Iterator[str]:
    """Yield how much the order has to spread, and what more of it would cost."""
    buckets = choice.options["buckets"]
    yield (
        f"The order spreads {buckets} buckets: the largest has {percent(choice.largest_share)} of "
        f"the steps, and the longest run of one is {counted(choice.longest_run, 'step')}."
    )
    default = {**choice.options, "buckets": _DEFAULT_BUCKETS}
    more = next((c for c in candidates if c.options == default), None)
    if buckets < _DEFAULT_BUCKETS and more is not None:
        yield (
            f"Fewer buckets than {_DEFAULT_BUCKETS} mean a less even epoch. With "
            f"{flags_of(default)} the largest would have {percent(more.largest_share)} of the "
            f"steps, {percent(more.padding_efficiency)} of the tokens would be real, and "
            f"companions come from {_pool(more, num_samples)}."
        )


def _pool(candidate: Candidate, num_samples: int) -> str:
    return counted(round(candidate.diversity * num_samples), "sample")


def _gain(more: Candidate, less: Candidate) -> str:
    return f"{100 * (more.padding_efficiency - less.padding_efficiency):.1f} points"


def _times(more: Candidate, less: Candidate) -> str:
    if less.diversity == 0:
        return "many times"
    return f"{more.diversity / less.diversity:.2g} times"


def _share(diversity: float) -> str:
    return f"{100 * diversity:#.2g}%" if diversity < 0.01 else percent(diversity)  # noqa: PLR2004


def tuning_tables(candidates: Sequence[Candidate], num_samples: int) -> list[str]:
    """Return the candidates as blocks of text: a row each, by padding; then what columns mean."""
    rows = [
        [
            kind_of(candidate),
            str(candidate.options.get("buckets", "-")),
            f"{100 * candidate.padding_efficiency:.2f}%",
            _share(candidate.diversity),
            count(round(candidate.diversity * num_samples)),
            _share(candidate.recurrence),
            "*" if front else "-",
        ]
        for candidate, front in sorted(
            zip(candidates, on_front(candidates), strict=True),
            key=lambda pair: pair[0].padding_efficiency,
        )
    ]
    header = ["composition", "buckets", *_MEANINGS]
    return ["\n".join(aligned(header, rows, left=1)), "\n".join(named(_MEANINGS))]


def tuning_dict(
    candidates: Sequence[Candidate],
    choice: Candidate,
    left_out: Sequence[tuple[dict[str, Any], str]],
    num_samples: int,
) -> dict[str, Any]:
    """Return the candidates as plain values, ready for JSON: None for NaN."""
    rows = [
        {
            **asdict(candidate),
            "recurrence": None if math.isnan(candidate.recurrence) else candidate.recurrence,
            "front": front,
        }
        for candidate, front in zip(candidates, on_front(candidates), strict=True)
    ]
    return {
        "samples": num_samples,
        "planned_samples": min(num_samples, MOST_SAMPLES),
        "candidates": rows,
        "left_out": [{"options": change, "reason": reason} for change, reason in left_out],
        "recommended": choice.options,
        "reasons": list(reasons(candidates, choice, num_samples)),
    }
