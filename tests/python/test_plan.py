"""What every plan promises, whatever the lengths and the options."""

from __future__ import annotations

import copy
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings

import evenstride as es
from support import (
    ARRAYS,
    COMPOSITIONS,
    ORDERS,
    REAL,
    admitted,
    batches_of,
    check_plan,
    lognormal,
    problems,
    same_plans,
)

SMALL = {"token_budget": 4096, "buckets": [300, 900], "too_long": "alone"}


def planned(lengths, options):
    """Return the plan; a set without samples or steps has none, and says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not admitted(lengths, options):
            with pytest.raises(ValueError, match="must leave at least 1 sample"):
                es.plan_epoch(lengths, **options)
            assume(False)
        if options["drop_last"]:
            alone = {**options, "num_replicas": 1, "drop_last": False}
            if options["order"] == "mixed" and options["shuffle"]:  # Splits instead.
                alone["max_batch_size"] = 1
            if len(es.plan_epoch(lengths, **alone)) < options["num_replicas"]:
                with pytest.raises(ValueError, match="`drop_last` must leave at least 1 step"):
                    es.plan_epoch(lengths, **options)
                assume(False)
        return es.plan_epoch(lengths, **options)


@settings(max_examples=300)
@given(problems(orders=(*ORDERS, "weighted")))
def test_every_sample_comes_once_within_every_limit(problem):
    lengths, options = problem
    check_plan(planned(lengths, options), lengths, options)


@settings(max_examples=200)
@given(problems(orders=["mixed"], drop_last=False))
def test_every_sample_comes_once_within_every_limit_in_mixed_order_too(problem):
    lengths, options = problem
    check_plan(planned(lengths, options), lengths, options)


@given(problems())
def test_a_plan_is_a_pure_function(problem):
    lengths, options = problem
    plan = planned(lengths, options)
    for num_threads in (1, 2, 3, 8):
        assert same_plans(plan, planned(lengths, {**options, "num_threads": num_threads}))


@settings(max_examples=25)
@given(problems())
def test_global_random_states_are_neither_read_nor_changed(problem):
    lengths, options = problem
    plans = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - The state that others share.
        torch.manual_seed(seed)
        before = pickle.dumps(
            [random.getstate(), np.random.get_state(), torch.get_rng_state().numpy()]  # noqa: NPY002
        )
        plans.append(planned(lengths, options))
        after = pickle.dumps(
            [random.getstate(), np.random.get_state(), torch.get_rng_state().numpy()]  # noqa: NPY002
        )
        assert before == after
    assert same_plans(*plans)


@pytest.mark.parametrize("order", [*ORDERS, "mixed"])
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_the_number_of_threads_changes_nothing_where_threads_have_work(order, composition):
    if order == "mixed" and composition != "shuffle":
        pytest.skip("refused")
    lengths = np.tile(lognormal(60_000), 5)
    options = {
        **SMALL,
        "token_budget": 16_384,
        "order": order,
        "composition": composition,
        "num_replicas": 3,
        "accumulation_steps": 4,
        "epoch": 5,
    }
    one, *others = [es.plan_epoch(lengths, num_threads=n, **options) for n in (1, 2, 3, 8)]
    for other in others:
        assert same_plans(one, other)
    assert np.array_equal(np.sort(one.indices), np.arange(len(lengths)))


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_a_large_plan_keeps_every_limit_of_every_batch(lengths, composition):
    plan = es.plan_epoch(
        lengths, **REAL, num_replicas=8, composition=composition, pad_to_multiple_of=16
    )
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    sizes = np.diff(plan.offsets)
    of_samples = lengths[plan.indices]
    longest = np.maximum.reduceat(of_samples, plan.offsets[:-1])
    shortest = np.minimum.reduceat(of_samples, plan.offsets[:-1])
    assert np.array_equal(plan.widths, -(-longest // 16) * 16)
    assert (sizes * plan.widths.astype(np.int64))[sizes > 1].max() <= REAL["token_budget"]
    assert sizes.max() == REAL["max_batch_size"]
    assert np.array_equal(np.digitize(longest, REAL["buckets"]), plan.buckets)
    assert np.array_equal(np.digitize(shortest, REAL["buckets"]), plan.buckets)


def test_seed_and_epoch_are_mixed_and_not_added():
    lengths = lognormal(500)
    plans = [
        es.plan_epoch(lengths, **SMALL, seed=seed, epoch=epoch).indices.tolist()
        for seed in (0, 1, 2)
        for epoch in (0, 1, 2)
    ]
    assert len({tuple(plan) for plan in plans}) == 9


@pytest.mark.parametrize("top", [0, 2**63, 2**64 - 1])
def test_seeds_and_epochs_of_64_bits_are_taken(top):
    lengths = lognormal(100)
    plan = es.plan_epoch(lengths, **SMALL, seed=top, epoch=top)
    check_plan(plan, lengths, SMALL)
    assert plan.epoch == top


def test_weighted_is_another_name_of_shuffle():
    lengths = lognormal(500)
    one = es.plan_epoch(lengths, **SMALL, order="weighted")
    assert same_plans(one, es.plan_epoch(lengths, **SMALL, order="shuffle"))


def test_options_as_numpy_integers_are_the_same_options():
    lengths = lognormal(500)
    options = {"token_budget": 4096, "max_batch_size": 9, "num_replicas": 2, "epoch": 3, "seed": 4}
    as_numpy = {name: np.int32(value) for name, value in options.items()}
    plan = es.plan_epoch(lengths, buckets=[100, 900], **options)
    other = es.plan_epoch(lengths, buckets=np.array([100, 900], np.uint16), **as_numpy)
    assert same_plans(plan, other)


def test_arrays_are_read_only_and_of_the_documented_types():
    plan = es.plan_epoch(lognormal(500), **SMALL)
    for name in ARRAYS:
        array = getattr(plan, name)
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert plan.offsets.dtype == plan.edges.dtype == plan.repeats.dtype == np.int64
    assert plan.buckets.dtype == np.int16
    assert not plan[0].flags.writeable


def test_batches_by_number_rank_and_iteration_are_the_same():
    plan = es.plan_epoch(lognormal(500), **SMALL, num_replicas=3)
    batches = batches_of(plan)
    assert [batch.tolist() for batch in plan] == batches
    assert [plan[i].tolist() for i in range(len(plan))] == batches
    assert plan[-1].tolist() == batches[-1]
    for rank in range(3):
        of_rank = plan.batches(rank)
        assert len(of_rank) == plan.num_steps
        assert [batch.tolist() for batch in of_rank] == batches[rank::3]
        assert of_rank[-1].tolist() == batches[rank::3][-1]
    for outside in (len(plan), -len(plan) - 1):
        with pytest.raises(IndexError):
            plan[outside]


def test_the_largest_step_has_the_most_padded_tokens():
    plan = es.plan_epoch(lognormal(2000), **SMALL, num_replicas=4)
    costs = (np.diff(plan.offsets) * plan.widths).reshape(-1, 4).max(axis=1)
    assert type(plan.largest_step) is int
    assert costs[plan.largest_step] == costs.max()


def pickled(plan):
    return pickle.loads(pickle.dumps(plan))


@pytest.mark.parametrize("duplicate", [pickled, copy.deepcopy])
def test_a_copy_is_the_same_plan(duplicate):
    plan = es.plan_epoch(lognormal(2000), **SMALL, num_replicas=4)
    other = duplicate(plan)
    assert same_plans(plan, other)
    assert other.stats() == plan.stats()
    assert [other.step_info(i, 2) for i in range(9)] == [plan.step_info(i, 2) for i in range(9)]


def test_a_small_and_a_wide_integer_type_of_indices_say_the_same(lengths):
    plan = es.plan_epoch(lengths[:70_000], **REAL)
    assert plan.indices.dtype in (np.dtype(np.int32), np.dtype(np.uint32))
    assert torch.from_numpy(plan.indices.copy()).max() == 69_999
