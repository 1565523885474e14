"""Batches bit for bit as those of torch's own functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from collate_support import ALL_TYPES, same, tensor_of, torch_type
from evenstride import Field, PadCollator, RaggedDataset

SIDES = ["left", "right"]
# Torch's nested tensors have no unsigned integers wider than a byte.
NESTED_TYPES = [dtype for dtype in ALL_TYPES if dtype not in {"uint16", "uint32", "uint64"}]


def rows_of(dtype, cell_shape=(), seed=0):
    """Make tensors of different lengths, one of them empty."""
    random = np.random.default_rng(seed)
    sizes = [*random.integers(1, 30, 6), 0]
    return [tensor_of(random.integers(0, 2, (size, *cell_shape)), dtype) for size in sizes]


def batches_of(rows, **options):
    """Pad rows in their own type, as a data set and as samples."""
    collate = PadCollator({"x": Field(1, rows[0].dtype)}, **options)
    offsets = np.cumsum([0, *map(len, rows)])
    ds = RaggedDataset({"x": (torch.cat(rows), offsets)})
    return [collate(ds[:])["x"], collate([{"x": row} for row in rows])["x"]]


@pytest.mark.parametrize("dtype", ALL_TYPES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("cell_shape", [(), (3,), (2, 4)])
def test_padding_is_that_of_pad_sequence(dtype, side, cell_shape):
    rows = rows_of(dtype, cell_shape)
    expected = pad_sequence(rows, batch_first=True, padding_value=1, padding_side=side)
    for batch in batches_of(rows, padding_side=side):
        assert same(batch, expected)


@pytest.mark.parametrize("dtype", NESTED_TYPES)
def test_padding_is_that_of_nested_tensors(dtype):
    rows = [row for row in rows_of(dtype) if len(row)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    expected = torch.nested.to_padded_tensor(nested, 1)
    for batch in batches_of(rows):
        assert same(batch, expected)


@pytest.mark.parametrize("dtype", ALL_TYPES)
def test_rows_of_one_length_are_stacked_as_torch_does(dtype):
    rows = list(tensor_of(np.random.default_rng(0).integers(0, 2, (4, 7, 2)), dtype))
    expected = default_collate([{"x": row} for row in rows])["x"]
    for batch in batches_of(rows):
        assert same(batch, expected)


@pytest.mark.parametrize("dtype", ALL_TYPES)
def test_single_values_are_stacked_as_torch_does(dtype):
    values = list(tensor_of([1, 0, 1], dtype))
    collate = PadCollator({"y": Field(dtype=torch_type(dtype))}, attention_mask=False)
    expected = default_collate([{"y": value} for value in values])
    assert same(collate([{"y": value} for value in values]), expected)
    assert same(collate(RaggedDataset({"y": torch.stack(values)})[:]), expected)


@pytest.mark.parametrize("side", SIDES)
def test_packed_sequences_of_a_batch_are_those_of_its_rows(side):
    """Mask and lengths say where the tokens are."""
    rows = [row for row in rows_of("float32", (2,)) if len(row)]
    collate = PadCollator({"x": Field(-7)}, padding_side=side, lengths=True)
    batch = collate([{"x": row} for row in rows])
    assert batch["lengths"].tolist() == [len(row) for row in rows]
    assert same(batch["x"][batch["attention_mask"].bool()], torch.cat(rows))
