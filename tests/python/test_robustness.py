"""Uses that no contract invites: each ends in one sentence, or just works."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import evenstride as es

OPTIONS = {"token_budget": 64, "buckets": [8]}


def new_sampler(**options):
    return es.BucketBatchSampler(list(range(1, 33)), **OPTIONS, **options)


@pytest.mark.parametrize("order", ["stride", "mixed"])
def test_lengths_that_change_after_all_are_noticed_before_they_do_harm(order):
    lengths = np.arange(300_000) % 60 + 1
    sampler = es.BucketBatchSampler(
        lengths, token_budget=512, buckets=[30], too_long="drop", max_length=60, order=order
    )
    assert len(sampler) > 0
    lengths[:] = 99
    with pytest.raises(RuntimeError, match=r"^`lengths` must never change, but .* now\.$"):
        sampler.set_epoch(1) or sampler.plan.stats()


def test_lengths_that_change_their_bucket_are_noticed_before_they_do_harm():
    lengths = np.arange(200_000) % 97 + 20
    sampler = es.BucketBatchSampler(lengths, token_budget=4096, buckets=[50, 80])
    assert len(sampler) > 0
    lengths[:] = 20
    sampler.set_epoch(1)
    with pytest.raises(
        RuntimeError,
        match=r"^`lengths` must never change, but \d+ samples of a bucket are \d+ now\.$",
    ):
        _ = sampler.plan


@pytest.mark.parametrize(("field", "value"), [("seed", 9), ("steps_per_epoch", 99)])
def test_a_state_is_compared_field_by_field_not_by_its_options_alone(field, value):
    sampler = new_sampler()
    state = {**sampler.state_dict(), field: value}
    with pytest.raises(ValueError, match=rf"^`{field}` must be the same .* was {value} there"):
        sampler.load_state_dict(state)


def test_masked_lengths_are_refused_by_their_place():
    lengths = np.ma.array([5, 9999, 3], mask=[0, 1, 0])
    with pytest.raises(ValueError, match=r"^`lengths\[1\]` must not be masked; 1 lengths are\.$"):
        es.plan_epoch(lengths, **OPTIONS)


def test_an_empty_world_size_counts_as_unset(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "")
    assert len(new_sampler()) > 0


def test_the_rank_is_taken_at_first_use_even_if_their_number_is_given(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = new_sampler(num_replicas=2)
    with pytest.raises(RuntimeError, match="WORLD_SIZE is 2"):
        next(iter(sampler))


@pytest.mark.parametrize("steps", [2**62, 2**63 - 1])
def test_accumulation_without_end_does_not_overflow(steps):
    plan = es.plan_epoch(
        [5] * 100, token_budget=20, order="mixed", accumulation_steps=steps, num_replicas=4
    )
    assert sorted(set(plan.indices.tolist())) == list(range(100))


def test_a_copy_has_a_position_of_its_own():
    sampler = new_sampler()
    batches = iter(sampler)
    next(batches)
    other = copy.copy(sampler)
    next(batches)
    assert (other.state_dict()["step"], sampler.state_dict()["step"]) == (1, 2)


def test_arrays_stay_read_only_through_a_pickle():
    plan = pickle.loads(pickle.dumps(es.plan_epoch([3, 4, 5], **OPTIONS)))
    for array in (plan.indices, plan.offsets, plan.edges, plan.tokens):
        assert not array.flags.writeable
