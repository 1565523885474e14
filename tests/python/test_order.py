"""In which order the steps of the buckets come."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenstride as es
from support import ORDERS, REAL, labels_of_steps, prefix_discrepancy, runs_of


def labels_for(counts, order, **options):
    """Plan so that bucket k has counts[k] steps; return the bucket of each step."""
    lengths = np.repeat(2 * np.arange(len(counts)) + 1, counts)
    edges = (2 * np.arange(1, len(counts))).tolist()
    plan = es.plan_epoch(
        lengths, token_budget=10**6, max_batch_size=1, buckets=edges, order=order, **options
    )
    labels = labels_of_steps(plan)
    assert np.bincount(labels, minlength=len(counts)).tolist() == list(counts)
    return labels


def chi_square(observed, expected):
    observed, expected = np.asarray(observed), np.asarray(expected)
    return float(((observed - expected) ** 2 / expected).sum())


def limit(degrees):
    """Above this a chi-square is found once in a million."""
    # Wilson and Hilferty's approximation; 4.75 is the normal quantile.
    return degrees * (1 - 2 / (9 * degrees) + 4.75 * math.sqrt(2 / (9 * degrees))) ** 3


some_counts = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)
few_counts = st.lists(st.integers(0, 5), min_size=2, max_size=5).filter(any)


@given(some_counts, st.sampled_from(ORDERS), st.integers(1, 5))
def test_every_order_has_every_step_of_every_bucket(counts, order, accumulation_steps):
    labels_for(counts, order, accumulation_steps=accumulation_steps)


@pytest.mark.parametrize("order", sorted({*ORDERS} - {"ascending", "descending", "round_robin"}))
def test_random_orders_differ_between_epochs_and_between_seeds(order):
    options = [{"epoch": 0}, {"epoch": 1}, {"seed": 1}]
    sequences = {tuple(labels_for([30, 40, 50, 60], order, **option)) for option in options}
    assert len(sequences) == 3


@given(some_counts, st.sampled_from([0, 0.25, 0.499]), st.integers(0, 9))
def test_stride_stays_within_its_bound_of_the_even_spread(counts, jitter, epoch):
    labels = labels_for(counts, "stride", jitter=jitter, epoch=epoch)
    buckets = sum(count > 0 for count in counts)
    share = max(counts) / sum(counts)
    bound = (1 + jitter) * (1 + max(0, buckets - 2) * share)
    assert prefix_discrepancy(labels) <= bound + 1e-9


def test_stride_without_jitter_alternates_buckets_of_equal_size():
    for epoch in range(20):
        labels = labels_for([50, 50, 50], "stride", jitter=0, epoch=epoch)
        assert np.array_equal(labels[:-3], labels[3:])
        assert sorted(labels[:3]) == [0, 1, 2]


def test_stride_draws_the_phase_of_a_bucket_evenly():
    places = [
        int(np.flatnonzero(labels_for([1, 9], "stride", jitter=0, epoch=epoch) == 0)[0])
        for epoch in range(2000)
    ]
    # One step falls before, between or after the nine others: half a stride at the ends, on
    # average, and a whole one between.
    observed = np.bincount(places, minlength=10)
    expected = np.array([0.5, *[1] * 8, 0.5]) / 9 * 2000
    assert chi_square(observed, expected) < limit(9)


def test_jitter_moves_steps_and_none_leaves_strides_as_they_are():
    def gaps(jitter):
        labels = labels_for([100, 10_000], "stride", jitter=jitter)
        return np.diff(np.flatnonzero(labels == 0))

    assert np.ptp(gaps(0)) <= 1
    assert 30 < np.ptp(gaps(0.25)) <= 101
    assert np.ptp(gaps(0.25)) < np.ptp(gaps(0.49)) <= 200
    assert gaps(0.49).min() >= 1


@settings(max_examples=200)
@given(some_counts, st.integers(0, 9))
def test_balanced_is_less_than_one_step_from_even_at_every_prefix(counts, epoch):
    labels = labels_for(counts, "balanced", epoch=epoch)
    total = len(labels)
    for bucket, count in enumerate(counts):
        placed = np.cumsum(labels == bucket)
        # Whole numbers: |placed - t * count / total| < 1.
        assert (np.abs(placed * total - np.arange(1, total + 1) * count) < total).all()


def balanced_can_go_on(counts):
    total = sum(counts)

    def is_even(placed, taken):
        return all(
            abs(have * total - taken * count) < total
            for have, count in zip(placed, counts, strict=True)
        )

    @cache
    def can(placed):
        taken = sum(placed)
        if not is_even(placed, taken):
            return False
        return taken == total or any(can(with_one_more(placed, k)) for k in range(len(counts)))

    return can


def with_one_more(placed, bucket):
    return tuple(have + (k == bucket) for k, have in enumerate(placed))


@settings(max_examples=200)
@given(few_counts, st.integers(0, 9))
def test_balanced_repeats_a_bucket_only_where_nothing_else_is_possible(counts, epoch):
    labels = labels_for(counts, "balanced", epoch=epoch).tolist()
    can_go_on = balanced_can_go_on(tuple(counts))
    placed = (0,) * len(counts)
    for last, bucket in zip([None, *labels], labels, strict=False):
        if bucket == last and 2 * counts[bucket] < len(labels):
            others = [k for k in range(len(counts)) if k != bucket]
            assert not any(can_go_on(with_one_more(placed, k)) for k in others)
        placed = with_one_more(placed, bucket)


def test_balanced_can_start_with_any_bucket():
    firsts = Counter(int(labels_for([3, 4, 5], "balanced", epoch=e)[0]) for e in range(300))
    assert min(firsts[bucket] for bucket in range(3)) > 30


@settings(max_examples=100)
@given(some_counts, st.integers(1, 6), st.integers(0, 9))
def test_stratified_is_even_after_every_optimizer_step(counts, accumulation_steps, epoch):
    labels = labels_for(counts, "stratified", accumulation_steps=accumulation_steps, epoch=epoch)
    total = len(labels)
    ends = np.arange(1, total + 1) % max(2, accumulation_steps) == 0
    for bucket, count in enumerate(counts):
        placed = np.cumsum(labels == bucket)
        far = np.abs(placed * total - np.arange(1, total + 1) * count) >= total
        assert not far[ends].any()


def test_stratified_spans_the_buckets_in_random_order_inside_an_optimizer_step():
    labels = labels_for([2000] * 4, "stratified", accumulation_steps=4)
    groups = Counter(map(tuple, labels.reshape(-1, 4).tolist()))
    assert set(groups) == set(permutations(range(4)))
    assert chi_square(list(groups.values()), [2000 / 24] * 24) < limit(23)


def next_weights(order, left, history):
    """How likely each bucket comes next, as the rule of the order says."""
    last = history[-1:] if order in ("anti_repeat", "diversity") else history[-2:]
    if order == "shuffle":
        return left
    if order == "anti_repeat":
        return [count / (2 if k in last else 1) for k, count in enumerate(left)]
    while any(left) and not any(n for k, n in enumerate(left) if k not in last):
        last = last[1:]  # No other one remains.
    return [0 if k in last else count for k, count in enumerate(left)]


def sequences_of(order, left, history=(), probability=1.0):
    if not any(left):
        yield history, probability
        return
    weights = next_weights(order, left, history)
    for k, weight in enumerate(weights):
        if weight > 0:
            rest = [count - (j == k) for j, count in enumerate(left)]
            chance = probability * weight / sum(weights)
            yield from sequences_of(order, rest, (*history, k), chance)


@pytest.mark.parametrize("order", ["shuffle", "anti_repeat", "diversity", "diversity_2"])
@pytest.mark.parametrize("counts", [[2, 3], [1, 2, 2], [1, 1, 1, 3]])
def test_drawn_orders_have_the_distribution_of_their_rule(order, counts):
    epochs = 2000
    expected = Counter()
    for sequence, probability in sequences_of(order, counts):
        expected[sequence] += probability * epochs
    observed = Counter(
        tuple(labels_for(counts, order, epoch=epoch).tolist()) for epoch in range(epochs)
    )
    assert set(observed) <= set(expected)
    # Rare sequences are counted together.
    common = [sequence for sequence in expected if expected[sequence] >= 8]
    cells = [(observed[s], expected[s]) for s in common]
    rest = sum(expected.values()) - sum(expected[s] for s in common)
    if rest >= 8:
        cells.append((epochs - sum(observed[s] for s in common), rest))
    if len(cells) > 1:
        assert chi_square(*zip(*cells, strict=True)) < limit(len(cells) - 1)


@given(some_counts, st.sampled_from([1, 2]), st.integers(0, 9))
def test_diversity_repeats_only_when_nothing_else_remains(counts, memory, epoch):
    order = "diversity" if memory == 1 else "diversity_2"
    labels = labels_for(counts, order, epoch=epoch).tolist()
    for t in range(1, len(labels)):
        recent = labels[max(0, t - memory) : t]
        if labels[t] in recent:
            assert set(labels[t:]) <= set(recent)


@given(some_counts)
def test_round_robin_takes_one_of_each_that_still_has_some(counts):
    labels = labels_for(counts, "round_robin").tolist()
    rounds, left = [], list(counts)
    while any(left):
        rounds.append({k for k, count in enumerate(left) if count})
        left = [max(0, count - 1) for count in left]
    for wanted in rounds:
        taken, labels = labels[: len(wanted)], labels[len(wanted) :]
        assert set(taken) == wanted


@pytest.mark.parametrize("ranks", [1, 3])
def test_ascending_and_descending_are_by_width(ranks):
    lengths = np.random.default_rng(0).integers(1, 1000, 3000)
    for order, sign in [("ascending", 1), ("descending", -1)]:
        plan = es.plan_epoch(lengths, token_budget=8000, order=order, num_replicas=ranks)
        widths = sign * plan.widths.reshape(-1, ranks).max(axis=1).astype(np.int64)
        assert (np.diff(widths) >= 0).all()


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_changes_no_batch(order):
    lengths = np.random.default_rng(0).integers(1, 1000, 3000)
    plans = [es.plan_epoch(lengths, token_budget=8000, order=o) for o in (order, "stride")]
    batches = [sorted(sorted(batch.tolist()) for batch in plan) for plan in plans]
    assert batches[0] == batches[1]


def test_an_empty_bucket_between_others_is_harmless():
    for order in ORDERS:
        labels_for([10, 0, 90, 0], order)


def quarter_shares(labels):
    quarters = np.array_split(labels, 4)
    return np.array([np.bincount(q, minlength=6) / len(q) for q in quarters])


@pytest.mark.parametrize("epoch", range(4))
def test_stride_on_real_lengths_shows_what_its_inventors_measured(lengths, epoch):
    plan = es.plan_epoch(lengths, **REAL, epoch=epoch)
    counts = np.bincount(plan.buckets)
    reference = np.array([2120, 4017, 5471, 7493, 8009, 19_581])
    assert (np.abs(counts - reference) <= 0.005 * reference).all()
    assert abs(counts[-1] - reference[-1]) <= 60
    shares = counts / len(plan)
    assert np.abs(shares - [0.045, 0.086, 0.117, 0.160, 0.172, 0.419]).max() < 0.001
    labels = labels_of_steps(plan)
    assert np.abs(quarter_shares(labels) - shares).max() < 0.001
    runs = runs_of(labels)
    assert runs.max() <= 4
    assert 0.83 <= (runs == 1).sum() / len(labels) <= 0.85
    assert prefix_discrepancy(labels) <= 3.35


def test_balanced_on_real_lengths_has_no_bucket_twice_in_a_row(lengths):
    sequences = []
    for epoch in range(3):
        labels = labels_of_steps(es.plan_epoch(lengths, **REAL, order="balanced", epoch=epoch))
        assert runs_of(labels).max() == 1
        assert prefix_discrepancy(labels) < 1
        sequences.append(labels)
    for one, other in product(sequences[:2], sequences[1:]):
        if one is not other:
            same = min(len(one), len(other))
            assert (one[:same] == other[:same]).mean() < 0.4


def test_stratified_on_real_lengths_has_no_three_of_a_bucket_in_an_optimizer_step(lengths):
    plan = es.plan_epoch(lengths, **REAL, order="stratified", accumulation_steps=4)
    groups = labels_of_steps(plan)[: len(plan) // 4 * 4].reshape(-1, 4)
    most = max((groups == bucket).sum(axis=1).max() for bucket in range(6))
    assert most <= 2
    distinct = np.mean([len(set(group)) for group in groups.tolist()])
    assert distinct > 3.31


def test_diversity_on_real_lengths_shows_its_fault(lengths):
    labels = labels_of_steps(es.plan_epoch(lengths, **REAL, order="diversity"))
    runs = runs_of(labels)
    assert labels[-1] == 5
    assert runs[-1] > 2000
    assert runs[:-1].max() == 1


def test_shuffle_on_real_lengths_comes_in_runs(lengths):
    labels = labels_of_steps(es.plan_epoch(lengths, **REAL, order="shuffle"))
    runs = runs_of(labels)
    assert runs.max() > 6
    assert (runs == 1).sum() / len(labels) < 0.6
