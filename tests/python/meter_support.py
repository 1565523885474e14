"""What a meter in a framework's loop must have counted, from what the model has recorded."""

from __future__ import annotations

import math

import numpy as np
import pytest

import evenstride as es
from framework_job import TOKEN_BUDGET, new_lengths

SEED = 4
OPTIONS = {"token_budget": TOKEN_BUDGET, "buckets": [8, 16, 24]}


def new_sampler():
    """Return the sampler of jobs and tests."""
    return es.BucketBatchSampler(new_lengths(), seed=SEED, **OPTIONS)


def check_scalars(scalars, scope, steps, norms):
    """Compare scalars with the recorded steps that they are of, and with the norms, if known."""
    norms = [math.nan] * len(steps) if norms is None else norms
    lengths, edges = new_lengths(), new_sampler().plan.edges
    buckets = [int(np.digitize(lengths[step.indices[0]], edges)) - 1 for step in steps]
    wanted = {"steps": len(steps), **means([step.loss for step in steps], norms)}
    for bucket in sorted(set(buckets)):
        mine = [place for place, label in enumerate(buckets) if label == bucket]
        samples = [index for place in mine for index in steps[place].indices]
        wanted |= {
            f"bucket_{bucket}/{name}": value
            for name, value in {
                "steps": len(mine),
                "mean_length": float(lengths[samples].mean()),
                **means([steps[place].loss for place in mine], [norms[place] for place in mine]),
            }.items()
        }
    found = {name: scalars[f"evenstride/{scope}/{name}"] for name in wanted}
    assert found == pytest.approx(wanted, rel=1e-5)
    assert scalars[f"evenstride/{scope}/seconds_per_step"] > 0
    assert len([name for name in scalars if name.endswith("/loss") and scope in name]) == len(
        [name for name in wanted if name.endswith("loss")]
    )


def means(losses, norms):
    """Return the means under the names of scalars; of norms only where they are known."""
    known = [norm for norm in norms if not math.isnan(norm)]
    return {"loss": np.mean(losses)} | ({"grad_norm": np.mean(known)} if known else {})


def events_of(folder):
    """Return steps and values of every name in the event file of TensorBoard in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415 - Slow.
        EventAccumulator,
    )

    events = EventAccumulator(str(folder)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def check_clock(monkeypatch, callback, after):
    """Check that what takes time before `after` is called takes no time of steps."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    callback.meter = es.metrics.BatchMeter(new_sampler())
    callback.meter.update()
    now = 100.0
    after()
    now = 101.0
    callback.meter.update()
    assert callback.meter.figures().total.seconds.mean == 1


def without_seconds(state):
    """Return the state of a meter without what depends on the clock."""
    buckets = [values[:-4] for values in state["buckets"]]
    return {**state, "buckets": buckets, "window": [values[:-1] for values in state["window"]]}
