"""Order "mixed": every optimizer step is an unbiased sample of all lengths."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given

import evenstride as es
from support import REAL, admitted, check_plan, lognormal, padding_efficiency, problems
from test_order import chi_square, limit


def optimizer_steps(plan, accumulation_steps):
    """Split the samples of a plan by optimizer step."""
    bounds = plan.offsets[:: plan.num_replicas * accumulation_steps]
    return np.split(plan.indices, bounds[1:-1] if bounds[-1] == plan.offsets[-1] else bounds[1:])


@pytest.mark.parametrize(
    ("ranks", "accumulation_steps", "reached"),
    [(1, 4, 0.77), (4, 2, 0.86), (8, 2, 0.91), (4, 8, 0.95)],
)
def test_padding_efficiency_grows_with_the_optimizer_step(
    lengths, ranks, accumulation_steps, reached
):
    plan = es.plan_epoch(
        lengths,
        **REAL,
        order="mixed",
        num_replicas=ranks,
        accumulation_steps=accumulation_steps,
    )
    assert abs(padding_efficiency(plan, lengths) - reached) <= 0.01
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    costs = np.diff(plan.offsets) * plan.widths.astype(np.int64)
    assert costs.max() <= REAL["token_budget"]
    assert np.diff(plan.offsets).max() <= REAL["max_batch_size"]


def mean_scores(lengths, epochs):
    """Score the mean length of each optimizer step: standard normal if it is an unbiased sample."""
    sampler = es.BucketBatchSampler(
        lengths,
        token_budget=16_384,
        order="mixed",
        num_replicas=4,
        rank=0,
        accumulation_steps=4,
    )
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        of_steps = [lengths[samples] for samples in optimizer_steps(sampler.plan, 4)]
        errors = [lengths.std() / len(of_step) ** 0.5 for of_step in of_steps]
        means = np.array([of_step.mean() for of_step in of_steps])
        yield (means - lengths.mean()) / errors


def test_optimizer_steps_have_the_mean_length_of_all_but_for_chance():
    scores = np.concatenate([of_epoch[:-10] for of_epoch in mean_scores(lognormal(20_000, 1), 6)])
    assert len(scores) > 300
    assert abs(scores.mean()) < 5 / len(scores) ** 0.5
    assert 0.8 < scores.std() < 1.2
    assert np.abs(scores).max() < 5
    # Neighbouring optimizer steps have nothing to do with one another.
    assert abs(np.corrcoef(scores[1:], scores[:-1])[0, 1]) < 5 / len(scores) ** 0.5


def test_the_last_optimizer_steps_of_an_epoch_are_unbiased_too():
    scores = np.stack([of_epoch[-10:] for of_epoch in mean_scores(lognormal(20_000, 1), 8)])
    assert np.abs(scores).max() < 5


def test_every_sample_is_in_every_optimizer_step_equally_often_where_there_is_room():
    lengths = np.array([1, 2, 3, 5, 8, 13, 21, 34] * 4)
    sampler = es.BucketBatchSampler(
        lengths,
        token_budget=68,
        order="mixed",
        accumulation_steps=2,
        num_replicas=2,
        rank=0,
        steps_per_epoch=8,
    )
    steps = 4
    seen = np.zeros((steps, len(lengths)))
    for epoch in range(2000):
        sampler.set_epoch(epoch)
        for step, samples in enumerate(optimizer_steps(sampler.plan, 2)):
            seen[step, samples] += 1
    expected = np.broadcast_to(seen.sum(axis=1, keepdims=True) / len(lengths), seen.shape)
    assert chi_square(seen, expected) < limit((steps - 1) * (len(lengths) - 1))


@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_of_a_step_have_near_equal_cost(ranks):
    lengths = lognormal(40_000, seed=3)
    plan = es.plan_epoch(
        lengths, token_budget=16_384, order="mixed", num_replicas=ranks, accumulation_steps=4
    )
    costs = (np.diff(plan.offsets) * plan.widths.astype(np.int64)).reshape(-1, ranks)
    assert (costs.max(axis=1) / costs.mean(axis=1)).mean() < 1.1


@given(problems(orders=["mixed"], drop_last=False, too_long="drop"))
def test_mixed_epochs_keep_every_promise_of_a_plan(problem):
    lengths, options = problem
    assume(admitted(lengths, options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Many samples may be removed.
        plan = es.plan_epoch(lengths, **options)
    check_plan(plan, lengths, options)
    if len(admitted(lengths, options)) % options["num_replicas"] == 0:
        assert len(plan.repeats) == 0


def test_other_compositions_are_refused():
    for composition in ("window", "frozen"):
        with pytest.raises(
            ValueError,
            match=rf"^`composition` must be 'shuffle' for order='mixed', but is '{composition}'\.$",
        ):
            es.plan_epoch([3, 4], token_budget=8, order="mixed", composition=composition)


@pytest.mark.parametrize("accumulation_steps", [1, 4])
def test_the_number_of_steps_is_the_same_in_every_epoch(accumulation_steps):
    sampler = es.BucketBatchSampler(
        lognormal(20_000),
        token_budget=16_384,
        order="mixed",
        num_replicas=2,
        rank=1,
        accumulation_steps=accumulation_steps,
    )
    natural = sampler.plan.num_steps
    for epoch in range(6):
        sampler.set_epoch(epoch)
        assert sampler.plan.num_steps == len(sampler) == natural
        assert np.array_equal(np.sort(sampler.plan.indices), np.arange(20_000))
        assert len(sampler.plan.repeats) == 0


def test_samples_that_are_alone_are_in_the_longest_bucket_whatever_their_length():
    lengths = [10] * 4 + [200, 500]
    options = {"token_budget": 1000, "max_length": 100, "too_long": "alone"}
    plan = es.plan_epoch(lengths, **options, buckets=[50, 300], order="mixed")
    buckets = {tuple(sorted(batch.tolist())): plan.buckets[i] for i, batch in enumerate(plan)}
    assert (buckets[(4,)], buckets[(5,)]) == (2, 2)
