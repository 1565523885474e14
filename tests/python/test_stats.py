"""`EpochPlan.stats` against numpy, and what it looks like."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from itertools import groupby

import numpy as np
import pytest

import evenstride as es
from evenstride import _core
from evenstride._tables import count

LENGTHS = np.random.default_rng(0).integers(0, 200, 5000).astype(np.uint16)
OPTIONS = {"token_budget": 2000, "max_batch_size": 40, "buckets": [30, 60, 100, 150]}


@pytest.fixture(params=[1, 3], ids=["one rank", "three ranks"])
def plan(request):
    return es.plan_epoch(LENGTHS, num_replicas=request.param, **OPTIONS)


def test_the_buckets_add_up_to_what_numpy_counts(plan):
    samples = np.diff(plan.offsets)
    tokens = np.array([LENGTHS[batch].sum() for batch in plan])
    padded = samples * plan.widths
    stats = plan.stats()
    assert len(stats.buckets) == 5
    for k, bucket in enumerate(stats.buckets):
        own = plan.buckets == k
        assert (bucket.bucket, bucket.start, bucket.stop) == (k, *plan.edges[k : k + 2])
        assert bucket.samples == samples[own].sum()
        assert bucket.batches == own.sum()
        assert bucket.tokens == tokens[own].sum()
        assert bucket.padded_tokens == padded[own].sum()
        assert bucket.longest_width == plan.widths[own].max()
        assert bucket.batch_share == own.mean()
        assert bucket.padding_efficiency == pytest.approx(tokens[own].sum() / padded[own].sum())
        assert bucket.mean_length == pytest.approx(tokens[own].sum() / samples[own].sum())
        assert bucket.mean_samples == pytest.approx(samples[own].mean())
        assert bucket.budget_fill == pytest.approx(padded[own].mean() / 2000)
        assert sum(bucket.limits.values()) == bucket.batches
        assert bucket.limits[bucket.limited_by] == max(bucket.limits.values())
    assert stats.batches == len(plan)
    assert stats.samples == len(plan.indices)
    assert (stats.tokens, stats.padded_tokens) == (tokens.sum(), padded.sum())
    assert stats.padding_efficiency == pytest.approx(tokens.sum() / padded.sum())
    assert stats.distinct_shapes == len(set(zip(samples, plan.widths, strict=True)))


def test_steps_are_counted_by_bucket_quarter_and_run():
    plan = es.plan_epoch(LENGTHS, **OPTIONS)  # One rank: the labels are the buckets.
    labels = plan.buckets.tolist()
    quarters = [4 * step // len(labels) for step in range(len(labels))]
    stats = plan.stats()
    for bucket in stats.buckets:
        own = [label == bucket.bucket for label in labels]
        assert bucket.steps == sum(own)
        assert bucket.share == sum(own) / len(labels)
        for quarter, share in enumerate(bucket.quarters):
            here = [mine for mine, at in zip(own, quarters, strict=True) if at == quarter]
            assert share == sum(here) / len(here)
    runs = Counter(len(list(run)) for _, run in groupby(labels))
    assert list(stats.runs.items()) == sorted(runs.items())
    assert stats.longest_run == max(runs)
    assert stats.share_in_runs_of_one == runs[1] / len(labels)
    windows = [labels[i : i + 4] for i in range(0, len(labels) // 4 * 4, 4)]
    crowded = sum(max(Counter(window).values()) >= 3 for window in windows)
    assert stats.crowded_windows == crowded / len(windows)


def test_what_the_plan_left_out_is_counted_by_reason():
    lengths = [5] * 9 + [0] * 3 + [70, 80]
    options = {"num_replicas": 2, "drop_last": True, "too_long": "drop", "empty": "drop"}
    with pytest.warns(UserWarning, match="150 of 195 tokens"):
        plan = es.plan_epoch(lengths, token_budget=10, buckets=1, **options)
    stats = plan.stats()
    assert stats.removed == {
        "too_long": {"samples": 2, "tokens": 150},
        "empty": {"samples": 3, "tokens": 0},
    }
    assert stats.dropped_samples == len(plan.dropped)
    assert stats.samples + stats.dropped_samples == 9


def test_repeats_are_counted():
    stats = es.plan_epoch([9] * 9, token_budget=10, buckets=1, num_replicas=8).stats()
    assert (stats.steps, stats.samples, stats.repeated_samples) == (2, 16, 7)


def test_numbers_that_are_not_defined_are_nan_and_null():
    stats = es.plan_epoch([4, 4, 4], token_budget=12, buckets=[2, 9]).stats()
    assert math.isnan(stats.length_correlation)
    assert math.isnan(stats.crowded_windows)
    assert math.isnan(stats.buckets[0].mean_length)
    plain = stats.to_dict()
    assert plain["length_correlation"] is None
    assert plain["buckets"][0]["mean_length"] is None
    assert "nan" not in stats.table()


def test_a_log_gets_plain_values_of_every_field(plan):
    stats = plan.stats()
    plain = stats.to_dict()
    assert set(plain) == {field.name for field in dataclasses.fields(stats)}
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_a_saved_plan_has_the_same_statistics(plan, tmp_path):
    plan.save(tmp_path / "plan")
    loaded = es.EpochPlan.load(tmp_path / "plan").stats()
    assert loaded.to_dict() == plan.stats().to_dict()


def test_a_table_fits_into_110_columns():
    lengths = np.random.default_rng(1).integers(1, 10_000_000, 3000)
    edges = range(200_000, 10_000_000, 150_000)
    stats = es.plan_epoch(lengths, token_budget=50_000_000, buckets=edges, num_replicas=2).stats()
    lines = stats.table().splitlines()
    assert max(map(len, lines)) <= 110
    assert lines[0].startswith("steps ")
    assert f"... {len(stats.buckets) - 40} buckets more ..." in lines


def test_counts_are_short_and_exact_below_a_million():
    numbers = [0, 999_999, 1_000_000, 1_791_048_373, 999_960_000, 2**64 - 1]
    assert [count(number) for number in numbers] == [
        "0",
        "999,999",
        "1.000M",
        "1.791G",
        "1.000G",
        "18.45E",
    ]


def test_arrays_of_another_kind_are_refused(plan):
    with pytest.raises(TypeError, match=r"^`buckets` must have dtype int16, but has int32\.$"):
        _core.plan_statistics(
            plan.offsets, plan.buckets.astype(np.int32), plan.widths, plan.tokens,
            num_replicas=1, num_buckets=5, token_budget=1, max_batch_size=1,
            batch_size_multiple=1, num_threads=1,
        )  # fmt: skip
