"""A meter's state: a resumed run's figures go on as if nothing had happened."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es

LENGTHS = np.random.default_rng(2).integers(1, 30, 120)


def new_sampler(**options):
    fixed = {"token_budget": 60, "buckets": [8, 20], "seed": 3, "num_replicas": 1, "rank": 0}
    return es.BucketBatchSampler(LENGTHS, **{**fixed, **options})


def new_meter(sampler, **options):
    return es.metrics.BatchMeter(sampler, **{"window": 30, "accumulation_steps": 3, **options})


def through_json(state):
    return json.loads(json.dumps(state, allow_nan=False))


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def train(sampler, meter, draw, stop=None):
    for batch in sampler:
        step = sampler.state_dict()["step"] - 1
        loss = math.nan if step == 4 else len(batch) + draw.random()
        ends = (step + 1) % 3 == 0
        meter.update(step, loss=loss, grad_norm=draw.random() if ends else None, seconds=0.5)
        if stop is not None and (sampler.epoch, step + 1) == stop:
            return


@given(st.integers(0, 1), st.integers(1, 30), st.sampled_from([through_json, through_torch]))
def test_a_resumed_run_has_the_figures_of_an_uninterrupted_one(epoch, steps, through):
    whole = new_sampler()
    expected = new_meter(whole)
    draw = np.random.default_rng(0)
    for _ in range(2):
        train(whole, expected, draw)

    stopped = new_sampler()
    meter = new_meter(stopped)
    draw = np.random.default_rng(0)
    stop = epoch, min(steps, len(stopped))
    for _ in range(epoch + 1):
        train(stopped, meter, draw, stop)
    resumed = new_sampler()
    resumed.load_state_dict(stopped.state_dict())
    other = new_meter(resumed)
    other.load_state_dict(through(meter.state_dict()))
    while (resumed.epoch, other._step) != (1, len(resumed) - 1):
        train(resumed, other, draw)
    assert other.scalars() == expected.scalars()
    assert other.state_dict() == expected.state_dict()


def test_a_new_meter_has_a_state_too():
    meter, other = new_meter(new_sampler()), new_meter(new_sampler())
    other.load_state_dict(through_json(meter.state_dict()))
    assert other.epoch == -1
    assert other.scalars() == {"evenstride/window/steps": 0, "evenstride/epoch/steps": 0}


@pytest.mark.parametrize(
    ("name", "there", "here"),
    [("version", 2, 1), ("edges", [0, 9], [0, 8, 20, 30]), ("accumulation_steps", 1, 3)],
)
def test_a_state_of_something_else_is_refused(name, there, here):
    meter = new_meter(new_sampler())
    message = (
        f"`{name}` must be the same as when the state was saved, but was {there} there and is "
        f"{here} here."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        meter.load_state_dict({**meter.state_dict(), name: there})


def test_the_figures_of_another_rank_are_dropped():
    ranks = []
    for rank in range(2):
        sampler = new_sampler(num_replicas=2, rank=rank)
        ranks.append((sampler, new_meter(sampler)))
        for step, batch in enumerate(sampler):
            ranks[rank][1].update(step, loss=len(batch))
    (_, first), (sampler, meter) = ranks
    meter.load_state_dict(through_json(first.state_dict()))
    assert meter.state_dict() == new_meter(sampler).state_dict()
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 0, "step": 4})
    for batch in sampler:
        meter.update(loss=len(batch))
    assert meter.figures("epoch").total.steps == len(sampler) - 4
    assert meter.state_dict()["rank"] == 1


def test_a_state_that_is_not_whole_is_refused():
    meter = new_meter(new_sampler())
    state = meter.state_dict()
    del state["window"]
    message = f"`state` must have the field 'window', but has only {sorted(state)}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        meter.load_state_dict(state)
    with pytest.raises(TypeError, match=r"^`state` must be a dict, but is None\.$"):
        meter.load_state_dict(None)


BUCKET = [1, 1, 5, 5, 1, 5, 5] + [1, 2.0, 0.0, 0] * 3
STEP = [0, 0, 1, 1, 5, 5, 1, 5, 5, 2.0, None, "nan"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rank": None}, TypeError, "`rank` must be an integer, but is None."),
        ({"step": "x"}, TypeError, "`step` must be an integer, but is 'x'."),
        ({"epoch": -2}, ValueError, "`epoch` must be at least -1, but is -2."),
        ({"buckets": 3}, TypeError, "`buckets` must be a list, but is 3."),
        ({"window": None}, TypeError, "`window` must be a list, but is None."),
        ({"buckets": [BUCKET]}, ValueError, "`buckets` must have 3 rows at step 0, but has 1."),
        ({"step": -1}, ValueError, "`buckets` must have 0 rows at step -1, but has 3."),
        ({"window": []}, ValueError, "`window` must have a row at step 0, but has 0."),
        (
            {"step": -1, "buckets": []},
            ValueError,
            "`window` must have no rows at step -1, but has 1.",
        ),
        (
            {"window": [STEP, [1]]},
            ValueError,
            "`window[1]` must be a list of 12 values, but is [1].",
        ),
        (
            {"buckets": [BUCKET, BUCKET, 5]},
            ValueError,
            "`buckets[2]` must be a list of 19 values, but is 5.",
        ),
        (
            {"buckets": [[-1, *BUCKET[1:]]] * 3},
            ValueError,
            "`buckets[0][0]` must be an integer of at least 0, but is -1.",
        ),
        (
            {"buckets": [[*BUCKET[:8], 1e200, *BUCKET[9:]]] * 3},
            ValueError,
            "`buckets[0][8]` must be None or in [-1e+140, 1e+140], but is 1e+200.",
        ),
        (
            {"buckets": [[*BUCKET[:9], None, *BUCKET[10:]]] * 3},
            ValueError,
            "`buckets[0][9]` must be a number of at least 0, but is None.",
        ),
        (
            {"window": [[0, 0, 3, *STEP[3:]]]},
            ValueError,
            "`window[0][2]` must be an integer in [0, 3), but is 3.",
        ),
        (
            {"window": [[*STEP[:-1], "1"]]},
            ValueError,
            "`window[0][11]` must be a number, 'nan', 'inf', '-inf' or None, but is '1'.",
        ),
    ],
)
def test_a_state_with_a_wrong_value_is_refused_and_changes_nothing(changes, error, message):
    sampler = new_sampler()
    meter = new_meter(sampler)
    train(sampler, meter, np.random.default_rng(0), (0, 5))
    before = meter.state_dict()
    state = {**before, "step": 0, "buckets": [BUCKET] * 3, "window": [STEP]}
    new_meter(sampler).load_state_dict(state)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        meter.load_state_dict({**state, **changes})
    assert meter.state_dict() == before


def test_losses_of_any_size_survive_a_checkpoint():
    sampler = new_sampler()
    meter, other = new_meter(sampler), new_meter(sampler)
    for step, loss in enumerate((1e200, -1e200, 1e140, -1e140, 1.0)):
        meter.update(step, loss=loss, grad_norm=abs(loss), seconds=1)
    other.load_state_dict(through_json(meter.state_dict()))
    for one in (meter, other):
        one.update(5, loss=3.0, seconds=1)
        assert all(map(math.isfinite, one.scalars().values()))
    assert other.scalars() == meter.scalars()
    assert other.scalars()["evenstride/epoch/loss_nonfinite"] == 2


def test_a_plan_can_be_metered_without_torch():
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"  # Makes `import torch` an ImportError.
        "import evenstride as es\n"
        "plan = es.plan_epoch([3, 9, 4, 8], token_budget=18, buckets=[6])\n"
        "meter = es.metrics.BatchMeter(plan)\n"
        "meter.update(0, loss=1.5)\n"
        "meter.scalars(), meter.table(), meter.load_state_dict(meter.state_dict())\n"
        "es.metrics.TokenWeights(plan).scale(0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
