"""The Trainer of Hugging Face with buckets: the code of its page, on two ranks and on one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from framework_support import added_lines, check_epochs, documented, run_ranks, steps_of

pytest.importorskip("transformers")

PAGE = "frameworks/transformers.md"
PRELUDE = """
import random, sys, os
from pathlib import Path

from framework_job import Model, new_collator, new_dataset

model, dataset, collate = Model(), new_dataset(), new_collator()
"""
RESUME = """
sampler = trainer.get_train_dataloader().batch_sampler
assert trainer.state.global_step == trainer.state.max_steps == sampler.total_steps(2)
assert trainer.lr_scheduler.get_last_lr() == [0.0]

folder = Path(os.environ["EVENSTRIDE_RECORD"])
for step in (STEPS):
    os.environ["EVENSTRIDE_RECORD"] = str(folder / f"resumed-{step}")
    Path(os.environ["EVENSTRIDE_RECORD"]).mkdir(exist_ok=True)
    trainer = Trainer(Model(), arguments, train_dataset=dataset, data_collator=collate)
    trainer.train(resume_from_checkpoint=f"checkpoints/checkpoint-{step}")
"""
CPU = {"ACCELERATE_USE_CPU": "true"}


def test_two_lines_are_added_and_one_is_left_out():
    before, after = documented(PAGE, "before"), documented(PAGE, "after")
    assert added_lines(before, after) == [
        "import evenstride as es",
        "Trainer = es.transformers.with_buckets(Trainer)",
    ]
    assert added_lines(after, before) == ['    train_sampling_strategy="group_by_length",']


def test_ranks_share_each_epoch_and_resume_where_they_were(tmp_path):
    after = documented(PAGE, "after")
    run_ranks(PRELUDE + after + RESUME.replace("STEPS", "3, 14"), tmp_path, environment=CPU)
    ranks = check_epochs(tmp_path)
    for step in (3, 14):
        for rank, whole in enumerate(ranks):
            assert steps_of(tmp_path / f"resumed-{step}", rank) == whole[step:]
