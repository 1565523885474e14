"""The parts of the page about an epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from evenstride import _core
from evenstride._tables import (
    BUCKET_HEADER,
    abridged,
    bucket_cells,
    count,
    counted,
    number,
    percent,
    points,
    quarter_deviation,
)
from evenstride.advice import explain
from evenstride.compare import COLUMNS, ORDERS, order_cells
from evenstride.page_charts import bar, count_ticks, points_chart, stacked_chart
from evenstride.pages import Markup, element, figure, paragraphs, table
from evenstride.picture_data import histogram_of, shares_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenstride.report_facts import Facts, InOrder, Limits
    from evenstride.stats import BucketStats, PlanStats

__all__ = ["sections"]

_SLICES = 48
_BINS = 50
_PLACES = {0.0: "0%", 0.25: "25%", 0.5: "50%", 0.75: "75%", 1.0: "100%"}
_EXCESSES = (0.001, 0.01, 0.05, 0.1, 0.25)
_LONGEST_SINGLE = 4
_MOST_EDGES = 40


def sections(facts: Facts) -> Iterator[Markup]:
    """Yield the parts of a report, from the top to the bottom."""
    yield _header(facts)
    for heading, part in (
        ("The epoch", _orders),
        ("Buckets", _buckets),
        ("Evenness", _evenness),
        ("Runs", _runs),
        ("Padding", _padding),
        ("Use of the budget", _budget),
        ("Ranks", _ranks),
        ("What is left out", _left_out),
        ("Options", _options),
    ):
        yield element("section", element("h2", heading), *part(facts))


def _header(facts: Facts) -> Markup:
    plan, stats = facts.plan, facts.stats
    batches = counted(stats.num_replicas, "batch", "batches")
    how = f"order {plan.options['order']}, composition {plan.options['composition']}"
    if not plan.options["shuffle"]:
        how = "sorted, longest first"
    tiles = {
        "real tokens": (percent(stats.padding_efficiency), "of all that is computed"),
        "steps": (count(stats.steps), f"of {batches} each"),
        "budget used": (percent(_fill(facts)), f"of {count(stats.token_budget)} tokens a batch"),
        "longest run": (counted(stats.longest_run, "step"), "of one bucket"),
        "quarter": (_deviation(stats), "largest difference of a bucket's share"),
        "samples": (count(stats.samples), f"{count(stats.tokens)} tokens"),
    }
    items = [
        element("div", element("dt", name), element("dd", value, element("small", note)))
        for name, (value, note) in tiles.items()
    ]
    return element(
        "header",
        element("h1", facts.name or "An epoch"),
        element("p", f"Epoch {plan.epoch} with seed {plan.options['seed']}: {how}."),
        element("dl", *items, class_="figures"),
        *(
            element("p", "With ", element("code", flags), f" {effect}", class_="advice")
            for flags, effect in facts.advice
        ),
    )


def _fill(facts: Facts) -> float:
    return facts.stats.padded_tokens / (facts.stats.batches * facts.stats.token_budget)


def _orders(facts: Facts) -> Iterator[Markup]:
    own = facts.own_order
    reading = facts.orders[own].strip.reading
    yield element(
        "p",
        f"Each point is a step in the colour of its bucket. {reading}. The smaller strips are the "
        f"first {facts.orders[own].start.shown} steps, one by one. Quarters within 0.5 points are: "
        "in each quarter of the epoch, a bucket's share of the steps is its share of the whole "
        "epoch, give or take 0.5 percentage points at most.",
    )
    yield facts.ramp.legend(facts.plan.edges.tolist())
    shown = [own, *(order for order in ORDERS if order in facts.orders and order != own)]
    yield element(
        "div",
        *(_order(facts, order, facts.orders[order], own=order == own) for order in shown),
        class_="orders",
    )
    yield from _limits(facts, facts.order_limits)
    if facts.reason:
        yield element("p", f"Other orders are not shown: {facts.reason}.", class_="note")
        return
    yield table(
        ["order", *COLUMNS],
        [[order, *order_cells(facts.orders[order].stats)] for order in shown],
        caption="The orders in figures",
    )
    meanings = [
        element("div", element("dt", column), element("dd", meaning))
        for column, meaning in COLUMNS.items()
    ]
    yield element("dl", *meanings, class_="meanings note")
    if "mixed" in shown:
        yield element(
            "p",
            "A batch of the order mixed has samples of any length, and counts for the bucket of "
            "its longest one.",
            class_="note",
        )


def _limits(facts: Facts, limits: Limits) -> Iterator[Markup]:
    """Say which plans are not there, and which have other steps than were asked for."""
    for name, reason in limits.left_out.items():
        yield element("p", f"Without {name}: {reason}", class_="note")
    if limits.other_steps:
        asked = count(facts.stats.steps)
        has = ", ".join(
            f"{name} ({count(steps)} steps)" for name, steps in limits.other_steps.items()
        )
        yield element(
            "p",
            f"Not possible in the {asked} steps of steps_per_epoch, and so in their own: {has}.",
            class_="note",
        )


def _deviation(stats: PlanStats) -> str:
    return f"{number(100 * quarter_deviation(stats), 2)} points"


def _order(facts: Facts, order: str, there: InOrder, *, own: bool) -> Markup:
    stats = there.stats
    run = f"longest run {counted(stats.longest_run, 'step')}"
    quarters = f"quarters within {_deviation(stats)}"
    name = element("b", order, *([element("mark", "this plan")] if own else []))
    description = (
        f"The {counted(stats.steps, 'step')} of the order {order} in the colours of their buckets: "
        f"{run}, {quarters}, first bucket used up at {percent(stats.earliest_exhaustion)} of the "
        "epoch."
    )
    start = f"The first {counted(there.start.shown, 'step')} of the order {order}."
    return element(
        "figure",
        element("figcaption", name, element("span", run), element("span", quarters)),
        facts.ramp.image(there.strip, description, class_="strip"),
        facts.ramp.image(there.start, start, class_="strip start"),
        class_="order",
    )


def _buckets(facts: Facts) -> Iterator[Markup]:
    def row(bucket: BucketStats) -> list[str]:
        first, *rest = bucket_cells(bucket)
        return [facts.ramp.swatch(bucket.bucket, first), *rest]

    yield paragraphs(explain(facts.stats, facts.plan.options)[:-1])
    yield table(BUCKET_HEADER, abridged(facts.stats, row), caption="Batches by bucket", left=2)
    yield element(
        "p",
        "Lengths are in tokens. Share: of the batches. Real: real tokens over padded tokens. Mean: "
        "tokens a sample. A batch: samples. Fill: padded tokens over the token budget. Limit: what "
        "kept most of the batches from being larger.",
        class_="note",
    )


def _evenness(facts: Facts) -> Iterator[Markup]:
    stats = facts.stats
    shares, bounds = shares_of(facts.labels, facts.ramp.num_buckets, _SLICES)
    text = f"Share of each bucket in the steps of {shares.shape[1]} slices of the epoch."
    chart = stacked_chart(
        shares,
        bounds,
        facts.ramp,
        x_ticks=_PLACES,
        y_ticks=_PLACES,
        x_name="place in the epoch",
        description=text,
    )
    yield element(
        "p",
        "In each quarter of the epoch, a bucket's share of the steps differs from its share of the "
        f"whole epoch by at most {_deviation(stats)}. The first bucket is used up at "
        f"{percent(stats.earliest_exhaustion)} of the epoch, and none is ever more than "
        f"{number(stats.prefix_discrepancy, 1)} steps ahead of its share, or behind.",
    )
    yield figure(chart, text, class_="chart")

    def row(bucket: BucketStats) -> list[str]:
        name = f"{bucket.bucket}: [{bucket.start}, {bucket.stop})"
        off = [_off(share, share - bucket.share) for share in bucket.quarters]
        swatch = facts.ramp.swatch(bucket.bucket, name)
        return [swatch, count(bucket.steps), points(bucket.share), *off]

    header = ["bucket", "steps", "share", *(f"quarter {i}" for i in (1, 2, 3, 4))]
    caption = (
        "Share of each bucket in each quarter, and how many points it differs from the whole's"
    )
    yield table(header, abridged(stats, row), caption=caption)


def _off(share: float, difference: float) -> Markup:
    sign = "" if math.isnan(share) else f" {round(100 * difference, 2) + 0.0:+.2f}"
    return Markup(points(share) + element("span", sign, class_="soft"))


def _runs(facts: Facts) -> Iterator[Markup]:
    stats = facts.stats
    ranges: dict[str, list[int]] = {}
    for length, runs in stats.runs.items():
        first = length if length <= _LONGEST_SINGLE else 1 << (length - 1).bit_length() - 1
        last = first if length <= _LONGEST_SINGLE else 2 * first
        name = str(length) if first == last else f"{first + 1:,} to {last:,}"
        into = ranges.setdefault(name, [0, 0])
        into[0] += runs
        into[1] += runs * length
    yield element(
        "p",
        f"{percent(stats.share_in_runs_of_one)} of the steps have neighbours of other buckets; the "
        f"longest run of one bucket is {counted(stats.longest_run, 'step')}. In "
        f"{percent(stats.crowded_windows)} of all windows of 4 steps, three or more are of one "
        "bucket.",
    )
    yield table(
        ["run of", "runs", "steps", "share", ""],
        [
            [
                name,
                count(runs),
                count(steps),
                percent(steps / stats.steps),
                bar(steps / stats.steps),
            ]
            for name, (runs, steps) in ranges.items()
        ],
        caption="Run lengths, in steps",
    )


def _padding(facts: Facts) -> Iterator[Markup]:
    stats = facts.stats
    padding = stats.padded_tokens - stats.tokens
    yield element(
        "p",
        f"{count(stats.tokens)} real tokens are padded to {count(stats.padded_tokens)}: "
        f"{percent(padding / max(1, stats.padded_tokens))} of what is computed is padding. The "
        f"batches have {counted(stats.distinct_shapes, 'distinct shape')}.",
    )
    yield from _limits(facts, facts.window_limits)
    if not facts.windows:
        if facts.reason:
            yield element("p", f"Windows are not compared: {facts.reason}.", class_="note")
        return
    values = ", ".join(f"{name} {percent(value)}" for name, value in facts.windows.items())
    chart = points_chart(
        facts.windows,
        ends=("shuffle", "frozen"),
        x_name="window, in samples",
        description=f"Padding efficiency by composition and window: {values}.",
    )
    caption = (
        'Padding efficiency of composition="window" by window, between "shuffle", which mixes a '
        'whole bucket, and "frozen", which never mixes.'
    )
    yield figure(chart, caption, class_="chart")


def _budget(facts: Facts) -> Iterator[Markup]:
    plan, budget = facts.plan, facts.stats.token_budget
    fills, bounds = histogram_of(plan, plan.padded_tokens / budget, _BINS)
    widths, width_bounds = histogram_of(plan, plan.widths.astype(np.float64), _BINS)
    yield element(
        "p",
        f"The mean batch fills {percent(_fill(facts))} of the token budget of {count(budget)}; the "
        f"fullest {percent(float(plan.padded_tokens.max()) / budget)}.",
    )
    text = "Batches by how much of the token budget they fill, in the colours of their buckets."
    fill_ticks = _PLACES if bounds[-1] == 1 else {0.0: "0%", float(bounds[-1]): percent(bounds[-1])}
    fill_chart = stacked_chart(
        fills,
        bounds,
        facts.ramp,
        x_ticks=fill_ticks,
        y_ticks=count_ticks(float(fills.sum(axis=0).max())),
        x_name="padded tokens / token budget",
        description=text,
    )
    width_text = "Batches by their width, in the colours of their buckets."
    width_ticks = count_ticks(float(width_bounds[-1]))
    width_chart = stacked_chart(
        widths,
        width_bounds,
        facts.ramp,
        x_ticks={at: text for at, text in width_ticks.items() if at <= width_bounds[-1]},
        y_ticks=count_ticks(float(widths.sum(axis=0).max())),
        x_name="width, in tokens",
        description=width_text,
    )
    yield element(
        "div",
        figure(fill_chart, text, class_="chart"),
        figure(width_chart, width_text, class_="chart"),
        class_="charts",
    )


def _ranks(facts: Facts) -> Iterator[Markup]:
    plan, stats = facts.plan, facts.stats
    if plan.num_replicas == 1:
        yield element("p", "There is one rank, and so nothing to balance.")
        return
    padded = plan.padded_tokens.reshape(plan.num_steps, plan.num_replicas)
    excess = padded.max(axis=1) / padded.mean(axis=1) - 1
    counts = np.bincount(np.searchsorted(_EXCESSES, excess), minlength=len(_EXCESSES) + 1)
    names = [
        f"at most {percent(_EXCESSES[0])}",
        *(f"up to {percent(most)}" for most in _EXCESSES[1:]),
        f"above {percent(_EXCESSES[-1])}",
    ]
    yield element(
        "p",
        f"All ranks wait for the slowest one of a step: of {count(plan.num_replicas)}, it has "
        f"{points(stats.mean_rank_imbalance - 1)} more padded tokens than their mean on average, "
        f"and {points(stats.worst_rank_imbalance - 1)} more at worst. {count(stats.mixed_steps)} "
        "of the steps are mixed.",
    )
    yield table(
        ["slowest rank above the mean", "steps", "share", ""],
        [
            [name, count(steps), percent(steps / stats.steps), bar(steps / stats.steps)]
            for name, steps in zip(names, counts.tolist(), strict=True)
        ],
        caption="Steps by how unequal their ranks are",
    )


def _left_out(facts: Facts) -> Iterator[Markup]:
    stats = facts.stats
    yield element("p", explain(stats, facts.plan.options)[-1])
    rows = [
        [
            _text(f"removed: {reason.replace('_', ' ')}"),
            count(amount["samples"]),
            count(amount["tokens"]),
        ]
        for reason, amount in stats.removed.items()
    ]
    for name, samples in (
        ("dropped by drop_last, others in each epoch", stats.dropped_samples),
        ("repeated to fill a step", stats.repeated_samples),
    ):
        rows.append([_text(name), count(samples), "-"])
    yield table(["", "samples", "tokens"], rows, caption="Samples left out or repeated")


def _text(text: str) -> Markup:
    """Return text for a cell, which may have several lines."""
    return element("span", text, class_="text")


def _options(facts: Facts) -> Iterator[Markup]:
    plan = facts.plan
    edges = plan.edges.tolist()
    shown = [*map(str, edges)]
    if len(edges) > _MOST_EDGES:
        shown = [*shown[: _MOST_EDGES // 2], "...", *shown[-_MOST_EDGES // 2 :]]
    values = {**plan.options, "num_replicas": plan.num_replicas, "epoch": plan.epoch}
    values["edges"] = ", ".join(shown)
    rows = [[element("code", name), _text(str(value))] for name, value in values.items()]
    yield table(["option", "value"], rows, caption="What the plan was made with", left=2)
    yield element(
        "p",
        "The lengths, these options, the seed and the epoch alone fix every batch. Made with "
        f"evenstride {_core.__version__}.",
        class_="note",
    )
