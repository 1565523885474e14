"""What a meter takes and what it refuses, before anything is counted."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import evenstride as es
from evenstride import BucketBatchSampler


def new_sampler():
    return BucketBatchSampler([3, 9, 4, 8, 3, 9, 5, 11, 2, 7], token_budget=24, buckets=[6], seed=3)


NUMBERS = [0.5, np.float32(0.5), np.array(0.5), np.array([0.5]), torch.tensor(0.5)]


@pytest.mark.parametrize("number", [*NUMBERS, torch.DoubleTensor([[0.5]])], ids=repr)
def test_takes_numbers_of_any_kind(number):
    meter = es.metrics.BatchMeter(new_sampler().plan)
    meter.update(0, loss=number)
    assert meter.figures().total.loss.mean == 0.5


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            {"loss": torch.tensor(1j)},
            TypeError,
            "`loss` must be a real number or a tensor of one, but is tensor(0.+1.j).",
        ),
        (
            {"loss": torch.zeros((), device="meta")},
            ValueError,
            "`loss` must have a value, but is a tensor on the device 'meta'.",
        ),
        (
            {"grad_norm": 2**1024},
            ValueError,
            f"`grad_norm` must be in (-2**1024, 2**1024), but is {2**1024}.",
        ),
        ({"seconds": "x"}, TypeError, "`seconds` must be a number, but is 'x'."),
        ({"seconds": -1.0}, ValueError, "`seconds` must be in [0, inf), but is -1.0."),
        ({"seconds": 2**1024}, ValueError, f"`seconds` must be in [0, inf), but is {2**1024}."),
    ],
    ids=str,
)
def test_a_value_that_is_refused_loses_none_of_the_others(values, error, message):
    meter = es.metrics.BatchMeter(new_sampler().plan)
    meter.update(0, loss=1.0, seconds=1.0)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        meter.update(1, **values)
    meter.update(1, loss=2.0)
    total = meter.figures("epoch").total
    assert (total.steps, total.loss.mean) == (2, 1.5)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_gradient_norm_that_comes_later_is_a_number(is_read):
    meter = es.metrics.BatchMeter(new_sampler().plan)
    meter.update(0)
    if is_read:
        meter.figures()
    message = r"^`grad_norm` must be a real number or a tensor of one, but is None\.$"
    with pytest.raises(TypeError, match=message):
        meter.add_grad_norm(None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda plan: es.metrics.BatchMeter(plan, window=2, accumulation_steps=3),
            ValueError,
            "`window` must be at least accumulation_steps = 3, but is 2.",
        ),
        (
            lambda _: es.metrics.BatchMeter(new_sampler(), rank=0),
            ValueError,
            "`rank` must be left out with a sampler, which has its own, but is 0.",
        ),
        (
            lambda _: es.metrics.BatchMeter([1, 2]),
            TypeError,
            "`source` must be a BucketBatchSampler or an EpochPlan, but is [1, 2].",
        ),
        (
            lambda _: es.metrics.BatchMeter(BucketBatchSampler),
            TypeError,
            f"`source` must be a BucketBatchSampler or an EpochPlan, but is {BucketBatchSampler}.",
        ),
        (
            lambda plan: es.metrics.BatchMeter(plan).update(99),
            IndexError,
            "`step` must be in [0, num_steps = 5), but is 99.",
        ),
        (
            lambda plan: es.metrics.BatchMeter(plan).update(0, loss="1.0"),
            TypeError,
            "`loss` must be a real number or a tensor of one, but is '1.0'.",
        ),
        (
            lambda plan: es.metrics.BatchMeter(plan).update(0, grad_norm=torch.ones(2)),
            ValueError,
            "`grad_norm` must have one element, but has shape (2,).",
        ),
        (
            lambda plan: es.metrics.BatchMeter(plan).figures("all"),
            ValueError,
            "`scope` must be 'window' or 'epoch', but is 'all'.",
        ),
        (
            lambda plan: es.metrics.BatchMeter(plan).between_bucket_share("seconds"),
            ValueError,
            "`of` must be 'grad_norm' or 'loss', but is 'seconds'.",
        ),
        (
            lambda plan: es.metrics.BatchMeter(plan).between_bucket_share([]),
            ValueError,
            "`of` must be 'grad_norm' or 'loss', but is [].",
        ),
    ],
)
def test_says_which_value_is_wrong(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call(new_sampler().plan)
