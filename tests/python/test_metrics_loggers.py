"""A meter's scalars: their names, and what TensorBoard and Weights & Biases make of them."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evenstride as es
from framework_support import documented
from meter_support import events_of

PLAN = es.plan_epoch([3] * 8 + [9] * 4, token_budget=18, buckets=[6], seed=1)
OF_BUCKETS = ["steps", "padding_efficiency", "mean_length", "loss", "grad_norm"]
OF_BUCKETS += ["seconds_per_step", "tokens_per_second"]
OF_ALL = [*OF_BUCKETS, "grad_norm_between_bucket_share", "loss_between_bucket_share"]


def new_meter(stop=None):
    """Return a meter whose losses are 1 and 3 in the short bucket, then 5 and 7."""
    meter = es.metrics.BatchMeter(PLAN, window=3)
    losses = [iter([1.0, 3.0]), iter([5.0, 7.0])]
    for step in range(PLAN.num_steps if stop is None else stop):
        loss = next(losses[PLAN.buckets[step]])
        meter.update(step, loss=loss, grad_norm=2 * loss, seconds=0.5)
    return meter


def test_names_say_scope_and_bucket():
    names = {f"evenstride/{scope}/{name}" for scope in ("window", "epoch") for name in OF_ALL}
    for bucket in range(2):
        for scope in ("window", "epoch"):
            names |= {f"evenstride/{scope}/bucket_{bucket}/{name}" for name in OF_BUCKETS}
    assert set(new_meter().scalars()) == names


def test_values_are_the_figures():
    scalars = new_meter().scalars("epoch", prefix="mine")
    wanted = {
        "mine/epoch/steps": 4,
        "mine/epoch/loss": 4,
        "mine/epoch/loss_between_bucket_share": 0.8,
        "mine/epoch/grad_norm_between_bucket_share": 0.8,
        "mine/epoch/bucket_0/loss": 2,
        "mine/epoch/bucket_1/loss": 6,
        "mine/epoch/bucket_1/grad_norm": 12,
        "mine/epoch/bucket_1/mean_length": 9,
        "mine/epoch/bucket_0/seconds_per_step": 0.5,
        "mine/epoch/bucket_1/tokens_per_second": 36,
        "mine/epoch/padding_efficiency": 1,
    }
    assert {name: scalars[name] for name in wanted} == pytest.approx(wanted)
    assert all(type(value) is float and math.isfinite(value) for value in scalars.values())


def test_what_is_not_known_has_no_name_and_what_is_not_finite_is_counted():
    meter = es.metrics.BatchMeter(PLAN)
    meter.update(0, loss=math.inf)
    meter.update(1, loss=math.nan)
    scalars = meter.scalars("epoch")
    assert scalars["evenstride/epoch/loss_nonfinite"] == 2
    assert not [name for name in scalars if "norm" in name or "between" in name]
    assert not [name for name in scalars if name.endswith("/loss")]


def test_tensorboard_gets_every_scalar(tmp_path):
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - Slow.

    meters = [new_meter(), new_meter(stop=1)]
    with SummaryWriter(tmp_path) as writer:
        es.metrics.log_to_tensorboard(meters[0], writer, 10)
        es.metrics.log_to_tensorboard(meters[1], writer, 20, scope="window", prefix="other")
    wanted = {name: [(10, np.float32(v))] for name, v in meters[0].scalars().items()}
    later = meters[1].scalars("window", prefix="other")
    assert events_of(tmp_path) == wanted | {
        name: [(20, np.float32(v))] for name, v in later.items()
    }


WANDB_JOB = f"""
import wandb
import evenstride as es
from test_metrics_loggers import new_meter

sampler = es.BucketBatchSampler([3, 9] * 16, token_budget=18, buckets=[6], seed=1)
meter, loader, train_on = es.metrics.BatchMeter(sampler), sampler, len
exec({documented("metrics.md", "meter-wandb")!r})
es.metrics.log_to_wandb(new_meter(), run, 20)
es.metrics.log_to_wandb(new_meter(stop=1), run, 30, scope="window", prefix="other")
run.finish()
"""


def test_wandb_gets_every_scalar(tmp_path):
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", WANDB_JOB],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    rows = [
        {name: value for name, value in row.items() if not name.startswith("_")}
        for row in history(path.read_bytes())
    ]
    logged, *rows = rows
    assert rows == [new_meter().scalars(), new_meter(stop=1).scalars("window", prefix="other")]
    assert logged["evenstride/window/steps"] == 10
    assert not [name for name in logged if "epoch" in name]
    assert configuration(path.read_bytes()) == {"edges": [0, 6, 10]}


def history(data):
    """Yield what was logged at each step, from a file of an offline run."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - Slow.

    for text in records(data):
        record = Record.FromString(text)
        if record.HasField("history"):
            yield {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }


def configuration(data):
    """Return what a script has told a run of itself."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - Slow.

    updates = [item for text in records(data) for item in Record.FromString(text).run.config.update]
    known = {item.key: json.loads(item.value_json) for item in updates}
    return {name: value for name, value in known.items() if not name.startswith("_")}


def records(data, block=32768, header=7):
    """Yield the records of a log in LevelDB's format, behind a header of its own."""
    place, parts = header, []
    while place + header <= len(data):
        left = block - place % block
        if left < header:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        place += header
        parts.append(data[place : place + length])
        place += length
        if kind in {1, 4}:  # Whole, or the last part.
            yield b"".join(parts)
            parts = []
