"""Processes that share a folder with plans: how they wait, and what they leave when they die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from torch.utils.data import DataLoader, Dataset

from framework_job import new_lengths
from framework_support import documented, run_ranks
from plan_cache_support import check_same, files_in, new_sampler
from support import digest

PROCESS = """
import json, os, resource, signal, sys, threading, time
import numpy as np
from evenstride.epoch_plans import EpochPlans
from evenstride.options import PlanOptions
from evenstride import plan_cache
from plan_cache_support import LENGTHS, OPTIONS
from support import digest

mode, folder = sys.argv[1:]
made, make, settle = [], EpochPlans._made, EpochPlans._made_settlement

def say(*words):
    print(*words, flush=True)

def hang(word):
    say(word)
    time.sleep(300)

def _made(self, epoch):
    made.append(epoch)
    if mode == "hangs while it plans":
        hang("planning")
    time.sleep(0.2)
    return make(self, epoch)

def _made_settlement(self, num_replicas):
    made.append("settlement")
    return settle(self, num_replicas)

def fsync(file):
    os.ftruncate(file, os.fstat(file).st_size // 2)
    hang("writing")

class Time:
    monotonic = time.monotonic

    def sleep(self, seconds):
        if mode == "says that it waits":
            say("waiting")
        time.sleep(seconds)

EpochPlans._made, EpochPlans._made_settlement = _made, _made_settlement
plan_cache.time = Time()
if mode == "hangs while it writes":
    os.fsync = fsync
if mode == "may write little":
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
options = PlanOptions.of(token_budget=OPTIONS["token_budget"])
plans = EpochPlans(LENGTHS, options, 1, plan_cache.PlanCache(folder))
if mode == "waits to be let go":
    say("ready")
    sys.stdin.readline()
plans.settle(OPTIONS["num_replicas"])
if mode == "is forked while it plans":
    mode = "hangs while it plans"
    threading.Thread(target=plans.of, args=(0,), daemon=True).start()
    while 0 not in made:
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        os.close(1)
        time.sleep(300)
    hang(child)
plan = plans.of(0)
array = plan.indices
while isinstance(array.base, np.ndarray):
    array = array.base
say(json.dumps([made, digest(plan), isinstance(array, np.memmap)]))
"""
TESTS = os.path.dirname(__file__)  # noqa: PTH120 - For a path of a process.
WANTED = digest(new_sampler().plan)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs the locks of POSIX")


@contextmanager
def started(mode, folder, *, warnings="error"):
    """Start a process that plans with a folder."""
    process = subprocess.Popen(
        [sys.executable, "-W", warnings, "-c", PROCESS, mode, str(folder)],
        env={**os.environ, "PYTHONPATH": TESTS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process):
    return process.stdout.readline().strip()


def result_of(process):
    """Return what a process made, and check that it has the right plan, in the file."""
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    made, found, is_mapped = json.loads(printed.splitlines()[-1])
    assert found == WANTED
    assert is_mapped
    return made


def test_of_four_processes_at_once_one_makes_the_plan(tmp_path):
    folder = tmp_path / "new"
    with (
        started("waits to be let go", folder) as one,
        started("waits to be let go", folder) as two,
        started("waits to be let go", folder) as three,
        started("waits to be let go", folder) as four,
    ):
        processes = [one, two, three, four]
        assert [said(process) for process in processes] == ["ready"] * 4
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        made = [result_of(process) for process in processes]
    assert sorted(map(str, sum(made, []))) == ["0", "settlement"]  # noqa: RUF017 - Four.
    assert len(files_in(folder)) == 2


@pytest.mark.parametrize(
    ("mode", "word"),
    [("hangs while it plans", "planning"), ("hangs while it writes", "writing")],
)
def test_the_next_process_takes_over_from_one_that_was_killed(tmp_path, mode, word):
    with started(mode, tmp_path) as holder:
        assert said(holder) == word
        with started("says that it waits", tmp_path) as waiting:
            assert said(waiting) == "waiting"
            assert not files_in(tmp_path, ".plan")
            holder.kill()
            assert result_of(waiting) == [0]
    assert len(files_in(tmp_path)) == 2


def test_a_fork_of_a_killed_process_does_not_keep_its_lock(tmp_path):
    with started("is forked while it plans", tmp_path, warnings="ignore") as holder:
        assert said(holder) == "planning"
        child = int(said(holder))
        try:
            holder.kill()
            holder.wait(timeout=30)
            with started("plain", tmp_path) as other:
                assert result_of(other) == [0]
            os.kill(child, 0)  # It is still there.
        finally:
            os.kill(child, signal.SIGKILL)


def test_ctrl_c_ends_the_wait(tmp_path):
    with started("hangs while it plans", tmp_path) as holder:
        assert said(holder) == "planning"
        with started("says that it waits", tmp_path) as waiting:
            assert said(waiting) == "waiting"
            waiting.send_signal(signal.SIGINT)
            _, errors = waiting.communicate(timeout=30)
        assert errors.strip().endswith("KeyboardInterrupt")
        assert holder.poll() is None


def test_ctrl_c_while_a_plan_is_written_leaves_nothing_half_written(tmp_path):
    with started("hangs while it writes", tmp_path) as process:
        assert said(process) == "writing"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert len(files_in(tmp_path)) == 1
    with started("plain", tmp_path) as process:
        assert result_of(process) == [0]


def test_a_disk_that_takes_no_more_leaves_nothing_and_harms_nothing(tmp_path):
    with started("may write little", tmp_path, warnings="always") as process:
        printed, errors = process.communicate(timeout=60)
    made, found, is_mapped = json.loads(printed)
    assert (made, found, is_mapped) == (["settlement", 0], WANTED, False)
    assert errors.count("is of no use, so that this process plans for itself: ") == 1
    assert len(files_in(tmp_path)) == 1


# ---- in loops ----


class OfPlan(Dataset):
    """Rows of which each is the plan's batch that it asks for, as a worker finds it."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __getitem__(self, index):
        return self.sampler.plan.indices[index]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_find_the_plan_too(tmp_path, method):
    sampler = new_sampler(tmp_path)
    wanted = new_sampler().plan
    loader = DataLoader(
        OfPlan(sampler),
        batch_sampler=sampler,
        num_workers=1,
        multiprocessing_context=method,
        collate_fn=list,
    )
    assert not files_in(tmp_path, ".plan")
    for rows, batch in zip(loader, wanted.batches(1), strict=True):
        assert rows == wanted.indices[batch].tolist()
    check_same(sampler.plan, wanted)
    assert len(files_in(tmp_path)) == 2


RANK = """
import json
from torch import distributed
from evenstride.epoch_plans import EpochPlans
from framework_job import new_dataset
from framework_support import documented

made, make = [], EpochPlans._made
EpochPlans._made = lambda self, epoch: made.append(epoch) or make(self, epoch)
distributed.init_process_group("gloo")
dataset = new_dataset()
exec(documented("frameworks/torch.md", "plan-cache"))
es.distributed.check_same_plan(sampler)
epochs = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    epochs.append(list(sampler))
    distributed.barrier()
print(json.dumps([made, epochs]))
distributed.destroy_process_group()
"""


def test_the_ranks_of_a_job_share_the_plans_of_three_epochs(tmp_path):
    assert documented("frameworks/torch.md", "plan-cache")
    printed = run_ranks(RANK, tmp_path)
    results = [json.loads(text.splitlines()[-1]) for text in printed]
    assert sorted(epoch for made, _ in results for epoch in made) == [0, 1, 2]
    for rank, (_, epochs) in enumerate(results):
        sampler = new_sampler(None, new_lengths(), token_budget=96, rank=rank)
        for batches in epochs:
            assert batches == list(sampler)
    assert len(files_in(tmp_path / "plans", ".plan")) == 3
