"""Types of values: which become which, and what does not fit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from collate_support import (
    ALL_TYPES,
    FLOAT_TYPES,
    INTEGER_TYPES,
    bits,
    ids_field,
    output_type,
    same,
    tensor_of,
    torch_type,
    whole,
)
from evenstride import Field, PadCollator, RaggedDataset

WHOLE_TYPES = ["bool", *INTEGER_TYPES]


def span(dtype):
    """Return the least and the greatest value of a type of integers or bools."""
    if dtype == "bool":
        return 0, 1
    info = torch.iinfo(torch_type(dtype))
    return info.min, info.max


def both_ways(values, dtype, collate):
    """Return the batch of one row, of a data set and of a dict, which must be alike."""
    row = tensor_of(values, dtype)
    batch = collate(RaggedDataset({"input_ids": (row, [0, len(values)])})[:])
    assert same(batch, collate([{"input_ids": row}]))
    return batch["input_ids"][0]


@pytest.mark.parametrize("dtype", ALL_TYPES)
def test_integers_come_out_as_int64_and_others_as_they_are(dtype):
    row = both_ways([1, 0, 1], dtype, PadCollator(ids_field()))
    assert row.dtype == output_type(dtype)
    assert row.tolist() == [1, 0, 1]


@pytest.mark.parametrize(("dtype", "to"), [*product(WHOLE_TYPES, WHOLE_TYPES)])
def test_integers_become_any_integers_that_hold_them(dtype, to):
    (least, most), (low, high) = span(dtype), span(to)
    values = sorted({max(least, low), 0, 1, min(most, high)})
    row = both_ways(values, dtype, PadCollator(ids_field(dtype=torch_type(to))))
    assert row.dtype == torch_type(to)
    assert row.tolist() == values


NARROWING = [
    (dtype, to, value)
    for dtype, to in product(WHOLE_TYPES, WHOLE_TYPES)
    for value in (span(to)[0] - 1, span(to)[1] + 1)
    if span(dtype)[0] <= value <= span(dtype)[1]
]


@pytest.mark.parametrize(("dtype", "to", "value"), NARROWING)
def test_an_integer_that_does_not_fit_is_named_with_its_row(dtype, to, value):
    ds = RaggedDataset({"input_ids": (tensor_of([1, 0, value, 1], dtype), [0, 2, 2, 4])})
    collate = PadCollator(ids_field(dtype=torch_type(to)))
    assert collate(ds[:2])["input_ids"].tolist() == [[1, 0], [0, 0]]
    message = (
        f"`input_ids`, row 2: holds {value}, which does not fit into {to}, the type of `input_ids`."
    )
    for samples in ([2], [0, 1, 2], [-1]):
        with pytest.raises(ValueError, match=whole(message)):
            collate(ds.__getitems__(samples))


def test_a_misfit_is_found_anywhere_in_a_long_row():
    """Rows are checked in blocks, of which the last may be short."""
    collate = PadCollator(ids_field(dtype=torch.uint8))
    for size, place in product((1, 255, 256, 257, 1000), (0, 254, 255, 256, 511, 512, 999)):
        values = np.zeros(size, np.int32)
        if place < size:
            values[place] = 256 + place
            with pytest.raises(ValueError, match=f"holds {256 + place},"):
                collate([{"input_ids": values}])
        else:
            collate([{"input_ids": values}])


def test_a_misfit_that_is_cut_off_does_no_harm():
    values = np.array([300, 1, 2, 300], np.int16)
    collate = PadCollator(ids_field(dtype=torch.uint8, start=1, max_length=2))
    assert both_ways(values.tolist(), "int16", collate).tolist() == [1, 2]


def test_a_batch_after_one_that_failed_is_right():
    ds = RaggedDataset({"input_ids": (np.array([1, 2, 300]), [0, 2, 3])})
    collate = PadCollator(ids_field(dtype=torch.uint8))
    for _ in range(3):
        with pytest.raises(ValueError, match="holds 300"):
            collate(ds[:])
        assert collate(ds[:1])["input_ids"].tolist() == [[1, 2]]
    assert collate.bound_to(ds).native.slabs["lent"] == 0


def test_uint64_beyond_int64_needs_a_type_that_holds_it():
    values = np.array([1, 2**63, 2**64 - 1], np.uint64)
    ds = RaggedDataset({"input_ids": (values, [0, 1, 3])})
    assert PadCollator(ids_field())(ds[:1])["input_ids"].tolist() == [[1]]
    message = (
        f"`input_ids`, row 1: holds {2**63}, which does not fit into int64, the type of "
        "`input_ids`."
    )
    with pytest.raises(ValueError, match=whole(message)):
        PadCollator(ids_field())(ds[:])
    batch = PadCollator(ids_field(2**64 - 1, dtype=torch.uint64))(ds[:])
    assert batch["input_ids"].tolist() == [[1, 2**64 - 1], [2**63, 2**64 - 1]]


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_every_bit_of_a_float_survives(dtype, side):
    size = torch_type(dtype).itemsize
    pattern = np.random.default_rng(0).integers(0, 256, 40 * size, dtype=np.uint8)
    values = torch.from_numpy(pattern).view(torch_type(dtype))
    collate = PadCollator(ids_field(torch.nan), padding_side=side)
    batch = collate(RaggedDataset({"input_ids": (values, [0, 13, 40])})[:])
    assert same(batch, collate([{"input_ids": values[:13]}, {"input_ids": values[13:]}]))
    nan = torch.full((14,), torch.nan, dtype=torch_type(dtype))
    first = torch.cat([nan, values[:13]] if side == "left" else [values[:13], nan])
    assert torch.equal(bits(batch["input_ids"]), bits(torch.stack([first, values[13:]])))


@pytest.mark.parametrize(("dtype", "to"), [*product(FLOAT_TYPES, ALL_TYPES)])
def test_floats_keep_their_type(dtype, to):
    collate = PadCollator(ids_field(dtype=torch_type(to)))
    ds = RaggedDataset({"input_ids": (tensor_of([0.5], dtype), [0, 1])})
    if dtype == to:
        assert collate(ds[:])["input_ids"].tolist() == [[0.5]]
        return
    message = (
        f"The type of `input_ids` must be {dtype}, because 'input_ids' holds {dtype}, but is {to}."
    )
    for rows in (ds[:], [ds[0]]):
        with pytest.raises(TypeError, match=whole(message)):
            collate(rows)


@pytest.mark.parametrize(("dtype", "to"), [*product(["bool", "uint16", "int64"], FLOAT_TYPES)])
def test_integers_of_a_known_type_do_not_become_floats(dtype, to):
    collate = PadCollator({"x": Field(dtype=torch_type(to), source="input_ids")})
    ds = RaggedDataset({"input_ids": (tensor_of([1], dtype), [0, 1])})
    message = (
        "The type of `x` must be a type of integers or bool, because 'input_ids' holds "
        f"{dtype}, but is {to}."
    )
    with pytest.raises(TypeError, match=whole(message)):
        collate(ds[:])


@pytest.mark.parametrize("mask_dtype", [torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_mask_has_the_type_that_is_asked_for(mask_dtype, side):
    collate = PadCollator(ids_field(), padding_side=side, mask_dtype=mask_dtype)
    mask = collate([{"input_ids": [1, 2, 3]}, {"input_ids": [4]}])["attention_mask"]
    second = [0, 0, 1] if side == "left" else [1, 0, 0]
    assert same(mask, torch.tensor([[1, 1, 1], second], dtype=mask_dtype))
