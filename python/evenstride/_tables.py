"""Statistics as text for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenstride.stats import BucketStats, PlanStats

_MOST_ROWS = 40
_LONGEST_RUN = 5
_EXACT_END = 1_000_000
BUCKET_HEADER = (
    "#",
    "lengths",
    "samples",
    "batches",
    "share",
    "tokens",
    "padded",
    "real",
    "mean",
    "a batch",
    "fill",
    "limit",
)
ORDER_FIGURES = {
    "quarter": "largest difference of a bucket's share in a quarter from its share, in points",
    "used up": "the part of the epoch after which the first bucket has no more steps",
    "longest": "longest run of steps of one bucket",
    "ones": "share of steps in runs of one",
    "prefix": "prefix discrepancy: how many steps a bucket is ahead or behind, at worst",
    "3 of 4": "share of windows of 4 steps with three or more of one bucket",
    "neighbours": "correlation of the mean lengths of neighbouring steps",
}
"""What is said of an order, and what it means."""
REAL = "padding efficiency: real tokens over padded tokens"
_LEGEND = {
    "real": REAL,
    "distinct shapes": "different pairs of samples and width among the batches",
    "slowest rank": "padded tokens of a step's most expensive rank over the mean of its ranks",
    **ORDER_FIGURES,
    "widths": "correlation of the widths of neighbouring steps of one bucket",
    "share": "of the batches; then, with the quarters and the runs, of the steps",
    "mean, a batch": "tokens of a sample, and samples of a batch, on average",
    "fill": "padded tokens of a batch over the token budget, on average",
    "limit": "what kept most of the batches from being larger",
}
_LIMIT_NAMES = {
    "token_budget": "budget",
    "max_batch_size": "batch size",
    "batch_size_multiple": "multiple",
    "samples": "samples",
}


def table_of(stats: PlanStats) -> str:
    """Return facts, buckets, quarters, runs and a legend, each an aligned block of text."""
    blocks = (
        _facts(stats),
        _abridged_lines(BUCKET_HEADER, stats, bucket_cells),
        _quarters(stats),
        _runs(stats),
        named(_LEGEND),
    )
    return "\n\n".join("\n".join(block) for block in blocks)


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 0) -> list[str]:
    """Return lines of cells under `header`, right-aligned but for the first `left` columns."""
    cells = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def named(texts: Mapping[str, str]) -> list[str]:
    """Return a line for each text, after its name."""
    width = max(map(len, texts))
    return [f"{name:{width}}  {text}" for name, text in texts.items()]


def count(number: float) -> str:
    """Return a count in at most seven characters: exact below a million, else four digits."""
    if number < _EXACT_END:
        return f"{number:,}"
    scaled = float(number)
    for unit in "kMGTPE":
        scaled /= 1000
        if round(scaled, 1) < 1000 or unit == "E":  # noqa: PLR2004
            break
    return f"{scaled:.{max(0, 4 - len(str(int(scaled))))}f}{unit}"


def counted(amount: int, one: str, many: str = "") -> str:
    """Return a count of what one of is called `one`, and several by default with an s.

    Examples
    --------
    >>> counted(1, "step"), counted(4000, "step"), counted(2, "batch", "batches")
    ('1 step', '4,000 steps', '2 batches')

    """
    return f"{count(amount)} {one if amount == 1 else many or one + 's'}"


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, or a dash if it is not a number."""
    return "-" if math.isnan(fraction) else f"{100 * fraction:.1f}%"


def points(share: float) -> str:
    """Return a share as a percentage to the hundredth of a point, or a dash if it is no number."""
    return "-" if math.isnan(share) else f"{100 * share:.2f}%"


def number(value: float, digits: int) -> str:
    """Return a number with this many decimals, or a dash if it is not one."""
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def quarter_deviation(stats: PlanStats) -> float:
    """Return the largest difference of a bucket's share in a quarter from its share overall."""
    differences = (
        abs(quarter - bucket.share)
        for bucket in stats.buckets
        for quarter in bucket.quarters
        if not math.isnan(quarter)
    )
    return max(differences, default=math.nan)


def _facts(stats: PlanStats) -> list[str]:
    batches = counted(stats.num_replicas, "batch", "batches")
    repeated = f"{count(stats.repeated_samples)} of them repeated"
    mean = number(stats.mean_rank_imbalance, 4)
    worst = number(stats.worst_rank_imbalance, 4)
    facts = {
        "steps": f"{count(stats.steps)} of {batches} each, {count(stats.mixed_steps)} mixed",
        "samples": f"{count(stats.samples)}, {repeated}; {count(stats.dropped_samples)} dropped",
    }
    for reason, amount in stats.removed.items():
        facts[f"removed, {reason.replace('_', ' ')}"] = (
            f"{count(amount['samples'])} samples, {count(amount['tokens'])} tokens"
        )
    facts |= {
        "tokens": f"{count(stats.tokens)}, padded {count(stats.padded_tokens)}",
        "real": percent(stats.padding_efficiency),
        "distinct shapes": count(stats.distinct_shapes),
        "slowest rank": f"{mean} on average, {worst} at worst",
        "quarter": f"{number(100 * quarter_deviation(stats), 2)} points",
        "used up": percent(stats.earliest_exhaustion),
        "longest": counted(stats.longest_run, "step"),
        "ones": percent(stats.share_in_runs_of_one),
        "prefix": f"{number(stats.prefix_discrepancy, 5)} steps",
        "3 of 4": percent(stats.crowded_windows),
        "neighbours": number(stats.length_correlation, 3),
        "widths": number(stats.width_correlation, 3),
    }
    return named(facts)


def abridged(stats: PlanStats, row: Callable[[BucketStats], list[str]]) -> list[list[str]]:
    """Return a row for each bucket. Where they are too many, one cell stands for those between."""
    buckets = stats.buckets
    if len(buckets) <= _MOST_ROWS:
        return [row(bucket) for bucket in buckets]
    first, last = buckets[: _MOST_ROWS // 2], buckets[-_MOST_ROWS // 2 :]
    between = f"... {count(len(buckets) - len(first) - len(last))} buckets more ..."
    return [*map(row, first), [between], *map(row, last)]


def _abridged_lines(
    header: Sequence[str], stats: PlanStats, row: Callable[[BucketStats], list[str]]
) -> list[str]:
    rows = abridged(stats, row)
    lines = aligned(header, [cells for cells in rows if len(cells) > 1])
    for place, cells in enumerate(rows, 1):
        if len(cells) == 1:
            lines.insert(place, cells[0])
    return lines


def bucket_cells(bucket: BucketStats) -> list[str]:
    """Return a bucket's row below :data:`BUCKET_HEADER`."""
    return [
        str(bucket.bucket),
        f"[{bucket.start}, {bucket.stop})",
        count(bucket.samples),
        count(bucket.batches),
        percent(bucket.batch_share),
        count(bucket.tokens),
        count(bucket.padded_tokens),
        percent(bucket.padding_efficiency),
        number(bucket.mean_length, 1),
        number(bucket.mean_samples, 1),
        percent(bucket.budget_fill),
        _LIMIT_NAMES[bucket.limited_by] if bucket.batches else "-",
    ]


def _quarters(stats: PlanStats) -> list[str]:
    header = ["#", "steps", "share", *(f"quarter {i}" for i in (1, 2, 3, 4))]

    def row(bucket: BucketStats) -> list[str]:
        shares = (bucket.share, *bucket.quarters)
        return [str(bucket.bucket), count(bucket.steps), *map(points, shares)]

    return _abridged_lines(header, stats, row)


def _runs(stats: PlanStats) -> list[str]:
    steps = dict.fromkeys(range(1, _LONGEST_RUN + 1), 0)
    for length, runs in stats.runs.items():
        steps[min(length, _LONGEST_RUN)] += length * runs
    names = [*map(str, range(1, _LONGEST_RUN)), f"{_LONGEST_RUN} or more"]
    rows = [
        ["steps", *map(count, steps.values())],
        ["share", *(percent(part / stats.steps) for part in steps.values())],
    ]
    return aligned(["run of", *names], rows, left=1)
