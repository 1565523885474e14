"""Trainers with buckets in one process, for the tests of `evenstride.transformers`."""

from __future__ import annotations

from pathlib import Path

import datasets
import transformers

import evenstride as es
from framework_job import Model, new_collator, new_dataset
from framework_support import steps_of


class Rows:
    """A map-style data set of dicts that notes which samples it was asked for."""

    def __init__(self):
        self.rows = as_lists()
        self.asked = []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.asked.append(index)
        return self.rows[index]


def as_lists():
    return [{name: values.tolist() for name, values in row.items()} for row in new_dataset()[:]]


def hugging_face(**columns):
    rows = as_lists()
    return datasets.Dataset.from_dict(
        {name: [row[name] for row in rows] for name in ("input_ids", "labels")} | columns
    )


def arguments(**options):
    fixed = {"use_cpu": True, "report_to": "none", "dataloader_pin_memory": False}
    own = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "disable_tqdm": True}
    return transformers.TrainingArguments("checkpoints", **fixed, **{**own, **options})


def trainer_of(
    *, buckets=None, dataset=None, collate=None, model=None, parent=None, inputs=None, **options
):
    """Return a Trainer with these options of buckets, and these arguments of training."""
    parent = parent or transformers.Trainer
    return es.transformers.with_buckets(parent, **(buckets or {}))(
        model or Model(),
        arguments(**options),
        train_dataset=new_dataset() if dataset is None else dataset,
        data_collator=collate or new_collator(),
        **(inputs or {}),
    )


def sampler_of(**options):
    return trainer_of(**options).get_train_dataloader().batch_sampler


def trained(trainer, resume=None):
    """Train in the current folder, and return the steps of that run alone."""
    Path("rank-0.jsonl").unlink(missing_ok=True)
    trainer.train(resume_from_checkpoint=resume)
    return steps_of(Path(), 0)
