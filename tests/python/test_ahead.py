"""The next epoch, planned while a pass is running."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import evenstride as es
from evenstride.ahead import FEWEST_SAMPLES
from support import same_plans

OPTIONS = {"token_budget": 4000, "buckets": [60, 90], "num_replicas": 1, "rank": 0}
FEW = 110_000
MANY = 20_000_000


def lengths_of(samples):
    return (np.arange(samples, dtype=np.uint32) % 97 + 20).astype(np.uint16)


def sampler_of(samples=FEW, **options):
    return es.BucketBatchSampler(lengths_of(samples), **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def many():
    return lengths_of(MANY)


def begun(sampler):
    """Return a pass that has come past its half."""
    batches = iter(sampler)
    for _ in range(len(sampler) // 2 + 2):
        next(batches)
    return batches


def ahead_of(sampler):
    return sampler._plans._ahead


def amid(lengths, **options):
    """Return a sampler with a thread that plans for seconds, and the threads there were before."""
    sampler = es.BucketBatchSampler(lengths, **{**OPTIONS, "num_threads": 1, **options})
    threads = num_threads()
    sampler.load_state_dict({**sampler.state_dict(), "step": len(sampler) - 10})
    batches = iter(sampler)
    next(batches)
    next(batches)
    assert ahead_of(sampler) is not None
    return sampler, threads


def num_threads():
    return len(list(Path("/proc/self/task").iterdir()))


def plan_of(sampler, epoch):
    other = es.BucketBatchSampler(sampler.lengths, **OPTIONS)
    other.set_epoch(epoch)
    return other.plan


@pytest.mark.parametrize("order", ["stride", "balanced", "mixed"])
def test_epochs_one_after_another_are_those_of_samplers_that_plan_nothing_ahead(order):
    sampler = sampler_of(order=order)
    for epoch in range(3):
        batches = list(sampler)
        assert sampler.epoch == epoch
        assert ahead_of(sampler).epoch == epoch + 1
        other = sampler_of(order=order)
        other.set_epoch(epoch)
        assert same_plans(sampler.plan, other.plan)
        assert batches == [batch.tolist() for batch in other.plan.batches()]


def test_nothing_is_planned_ahead_before_half_of_an_epoch_or_without_a_pass():
    sampler = sampler_of()
    batches = iter(sampler)
    for _ in range(len(sampler) // 2 - 1):
        next(batches)
    assert ahead_of(sampler) is None
    for epoch in range(5):
        sampler.set_epoch(epoch)
        assert sampler.plan.epoch == epoch
        assert ahead_of(sampler) is None


def test_few_samples_are_not_planned_ahead():
    sampler = sampler_of(FEWEST_SAMPLES - 1)
    list(sampler)
    assert ahead_of(sampler) is None


def test_unshuffled_epochs_are_one_plan_that_is_not_made_again():
    sampler = sampler_of(shuffle=False)
    list(sampler)
    assert ahead_of(sampler) is None
    first = sampler.plan
    sampler.set_epoch(7)
    assert sampler.plan.epoch == 7
    assert first.epoch == 0
    assert np.shares_memory(sampler.plan.indices, first.indices)
    other = sampler_of(shuffle=False)
    other.set_epoch(7)
    assert same_plans(sampler.plan, other.plan)


@pytest.mark.parametrize("leave", ["set_epoch", "load_state_dict"])
def test_going_elsewhere_stops_what_is_planned_ahead(many, leave):
    sampler, threads = amid(many)
    if leave == "set_epoch":
        sampler.set_epoch(5)
    else:
        sampler.load_state_dict({**sampler.state_dict(), "epoch": 5, "step": 0})
    assert ahead_of(sampler) is None
    assert num_threads() == threads


def test_what_is_planned_ahead_is_used_where_its_epoch_is_asked_for():
    sampler = sampler_of()
    begun(sampler)
    ahead = ahead_of(sampler)
    sampler.set_epoch(1)
    assert ahead_of(sampler) is ahead
    assert same_plans(sampler.plan, plan_of(sampler, 1))
    assert ahead_of(sampler) is None


def test_an_epoch_that_is_asked_for_amid_its_planning_is_right(many):
    sampler, threads = amid(many)
    sampler.set_epoch(1)
    plan = sampler.plan
    assert num_threads() == threads
    assert np.array_equal(plan.indices, plan_of(sampler, 1).indices)


def test_a_sampler_that_is_collected_amid_it_leaves_no_thread(many):
    sampler, threads = amid(many)
    del sampler
    gc.collect()
    assert num_threads() == threads


@pytest.mark.parametrize(
    "made",
    [copy.copy, copy.deepcopy, lambda sampler: pickle.loads(pickle.dumps(sampler))],
)
def test_copies_amid_it_plan_for_themselves(made):
    sampler = sampler_of()
    begun(sampler)
    other = made(sampler)
    assert ahead_of(other) is None
    for each in (sampler, other):
        each.set_epoch(1)
    assert same_plans(sampler.plan, other.plan)


def test_two_iterators_and_many_samplers():
    samplers = [sampler_of() for _ in range(10)]
    threads = num_threads()
    for sampler in samplers:
        one, other = begun(sampler), begun(sampler)
        rest = list(one)
        assert rest == list(other)
    expected = plan_of(samplers[0], 1)
    for sampler in samplers:
        next(iter(sampler))
        assert same_plans(sampler.plan, expected)
    del sampler, samplers
    gc.collect()
    assert num_threads() <= threads


def test_what_making_it_raised_is_raised_when_it_is_asked_for():
    lengths = lengths_of(FEW)
    sampler = es.BucketBatchSampler(lengths, **OPTIONS)
    batches = iter(sampler)
    next(batches)
    lengths[5] = 5000  # Too long to be there.
    list(batches)
    assert ahead_of(sampler)._work.wait(60)
    with pytest.raises(RuntimeError, match="`lengths` must never change"):
        next(iter(sampler))
    assert ahead_of(sampler) is None


def test_an_interrupt_amid_the_taking_stops_it(many):
    sampler, threads = amid(many)
    sampler.set_epoch(1)
    sampler._plans._seconds = 1e6  # It is worth any wait.
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(sampler))
    timer.join()
    assert num_threads() == threads
    assert next(iter(sampler)) == plan_of(sampler, 1).batches()[0].tolist()


def test_a_forked_child_plans_for_itself(many):
    sampler, _ = amid(many)
    sampler.set_epoch(1)
    child = os.fork()
    if child == 0:
        try:
            is_right = next(iter(sampler)) is not None and sampler.epoch == 1
            os._exit(0 if is_right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_workers_that_are_forked_amid_it():
    sampler = sampler_of()
    begun(sampler)
    sampler.set_epoch(0)
    loader = torch.utils.data.DataLoader(range(FEW), batch_sampler=sampler, num_workers=2)
    for epoch in range(2):
        samples = torch.cat(list(loader))
        assert sampler.epoch == epoch
        assert torch.equal(samples.sort().values, torch.arange(FEW))


def test_passes_of_a_loader_plan_ahead():
    dataset = es.RaggedDataset({"x": (np.ones(FEW, np.int8), np.arange(FEW + 1))})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=1000, num_replicas=1, rank=0)
    with es.Loader(dataset, sampler, es.PadCollator({"x": es.Field()})) as loader:
        for _ in loader:
            pass
        assert ahead_of(sampler).epoch == 1
        next(iter(loader))
        assert sampler.epoch == 1


EXIT = """
import time
import numpy as np
import evenstride as es

lengths = np.resize(np.arange(20, 117, dtype=np.uint16), {samples})
sampler = es.BucketBatchSampler(lengths, token_budget=4000, buckets=[60, 90], num_threads=1)
sampler.load_state_dict({{**sampler.state_dict(), "step": len(sampler) - 10}})
batches = iter(sampler)
next(batches)
next(batches)
assert not sampler._plans._ahead._work.wait(0)
{end}
"""


@pytest.mark.parametrize("end", ["", "import sys; sys.exit(0)", "keep = [batches]; keep += [keep]"])
def test_the_interpreter_ends_amid_it(end):
    script = EXIT.format(samples=MANY, end=f"{end}\nprint(time.time())" if end == "" else end)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    if end == "":
        assert time.time() - float(done.stdout) < 5


def test_a_plan_cache_has_the_plan_that_was_made_ahead(tmp_path):
    sampler, other = (sampler_of(plan_cache=tmp_path) for _ in range(2))
    assert same_plans(sampler.plan, other.plan)
    for each in (sampler, other):
        list(each)
    assert ahead_of(other) is None  # It found the plan, and will find the next one.
    assert ahead_of(sampler).epoch == 1
    for each in (sampler, other):
        next(iter(each))
        assert same_plans(each.plan, plan_of(each, 1))
        assert ahead_of(each) is None
