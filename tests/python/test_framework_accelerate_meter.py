"""The meter in a loop of Accelerate, against what the model has recorded."""

from __future__ import annotations

import json

import pytest

from framework_job import new_lengths
from framework_support import run_ranks, steps_of
from meter_support import OPTIONS, SEED, without_seconds

WINDOW = 12
ACCUMULATION_STEPS = 4
STOP = 26  # The step that a run goes on after, in its second epoch.
LOADERS = ["plain", "workers", "native"]
JOB = f"""
import json
import os

import torch
from accelerate import Accelerator
from framework_job import Model, new_collator, new_dataset
from torch.utils.data import DataLoader

import evenstride as es


def new_loader(kind, dataset, sampler, collate):
    if kind == "native":
        return es.Loader(dataset, sampler, collate)
    workers = 2 if kind == "workers" else 0
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=workers)


def train(name, kind, stop=None, checkpoint=None):
    os.makedirs(name, exist_ok=True)
    os.environ["EVENSTRIDE_RECORD"] = name
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps={ACCUMULATION_STEPS})
    dataset, model = new_dataset(), Model()
    sampler = es.BucketBatchSampler(dataset.lengths, seed={SEED}, **{OPTIONS})
    meter = es.metrics.BatchMeter(
        sampler, window={WINDOW}, accumulation_steps={ACCUMULATION_STEPS}
    )
    loader = new_loader(kind, dataset, sampler, new_collator())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model, optimizer, loader = es.accelerate.prepare(accelerator, model, optimizer, loader)
    accelerator.register_for_checkpointing(sampler, meter)
    if checkpoint is not None:
        accelerator.load_state(checkpoint)
    for epoch in range(sampler.epoch, 2):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            meter.update(loss=loss)
            if epoch * len(sampler) + sampler.state_dict()["step"] == stop:
                accelerator.save_state("checkpoint")
                accelerator.wait_for_everyone()
    result = {{"scalars": meter.scalars("epoch"), "state": meter.state_dict()}}
    with open(f"{{name}}/meter-{{accelerator.process_index}}.json", "w") as file:
        json.dump(result, file)


for kind in {LOADERS}:
    train(kind, kind, stop={STOP} if kind == "plain" else None)
train("resumed", "plain", checkpoint="checkpoint")
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    run_ranks(JOB, folder)
    return folder


def result_of(job, name, rank):
    return json.loads((job / name / f"meter-{rank}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", LOADERS)
def test_figures_are_those_of_the_steps(job, kind):
    for rank in range(2):
        steps = steps_of(job / kind, rank)
        of_epoch = steps[len(steps) // 2 :]
        result = result_of(job, kind, rank)
        scalars, window = result["scalars"], result["state"]["window"]
        assert scalars["evenstride/epoch/steps"] == len(of_epoch)
        mean = sum(step.loss for step in of_epoch) / len(of_epoch)
        assert scalars["evenstride/epoch/loss"] == pytest.approx(mean, rel=1e-5)
        for number, step in list(enumerate(of_epoch))[-WINDOW:]:
            epoch, optimizer_step, _, samples, tokens, *_, loss, _, _ = window.pop(0)
            assert (epoch, optimizer_step) == (1, number // ACCUMULATION_STEPS)
            assert (samples, tokens) == (len(step.indices), new_lengths()[step.indices].sum())
            assert loss == pytest.approx(step.loss, rel=1e-5)


def test_a_resumed_run_goes_on_with_the_figures_of_the_checkpoint_on_rank_0(job):
    for rank in range(2):
        steps = steps_of(job / "plain", rank)
        assert len(steps) // 2 < STOP < len(steps) < STOP + WINDOW
        resumed, whole = (
            without_seconds(result_of(job, name, rank)["state"]) for name in ("resumed", "plain")
        )
        if rank == 0:
            assert resumed == whole
        else:  # Of which the checkpoint has nothing.
            assert resumed["window"] == whole["window"][STOP - len(steps) :]
