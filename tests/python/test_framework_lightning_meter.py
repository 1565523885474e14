"""The meter in Lightning's loop, against what the model has recorded."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import evenstride as es
from framework_job import new_lengths
from framework_support import documented, run_ranks, steps_of
from meter_support import OPTIONS, SEED, check_clock, check_scalars, new_sampler, without_seconds

STOP = 26  # The step that a run goes on after, in its second epoch.
WINDOW = 12
MODULE = """
import json
import os

import lightning.pytorch as L
import torch
from framework_job import Model, new_collator, new_dataset

import evenstride as es


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()
        self.norms = []

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch)["loss"]
        self.log("own", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.model(**batch)

    def on_before_optimizer_step(self, optimizer):
        # Takes the norm without any change to the gradients.
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), 1e9)
        self.norms.append(norm.item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


"""
JOB = f"""
{MODULE}
from lightning.pytorch.loggers import CSVLogger
from meter_support import new_sampler
from torch.utils.data import DataLoader


def fit(name, accumulation_steps, validates=False):
    os.makedirs(name)
    os.environ["EVENSTRIDE_RECORD"] = name
    dataset, sampler, module = new_dataset(), new_sampler(), Module()
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=new_collator())
    callback = es.lightning.BatchMeterCallback(window={WINDOW})
    trainer = L.Trainer(
        accelerator="cpu", log_every_n_steps=3, accumulate_grad_batches=accumulation_steps,
        gradient_clip_val=0.1, callbacks=[callback], max_epochs=2, logger=CSVLogger(name, "", ""),
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(module, loader, loader if validates else None)
    result = {{"norms": module.norms, "scalars": callback.meter.scalars("epoch")}}
    with open(f"{{name}}.json", "w") as file:
        json.dump(result, file)


os.environ["EVENSTRIDE_RECORD"] = "."
dataset, model = new_dataset(), Module()
loader = DataLoader(dataset, batch_sampler=new_sampler(), collate_fn=new_collator())
exec({documented("metrics.md", "meter-lightning")!r})
with open("documented.json", "w") as file:
    json.dump(trainer.callbacks[0].meter.scalars("epoch"), file)
fit("one", 1, validates=True)
fit("four", 4)
try:
    callback = es.lightning.BatchMeterCallback()
    L.Trainer(
        accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(Module(), DataLoader(new_dataset(), batch_size=2, collate_fn=new_collator()))
except TypeError as error:
    print(f"refused: {{error}}")
"""
CHANGES_JOB = f"""
{MODULE}
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch.utils.data import DataLoader

import framework_job


class Reloaded(L.LightningDataModule):
    edges = [[8, 16, 24]] * 3

    def train_dataloader(self):
        sampler = es.BucketBatchSampler(
            new_dataset().lengths, token_budget=framework_job.TOKEN_BUDGET,
            buckets=self.edges[self.trainer.current_epoch], seed=self.trainer.current_epoch,
        )
        return DataLoader(new_dataset(), batch_sampler=sampler, collate_fn=new_collator())


class Rebucketed(Reloaded):
    edges = [[8, 16, 24], [20]]


def fit(name, callbacks, max_epochs=2, checkpoint=None, data=Reloaded, **options):
    os.makedirs(name, exist_ok=True)
    os.environ["EVENSTRIDE_RECORD"] = name
    module = Module()
    trainer = L.Trainer(
        accelerator="cpu", callbacks=callbacks, max_epochs=max_epochs, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        reload_dataloaders_every_n_epochs=1, **options,
    )
    trainer.fit(module, datamodule=data(), ckpt_path=checkpoint)
    trainer.save_checkpoint(f"{{name}}/last.ckpt")
    states = [one.meter.state_dict() for one in callbacks if hasattr(one, "meter")]
    with open(f"{{name}}.json", "w") as file:
        json.dump({{"states": states, "norms": module.norms}}, file)


def meters():
    new = es.lightning.BatchMeterCallback
    return [new(), new(window={WINDOW}), new(prefix="other")]


fit("reloaded", meters())
fit("rebucketed", meters()[:1], data=Rebucketed)
fit("scheduled", [*meters(), GradientAccumulationScheduler({{0: 1, 1: 4}})], 1)
fit("resumed", [*meters(), GradientAccumulationScheduler({{0: 1, 1: 4}})], 2, "scheduled/last.ckpt")
"""
RESUMED_JOB = f"""
{MODULE}
from lightning.pytorch.callbacks import ModelCheckpoint


def fit(name, checkpoint=None):
    os.makedirs(name, exist_ok=True)
    os.environ["EVENSTRIDE_RECORD"] = name
    data = es.lightning.BucketDataModule(
        new_dataset(), new_collator(), seed={SEED}, **{OPTIONS}
    )
    callback = es.lightning.BatchMeterCallback(window={WINDOW})
    saving = ModelCheckpoint(name, "{{step}}", every_n_train_steps={STOP}, save_top_k=-1)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, callbacks=[saving, callback],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Module(), datamodule=data, ckpt_path=checkpoint)
    with open(f"{{name}}/state-{{trainer.global_rank}}.json", "w") as file:
        json.dump(callback.meter.state_dict(), file)


fit("whole")
fit("resumed", "whole/step={STOP}.ckpt")
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (printed,) = run_ranks(JOB, folder, num_ranks=1)
    (folder / "printed").write_text(printed, encoding="utf-8")
    return folder


def result_of(job, name):
    return json.loads((job / f"{name}.json").read_text(encoding="utf-8"))


def rows_of(job, name):
    """Return what was logged, by step."""
    with (job / name / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = {}
        for row in csv.DictReader(file):
            known = {key: float(value) for key, value in row.items() if value}
            rows.setdefault(int(row["step"]), {}).update(known)
        return rows


def norm_of_each_step(norms, accumulation_steps):
    """Return the norm of each step: that of its optimizer step, the last of an epoch with fewer."""
    num_steps = len(new_sampler())
    optimizer_steps = -(-num_steps // accumulation_steps)
    return [
        norms[epoch * optimizer_steps + step // accumulation_steps]
        for epoch in range(len(norms) // optimizer_steps)
        for step in range(num_steps)
    ]


@pytest.mark.parametrize(("name", "accumulation_steps"), [("one", 1), ("four", 4)])
def test_figures_are_those_of_the_steps(job, name, accumulation_steps):
    num_steps = len(new_sampler())
    assert num_steps % 4 != 0
    result, steps = result_of(job, name), steps_of(job / name, 0)
    norms = norm_of_each_step(result["norms"], accumulation_steps)
    assert len(steps) == len(norms) == 2 * num_steps
    check_scalars(result["scalars"], "epoch", steps[num_steps:], norms[num_steps:])

    rows = rows_of(job, name)
    optimizer_steps = -(-num_steps // accumulation_steps)
    logged = {at: row for at, row in rows.items() if "evenstride/window/loss" in row}
    assert list(logged) == list(range(2, 2 * optimizer_steps, 3))
    for step, row in logged.items():
        epoch, rest = divmod(step, optimizer_steps)
        done = epoch * num_steps + min((rest + 1) * accumulation_steps, num_steps)
        window = slice(max(0, done - WINDOW), done)
        check_scalars(row, "window", steps[window], norms[window])
        assert row["own"] == pytest.approx(steps[done - 1].loss)
    of_epochs = [at for at, row in rows.items() if "evenstride/epoch/loss" in row]
    assert of_epochs == [optimizer_steps - 1, 2 * optimizer_steps - 1]
    check_scalars(rows[of_epochs[0]], "epoch", steps[:num_steps], norms[:num_steps])


def test_a_resumed_run_goes_on_with_the_figures_of_the_checkpoint_on_rank_0(tmp_path):
    run_ranks(RESUMED_JOB, tmp_path)
    for rank in range(2):
        steps = steps_of(tmp_path / "whole", rank)
        assert len(steps) // 2 < STOP < len(steps) < STOP + WINDOW
        assert steps_of(tmp_path / "resumed", rank) == steps[STOP:]
        resumed, whole = (
            without_seconds(result_of(tmp_path / name, f"state-{rank}"))
            for name in ("resumed", "whole")
        )
        if rank == 0:
            assert resumed == whole
        else:  # Of which the checkpoint has nothing.
            rest = len(steps) - STOP
            assert resumed["window"] == whole["window"][-rest:]
            assert sum(steps for steps, *_ in resumed["buckets"]) == rest


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changes")
    run_ranks(CHANGES_JOB, folder, num_ranks=1)
    return folder


def losses_of(state, first=0):
    """Return the losses that a state's window has."""
    return [values[9] for values in state["window"][first:]]


def test_several_callbacks_keep_their_own_states(changes):
    whole, short, other = map(without_seconds, result_of(changes, "resumed")["states"])
    assert other == whole
    assert len(short["window"]) == WINDOW < len(whole["window"])
    assert losses_of(short) == losses_of(whole, -WINDOW)


def test_a_sampler_that_each_epoch_makes_anew_is_followed(changes):
    state = result_of(changes, "reloaded")["states"][0]
    steps = steps_of(changes / "reloaded", 0)
    lengths, edges = new_lengths(), state["edges"]
    assert losses_of(state) == pytest.approx([step.loss for step in steps], rel=1e-5)
    assert [values[2] for values in state["window"]] == [
        int(np.digitize(lengths[step.indices[0]], edges)) - 1 for step in steps
    ]
    (rebucketed,) = result_of(changes, "rebucketed")["states"]
    assert rebucketed["edges"] == [0, 20, edges[-1]]
    last = steps_of(changes / "rebucketed", 0)[-len(rebucketed["window"]) :]
    assert len(last) == rebucketed["step"] + 1
    assert losses_of(rebucketed) == pytest.approx([step.loss for step in last], rel=1e-5)


def test_accumulation_steps_that_change_are_followed(changes):
    before, result = result_of(changes, "scheduled"), result_of(changes, "resumed")
    state = result["states"][0]
    assert (before["states"][0]["accumulation_steps"], state["accumulation_steps"]) == (1, 4)
    first = before["norms"]
    second = [result["norms"][step // 4] for step in range(state["step"] + 1)]
    norms = [values[10] for values in state["window"]]
    assert norms == pytest.approx([*first, *second], rel=1e-5)


def test_the_documented_lines_meter_an_epoch(job):
    check_scalars(result_of(job, "documented"), "epoch", steps_of(job, 0), None)


def test_another_sampler_is_refused(job):
    assert (job / "printed").read_text(encoding="utf-8").splitlines()[-1] == (
        "refused: The training loader must have a BucketBatchSampler as its `batch_sampler`, but "
        "has a BatchSampler."
    )


def test_validation_takes_no_time_of_steps(monkeypatch):
    callback = es.lightning.BatchMeterCallback()
    check_clock(monkeypatch, callback, lambda: callback.on_validation_end(None, None))


def test_a_callback_needs_a_training():
    with pytest.raises(
        RuntimeError, match=r"^`on_train_start` must have been called, but was not\.$"
    ):
        es.lightning.BatchMeterCallback().on_train_epoch_start(None, None)
