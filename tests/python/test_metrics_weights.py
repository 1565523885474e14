"""`TokenWeights` against its own definition."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es


@given(
    st.lists(st.integers(0, 20), min_size=4, max_size=40),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_matches_its_definition(lengths, num_replicas, accumulation_steps, is_mean, has_counts):
    plan = es.plan_epoch(lengths, token_budget=30, buckets=[7], num_replicas=num_replicas)
    counts = [length * 3 // 4 for length in lengths] if has_counts else lengths
    tokens = np.array([sum(counts[sample] for sample in batch.tolist()) for batch in plan])
    tokens = tokens.reshape(plan.num_steps, num_replicas)
    for rank in range(num_replicas):
        weights = es.metrics.TokenWeights(
            plan,
            reduction="mean" if is_mean else "sum",
            counts=counts if has_counts else None,
            accumulation_steps=accumulation_steps,
            rank=rank,
        )
        for step in range(plan.num_steps):
            start = step - step % accumulation_steps
            total = tokens[start : start + accumulation_steps].sum()
            mine = tokens[step, rank] if is_mean else 1
            wanted = num_replicas * mine / total if total else 0
            assert weights.scale(step) == pytest.approx(wanted)


def test_follows_the_epochs_of_a_sampler():
    lengths = np.random.default_rng(0).integers(1, 20, 80)
    sampler = es.BucketBatchSampler(
        lengths, token_budget=40, accumulation_steps=4, num_replicas=2, rank=1
    )
    weights = es.metrics.TokenWeights(sampler)
    found = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        alone = es.metrics.TokenWeights(sampler.plan, rank=1)
        found.append([weights.scale(step) for step in range(len(sampler))])
        assert found[-1] == [alone.scale(step) for step in range(len(sampler))]
    assert found[0] != found[1]
    for step in range(len(sampler)):
        for epoch in range(2):
            sampler.set_epoch(epoch)
            assert weights.scale(step) == found[epoch][step]


def test_a_plan_may_have_fewer_samples_than_counts():
    lengths = [5, 1, 9]
    options = {"token_budget": 5, "buckets": 1, "max_length": 5, "too_long": "drop"}
    with pytest.warns(match="leaves out 1 sample"):
        sampler = es.BucketBatchSampler(lengths, **options)
    for source in (sampler, sampler.plan):
        assert es.metrics.TokenWeights(source, counts=[4, 0, 8]).scale(0) in (0, 1)
    es.metrics.TokenWeights(sampler.plan, counts=[4, 0, 8, 1])
    message = r"^`counts` must have a value for each of 3 samples, but has 4\.$"
    with pytest.raises(ValueError, match=message):
        es.metrics.TokenWeights(sampler, counts=[4, 0, 8, 1])


@pytest.mark.parametrize("count", [2**62, np.uint64(2**63)])
def test_sums_of_counts_do_not_overflow(count):
    plan = es.plan_epoch([3] * 8, token_budget=6, buckets=1, num_replicas=2)
    counts = np.full(8, count, np.array(count).dtype)
    assert es.metrics.TokenWeights(plan, counts=counts).scale(0) == 1


def test_sums_of_lengths_do_not_overflow():
    plan = es.plan_epoch([2**62] * 10, token_budget=2**63 - 1, buckets=1, num_replicas=5)
    weights = es.metrics.TokenWeights(plan, accumulation_steps=2)
    assert weights.scale(0) == weights.scale(1) == 0.5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reduction": "none"}, ValueError, "`reduction` must be 'mean' or 'sum', but is 'none'."),
        (
            {"counts": [1.0, 2.0]},
            TypeError,
            "`counts` must be one integer for each sample, but has shape (2,) and dtype float64.",
        ),
        (
            {"counts": [1]},
            ValueError,
            "`counts` must have a value for each of 2 samples, but has 1.",
        ),
        ({"counts": [1, -2]}, ValueError, "`counts[1]` must be at least 0, but is -2."),
        (
            {"accumulation_steps": 0},
            ValueError,
            "`accumulation_steps` must be in [1, 2**63), but is 0.",
        ),
    ],
)
def test_says_which_value_is_wrong(options, error, message):
    sampler = es.BucketBatchSampler([5, 1], token_budget=5, buckets=1)
    for source in (sampler, sampler.plan):
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            es.metrics.TokenWeights(source, **options)
    with pytest.raises(IndexError, match=r"^`step` must be in \[0, num_steps = 2\), but is 2\.$"):
        es.metrics.TokenWeights(sampler).scale(2)
