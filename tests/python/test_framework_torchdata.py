"""torchdata's StatefulDataLoader, with the documentation's own code, on two real processes."""

from __future__ import annotations

import shutil
from itertools import islice

import pytest

import evenstride as es
from framework_support import added_lines, check_epochs, documented, parts, run_ranks, steps_of

StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
PAGE = "frameworks/torchdata.md"
KEPT_AT = 13  # A step of epoch 0, before which the checkpoint after step 10 is kept.

PRELUDE = f"""
import os
import shutil
from pathlib import Path

from framework_job import share_process_group

RANK = os.environ["RANK"]
destroy = share_process_group()


def keep(step):
    if step == {KEPT_AT} and Path(f"checkpoint-{{RANK}}.pt").exists():
        shutil.copy(f"checkpoint-{{RANK}}.pt", f"kept-{{RANK}}.pt")
"""
END = "destroy()\n"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchdata")
    run_ranks(PRELUDE + parts(PAGE, "before", "after", "resume", at_step="keep") + END, folder)
    return folder


def test_three_lines_are_new():
    added = added_lines(documented(PAGE, "before"), documented(PAGE, "after"))
    assert [line.split(" ")[0] for line in added] == ["import", "sampler", "loader"]


def test_two_ranks_train_on_every_sample_once_in_equally_many_steps(job):
    assert check_epochs(job / "after") == check_epochs(job / "resume")


def test_new_processes_go_on_with_identical_batches_and_losses(job, tmp_path):
    folder = tmp_path / "resume"
    folder.mkdir()
    for rank in range(2):
        shutil.copy(job / "resume" / f"kept-{rank}.pt", folder / f"checkpoint-{rank}.pt")
    run_ranks(PRELUDE + parts(PAGE, "resume") + END, tmp_path)
    for rank in range(2):
        assert steps_of(folder, rank) == steps_of(job / "resume", rank)[10:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("epoch", "step"), [(0, 3), (0, 8), (1, 3), (1, 8)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:'set_vital' is deprecated")
def test_a_state_goes_on_in_its_epoch_and_after_it_in_the_next(workers, epoch, step):
    def new():
        sampler = es.BucketBatchSampler([7] * 8, token_budget=8)
        loader = StatefulDataLoader(
            range(8), batch_sampler=sampler, collate_fn=list, num_workers=workers
        )
        return sampler, loader

    every = es.BucketBatchSampler([7] * 8, token_budget=8)
    whole = [batch for _ in range(4) for batch in every]
    sampler, loader = new()
    sampler.set_epoch(epoch)
    assert list(islice(loader, step)) == whole[8 * epoch :][:step]
    _, resumed = new()
    resumed.load_state_dict(loader.state_dict())
    here = 8 * epoch + step
    end = 8 * (here // 8 + 1)
    assert list(resumed) == whole[here:end]
    assert list(resumed) == whole[end : end + 8]
    assert len(resumed) == 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:'set_vital' is deprecated")
def test_a_state_before_the_first_batch_begins_the_pass_in_workers():
    sampler = es.BucketBatchSampler([7] * 8, token_budget=8)
    epochs = [list(sampler) for _ in range(4)]
    for workers, wanted in [(0, [2, 3]), (1, [0, 2])]:
        sampler = es.BucketBatchSampler([7] * 8, token_budget=8)
        loader = StatefulDataLoader(
            range(8), batch_sampler=sampler, collate_fn=list, num_workers=workers
        )
        loader.state_dict()
        sampler.set_epoch(2)
        assert [epochs.index(list(loader)) for _ in range(2)] == wanted
