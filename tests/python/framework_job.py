"""What the jobs of framework tests import: samples that tell who they are, and a model that notes.

A job is a script that runs on several ranks. Its samples begin with their own index as a token, and
its model writes down, at each step of training, which samples it got and what the loss was.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn
from torch.nn import functional

import evenstride as es

NUM_SAMPLES = 150
VOCABULARY = 256
TOKEN_BUDGET = 96


def new_lengths():
    """Lengths from 1 to 32."""
    return np.random.default_rng(5).integers(1, 33, NUM_SAMPLES)


def new_dataset():
    """Rows of "input_ids", the first of which is the index of the row, and "labels"."""
    offsets = np.cumsum([0, *new_lengths()])
    values = np.random.default_rng(6).integers(0, VOCABULARY, offsets[-1])
    values[offsets[:-1]] = np.arange(NUM_SAMPLES)
    return es.RaggedDataset({"input_ids": (values, offsets), "labels": (values, offsets)})


def new_collator():
    """Pad both fields, with labels that a loss ignores."""
    return es.PadCollator({"input_ids": es.Field(0), "labels": es.Field(-100)})


class Model(nn.Module):
    """A model of one place, the same on every rank, that records what it is trained on."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.embed = nn.Embedding(VOCABULARY, 8)
            self.predict = nn.Linear(8, VOCABULARY)

    def forward(self, input_ids, attention_mask=None, labels=None):  # noqa: ARG002
        logits = self.predict(self.embed(input_ids))
        if labels is None:
            return {"logits": logits}
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        if self.training:
            record(input_ids[:, 0].tolist(), loss.item())
        return {"loss": loss, "logits": logits}


def record(indices, loss):
    """Add a step to the file of this rank: at once, since a job may be killed."""
    rank = os.environ.get("RANK", "0")
    path = Path(os.environ["EVENSTRIDE_RECORD"]) / f"rank-{rank}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps([indices, loss]) + "\n")


class Part:
    """A part of a job, with a folder of its own to record and to work in.

    `at_step` is called with the number of each step of training, from 1, before it is made.
    """

    folder = Path(os.environ.get("EVENSTRIDE_RECORD", "."))

    def __init__(self, name, at_step=None):
        self.path = self.folder / name
        self.at_step = at_step

    def run(self, code):
        """Run code from the documentation, with what it takes for granted; return its names."""
        self.path.mkdir(exist_ok=True)
        os.environ["EVENSTRIDE_RECORD"] = str(self.path)
        os.chdir(self.path)
        model = Model()
        if self.at_step is not None:
            numbers = itertools.count(1)
            model.register_forward_pre_hook(lambda *_: self.at_step(next(numbers)))
        names = {"model": model, "dataset": new_dataset(), "collate": new_collator()}
        exec(code, names)  # noqa: S102 - Of our own pages.
        return names


def share_process_group():
    """Let all parts of a job have one process group; return the function that ends it.

    The store that a launcher offers knows of one, once.
    """
    initialise, destroy = distributed.init_process_group, distributed.destroy_process_group
    distributed.init_process_group = lambda *of: distributed.is_initialized() or initialise(*of)
    distributed.destroy_process_group = lambda: None
    return destroy
