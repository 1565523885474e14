"""Which samples come together in a batch."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

import evenstride as es
from support import REAL, batches_of, greedy, lognormal, padding_efficiency, same_plans
from test_order import chi_square, limit


def batch_sets(plan):
    return sorted(sorted(batch) for batch in batches_of(plan))


def test_shuffle_puts_every_pair_of_a_bucket_together_equally_often():
    pairs, epochs = Counter(), 3000
    for epoch in range(epochs):
        plan = es.plan_epoch([5] * 6, token_budget=10, epoch=epoch)
        pairs.update(tuple(batch) for batch in batch_sets(plan))
    assert set(pairs) == set(combinations(range(6), 2))
    # Each epoch has three disjoint pairs, so counts vary less than if they were independent.
    assert chi_square(list(pairs.values()), [epochs * 3 / 15] * 15) < limit(14)


def test_shuffle_puts_every_sample_at_every_place_equally_often():
    epochs, samples = 2500, 8
    places = np.zeros((samples, samples))
    for epoch in range(epochs):
        plan = es.plan_epoch([5] * samples, token_budget=5, order="shuffle", epoch=epoch)
        places[np.arange(samples), plan.indices] += 1
    assert chi_square(places, np.full_like(places, epochs / samples)) < limit((samples - 1) ** 2)


def test_shuffle_of_a_large_bucket_keeps_no_trace_of_the_given_order():
    samples = 200_000
    plan = es.plan_epoch(np.full(samples, 8), token_budget=16, order="ascending")
    order = plan.indices.astype(np.float64)
    # Correlation of place and index, and of neighbours, which are normal with deviation 1/sqrt(n).
    for one, other in [(order, np.arange(samples)), (order[1:], order[:-1])]:
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(samples)
    # Pairs in a batch come from anywhere: a quarter of them are further apart than half of all.
    distances = np.abs(order[::2] - order[1::2])
    assert abs((distances > samples / 2).mean() - 0.25) < 0.01


def test_shuffle_composes_every_epoch_anew():
    lengths = lognormal(4000)
    options = {"token_budget": 8192, "buckets": [300, 900]}
    pairs = [
        {
            pair
            for batch in batch_sets(es.plan_epoch(lengths, **options, epoch=e))
            for pair in combinations(batch, 2)
        }
        for e in (0, 1)
    ]
    assert len(pairs[0] & pairs[1]) < 0.05 * len(pairs[0])


def transcribed_window(lengths, labels, window, options, seed):
    """Fill a permutation whose runs are sorted up and down in turn; return its efficiency."""
    random, padded = np.random.default_rng(seed), 0
    for bucket in range(labels.max() + 1):
        sequence = random.permutation(lengths[labels == bucket])
        runs = [np.sort(sequence[i : i + window]) for i in range(0, len(sequence), window)]
        sequence = np.concatenate([run[:: (-1) ** i] for i, run in enumerate(runs)])
        sizes = greedy(sequence.tolist(), options)
        starts = np.cumsum([0, *sizes[:-1]])
        padded += int((np.maximum.reduceat(sequence, starts) * sizes).sum())
    return lengths.sum() / padded


@pytest.mark.parametrize("window", [16, 256])
def test_window_pads_as_its_rule_says(lengths, window):
    some = lengths[:120_000]
    labels = np.digitize(some, REAL["buckets"])
    wanted = transcribed_window(some, labels, window, REAL, seed=0)
    plan = es.plan_epoch(some, **REAL, composition="window", window=window)
    assert abs(padding_efficiency(plan, some) - wanted) < 0.001


def test_window_on_real_lengths_pads_a_hundredth_where_shuffle_pads_a_fifth(lengths):
    plan = es.plan_epoch(lengths, **REAL, composition="window")
    assert padding_efficiency(plan, lengths) >= 0.989
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    shuffled = es.plan_epoch(lengths, **REAL)
    assert abs(padding_efficiency(shuffled, lengths) - 0.813) < 0.001


def test_a_window_composes_every_epoch_anew():
    lengths = np.random.default_rng(0).integers(100, 200, 20_000)
    sets = [
        {
            tuple(b)
            for b in batch_sets(
                es.plan_epoch(lengths, token_budget=2000, composition="window", window=100, epoch=e)
            )
        }
        for e in (0, 1)
    ]
    assert len(sets[0] & sets[1]) < 0.01 * len(sets[0])


def test_a_window_of_one_sample_pads_as_shuffle_does():
    lengths = lognormal(20_000)
    options = {"token_budget": 16_384, "buckets": [300, 900]}
    one = es.plan_epoch(lengths, **options, composition="window", window=1)
    shuffled = es.plan_epoch(lengths, **options)
    assert abs(padding_efficiency(one, lengths) - padding_efficiency(shuffled, lengths)) < 0.01


def test_a_window_of_the_whole_bucket_pads_as_if_all_was_sorted():
    lengths = lognormal(5000)
    options = {"token_budget": 16_384, "buckets": [300, 900]}
    whole = es.plan_epoch(lengths, **options, composition="window", window=2**40)
    frozen = es.plan_epoch(lengths, **options, composition="frozen")
    assert abs(len(whole) - len(frozen)) <= 3


def test_frozen_has_the_same_batches_in_another_order_each_epoch():
    lengths = lognormal(4000)
    options = {"token_budget": 8192, "buckets": [300, 900], "composition": "frozen"}
    plans = [es.plan_epoch(lengths, **options, epoch=epoch) for epoch in (0, 1)]
    assert batch_sets(plans[0]) == batch_sets(plans[1])
    assert plans[0].indices.tolist() != plans[1].indices.tolist()
    for bucket in range(3):
        widths = [plan.widths[plan.buckets == bucket].tolist() for plan in plans]
        assert widths[0] != widths[1]
        assert sorted(widths[0]) == sorted(widths[1])


@pytest.mark.parametrize("ranks", [1, 4])
def test_without_shuffle_every_epoch_is_the_same(ranks):
    lengths = lognormal(4000)
    options = {"token_budget": 8192, "shuffle": False, "num_replicas": ranks}
    plans = [es.plan_epoch(lengths, **options, epoch=epoch) for epoch in (0, 1, 5)]
    assert same_plans(plans[0], plans[1])
    assert same_plans(plans[0], plans[2])
    widest = plans[0].widths.reshape(-1, ranks).max(axis=1).astype(np.int64)
    assert (np.diff(widest) <= 0).all()
    assert plans[0].widths[:ranks].max() == lengths.max()


@pytest.mark.parametrize("composition", ["window", "frozen"])
@pytest.mark.parametrize("ranks", [1, 8])
def test_widths_do_not_climb_and_fall_inside_a_bucket(lengths, composition, ranks):
    plan = es.plan_epoch(lengths, **REAL, composition=composition, num_replicas=ranks)
    widths = plan.widths.reshape(-1, ranks).mean(axis=1)
    labels = plan.buckets[::ranks]
    for bucket in range(6):
        of_bucket = widths[labels == bucket]
        correlation = np.corrcoef(of_bucket[1:], of_bucket[:-1])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(len(of_bucket))


def test_steps_of_a_bucket_are_shuffled_uniformly():
    # One bucket whose four batches are told apart by their widths.
    seen, epochs = Counter(), 2400
    for epoch in range(epochs):
        plan = es.plan_epoch(
            [1, 2, 3, 4],
            token_budget=4,
            max_batch_size=1,
            buckets=[],
            epoch=epoch,
            composition="frozen",
        )
        seen[tuple(plan.widths.tolist())] += 1
    assert len(seen) == 24
    assert chi_square(list(seen.values()), [epochs / 24] * 24) < limit(23)
