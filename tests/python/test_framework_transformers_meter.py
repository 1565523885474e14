"""The meter in the Trainer of transformers, against what the model has recorded."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader
from transformers import TrainerState

import evenstride as es
from framework_job import Model, new_dataset
from framework_support import documented, run_ranks, steps_of
from meter_support import (
    OPTIONS,
    SEED,
    check_clock,
    check_scalars,
    events_of,
    new_sampler,
    without_seconds,
)

WINDOW = 12
STOP = 8  # The optimizer step that a run goes on after.
JOB = f"""
import json
import os

import torch
import transformers
from framework_job import Model, new_collator, new_dataset, record
from meter_support import new_sampler
from torch.utils.data import DataLoader
from transformers import TrainerState
from transformers import LlamaConfig, LlamaForCausalLM

import evenstride as es


Trainer = es.transformers.with_buckets(transformers.Trainer, **{OPTIONS})


class Logs(transformers.TrainerCallback):
    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs, **_):
        self.logs.append([state.global_step, logs])


class OwnLlamaForCausalLM(LlamaForCausalLM):
    # Records the mean over the labels of each batch, whatever it is trained on.
    def forward(self, input_ids, attention_mask=None, labels=None, **others):
        with torch.no_grad():
            mean = super().forward(input_ids, attention_mask, labels=labels).loss
        record(input_ids[:, 0].tolist(), mean.item())
        return super().forward(input_ids, attention_mask, labels=labels, **others)


def new_llama():
    torch.manual_seed(1)
    return OwnLlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=64,
    ))


class OwnTrainer(transformers.Trainer):
    def get_train_dataloader(self):
        return DataLoader(
            self.train_dataset, batch_sampler=new_sampler(), collate_fn=self.data_collator
        )


def train(name, model, accumulation_steps=1, logging_steps=1, checkpoint=None, **options):
    os.makedirs(name)
    os.environ["EVENSTRIDE_RECORD"] = os.environ["TENSORBOARD_LOGGING_DIR"] = name
    arguments = transformers.TrainingArguments(
        name, use_cpu=True, num_train_epochs=2, learning_rate=0.5, optim="sgd", max_grad_norm=0.1,
        gradient_accumulation_steps=accumulation_steps, logging_steps=logging_steps,
        disable_tqdm=True, remove_unused_columns=False, data_seed={SEED},
        **{{"report_to": "none", "save_strategy": "no", **options}},
    )
    callback, logs = es.transformers.BatchMeterCallback(window={WINDOW}), Logs()
    trainer = Trainer(
        model, arguments, train_dataset=new_dataset(), data_collator=new_collator(),
        callbacks=[callback, es.transformers.BatchMeterCallback(window=5, prefix="short"), logs],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    assert not model._forward_hooks
    result = {{"logs": logs.logs, "history": trainer.state.log_history,
               "scalars": callback.meter.scalars("epoch"), "state": callback.meter.state_dict()}}
    with open(f"{{name}}.json", "w") as file:
        json.dump(result, file)


os.environ["EVENSTRIDE_RECORD"] = "."
arguments = transformers.TrainingArguments(
    ".", use_cpu=True, num_train_epochs=1, report_to="none", remove_unused_columns=False,
    data_seed={SEED},
)
dataset, model, collate = new_dataset(), Model(), new_collator()
exec({documented("metrics.md", "meter-transformers")!r})
with open("documented.json", "w") as file:
    json.dump(callback.meter.scalars("epoch"), file)
os.makedirs("own")
os.environ["EVENSTRIDE_RECORD"] = "own"
logs = Logs()
trainer = OwnTrainer(
    Model(), arguments, train_dataset=dataset, data_collator=collate, callbacks=[logs]
)
trainer.add_callback(es.transformers.BatchMeterCallback(trainer))
trainer.train()
with open("own.json", "w") as file:
    json.dump(logs.logs, file)
train("one", Model(), report_to="tensorboard")
train("four", Model(), accumulation_steps=4, logging_steps=3)
train("llama", new_llama(), accumulation_steps=4)
train("whole", Model(), save_strategy="steps", save_steps={STOP})
train("resumed", Model(), checkpoint="whole/checkpoint-{STOP}")
arguments = transformers.TrainingArguments(
    "other", use_cpu=True, report_to="none", disable_tqdm=True
)
trainer = transformers.Trainer(
    Model(), arguments, train_dataset=new_dataset(), data_collator=new_collator()
)
trainer.add_callback(es.transformers.BatchMeterCallback())
try:
    trainer.train()
except TypeError as error:
    print(f"refused: {{error}}")
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (printed,) = run_ranks(JOB, folder, num_ranks=1)
    (folder / "printed").write_text(printed, encoding="utf-8")
    return folder


def result_of(job, name):
    return json.loads((job / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "accumulation_steps", "logging_steps"),
    [("one", 1, 1), ("four", 4, 3), ("llama", 4, 1)],
)
def test_figures_are_those_of_the_steps(job, name, accumulation_steps, logging_steps):
    num_steps = len(new_sampler())
    assert num_steps % 4 != 0
    optimizer_steps = -(-num_steps // accumulation_steps)
    result, steps = result_of(job, name), steps_of(job / name, 0)
    logged = {row["step"]: row["grad_norm"] for row in result["history"] if "grad_norm" in row}
    norms = [
        logged.get(epoch * optimizer_steps + step // accumulation_steps + 1, math.nan)
        for epoch in range(2)
        for step in range(num_steps)
    ]
    assert len(steps) == 2 * num_steps
    check_scalars(result["scalars"], "epoch", steps[num_steps:], norms[num_steps:])

    windows = {at: logs for at, logs in result["logs"] if "evenstride/window/loss" in logs}
    assert list(windows) == list(range(logging_steps, 2 * optimizer_steps + 1, logging_steps))
    for at, logs in windows.items():
        epoch, rest = divmod(at - 1, optimizer_steps)
        done = epoch * num_steps + min((rest + 1) * accumulation_steps, num_steps)
        window = slice(max(0, done - WINDOW), done)
        check_scalars(logs, "window", steps[window], norms[window])
    epochs = {at: logs for at, logs in result["logs"] if "evenstride/epoch/loss" in logs}
    assert list(epochs) == [optimizer_steps, 2 * optimizer_steps]


def test_a_resumed_run_goes_on_with_the_figures_of_the_checkpoint(job):
    resumed, whole = result_of(job, "resumed"), result_of(job, "whole")
    assert without_seconds(resumed["state"]) == without_seconds(whole["state"])
    epochs = [
        [logs for _, logs in result["logs"] if "evenstride/epoch/loss" in logs]
        for result in (resumed, whole)
    ]
    for one, other in zip(*epochs, strict=True):
        for name in one:
            assert one[name] == other[name] or "second" in name
    assert len(steps_of(job / "resumed", 0)) == len(steps_of(job / "whole", 0)) - STOP


def test_several_callbacks_keep_their_own_states(job):
    for prefix, window in (("evenstride", WINDOW), ("short", 5)):
        name = f"{prefix}/window/steps"
        found = [(at, logs[name]) for at, logs in result_of(job, "resumed")["logs"] if name in logs]
        ends = range(STOP + 1, 2 * len(new_sampler()) + 1)
        assert found == [(at, min(at, window)) for at in ends]


def test_tensorboard_gets_the_scalars_and_the_log_history_does_not(job):
    (folder,) = {path.parent for path in (job / "one").rglob("events.out.tfevents.*")}
    result = result_of(job, "one")
    name = "evenstride/window/bucket_2/loss"
    found = events_of(folder)[f"train/{name}"]
    wanted = [(at, logs[name]) for at, logs in result["logs"] if name in logs]
    assert found == [(at, pytest.approx(value)) for at, value in wanted]
    assert not [row for row in result["history"] if any("evenstride" in key for key in row)]
    assert "evenstride/" not in (job / "printed").read_text(encoding="utf-8")


@pytest.mark.parametrize("event", ["on_evaluate", "on_save"])
def test_evaluations_and_checkpoints_take_no_time_of_steps(monkeypatch, event):
    callback = es.transformers.BatchMeterCallback()
    state = TrainerState(stateful_callbacks={})
    check_clock(monkeypatch, callback, lambda: getattr(callback, event)(None, state, None))


@pytest.mark.parametrize(("ignores", "step"), [(False, 7), (True, 0)])
def test_an_epoch_that_begins_anew_is_counted_anew(ignores, step):
    callback = es.transformers.BatchMeterCallback(SimpleNamespace())
    args = SimpleNamespace(gradient_accumulation_steps=1, ignore_data_skip=ignores)
    state = TrainerState(global_step=len(new_sampler()) + 7, stateful_callbacks={})
    loader = DataLoader(new_dataset(), batch_sampler=new_sampler())
    callback.on_train_begin(args, state, None, train_dataloader=loader, model=Model())
    callback.on_substep_end(args, state, None)
    assert callback.meter.state_dict()["step"] == step


def test_a_callback_needs_a_training():
    callback = es.transformers.BatchMeterCallback()
    message = r"^`on_train_begin` must have been called, but was not\.$"
    with pytest.raises(RuntimeError, match=message):
        callback.on_epoch_begin(None, None, None)


def test_a_trainer_with_a_loader_of_its_own_is_told_to_the_callback(job):
    (scalars,) = [logs for _, logs in result_of(job, "own") if "evenstride/epoch/loss" in logs]
    check_scalars(scalars, "epoch", steps_of(job / "own", 0), None)
    callback = es.transformers.BatchMeterCallback()
    args = SimpleNamespace(gradient_accumulation_steps=1)
    loader = DataLoader(new_dataset(), batch_sampler=new_sampler())
    message = r"^`trainer` must be given, unless its class has buckets, but is None\.$"
    with pytest.raises(ValueError, match=message):
        callback.on_train_begin(args, TrainerState(), None, train_dataloader=loader)


def test_the_documented_lines_meter_an_epoch(job):
    check_scalars(result_of(job, "documented"), "epoch", steps_of(job, 0), None)


def test_another_sampler_is_refused(job):
    assert (job / "printed").read_text(encoding="utf-8").splitlines()[-1] == (
        "refused: The training loader must have a BucketBatchSampler as its `batch_sampler`, but "
        "has a BatchSampler."
    )
