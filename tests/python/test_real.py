"""What is claimed of one real distribution of lengths: 902,087 samples, 1,791 million tokens."""

from __future__ import annotations

import numpy as np
import pytest

import evenstride as es
from support import REAL, labels_of_steps, mixed_steps, padding_efficiency, runs_of


def test_the_distribution_is_the_published_one(lengths):
    assert len(lengths) == 902_087
    assert (lengths.min(), lengths.max(), lengths.sum()) == (40, 8187, 1_791_048_373)
    assert abs((lengths >= 3296).mean() - 0.202) < 0.0005


def test_greedy_filling_makes_46_700_batches_where_ceilings_make_58_030(lengths):
    plan = es.plan_epoch(lengths, **REAL)
    assert abs(len(plan) - 46_691) < 60
    labels = np.digitize(lengths, REAL["buckets"])
    per_batch = [63, 40, 28, 20, 14, 6]
    at_ceilings = sum(-(-int((labels == k).sum()) // size) for k, size in enumerate(per_batch))
    assert at_ceilings == 58_030


def test_a_full_shuffle_and_a_full_sort_are_the_two_ends(lengths):
    limits = {"token_budget": REAL["token_budget"], "max_batch_size": REAL["max_batch_size"]}
    shuffled = es.plan_epoch(lengths, **limits, buckets=[])
    assert abs(len(shuffled) / 79_698 - 1) < 0.002
    assert abs(padding_efficiency(shuffled, lengths) - 0.488) < 0.002
    by_length = es.plan_epoch(lengths, **limits, buckets=[], composition="frozen")
    assert len(by_length) == 38_514
    assert padding_efficiency(by_length, lengths) > 0.999


@pytest.mark.parametrize(("composition", "cost"), [("shuffle", 0.001), ("window", 0.001)])
def test_one_length_for_fifty_epochs_costs_at_most_a_tenth_of_a_point(lengths, composition, cost):
    options = {**REAL, "composition": composition}
    sampler = es.BucketBatchSampler(lengths, **options)
    epochs = 50 if composition == "shuffle" else 10
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        assert sampler.plan.num_steps == len(sampler)
        settled = padding_efficiency(sampler.plan, lengths)
        if epoch % 5 == 0:
            natural = padding_efficiency(es.plan_epoch(lengths, **options, epoch=epoch), lengths)
            assert settled >= natural - cost


def test_8_ranks_lose_nothing_and_meet_in_one_bucket(lengths):
    options = {**REAL, "num_replicas": 8}
    sampler = es.BucketBatchSampler(lengths, **options, rank=0)
    alone = padding_efficiency(es.plan_epoch(lengths, **REAL), lengths)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        plan = sampler.plan
        assert len(plan) == 8 * len(sampler)
        assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
        assert len(plan.repeats) == 0
        assert mixed_steps(plan) == 0
        assert abs(padding_efficiency(plan, lengths) - alone) < 0.005
    assert abs(len(sampler) - 5838) <= 4


@pytest.mark.parametrize("order", ["stride", "balanced"])
def test_8_ranks_keep_the_promises_of_the_orders(lengths, order):
    labels = labels_of_steps(es.plan_epoch(lengths, **REAL, num_replicas=8, order=order))
    shares = np.bincount(labels) / len(labels)
    for quarter in np.array_split(labels, 4):
        assert np.abs(np.bincount(quarter) / len(quarter) - shares).max() < 0.002
    assert runs_of(labels).max() <= (1 if order == "balanced" else 4)


def test_512_ranks_are_near_equal(lengths):
    plan = es.plan_epoch(lengths, **REAL, num_replicas=512)
    assert plan.num_steps <= 95
    assert len(plan.repeats) == 0
    costs = (np.diff(plan.offsets) * plan.widths.astype(np.int64)).reshape(-1, 512)
    imbalance = costs.max(axis=1) / costs.mean(axis=1)
    assert imbalance.mean() < 1.008
    assert imbalance.max() < 1.2


@pytest.mark.parametrize("steps", [38_600, 42_000, 46_500, 46_720, 50_000])
def test_any_number_of_steps_between_the_ends_is_reached(lengths, steps):
    plan = es.plan_epoch(lengths, **REAL, steps_per_epoch=steps)
    assert plan.num_steps == steps
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    assert padding_efficiency(plan, lengths) >= 0.813


def test_the_ends_of_the_possible_numbers_of_steps_are_named(lengths):
    with pytest.raises(ValueError, match=r"`steps_per_epoch` must be in \[38516, 902087\]"):
        es.BucketBatchSampler(lengths, **REAL, num_replicas=1, steps_per_epoch=1)


@pytest.mark.parametrize("composition", ["shuffle", "window", "frozen"])
def test_widths_do_not_climb_and_fall_inside_buckets(lengths, composition):
    stats = es.plan_epoch(lengths, **REAL, composition=composition).stats()
    assert abs(stats.width_correlation) < 0.02
