"""The Trainer of Hugging Face with buckets: the code of its page, on two ranks."""

from __future__ import annotations

import random

import pytest

from framework_job import NUM_SAMPLES
from framework_support import added_lines, check_epochs, documented, run_ranks, steps_of

transformers = pytest.importorskip("transformers")

PAGE = "frameworks/transformers.md"
CPU = {"ACCELERATE_USE_CPU": "true"}
NUM_STEPS = 28  # Of the two epochs on two ranks.

PRELUDE = """
import os
from pathlib import Path

import torch
from framework_job import Model, new_collator, new_dataset

# Version 4 asks for its optimizer's state on "cpu:0" where there are several ranks without a GPU,
# which is no device that torch loads to.
torch.serialization.register_package(
    0, lambda storage: None, lambda storage, place: storage if place == "cpu:0" else None
)

model, dataset, collate = Model(), new_dataset(), new_collator()
folder = Path(os.environ["EVENSTRIDE_RECORD"])

def record_in(name):
    os.environ["EVENSTRIDE_RECORD"] = str(folder / name)
    (folder / name).mkdir(exist_ok=True)

def train(name, resume=None, trainer_class=None, **options):
    record_in(name)
    options = {"num_train_epochs": 2, "per_device_train_batch_size": 4} | options
    arguments = TrainingArguments(f"checkpoints-{name}", report_to="none", **options)
    trainer = (trainer_class or Trainer)(
        Model(), arguments, train_dataset=dataset, data_collator=collate
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer
"""


def replaced(code, *pairs):
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return code


def before():
    """Return the code of before, as it was in versions before 5."""
    code = documented(PAGE, "before")
    if int(transformers.__version__.split(".")[0]) >= 5:
        return code
    new = 'train_sampling_strategy="group_by_length"'
    return replaced(code, (new, "group_by_length=True"))


def test_two_lines_are_added_and_one_is_left_out():
    before, after = documented(PAGE, "before"), documented(PAGE, "after")
    assert added_lines(before, after) == [
        "import evenstride as es",
        'Trainer = es.transformers.with_buckets(Trainer, composition="window")',
    ]
    assert added_lines(after, before) == ['    train_sampling_strategy="group_by_length",']


JOB = """
sampler = trainer.get_train_dataloader().batch_sampler
assert trainer.state.global_step == trainer.state.max_steps == sampler.total_steps(2)
assert set(trainer.lr_scheduler.get_last_lr()) == {0.0}
assert trainer.num_examples(trainer.get_train_dataloader()) == len(dataset)

for step in STEPS:
    train(f"resumed-{step}", resume=f"checkpoints/checkpoint-{step}")

# Optimizer steps of four steps, the last of an epoch of two.
whole = train("whole", gradient_accumulation_steps=4, save_steps=1)
steps = len(whole.get_train_dataloader().batch_sampler)
assert steps % 4 == 2
assert whole.state.global_step == whole.state.max_steps == 2 * ((steps + 2) // 4)
train("rest", resume="checkpoints-whole/checkpoint-6", gradient_accumulation_steps=4)

# What the loss is divided by, where it is not a mean: the labels of all ranks.
counts = []

def noted(outputs, labels, num_items_in_batch=None):
    counts.append(int(num_items_in_batch))
    return outputs["logits"].mean()

arguments.max_steps = 5
counting = Trainer(
    Model(), arguments, train_dataset=dataset, data_collator=collate, compute_loss_func=noted
)
counting.train()
plan = counting.get_train_dataloader().batch_sampler.plan
assert counts == [plan.step_info(step, rank=0).global_tokens for step in range(5)]

try:
    train("other", resume=ALONE)
except ValueError as error:
    print("REFUSED", error)

# Eight samples of one batch each for two ranks.
class Sixteen(Trainer):
    bucket_options = {"token_budget": 96, "max_batch_size": 1, "lengths": [5] * 16}

dataset = dataset.select([i for i in range(150) if len(dataset[i]["input_ids"]) > 4][:16])
dataset = [{"input_ids": row["input_ids"][:5], "labels": row["labels"][:5]} for row in dataset]
sixteen = train("sixteen", trainer_class=Sixteen, num_train_epochs=1)
loader = sixteen.get_train_dataloader()
assert len(loader) == sixteen.state.max_steps == 8
assert loader.batch_size is None and loader.batch_sampler.batch_size is None
assert loader.drop_last is loader.batch_sampler.drop_last is False
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Run the code of before on one rank, then that of after, and return a checkpoint of that."""
    folder = tmp_path_factory.mktemp("alone")
    after = replaced(documented(PAGE, "after"), ("save_steps=0.05", "save_steps=4, max_steps=4"))
    run_ranks(PRELUDE + before() + after, folder, num_ranks=1, environment=CPU)
    assert len(steps_of(folder, 0)) == 2 * -(-NUM_SAMPLES // 4) + 4
    return folder / "checkpoints/checkpoint-4"


def test_ranks_share_each_epoch_and_resume_where_they_were(tmp_path, alone):
    resumed = [random.randrange(2, 14, 2), random.randrange(14, NUM_STEPS, 2)]
    job = replaced(JOB, ("STEPS", str(resumed)), ("ALONE", repr(str(alone))))
    printed = run_ranks(PRELUDE + documented(PAGE, "after") + job, tmp_path, environment=CPU)
    ranks = check_epochs(tmp_path)
    assert len(ranks[0]) == NUM_STEPS
    for step in resumed:
        for rank, whole in enumerate(ranks):
            assert steps_of(tmp_path / f"resumed-{step}", rank) == whole[step:]
    for rank, whole in enumerate(check_epochs(tmp_path / "whole")):
        assert steps_of(tmp_path / "rest", rank) == whole[14 + 2 * 4 :]
    sixteen = [steps_of(tmp_path / "sixteen", rank) for rank in (0, 1)]
    assert [len(steps) for steps in sixteen] == [8, 8]
    assert len({step.indices[0] for rank in sixteen for step in rank}) == 16
    for text in printed:
        assert (
            "REFUSED `num_replicas` must be the same as when the state was saved, but was 1 there "
            "and is 2 here.\n"
        ) in text
