"""What an epoch is on more and more ranks, against sums over its batches one by one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es
from evenstride import step_costs
from evenstride.peak_memory import PeakMemory
from evenstride.scaling import SIMULATED, scale
from evenstride.scaling_report import scaling_notes
from evenstride.step_costs import COSTS, StepCosts
from support import batches_of, lognormal, real_lengths

FITTED = {"token_budget": 49_152, "max_batch_size": 64}


def cost_of(name, lengths, width, c):
    """One batch's cost, as its sentence in COSTS says."""
    samples = len(lengths)
    return {
        "padded_tokens": samples * width,
        "tokens": sum(lengths),
        "padded_cost": samples * (width + width**2 / c),
        "cost": sum(length + length**2 / c for length in lengths),
    }[name]


def steps_of(plan, lengths):
    """Return the lengths and the width of each batch, by steps."""
    batches = [
        ([int(lengths[i]) for i in batch], width)
        for batch, width in zip(batches_of(plan), plan.widths.tolist(), strict=True)
    ]
    ranks = plan.num_replicas
    return [batches[begin : begin + ranks] for begin in range(0, len(batches), ranks)]


@st.composite
def problems(draw):
    lengths = draw(st.lists(st.integers(0, 30), min_size=1, max_size=120))
    options = {
        "token_budget": draw(st.integers(30, 200)),
        "max_batch_size": draw(st.none() | st.integers(1, 9)),
        "pad_to_multiple_of": draw(st.sampled_from([1, 3])),
        "buckets": draw(st.sampled_from([1, 3, [5], [4, 9, 20]])),
        "num_replicas": draw(st.integers(1, 9)),
    }
    return np.array(lengths), options, draw(st.floats(0.5, 1000))


@given(problems(), st.sampled_from([1, 7, 2**21]))
def test_costs_are_those_of_the_batches_one_by_one(problem, samples_at_once):
    lengths, options, c = problem
    plan = es.plan_epoch(lengths, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_costs, "_SAMPLES_AT_ONCE", samples_at_once)
        costs = StepCosts(plan, lengths, c)
    steps = steps_of(plan, lengths)
    for name in COSTS:
        ratios = []
        for step in steps:
            ranks = [cost_of(name, *batch, c) for batch in step]
            mean = sum(ranks) / len(ranks)
            ratios.append(max(ranks) / mean if mean > 0 else 1)
        assert costs.imbalance[name].mean == pytest.approx(sum(ratios) / len(ratios))
        assert costs.imbalance[name].worst == pytest.approx(max(ratios))
    assert costs.tokens == sum(sum(batch) for step in steps for batch, _ in step)
    padded = [[len(batch) * width for batch, width in step] for step in steps]
    assert costs.padded_tokens == sum(map(sum, padded))
    assert costs.slowest_tokens == sum(map(max, padded))
    small = 0
    for step in steps:
        for batch, width in step:
            admitted = min(options["token_budget"] // width, options["max_batch_size"] or 10**9)
            small += len(batch) if len(batch) < admitted / 2 else 0
    assert costs.small_samples == small
    labels = plan.buckets.reshape(plan.num_steps, -1).tolist()
    assert costs.mixed_steps == sum(len(set(of_step)) > 1 for of_step in labels)


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_result_says_what_the_statistics_of_its_plan_say(drop_last):
    lengths = lognormal(4000)
    options = {"token_budget": 16_384, "buckets": [300, 600, 1200], "drop_last": drop_last}
    alone = es.plan_epoch(lengths, **options)
    found = dict(scale(lengths, num_replicas=[8, 40], **options))
    assert list(found) == [1, 8, 40]
    for ranks, result in found.items():
        plan = es.plan_epoch(lengths, num_replicas=ranks, **options)
        stats = plan.stats()
        assert (result.steps, result.batches, result.samples) == (
            stats.steps,
            stats.batches,
            stats.samples,
        )
        assert result.num_replicas == ranks
        assert result.num_buckets == 4
        assert result.steps_per_bucket == stats.steps / 4
        assert result.mixed_steps == stats.mixed_steps
        assert result.repeated_samples == stats.repeated_samples
        assert result.dropped_samples == stats.dropped_samples
        assert result.padding_efficiency == pytest.approx(stats.padding_efficiency)
        padded = result.imbalance["padded_tokens"]
        assert padded.mean == pytest.approx(stats.mean_rank_imbalance)
        assert padded.worst == pytest.approx(stats.worst_rank_imbalance)
        costs = plan.padded_tokens.reshape(-1, ranks)
        assert result.waiting == pytest.approx(
            1 - costs.sum() / (ranks * costs.max(axis=1).sum()), abs=1e-12
        )
        assert result.more_batches == pytest.approx(len(plan) / len(alone) - 1)
        assert result.more_padded_tokens == pytest.approx(
            costs.sum() / alone.padded_tokens.sum() - 1
        )
        arrays = (plan.indices, plan.offsets, plan.buckets, plan.widths, plan.repeats, plan.dropped)
        assert result.plan_bytes == sum(array.nbytes for array in arrays)
        assert result.seconds > 0


def test_buckets_are_64_and_found_once_for_all_ranks():
    lengths = lognormal(20_000)
    edges = es.plan_epoch(lengths, token_budget=16_384, buckets=64).edges[1:-1].tolist()
    results = dict(scale(lengths, num_replicas=[3], token_budget=16_384))
    plan = es.plan_epoch(lengths, token_budget=16_384, buckets=edges, num_replicas=3)
    assert results[3].steps == plan.num_steps
    merged = dict(scale(lengths, num_replicas=[3], token_budget=16_384, merge_buckets=16))
    assert [result.num_buckets for result in merged.values()] == [4, 4]


def test_more_samples_are_drawn_from_the_same_lengths_by_the_seed():
    lengths = np.array([3] * 9 + [40_000])
    options = {"num_replicas": [], "token_budget": 40_000, "buckets": [10]}
    results = [
        dict(scale(lengths, samples=3_000_000, seed=seed, **options))[1] for seed in (0, 0, 1)
    ]
    assert [result.samples for result in results] == [3_000_000] * 3
    tokens = [result.padding_efficiency * result.batches for result in results]
    assert tokens[0] == tokens[1] != tokens[2]
    # A batch of one long sample, and few of the short ones.
    assert results[0].batches == pytest.approx(300_000, rel=0.01)


@pytest.mark.parametrize(
    ("options", "small"),
    [
        ({"token_budget": 2**32}, 1000),
        ({"token_budget": 1000, "max_batch_size": 2**40}, 0),
    ],
)
def test_what_a_batch_may_hold_need_not_fit_into_32_bits(options, small):
    found = dict(scale(np.full(1000, 50), num_replicas=[], buckets=1, **options))
    assert found[1].small_samples == small


def test_numbers_of_ranks_that_cannot_be_had_come_with_the_reason():
    found = dict(scale([5] * 10, num_replicas=[2, 11], token_budget=5, buckets=[], drop_last=True))
    assert isinstance(found[11], ValueError)
    assert str(found[11]).startswith("`drop_last` must leave at least 1 step")
    assert found[2].steps == 5


def test_a_number_of_ranks_that_is_there_twice_is_planned_once():
    found = [ranks for ranks, _ in scale([5] * 10, num_replicas=[2, 1, 2], token_budget=5)]
    assert found == [1, 2]


@pytest.mark.parametrize("name", SIMULATED[1:])
def test_what_the_simulation_sets_cannot_be_given(name):
    message = f"`{name}` must be left to the simulation, but is given."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        scale([5], token_budget=5, **{name: 1})


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (
            {"num_replicas": [8, 0]},
            ValueError,
            "`num_replicas[1]` must be in [1, 2**63), but is 0.",
        ),
        ({"samples": 0}, ValueError, "`samples` must be in [1, 2**63), but is 0."),
        ({"quadratic": 0}, ValueError, "`quadratic` must be in [1, 2**53], but is 0."),
        ({"quadratic": float("nan")}, ValueError, "`quadratic` must be in [1, 2**53], but is nan."),
        ({"quadratic": 1e-320}, ValueError, "`quadratic` must be in [1, 2**53], but is 1e-320."),
        ({"quadratic": "x"}, TypeError, "`quadratic` must be a number, but is 'x'."),
    ],
)
def test_says_what_is_wrong_with_its_arguments_at_once(given, kind, message):
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        scale([5], token_budget=5, **given)


def test_options_that_are_wrong_for_all_ranks_are_an_error():
    with pytest.raises(ValueError, match="`token_budget` must be in"):
        next(scale([5], token_budget=0))
    with pytest.raises(ValueError, match="0 samples"):
        next(scale([], token_budget=5, samples=10))


# ---- when samples are too few ----


@pytest.mark.parametrize(
    ("buckets", "ranks"), [(64, 8), (64, 64), (16, 8), (16, 64), (6, 64), (6, 512)]
)
def test_half_a_step_a_bucket_is_what_ranks_cost(buckets, ranks):
    found = dict(scale(real_lengths(), num_replicas=[ranks], buckets=buckets, **FITTED))
    result = found[ranks]
    expected = 1 / (2 * result.steps_per_bucket)
    assert 0.6 * expected < result.more_batches < 1.4 * expected
    assert result.too_small == (result.steps_per_bucket < 50)
    assert result.too_small == (result.more_batches > 0.01)


def test_what_the_sentence_says_would_be_enough_is_enough():
    results = [r for _, r in scale(real_lengths(), num_replicas=[8, 64], **FITTED)]
    enough, too_few = scaling_notes(results, FITTED)
    assert enough.startswith(
        "902,087 samples are enough for 8 ranks: 76.7 steps a bucket, and 0.5%"
    )
    assert too_few.startswith(
        "Too few samples for 64 ranks: 10.0 steps a bucket, 5.3% more batches"
    )
    way = re.search(r"about ([\d.]+)M samples, --buckets (\d+) or --num-replicas (\d+)\.$", too_few)
    changes = [
        {"samples": int(float(way[1]) * 1e6), "num_replicas": [64]},
        {"buckets": int(way[2]), "num_replicas": [64]},
        {"num_replicas": [int(way[3])]},
    ]
    for change in changes:
        *_, (_, result) = scale(real_lengths(), **FITTED, **change)
        assert result.steps_per_bucket > 47
        assert result.more_batches < 0.0125


def test_a_smaller_budget_is_a_way_out_where_little_is_lacking():
    options = {"token_budget": 49_152, "buckets": 16}
    results = [r for _, r in scale(real_lengths(), num_replicas=[64], **options)]
    (too_few,) = scaling_notes(results, options)
    budget = int(re.search(r"--token-budget (\d+)\.$", too_few)[1])
    *_, (_, result) = scale(
        real_lengths(), num_replicas=[64], **{**options, "token_budget": budget}
    )
    assert result.steps_per_bucket > 47


def test_no_way_out_is_what_has_just_been_too_few():
    lengths, options = np.full(51_202, 10), {"token_budget": 20, "buckets": 1}
    results = [r for _, r in scale(lengths, num_replicas=[512], **options)]
    (too_few,) = scaling_notes(results, options)
    assert results[1].steps_per_bucket > 50
    end = r"about ([\d,]+) samples, --num-replicas (\d+) or --token-budget (\d+)\.$"
    samples, ranks, budget = (
        int(number.replace(",", "")) for number in re.search(end, too_few).groups()
    )
    for change in (
        {"samples": samples, "num_replicas": [512]},
        {"num_replicas": [ranks]},
        {"num_replicas": [512], "token_budget": budget},
    ):
        *_, (_, result) = scale(lengths, **{**options, **change})
        assert not result.too_small


def test_on_one_rank_there_are_never_too_few():
    results = [r for _, r in scale([5, 6], num_replicas=[], token_budget=12)]
    assert not results[0].too_small
    assert list(scaling_notes(results, {"token_budget": 12})) == []


# ---- memory ----


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says")
def test_the_peak_of_memory_counts_what_is_gone_again():
    for size in (2**28, 2**26):
        with PeakMemory() as peak:
            np.ones(size, np.uint8)
        assert size * 0.9 < peak.extra < size * 1.3 + 2**22


def test_where_the_system_does_not_say_there_is_no_peak(monkeypatch, tmp_path):
    monkeypatch.setattr("evenstride.peak_memory._RESET", tmp_path / "missing" / "file")
    with PeakMemory() as peak:
        pass
    assert peak.extra is None
