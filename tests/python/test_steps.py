"""Steps: one batch for every rank, equally many on all, and nothing lost on the way."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import evenstride as es
from support import (
    REAL,
    admitted,
    batches_of,
    check_plan,
    greedy,
    lognormal,
    mixed_steps,
    padding_efficiency,
    problems,
)


def plan_of(lengths, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return es.plan_epoch(lengths, **options)


def costs_of(plan):
    costs = np.diff(plan.offsets) * plan.widths.astype(np.int64)
    return costs.reshape(plan.num_steps, plan.num_replicas)


@settings(max_examples=300)
@given(problems(orders=["stride"], drop_last=False))
def test_samples_repeat_only_where_no_whole_number_of_steps_is_possible(problem):
    lengths, options = problem
    assume(admitted(lengths, options))
    samples, ranks = len(admitted(lengths, options)), options["num_replicas"]
    batches = len(plan_of(lengths, {**options, "num_replicas": 1}))
    plan = plan_of(lengths, options)
    is_possible = any(count % ranks == 0 for count in range(batches, samples + 1))
    assert (len(plan.repeats) == 0) == is_possible
    assert len(plan.repeats) < ranks
    if not is_possible:
        assert plan.num_steps == -(-samples // ranks)


@given(problems(orders=["stride"], drop_last=True))
def test_drop_last_loses_fewer_batches_than_ranks_in_the_whole_epoch(problem):
    lengths, options = problem
    assume(admitted(lengths, options))
    ranks = options["num_replicas"]
    natural = plan_of(lengths, {**options, "num_replicas": 1, "drop_last": False})
    assume(len(natural) >= ranks)
    plan = plan_of(lengths, options)
    assert plan.num_steps == len(natural) // ranks
    if len(natural) % ranks == 0:
        assert len(plan.dropped) == 0
    kept = sorted(sorted(batch) for batch in batches_of(plan))
    whole = sorted(sorted(batch) for batch in batches_of(natural))
    lost = [batch for batch in whole if batch not in kept]
    assert len(lost) == len(natural) - len(plan) < ranks
    assert sorted(plan.dropped.tolist()) == sorted(i for batch in lost for i in batch)


def test_drop_last_loses_other_batches_in_each_epoch():
    lengths = [5] * 11
    lost = set()
    for epoch in range(60):
        plan = es.plan_epoch(lengths, token_budget=5, num_replicas=4, drop_last=True, epoch=epoch)
        assert len(plan.dropped) == 3
        lost.update(plan.dropped.tolist())
    assert lost == set(range(11))


def test_the_natural_number_of_steps_is_within_the_range_that_an_error_names():
    # 6 batches cannot become 10 of 9 samples, so that the second step needs a repeat.
    options = {"token_budget": 2, "buckets": 1, "num_replicas": 5}
    plan = es.plan_epoch([0] * 7 + [2, 0], **options)
    assert (plan.num_steps, len(plan.repeats)) == (2, 1)
    message = r"^`steps_per_epoch` must be in \[1, 2\], but is 3\.$"
    with pytest.raises(ValueError, match=message):
        es.plan_epoch([0] * 7 + [2, 0], **options, steps_per_epoch=3)


@settings(max_examples=100)
@given(problems(orders=["stride", "balanced"], drop_last=False), st.data())
def test_steps_per_epoch_is_what_it_says_or_names_both_ends(problem, data):
    lengths, options = problem
    assume(admitted(lengths, options))
    with pytest.raises(ValueError, match="`steps_per_epoch` must be in") as caught:
        plan_of(lengths, {**options, "steps_per_epoch": 10**6})
    message = str(caught.value)
    found = re.fullmatch(
        r"`steps_per_epoch` must be in \[(\d+), (\d+)\], but is 1000000\.", message
    )
    least, most = map(int, found.groups())
    samples, ranks = len(admitted(lengths, options)), options["num_replicas"]
    natural = plan_of(lengths, options).num_steps  # If need be, with repeats.
    assert most == max(samples // ranks, least, natural)
    for steps in {least, most, data.draw(st.integers(least, most))}:
        plan = plan_of(lengths, {**options, "steps_per_epoch": steps})
        assert plan.num_steps == steps
        check_plan(plan, lengths, options)
        if steps * ranks <= samples:
            assert len(plan.repeats) == 0
    for outside in {least - 1, most + 1} - {0}:
        with pytest.raises(ValueError, match=f"must be in .{least}, {most}., but is {outside}"):
            plan_of(lengths, {**options, "steps_per_epoch": outside})


@given(problems(too_long="drop", drop_last=False), st.floats(0, 1))
def test_steps_per_epoch_holds_in_every_epoch_of_a_sampler(problem, part):
    lengths, options = problem
    assume(admitted(lengths, options))
    del options["epoch"]
    is_mixed = options["order"] == "mixed" and options["shuffle"]
    unit = options["accumulation_steps"] if is_mixed else 1

    def sampler_of(steps):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return es.BucketBatchSampler(lengths, **options, rank=0, steps_per_epoch=steps)

    with pytest.raises(ValueError, match="`steps_per_epoch` must be in") as caught:
        sampler_of(12 * 10**6)
    least, most = map(int, re.search(r"\[(\d+), (\d+)\]", str(caught.value)).groups())
    steps = -(-int(least + (most - least) * part) // unit) * unit
    assume(steps <= most)
    sampler = sampler_of(steps)
    for epoch in (0, 1, 7):
        sampler.set_epoch(epoch)
        assert sampler.plan.num_steps == len(sampler) == steps
        check_plan(sampler.plan, lengths, options)


@pytest.mark.parametrize("composition", ["shuffle", "window", "frozen"])
def test_drop_last_never_makes_an_epoch_of_no_step(composition):
    for options in ({}, {"steps_per_epoch": 1}):
        with pytest.raises(ValueError, match=r"^`(drop_last|steps_per_epoch)` must .*\.$"):
            es.plan_epoch(
                [9],
                token_budget=20,
                num_replicas=2,
                drop_last=True,
                composition=composition,
                **options,
            )


def test_the_fewest_steps_are_those_of_sorted_buckets():
    lengths = lognormal(3000)
    options = {"token_budget": 8192, "buckets": [300, 900]}
    labels = np.digitize(lengths, [300, 900])
    fewest = sum(len(greedy(sorted(lengths[labels == k].tolist()), options)) for k in range(3))
    for epoch in range(3):
        plan = es.plan_epoch(lengths, **options, steps_per_epoch=fewest, epoch=epoch)
        assert plan.num_steps == fewest
        check_plan(plan, lengths, options)
    with pytest.raises(ValueError, match=rf"\[{fewest}, 3000\], but is {fewest - 1}\."):
        es.plan_epoch(lengths, **options, steps_per_epoch=fewest - 1)


@pytest.mark.parametrize("composition", ["shuffle", "window", "frozen"])
@pytest.mark.parametrize("ranks", [1, 8])
def test_a_wanted_number_of_steps_is_spread_over_buckets_in_proportion(composition, ranks):
    lengths = lognormal(30_000)
    options = {
        "token_budget": 16_384,
        "buckets": [300, 900, 2000],
        "composition": composition,
        "num_replicas": ranks,
    }
    natural = es.plan_epoch(lengths, **options)
    wanted = natural.num_steps * 3 // 2
    plan = es.plan_epoch(lengths, **options, steps_per_epoch=wanted)
    assert plan.num_steps == wanted
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    before = np.bincount(natural.buckets) / len(natural)
    after = np.bincount(plan.buckets) / len(plan)
    assert np.abs(before - after).max() < 0.02


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_ranks_of_a_step_have_one_bucket_and_near_equal_cost(lengths, ranks):
    plan = es.plan_epoch(lengths, **REAL, num_replicas=ranks)
    assert mixed_steps(plan) == 0
    costs = costs_of(plan)
    assert (costs.max(axis=1) / costs.mean(axis=1)).mean() < 1.002
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    alone = es.plan_epoch(lengths, **REAL)
    assert padding_efficiency(plan, lengths) > padding_efficiency(alone, lengths) - 0.005
    assert plan.num_steps <= -(-len(alone) // ranks) + 6


def test_which_rank_gets_which_batch_is_drawn():
    plan = es.plan_epoch(lognormal(40_000), token_budget=8192, num_replicas=4)
    costs = costs_of(plan)
    distinct = costs[(np.sort(costs, axis=1)[:, 1:] > np.sort(costs, axis=1)[:, :-1]).all(axis=1)]
    for ranked in (distinct.argmax(axis=1), distinct.argmin(axis=1)):
        counts = np.bincount(ranked, minlength=4)
        expected = len(distinct) / 4
        assert ((counts - expected) ** 2 / expected).sum() < 16.3  # p = 0.001, 3 degrees


def test_buckets_too_small_for_a_step_share_steps_and_lose_no_sample():
    lengths = np.repeat([10, 100, 1000, 4000], [3, 2, 5, 400])
    options = {"token_budget": 8000, "buckets": [50, 500, 2000], "num_replicas": 8}
    plan = es.plan_epoch(lengths, **options)
    check_plan(plan, lengths, options)
    assert len(plan.repeats) == 0
    assert mixed_steps(plan) <= 5
    assert plan.stats().mixed_steps == mixed_steps(plan)


def test_fewer_samples_than_ranks_make_one_step_with_listed_repeats():
    plan = es.plan_epoch([3, 9, 4], token_budget=10, num_replicas=8)
    assert plan.num_steps == 1
    assert len(plan.repeats) == 5
    assert all(len(batch) == 1 for batch in batches_of(plan))


def test_step_info_is_what_the_arrays_say():
    lengths = lognormal(3000)
    plan = es.plan_epoch(lengths, token_budget=8192, num_replicas=4, pad_to_multiple_of=8)
    batches, costs = batches_of(plan), costs_of(plan)
    for step in range(plan.num_steps):
        first = step * 4
        tokens = [int(lengths[batch].sum()) for batch in batches[first : first + 4]]
        samples = [len(batch) for batch in batches[first : first + 4]]
        for rank in range(4):
            info = plan.step_info(step, rank)
            assert info.bucket == plan.buckets[first + rank]
            assert info.width == plan.widths[first + rank]
            assert (info.samples, info.global_samples) == (samples[rank], sum(samples))
            assert (info.tokens, info.global_tokens) == (tokens[rank], sum(tokens))
            assert info.padded_tokens == costs[step, rank]
            assert info.global_padded_tokens == costs[step].sum()
            assert all(type(value) is int for value in vars(info).values())
