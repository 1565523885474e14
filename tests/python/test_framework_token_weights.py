"""Token weights under DistributedDataParallel: the steps of two ranks against one big batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import evenstride as es
from framework_job import TOKEN_BUDGET, Model, new_collator, new_dataset
from framework_support import documented, run_ranks

LOOP = documented("metrics.md", "token-weights")
SCALE = "* weights.scale(step)"
ACCUMULATIONS = [1, 4]
RATE = 0.5

JOB = f"""
import torch
from framework_job import TOKEN_BUDGET, Model, new_collator, new_dataset
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import evenstride as es

torch.distributed.init_process_group("gloo")
dataset = new_dataset()
for accumulation_steps in {ACCUMULATIONS}:
    for name, scale in (("weighted", {SCALE!r}), ("naive", "/ accumulation_steps")):
        sampler = es.BucketBatchSampler(dataset.lengths, token_budget=TOKEN_BUDGET, seed=4)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=new_collator())
        model = DistributedDataParallel(Model())
        optimizer = torch.optim.SGD(model.parameters(), lr={RATE})
        exec({LOOP!r}.replace({SCALE!r}, scale))
        file = f"{{name}}-{{accumulation_steps}}-{{torch.distributed.get_rank()}}.pt"
        torch.save(model.module.state_dict(), file)
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    assert LOOP.count(SCALE) == 1
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(JOB, folder)
    return folder


def of_big_batches(accumulation_steps):
    """Train on the same samples in one process, each optimizer step as a batch of its own."""
    dataset, collate, model = new_dataset(), new_collator(), Model().eval()
    plan = es.plan_epoch(dataset.lengths, token_budget=TOKEN_BUDGET, seed=4, num_replicas=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for start in range(0, len(plan), 2 * accumulation_steps):
        together = range(start, min(start + 2 * accumulation_steps, len(plan)))
        indices = np.concatenate([plan[batch] for batch in together])
        batch = collate(dataset.__getitems__(indices.tolist()))
        model(**batch)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("accumulation_steps", ACCUMULATIONS)
def test_training_is_that_on_big_batches_and_the_naive_mean_is_not(trained, accumulation_steps):
    wanted = of_big_batches(accumulation_steps)
    for rank in range(2):
        found = {
            name: torch.load(trained / f"{name}-{accumulation_steps}-{rank}.pt")
            for name in ("weighted", "naive")
        }
        assert distance(found["weighted"], wanted) < 1e-6
        assert distance(found["naive"], wanted) > 1e-3
