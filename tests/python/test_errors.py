"""Every bad argument is refused with one sentence: its name, the rule, and the value."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import evenstride as es
from evenstride.report_page import write_report

LENGTHS = [3, 9, 4, 8, 3, 9]
WHOLE = {
    "token_budget",
    "max_batch_size",
    "batch_size_multiple",
    "pad_to_multiple_of",
    "buckets",
    "window",
    "merge_buckets",
    "accumulation_steps",
    "num_replicas",
    "steps_per_epoch",
    "num_threads",
}


def refused(error, message, **options):
    options = {"token_budget": 18, **options}
    lengths = options.pop("lengths", LENGTHS)
    pattern = f"^{re.escape(message)}$"
    with pytest.raises(error, match=pattern):
        es.BucketBatchSampler(lengths, **{"num_replicas": 1, **options})
    with pytest.raises(error, match=pattern):
        es.plan_epoch(lengths, **options)


@pytest.mark.parametrize("name", sorted(WHOLE))
@pytest.mark.parametrize("value", [0, -1, 2**63, 2**64, -(2**70)])
def test_counts_are_at_least_one_and_below_2_to_the_63(name, value):
    refused(ValueError, f"`{name}` must be in [1, 2**63), but is {value}.", **{name: value})


@pytest.mark.parametrize("name", sorted(WHOLE - {"buckets"}))
@pytest.mark.parametrize("value", [1.5, 2.0, "x", [1], np.float64(3), float("nan")], ids=repr)
def test_counts_are_integers(name, value):
    refused(TypeError, f"`{name}` must be an integer, but is {value!r}.", **{name: value})


@pytest.mark.parametrize(
    "name", ["token_budget", "batch_size_multiple", "pad_to_multiple_of", "window", "seed"]
)
def test_none_is_no_integer_where_there_is_no_other_meaning(name):
    refused(TypeError, f"`{name}` must be an integer, but is None.", **{name: None})


@pytest.mark.parametrize("value", [-1, 2**64])
def test_seeds_have_64_bits(value):
    refused(ValueError, f"`seed` must be in [0, 2**64), but is {value}.", seed=value)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_epochs_have_64_bits(value):
    message = re.escape(f"`epoch` must be in [0, 2**64), but is {value}.")
    with pytest.raises(ValueError, match=f"^{message}$"):
        es.plan_epoch(LENGTHS, token_budget=18, epoch=value)
    with pytest.raises(ValueError, match=f"^{message}$"):
        es.BucketBatchSampler(LENGTHS, token_budget=18).set_epoch(value)


@pytest.mark.parametrize("value", [1.0, "1", None])
def test_epochs_are_integers(value):
    message = re.escape(f"`epoch` must be an integer, but is {value!r}.")
    with pytest.raises(TypeError, match=f"^{message}$"):
        es.plan_epoch(LENGTHS, token_budget=18, epoch=value)
    with pytest.raises(TypeError, match=f"^{message}$"):
        es.BucketBatchSampler(LENGTHS, token_budget=18).set_epoch(value)


def test_a_longest_length_may_be_zero_but_not_below():
    refused(ValueError, "`max_length` must be in [0, 2**63), but is -1.", max_length=-1)
    refused(TypeError, "`max_length` must be an integer, but is 7.5.", max_length=7.5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.5, "0.5"), (-0.1, "-0.1"), (float("nan"), "nan"), (float("inf"), "inf"), (1, "1")],
)
def test_jitter_is_below_half_a_stride(value, shown):
    refused(ValueError, f"`jitter` must be in [0, 0.5), but is {shown}.", jitter=value)


@pytest.mark.parametrize("value", ["0.1", None, [0.1]])
def test_jitter_is_a_number(value):
    refused(TypeError, f"`jitter` must be a number, but is {value!r}.", jitter=value)


NAMES = {
    "composition": "'shuffle', 'window', 'frozen'",
    "too_long": "'error', 'drop', 'alone'",
    "empty": "'keep', 'drop', 'error'",
    "order": (
        "'stride', 'balanced', 'stratified', 'mixed', 'shuffle', 'weighted', 'anti_repeat', "
        "'diversity', 'diversity_2', 'round_robin', 'ascending', 'descending'"
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_is_answered_with_all_that_there_are(name):
    refused(ValueError, f"`{name}` must be one of {NAMES[name]}, but is 'x'.", **{name: "x"})
    refused(TypeError, f"`{name}` must be a string, but is 3.", **{name: 3})
    refused(TypeError, f"`{name}` must be a string, but is None.", **{name: None})


@pytest.mark.parametrize("value", ["6", None, 2.5], ids=repr)
def test_buckets_are_a_number_or_edges(value):
    refused(
        TypeError,
        f"`buckets` must be an integer or a sequence of inner edges, but is {value!r}.",
        buckets=value,
    )


@pytest.mark.parametrize(("edges", "place", "value"), [([5.0], 0, "5.0"), ([5, "6"], 1, "'6'")])
def test_edges_are_integers(edges, place, value):
    message = f"`buckets[{place}]` must be an integer, but is {value}."
    refused(TypeError, message, buckets=edges)


def test_edges_strictly_increase():
    for edges, least, value in [([5, 5, 9], 6, 5), ([9, 5], 10, 5)]:
        refused(
            ValueError,
            f"`buckets[1]` must be at least {least}, for edges to strictly increase from above 0, "
            f"but is {value}.",
            buckets=edges,
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("shuffle", "no"), ("shuffle", None), ("drop_last", "no"), ("drop_last", np.array([1, 0]))],
    ids=repr,
)
def test_switches_are_truth_values(name, value):
    refused(TypeError, f"`{name}` must be True or False, but is {value!r}.", **{name: value})


def test_a_length_above_the_budget_is_named_with_what_can_be_done():
    refused(
        ValueError,
        "`lengths[1]` must be in [0, 8] for token_budget = 8, but is 9; pass too_long='drop' to "
        "leave such samples out, or too_long='alone' to give each a batch of its own.",
        token_budget=8,
    )


def test_a_length_above_the_longest_is_named_with_what_can_be_done():
    refused(
        ValueError,
        "`lengths[1]` must be in [0, max_length = 8] for token_budget = 18, but is 9; pass "
        "too_long='drop' to leave such samples out, or too_long='alone' to give each a batch of "
        "its own.",
        max_length=8,
    )


def test_a_length_of_zero_is_named_with_what_can_be_done():
    refused(
        ValueError,
        "`lengths[2]` must be at least 1, but is 0; pass empty='keep' to count it as one token, "
        "or empty='drop' to leave it out.",
        lengths=[3, 4, 0],
        empty="error",
    )


def test_no_samples_are_no_epoch():
    for nothing in ([], np.array([], np.int32), torch.tensor([], dtype=torch.int64), range(0)):
        refused(
            ValueError, "`lengths` must have at least 1 sample, but has 0 samples.", lengths=nothing
        )


def test_samples_that_are_all_removed_are_no_epoch_and_counted():
    refused(
        ValueError,
        "`lengths` must leave at least 1 sample, but 0 samples are left of 5 (3 too long, 2 empty"
        ").",
        lengths=[50, 0, 60, 0, 70],
        too_long="drop",
        empty="drop",
    )


def test_a_budget_below_the_padding_multiple_fits_nothing():
    refused(
        ValueError,
        "`token_budget` must be at least pad_to_multiple_of = 32, but is 18.",
        pad_to_multiple_of=32,
    )


def test_dropping_the_only_step_is_refused_at_construction():
    refused(
        ValueError,
        "`drop_last` must leave at least 1 step, but leaves 0: there are 3 batches for "
        "num_replicas = 4.",
        lengths=[9, 9, 9],
        token_budget=9,
        num_replicas=4,
        drop_last=True,
    )


def test_steps_per_epoch_is_refused_with_both_ends_at_construction():
    for steps in (2, 7):
        refused(
            ValueError,
            f"`steps_per_epoch` must be in [3, 6], but is {steps}.",
            buckets=[6],
            steps_per_epoch=steps,
        )


@pytest.mark.parametrize(("rank", "replicas"), [(2, 2), (-1, 2), (5, 1)])
def test_a_rank_is_one_of_the_replicas(rank, replicas):
    message = f"`rank` must be in [0, num_replicas = {replicas}), but is {rank}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.BucketBatchSampler(LENGTHS, token_budget=18, num_replicas=replicas, rank=rank)
    plan = es.plan_epoch(LENGTHS, token_budget=18, num_replicas=replicas)
    for call in (plan.batches, lambda rank: plan.step_info(0, rank)):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call(rank)


@pytest.mark.parametrize("rank", [0.0, "0"])
def test_a_rank_is_an_integer(rank):
    message = re.escape(f"`rank` must be an integer, but is {rank!r}.")
    with pytest.raises(TypeError, match=f"^{message}$"):
        es.BucketBatchSampler(LENGTHS, token_budget=18, num_replicas=2, rank=rank)
    with pytest.raises(TypeError, match=f"^{message}$"):
        es.plan_epoch(LENGTHS, token_budget=18).batches(rank)


def test_batches_and_steps_are_named_when_they_are_outside():
    plan = es.plan_epoch(LENGTHS, token_budget=18, buckets=[6])
    with pytest.raises(IndexError, match=r"^`batch` must be in \[-3, 3\), but is 3\.$"):
        plan[3]
    with pytest.raises(IndexError, match=r"^`step` must be in \[0, num_steps = 3\), but is 3\.$"):
        plan.step_info(3)
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError):
            plan[wrong]


@pytest.mark.parametrize("epochs", [0, -1, 1.5, None])
def test_total_steps_counts_whole_epochs(epochs):
    sampler = es.BucketBatchSampler(LENGTHS, token_budget=18)
    with pytest.raises((TypeError, ValueError), match=r"^`epochs` must be .*, but is .*\.$"):
        sampler.total_steps(epochs)


def test_unknown_and_missing_options_are_type_errors():
    for call in (es.plan_epoch, es.BucketBatchSampler):
        with pytest.raises(TypeError, match="max_tokens"):
            call(LENGTHS, token_budget=18, max_tokens=3)
        with pytest.raises(TypeError, match="token_budget"):
            call(LENGTHS)
        with pytest.raises(TypeError, match="positional"):
            call(LENGTHS, 18)


def test_more_buckets_than_labels_are_refused():
    message = "`buckets` must be at most 32000, but are 40000."
    refused(ValueError, message, buckets=list(range(1, 40_000)))


def test_removed_tokens_are_warned_of_with_the_reason():
    message = "5,000 of 5,020 tokens are in no epoch: too_long='drop' leaves out 1 sample."
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        es.plan_epoch([5000, 10, 10], token_budget=100, too_long="drop")


@pytest.mark.parametrize("name", [3, b"x", None])
def test_the_name_on_a_page_is_a_string(tmp_path, name):
    plan = es.plan_epoch(LENGTHS, token_budget=18)
    with pytest.raises(TypeError, match=f"^`name` must be a string, but is {name!r}\\.$"):
        write_report(plan, tmp_path / "report.html", name=name)


def test_a_page_is_about_a_plan(tmp_path):
    with pytest.raises(TypeError, match=r"^`plan` must be an EpochPlan, but is a NoneType\.$"):
        write_report(None, tmp_path / "report.html")
