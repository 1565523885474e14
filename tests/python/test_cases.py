"""Small inputs with known right answers, each from a mistake that others made more than once."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import evenstride as es
from support import batches_of, check_plan, lognormal, same_plans


def ranks_of(lengths, num_replicas, **options):
    samplers = [
        es.BucketBatchSampler(lengths, num_replicas=num_replicas, rank=rank, **options)
        for rank in range(num_replicas)
    ]
    assert len({len(sampler) for sampler in samplers}) == 1
    return samplers


def indices_of(batches):
    return sorted(i for batch in batches for i in batch)


def test_14_equal_samples_on_3_ranks_make_3_steps_without_loss():
    samplers = ranks_of([4] * 14, 3, token_budget=8)
    passes = [list(sampler) for sampler in samplers]
    assert [len(batches) for batches in passes] == [3, 3, 3]
    assert indices_of(batch for batches in passes for batch in batches) == list(range(14))
    assert all(batch for batches in passes for batch in batches)


def test_14_equal_samples_on_3_ranks_make_2_steps_of_12_samples_with_drop_last():
    samplers = ranks_of([4] * 14, 3, token_budget=8, drop_last=True)
    passes = [list(sampler) for sampler in samplers]
    assert [len(batches) for batches in passes] == [2, 2, 2]
    assert len(set(indices_of(batch for batches in passes for batch in batches))) == 12


def test_two_passes_without_set_epoch_differ_and_are_epochs_0_and_1():
    sampler = es.BucketBatchSampler(range(1, 65), token_budget=64)
    passes = [list(sampler), list(sampler)]
    assert passes[0] != passes[1]
    assert indices_of(passes[0]) == indices_of(passes[1]) == list(range(64))
    for epoch in (0, 1):
        fresh = es.BucketBatchSampler(range(1, 65), token_budget=64)
        fresh.set_epoch(epoch)
        assert list(fresh) == passes[epoch]


def test_a_sample_above_the_budget_is_an_error_that_names_it():
    with pytest.raises(ValueError, match=r"^`lengths\[1\]` must be in \[0, 512\] .*but is 513;"):
        es.BucketBatchSampler([3, 513, 5], token_budget=512)


@pytest.mark.filterwarnings("ignore:.* are in no epoch")
def test_a_sample_above_the_budget_is_dropped_and_counted_if_asked_for():
    sampler = es.BucketBatchSampler([3, 513, 5], token_budget=512, too_long="drop", buckets=[])
    assert [sorted(batch) for batch in sampler] == [[0, 2]]
    assert sampler.plan.removed["too_long"] == {"samples": 1, "tokens": 513}


def test_a_sample_above_the_budget_is_alone_if_asked_for():
    sampler = es.BucketBatchSampler([3, 513, 5], token_budget=512, too_long="alone", buckets=[])
    assert sorted(sorted(batch) for batch in sampler) == [[0, 2], [1]]


def test_a_sample_of_just_the_budget_is_accepted():
    assert list(es.BucketBatchSampler([512], token_budget=512)) == [[0]]


def test_an_empty_set_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="0 samples"):
        es.BucketBatchSampler([], token_budget=8)
    with pytest.raises(ValueError, match=r"0 samples.*2 too long, 1 empty"):
        es.BucketBatchSampler([90, 0, 80], token_budget=8, too_long="drop", empty="drop")


def test_the_type_of_the_lengths_changes_nothing(tmp_path):
    values = lognormal(500, longest=250)
    np.save(tmp_path / "lengths.npy", values)
    forms = [
        values.tolist(),
        *(values.astype(dtype) for dtype in ("uint8", "uint16", "int32", "int64")),
        torch.from_numpy(values),
        np.load(tmp_path / "lengths.npy", mmap_mode="r"),
        pa.array(values),
        pa.chunked_array([values[:9], values[9:]]),
    ]
    plans = [es.BucketBatchSampler(form, token_budget=2048).plan for form in forms]
    assert all(same_plans(plans[0], plan) for plan in plans)
    with pytest.raises(TypeError):
        es.BucketBatchSampler([[1, 1], [1]], token_budget=8)


def test_resuming_at_batch_100_000_reads_no_row():
    read = set()

    class Rows(torch.utils.data.Dataset):
        def __getitem__(self, index):
            read.add(index)
            return index

    lengths = np.full(2_000_000, 100, np.uint16)
    sampler = es.BucketBatchSampler(lengths, token_budget=1000)
    sampler.load_state_dict({**sampler.state_dict(), "step": 100_000})
    assert not read
    batch = next(iter(DataLoader(Rows(), batch_sampler=sampler, collate_fn=list)))
    assert batch == sampler.plan.batches(0)[100_000].tolist()
    assert read == set(batch)


@pytest.mark.parametrize("kind", ["constant", "ascending", "descending", "two values"])
@pytest.mark.parametrize("composition", ["shuffle", "window", "frozen"])
def test_special_distributions_are_planned_like_others(kind, composition):
    count = 300_000
    lengths = {
        "constant": np.full(count, 500),
        "ascending": np.arange(count) // 100,
        "descending": np.sort(lognormal(count))[::-1],
        "two values": np.where(np.arange(count) % 3 == 0, 10, 4000),
    }[kind]
    plan = es.plan_epoch(lengths, token_budget=16_384, composition=composition)
    assert np.array_equal(np.sort(plan.indices), np.arange(count))


def test_len_is_exact_on_all_ranks_in_ten_epochs():
    for sampler in ranks_of(lognormal(3000), 3, token_budget=8192):
        loader = DataLoader(range(3000), batch_sampler=sampler, collate_fn=list)
        assert type(len(sampler)) is int
        for epoch in range(10):
            sampler.set_epoch(epoch)
            assert len(list(sampler)) == len(sampler) == len(loader)


def test_frameworks_find_batch_size_and_drop_last():
    sampler = es.BucketBatchSampler([3, 4], token_budget=8)
    assert sampler.batch_size is None
    assert sampler.drop_last is False


@pytest.mark.parametrize("seed", range(5))
def test_small_sets_are_filled_as_by_hand(seed):
    by_hand = es.plan_epoch([100, 10, 10, 10, 100], token_budget=150, seed=seed)
    assert sorted(sorted(batch) for batch in batches_of(by_hand)) == [[0], [1, 2, 3], [4]]
    assert len(es.plan_epoch([7] * 8, token_budget=8, seed=seed)) == 8
    padded = es.plan_epoch([9] * 6, token_budget=64, pad_to_multiple_of=8, seed=seed)
    assert sorted(np.diff(padded.offsets).tolist()) == [2, 4]


def test_five_epochs_on_8_ranks_are_exact():
    lengths = lognormal(10_000)
    samplers = ranks_of(lengths, 8, token_budget=16_384)
    for epoch in range(5):
        passes = []
        for sampler in samplers:
            sampler.set_epoch(epoch)
            passes.append(list(sampler))
        assert {len(batches) for batches in passes} == {len(samplers[0])}
        assert indices_of(b for batches in passes for b in batches) == list(range(10_000))


def test_global_random_states_may_differ_between_ranks_and_are_untouched():
    seen = []
    for rank in range(4):
        random.seed(rank)
        np.random.seed(rank)  # noqa: NPY002 - The state that others share.
        torch.manual_seed(rank)
        before = [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]  # noqa: NPY002
        sampler = es.BucketBatchSampler(
            lognormal(500), token_budget=8192, num_replicas=4, rank=rank
        )
        seen.extend(sampler)
        after = [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]  # noqa: NPY002
        assert before == after
    assert indices_of(seen) == list(range(500))


def test_drop_last_with_two_buckets_of_3_batches_on_4_ranks_loses_2_batches():
    lengths = [10] * 3 + [100] * 3
    options = {"token_budget": 100, "max_batch_size": 1, "buckets": [50], "num_replicas": 4}
    seen = set()
    for epoch in range(20):
        plan = es.plan_epoch(lengths, **options, drop_last=True, epoch=epoch)
        assert plan.num_steps == 1
        assert len(plan.dropped) == 2
        seen.update(plan.indices.tolist())
    assert seen == set(range(6))


def test_drop_last_with_three_buckets_of_6_batches_on_4_ranks_loses_fewer_than_4():
    lengths = [10] * 6 + [100] * 6 + [1000] * 6
    options = {"token_budget": 1000, "max_batch_size": 1, "buckets": [50, 500], "num_replicas": 4}
    for epoch in range(20):
        plan = es.plan_epoch(lengths, **options, drop_last=True, epoch=epoch)
        check_plan(plan, lengths, {**options, "drop_last": True})
        assert plan.num_steps == 4
        assert len(plan.dropped) == 2


def test_dropped_samples_and_tokens_are_counted_and_warned_of():
    with pytest.warns(UserWarning, match=r"5,000 of 5,020 tokens"):
        sampler = es.BucketBatchSampler([5000, 10, 10], token_budget=100, too_long="drop")
    assert sampler.plan.removed["too_long"] == {"samples": 1, "tokens": 5000}
    assert sampler.plan.stats().removed["too_long"] == {"samples": 1, "tokens": 5000}


def test_more_buckets_than_lengths_are_fewer_buckets():
    assert len(es.BucketBatchSampler([7] * 100, token_budget=70, buckets=10).plan.edges) == 2
    assert len(es.BucketBatchSampler([1, 2], token_budget=70, buckets=30).plan.edges) <= 3
    for edges in ([5, 5, 9], [9, 5]):
        with pytest.raises(ValueError, match=re.escape("`buckets[1]` must be at least")):
            es.BucketBatchSampler([1, 7, 20], token_budget=70, buckets=edges)


def test_three_thousand_million_tokens_are_counted():
    lengths = np.full(3_000_000, 1000, np.int32)
    plan = es.plan_epoch(lengths, token_budget=16_000)
    assert len(plan) == 187_500
    assert set(np.diff(plan.offsets).tolist()) == {16}
    assert plan.stats().tokens == plan.stats().padded_tokens == 3_000_000_000


def test_lengths_of_0_cost_1_each():
    plan = es.plan_epoch([0] * 20, token_budget=8)
    assert sorted(np.diff(plan.offsets).tolist()) == [4, 8, 8]
    assert plan.widths.tolist() == [1, 1, 1]
    lengths = [0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 8]
    check_plan(es.plan_epoch(lengths, token_budget=8), lengths, {"token_budget": 8})


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor, pa.array])
def test_each_batch_is_a_list_of_int_whatever_the_lengths_are(form):
    for batch in es.BucketBatchSampler(form([3, 4, 5, 900]), token_budget=900):
        assert type(batch) is list
        assert {type(index) for index in batch} == {int}


def test_a_small_bucket_is_spread_over_all_quarters_and_an_empty_one_is_harmless():
    lengths = [10] * 10 + [1000] * 90
    options = {"token_budget": 1000, "max_batch_size": 1, "buckets": [50, 500]}
    for epoch in range(10):
        plan = es.plan_epoch(lengths, **options, epoch=epoch)
        quarters = (plan.buckets.reshape(4, 25) == 0).sum(axis=1)
        assert set(quarters.tolist()) <= {2, 3}
        balanced = es.plan_epoch(lengths, **options, order="balanced", epoch=epoch)
        assert balanced.stats().prefix_discrepancy < 1


def test_every_step_has_one_bucket_and_near_equal_cost_on_8_ranks():
    lengths = lognormal(20_000)
    for epoch in range(3):
        plan = es.plan_epoch(lengths, token_budget=16_384, buckets=10, num_replicas=8, epoch=epoch)
        labels = plan.buckets.reshape(-1, 8)
        assert (labels == labels[:, :1]).all()
        costs = (np.diff(plan.offsets) * plan.widths.astype(np.int64)).reshape(-1, 8)
        assert (costs.max(axis=1) / costs.mean(axis=1)).mean() <= 1.05


def test_both_ranks_read_local_and_global_tokens_without_communication():
    samplers = ranks_of([5, 1], 2, token_budget=5, max_batch_size=1, buckets=[])
    infos = [sampler.step_info(0) for sampler in samplers]
    assert sorted(info.tokens for info in infos) == [1, 5]
    assert [info.global_tokens for info in infos] == [6, 6]
    assert [info.global_samples for info in infos] == [2, 2]


def test_9_samples_that_cannot_be_split_repeat_7_on_8_ranks_or_drop_1():
    plan = es.plan_epoch([9] * 9, token_budget=10, num_replicas=8)
    assert plan.num_steps == 2
    assert len(plan.repeats) == 7
    check_plan(plan, [9] * 9, {"token_budget": 10, "num_replicas": 8})
    dropping = es.plan_epoch([9] * 9, token_budget=10, num_replicas=8, drop_last=True)
    assert dropping.num_steps == 1
    assert len(dropping.dropped) == 1


def test_six_epochs_of_real_lengths_have_the_same_len(lengths):
    sampler = es.BucketBatchSampler(
        lengths, token_budget=49_152, max_batch_size=64, buckets=[770, 1216, 1728, 2432, 3296]
    )
    for epoch in range(6):
        sampler.set_epoch(epoch)
        assert sampler.plan.num_steps == len(sampler)
    assert sampler.total_steps(6) == 6 * len(sampler)


def test_window_leaves_no_climbing_and_falling_widths_inside_a_bucket(lengths):
    plan = es.plan_epoch(
        lengths[:200_000], token_budget=49_152, buckets=[770, 1216, 1728], composition="window"
    )
    assert abs(plan.stats().width_correlation) < 0.05
