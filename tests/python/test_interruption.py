"""Long plans: what they tell of themselves, and that they can be interrupted."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import evenstride as es

SAMPLES = 12_000_000
OPTIONS = {
    "token_budget": 2000,
    "buckets": [60, 90],
    "order": "balanced",
    "num_threads": 1,
    "max_batch_size": 8,
}


@pytest.fixture(scope="module")
def lengths():
    return (np.arange(SAMPLES, dtype=np.uint32) % 97 + 20).astype(np.uint16)


def interrupted(work, after):
    """Do the work, which SIGINT ends amid it; return how many seconds after the signal it did."""
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    ended = time.monotonic()
    timer.join()
    return ended - sent[0]


def num_threads():
    return len(list(Path("/proc/self/task").iterdir()))


def test_an_interrupt_ends_the_plan_and_the_next_one_is_right(lengths):
    sampler = es.BucketBatchSampler(lengths, **OPTIONS, num_replicas=1, rank=0)
    threads = num_threads()

    def plan_epochs():
        for epoch in range(1000):
            sampler.set_epoch(epoch)
            assert sampler.plan.epoch == epoch

    assert interrupted(plan_epochs, after=0.15) < 2
    assert num_threads() == threads
    other = es.BucketBatchSampler(lengths, **OPTIONS, num_replicas=1, rank=0)
    for each in (sampler, other):
        each.set_epoch(3)
    assert np.array_equal(sampler.plan.indices, other.plan.indices)
    assert np.array_equal(np.sort(sampler.plan.indices), np.arange(SAMPLES))


@pytest.mark.parametrize("after", [0.03, 0.2])
def test_an_interrupt_ends_the_making_of_a_sampler(lengths, after):
    def make_samplers():
        for _ in range(1000):
            es.BucketBatchSampler(lengths, **OPTIONS, num_replicas=1, rank=0)

    assert interrupted(make_samplers, after=after) < 2


def test_progress_rises_to_one_and_changes_no_plan(lengths):
    told = []
    plan = es.plan_epoch(lengths, **OPTIONS, progress=told.append)
    assert told == sorted(set(told))
    assert told[-1] == 1.0
    assert told[0] > 0.0
    without = es.plan_epoch(lengths, **OPTIONS)
    assert np.array_equal(plan.indices, without.indices)
    assert np.array_equal(plan.offsets, without.offsets)


def test_a_short_plan_tells_nothing():
    told = []
    es.plan_epoch([1, 2, 3], token_budget=9, progress=told.append)
    assert told == []


def test_what_the_callback_raises_ends_the_plan(lengths):
    def fail(fraction):
        msg = f"enough at {fraction:.0%}"
        raise LookupError(msg)

    with pytest.raises(LookupError, match="enough at"):
        es.plan_epoch(lengths, **OPTIONS, progress=fail)


def test_a_fork_in_the_callback_hangs_neither_process(lengths):
    statuses = []

    def fork(fraction):
        if not statuses:
            child = os.fork()
            if child == 0:
                return
            statuses.append(os.waitpid(child, 0)[1])

    home = os.getpid()
    try:
        es.plan_epoch(lengths, **OPTIONS, progress=fork)
    except RuntimeError:
        os._exit(7 if os.getpid() != home else 1)
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [7]


def test_a_command_shows_how_far_a_long_plan_is_on_a_terminal(monkeypatch):
    console = pytest.importorskip("rich.console")
    command_base = pytest.importorskip("evenstride.command_base")
    terminal = io.StringIO()
    to_terminal = partial(console.Console, file=terminal, force_terminal=True)
    monkeypatch.setattr(command_base, "Console", lambda **_: to_terminal())
    with command_base.PlanBar() as bar:
        bar(0.25)
        assert terminal.getvalue() == ""  # It may be over soon.
        later_s = time.monotonic() + 3
        monkeypatch.setattr(command_base.time, "monotonic", lambda: later_s)
        bar(0.5)
    assert "Planning" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
