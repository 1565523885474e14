"""The table of padding on the page of the Hugging Face Trainer, made with its own sampler."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import evenstride as es
from framework_support import DOCS
from support import real_lengths

pytest.importorskip("transformers")

from transformers.trainer_pt_utils import LengthGroupedSampler

BATCH_SIZE = 8
TABLE = """
| {samples:,} samples of {shortest:,} to {longest:,} tokens | padding efficiency | steps |
|---|---:|---:|
{rows}
"""


def row(name, padded_tokens, steps):
    return f"| {name} | {real_lengths().sum() / padded_tokens:.1%} | {steps:,} |"


def grouped_by_length():
    lengths = real_lengths()
    generator = torch.Generator().manual_seed(0)
    order = list(LengthGroupedSampler(BATCH_SIZE, lengths=lengths.tolist(), generator=generator))
    starts = np.arange(0, len(order), BATCH_SIZE)
    sizes = np.diff([*starts, len(order)])
    return np.maximum.reduceat(lengths[order], starts) @ sizes, len(starts)


def with_buckets(**options):
    lengths = real_lengths()
    budget = BATCH_SIZE * int(lengths.max())
    stats = es.plan_epoch(lengths, token_budget=budget, **options).stats()
    return stats.padded_tokens, stats.steps


def test_the_page_says_how_much_each_pads():
    window = {"composition": "window"}
    rows = [
        row("`group_by_length`", *grouped_by_length()),
        row('`composition="window"`', *with_buckets(**window)),
        row(
            '`composition="window"`, `max_batch_size=8`',
            *with_buckets(**window, max_batch_size=BATCH_SIZE),
        ),
        row('the default, `composition="shuffle"`', *with_buckets()),
    ]
    lengths = real_lengths()
    table = TABLE.format(
        samples=len(lengths),
        shortest=lengths.min(),
        longest=lengths.max(),
        rows="\n".join(rows),
    )
    page = (DOCS / "frameworks/transformers.md").read_text(encoding="utf-8")
    assert table in page, table
