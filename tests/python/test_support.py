"""The oracle that other tests rely on sees every kind of fault."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import evenstride as es
from support import check_plan, lognormal

LENGTHS = np.append(lognormal(400, longest=1000), [0, 2000])
OPTIONS = {
    "token_budget": 4096,
    "max_batch_size": 20,
    "buckets": [300, 700],
    "max_length": 1500,
    "too_long": "drop",
    "num_replicas": 2,
}


def sound_plan(**options):
    return es.plan_epoch(LENGTHS, **{**OPTIONS, **options})


def swap_two_samples_of_different_buckets(plan):
    indices = plan.indices.copy()
    sizes = np.diff(plan.offsets)
    owners = np.repeat(plan.buckets, sizes)
    one, other = np.flatnonzero(owners == 0)[0], np.flatnonzero(owners == 2)[0]
    indices[[one, other]] = indices[[other, one]]
    plan.indices = indices


def have_a_sample_twice(plan):
    plan.indices = plan.indices.copy()
    plan.indices[0] = plan.indices[1]


def lose_a_sample(plan):
    plan.indices = plan.indices[:-1]
    plan.offsets = np.append(plan.offsets[:-1], len(plan.indices))


def join_two_batches(plan):
    plan.offsets = np.delete(plan.offsets, 1)
    plan.buckets, plan.widths = plan.buckets[1:], plan.widths[1:]


def change(name, by=1):
    def fault(plan):
        array = getattr(plan, name).copy()
        array[0] += by
        setattr(plan, name, array)

    fault.__name__ = f"change {name}"
    return fault


def list_a_repeat_that_is_none(plan):
    plan.repeats = np.array([3])


def list_a_dropped_sample_that_is_there(plan):
    plan.dropped = np.array([3])


def count_a_removed_sample_twice(plan):
    plan.removed = copy.deepcopy(plan.removed)
    plan.removed["too_long"]["samples"] += 1


def have_an_edge_too_many(plan):
    plan.edges = np.insert(plan.edges, 1, 5)


FAULTS = [
    swap_two_samples_of_different_buckets,
    have_a_sample_twice,
    lose_a_sample,
    join_two_batches,
    change("widths"),
    change("widths", -1),
    change("buckets"),
    change("edges"),
    change("offsets"),
    list_a_repeat_that_is_none,
    list_a_dropped_sample_that_is_there,
    count_a_removed_sample_twice,
    have_an_edge_too_many,
]


@pytest.mark.filterwarnings("ignore:.* are in no epoch")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_seen(fault):
    plan = sound_plan()
    check_plan(plan, LENGTHS, OPTIONS)
    fault(plan)
    with pytest.raises((AssertionError, IndexError)):
        check_plan(plan, LENGTHS, OPTIONS)


@pytest.mark.filterwarnings("ignore:.* are in no epoch")
@pytest.mark.parametrize(
    ("option", "made_with", "checked_for"),
    [
        ("token_budget", 4096, 3000),
        ("max_batch_size", 20, 8),
        ("pad_to_multiple_of", 1, 8),
        ("max_length", 1500, 900),
        ("empty", "keep", "drop"),
        ("num_replicas", 2, 3),
        ("merge_buckets", 1, 2),
    ],
)
def test_a_plan_of_other_options_is_seen(option, made_with, checked_for):
    plan = sound_plan(**{option: made_with})
    with pytest.raises(AssertionError):
        check_plan(plan, LENGTHS, {**OPTIONS, option: checked_for})
