"""Plain PyTorch, with the documentation's own code, under ``torchrun`` and as bare processes."""

from __future__ import annotations

import json
import multiprocessing
import time

import numpy as np
import pytest
from torch.utils.data import DataLoader

import evenstride as es
from framework_job import NUM_SAMPLES, TOKEN_BUDGET, new_collator, new_dataset, new_lengths
from framework_support import (
    added_lines,
    check_epochs,
    documented,
    parts,
    run_ranks,
    run_torchrun,
    start_ranks,
    steps_of,
)

PAGE = "frameworks/torch.md"

PRELUDE = """
import os
import time
from pathlib import Path

from framework_job import share_process_group

FOLDER = Path(os.environ["EVENSTRIDE_RECORD"])
RANK = os.environ["RANK"]
destroy = share_process_group()
"""
END = "destroy()\n"

OTHERS = """
import json
import random

import numpy
import torch
import evenstride as es
from framework_job import new_collator, new_dataset
from torch import distributed
from torch.utils.data import DataLoader


def random_states():
    name, keys, *rest = numpy.random.get_state()
    return random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()


# Each rank has random states of its own, and has used them.
random.seed(RANK), numpy.random.seed(int(RANK)), torch.manual_seed(int(RANK))
before_all = random_states()
DATASET = new_dataset()
sampler = es.BucketBatchSampler(DATASET.lengths, token_budget=96)
loader = DataLoader(DATASET, batch_sampler=sampler, collate_fn=new_collator())
try:
    len(loader)
except RuntimeError as error:
    too_early = str(error)
distributed.init_process_group("gloo")
length = len(loader)
plain = sampler.plan.num_replicas, list(sampler), list(sampler)
untouched = random_states() == before_all
passes = [[batch["input_ids"][:, 0].tolist() for batch in loader] for _ in range(2)]
FOLDER.joinpath(f"others-{RANK}").write_text(
    json.dumps([too_early, length, *plain, untouched, passes])
)
"""


def batches_of(rank, *, num_ranks, epochs):
    plans = [
        es.plan_epoch(new_lengths(), epoch=epoch, token_budget=TOKEN_BUDGET, num_replicas=num_ranks)
        for epoch in epochs
    ]
    return [batch.tolist() for plan in plans for batch in plan.batches(rank)]


def test_three_lines_are_new():
    added = added_lines(documented(PAGE, "before"), documented(PAGE, "after"))
    added.remove("from torch.utils.data import DataLoader")  # One name fewer than before.
    assert [line.split(" ")[0] for line in added] == ["import", "sampler", "loader"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    run_torchrun(PRELUDE + OTHERS + parts(PAGE, "before", "after", "resume") + END, folder)
    return folder


def test_two_ranks_train_on_every_sample_once_in_equally_many_steps(job):
    for part in ("after", "resume"):
        for rank, steps in enumerate(check_epochs(job / part)):
            wanted = batches_of(rank, num_ranks=2, epochs=[0, 1])
            assert [step.indices for step in steps] == wanted


def test_three_ranks_train_on_every_sample_once_in_equally_many_steps(tmp_path):
    run_ranks(PRELUDE + parts(PAGE, "after") + END, tmp_path, num_ranks=3)
    for rank, steps in enumerate(check_epochs(tmp_path / "after", num_ranks=3)):
        assert [step.indices for step in steps] == batches_of(rank, num_ranks=3, epochs=[0, 1])


def test_a_killed_job_goes_on_as_if_nothing_had_happened(job, tmp_path):
    slowly = parts(PAGE, "resume", at_step="lambda _: time.sleep(0.1)")
    ranks = start_ranks(PRELUDE + slowly + END, tmp_path)
    steps_an_epoch = len(steps_of(job / "resume", 0)) // 2
    record = tmp_path / "resume" / "rank-0.jsonl"
    end_s = time.monotonic() + 60
    while not record.exists() or len(record.read_bytes().splitlines()) < steps_an_epoch + 8:
        assert time.monotonic() < end_s
        for rank in ranks:
            assert rank.poll() is None, rank.communicate()[0]
        time.sleep(0.01)
    for rank in ranks:
        rank.kill()
        rank.wait()
        rank.stdout.close()  # Its workers, which have it open too, end some seconds later.
    killed_at = len(steps_of(tmp_path / "resume", 0))
    assert steps_an_epoch + 8 <= killed_at < 2 * steps_an_epoch
    for rank in range(2):
        (tmp_path / "resume" / f"rank-{rank}.jsonl").unlink()

    run_ranks(PRELUDE + parts(PAGE, "resume") + END, tmp_path)
    for rank in range(2):
        whole, rest = steps_of(job / "resume", rank), steps_of(tmp_path / "resume", rank)
        assert steps_an_epoch < len(whole) - len(rest) <= killed_at
        assert rest == whole[-len(rest) :]


def test_a_sampler_made_too_early_and_passes_without_set_epoch(job):
    for rank in range(2):
        too_early, length, replicas, first, second, untouched, passes = json.loads(
            (job / f"others-{rank}").read_text()
        )
        assert too_early == (
            "torch.distributed must be initialised before the sampler is used, or `rank` and "
            "`num_replicas` be given, because WORLD_SIZE is 2: call "
            "torch.distributed.init_process_group() first."
        )
        assert replicas == 2
        epochs = [batches_of(rank, num_ranks=2, epochs=[epoch]) for epoch in range(4)]
        assert [first, second, *passes] == epochs
        assert {len(epoch) for epoch in epochs} == {length}
        assert untouched


@pytest.mark.parametrize(
    ("method", "persistent"),
    [(None, False), ("fork", False), ("fork", True), ("forkserver", True), ("spawn", True)],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_of_every_kind_make_the_plans_batches(method, persistent):
    if method not in {None, *multiprocessing.get_all_start_methods()}:
        pytest.skip(f"no {method} here")
    dataset = new_dataset()
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=TOKEN_BUDGET)
    workers = {"num_workers": 1, "multiprocessing_context": method} if method else {}
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=new_collator(),
        persistent_workers=persistent,
        **workers,
    )
    assert loader.batch_size is None
    for epoch in range(2):
        found = [batch["input_ids"][:, 0].tolist() for batch in loader]
        assert found == batches_of(0, num_ranks=1, epochs=[epoch])
        assert sorted(np.concatenate(found)) == list(range(NUM_SAMPLES))
        assert len(loader) == len(found)
    del loader
