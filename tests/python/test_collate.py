"""Padding collators against their definition, over data sets and over their rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collate_support import (
    ALL_TYPES,
    FLOAT_TYPES,
    by_definition,
    ids_field,
    output_type,
    ragged,
    same,
    tensor_of,
    torch_type,
    whole,
)
from data_support import dataset
from evenstride import Field, PadCollator, RaggedDataset

SIDES = st.sampled_from(["left", "right"])
CELL_SHAPES = st.sampled_from([(), (), (), (1,), (3,), (2, 2)])


def numbers(dtype):
    """Values that the type holds exactly, and int64 too where they are integers."""
    if dtype == "bool":
        return st.booleans()
    if dtype in FLOAT_TYPES:
        return st.integers(-60, 60).map(lambda quarters: quarters / 4)
    info = np.iinfo(dtype)
    return st.integers(int(info.min), min(int(info.max), 2**63 - 1))


@st.composite
def cells(draw, dtype, shape):
    size = int(np.prod(shape))
    values = draw(st.lists(numbers(dtype), min_size=size, max_size=size))
    return np.array(values, object).reshape(shape).tolist()


@st.composite
def columns(draw, num_rows):
    """Draw rows of a field, their type, the shape of a cell, and the number of chunks."""
    dtype, shape = draw(st.sampled_from(ALL_TYPES)), draw(CELL_SHAPES)
    row = st.lists(cells(dtype, shape), max_size=6)
    rows = draw(st.lists(row, min_size=num_rows, max_size=num_rows))
    return rows, dtype, shape, draw(st.integers(1, 3))


@st.composite
def fields(draw, dtype, **fixed):
    own = draw(st.booleans())
    return Field(
        padding_value=draw(numbers(dtype)),
        dtype=torch_type(dtype) if own else None,
        padding_side=draw(st.none() | SIDES),
        max_length=draw(st.none() | st.integers(1, 8)),
        start=draw(st.sampled_from([0, 0, 1, 7, 2**63 - 1])),
        **fixed,
    )


@st.composite
def problems(draw):
    """Draw data, options, and samples."""
    num_rows = draw(st.integers(1, 8))
    data = {name: draw(columns(num_rows)) for name in draw(st.sampled_from(["a", "ab", "abc"]))}
    keys = {name: draw(fields(dtype)) for name, (_, dtype, _, _) in data.items()}
    for i in range(draw(st.integers(0, 2))):
        source = draw(st.sampled_from(sorted(data)))
        keys[f"{source}{i}"] = draw(fields(data[source][1], source=source))
    options = {
        "attention_mask": draw(st.booleans()),
        "position_ids": draw(st.booleans()),
        "lengths": draw(st.booleans()),
        "pad_to_multiple_of": draw(st.sampled_from([1, 1, 2, 3, 8])),
        "padding_side": draw(SIDES),
        "max_length": draw(st.none() | st.integers(1, 8)),
        "mask_dtype": draw(st.sampled_from([torch.int64, torch.bool, torch.uint8])),
    }
    chosen = draw(st.permutations(list(keys)))
    collate = PadCollator({key: keys[key] for key in chosen}, **options)
    samples = draw(st.lists(st.integers(-num_rows, num_rows - 1), min_size=1, max_size=9))
    return data, collate, samples


def ragged_dataset(data):
    return RaggedDataset({name: ragged(*column) for name, column in data.items()})


@given(problems())
def test_a_batch_matches_its_definition(problem):
    data, collate, samples = problem
    rows = [{name: column[0][i] for name, column in data.items()} for i in samples]
    shapes = {name: shape for name, (_, _, shape, _) in data.items()}
    expected = by_definition(rows, collate, "a", shapes)
    batch = collate(ragged_dataset(data).__getitems__(samples))
    assert list(batch) == list(expected)
    for key, values in expected.items():
        if key in collate.fields:
            field = collate.fields[key]
            dtype = field.dtype or output_type(data[field.source or key][1])
        else:
            dtype = collate.mask_dtype if key == "attention_mask" else torch.int64
        assert batch[key].dtype == dtype
        assert batch[key].is_contiguous()
        assert same(batch[key], torch.tensor(values, dtype=dtype))


@given(problems())
def test_rows_of_the_data_set_give_the_same_batch(problem):
    data, collate, samples = problem
    ds = ragged_dataset(data)
    batch = collate(ds.__getitems__(samples))
    assert same(batch, collate([ds[i] for i in samples]))
    assert same(batch, collate(ds[samples]))
    assert same(batch, collate(ds.__getitems__(np.array(samples))))


@given(problems(), st.data())
def test_selected_rows_give_the_same_batch(problem, draws):
    data, collate, samples = problem
    ds = ragged_dataset(data)
    rows = draws.draw(st.permutations(range(len(ds))))
    places = [rows.index(i % len(ds)) for i in samples]
    chosen = ds.select(rows)
    batch = collate(chosen.__getitems__(places))
    assert same(batch, collate(ds.__getitems__(samples)))
    assert same(batch, collate(chosen.__getitems__([place - len(ds) for place in places])))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_rows_around_the_widths_of_vectors_are_whole(dtype, width, side):
    random = np.random.default_rng(width)
    rows = [random.integers(0, 127, size).tolist() for size in (width, width - 1, width // 2, 0)]
    collate = PadCollator(ids_field(-1), padding_side=side)
    samples, shapes = [{"input_ids": row} for row in rows], {"input_ids": ()}
    expected = by_definition(samples, collate, "input_ids", shapes)
    batch = collate(dataset(rows, dtype)[:])
    assert {key: value.tolist() for key, value in batch.items()} == expected


def test_an_empty_row_is_padding():
    """The width of a batch is at least 1, and a row that is empty has no token."""
    batch = PadCollator(ids_field(9))([{"input_ids": []}, {"input_ids": [1, 2]}])
    assert batch["input_ids"].tolist() == [[9, 9], [1, 2]]
    assert batch["attention_mask"].tolist() == [[0, 0], [1, 1]]


def test_a_batch_of_empty_rows_has_width_one():
    ds = dataset([[], []])
    batch = PadCollator(ids_field(9), position_ids=True, lengths=True)(ds[:])
    assert {key: value.tolist() for key, value in batch.items()} == {
        "input_ids": [[9], [9]],
        "attention_mask": [[0], [0]],
        "position_ids": [[0], [0]],
        "lengths": [0, 0],
    }


def test_left_padding_to_a_multiple_keeps_a_token_that_equals_the_padding():
    rows = [{"input_ids": [5, 0, 7], "labels": [5, 0, 7]}, {"input_ids": [1, 2, 3, 4, 0]}]
    rows[1]["labels"] = rows[1]["input_ids"]
    before = [{key: list(row) for key, row in sample.items()} for sample in rows]
    collate = PadCollator(
        {"input_ids": Field(0), "labels": Field(-100)}, pad_to_multiple_of=8, padding_side="left"
    )
    batch = collate(rows)
    assert {key: value.shape for key, value in batch.items()} == dict.fromkeys(batch, (2, 8))
    assert batch["input_ids"][0].tolist() == [0] * 5 + [5, 0, 7]
    assert batch["labels"][0].tolist() == [-100] * 5 + [5, 0, 7]
    assert batch["attention_mask"].tolist() == [[0] * 5 + [1] * 3, [0] * 3 + [1] * 5]
    assert rows == before


def test_no_sample_of_a_data_set_is_a_batch_of_none():
    batch = PadCollator(ids_field())(dataset([[1, 2]]).__getitems__([]))
    assert {key: value.shape for key, value in batch.items()} == {
        "input_ids": (0, 1),
        "attention_mask": (0, 1),
    }


def test_a_batch_is_a_plain_dict_of_tensors_that_can_be_written():
    batch = PadCollator(ids_field())(dataset([[1, 2]])[:])
    assert type(batch) is dict
    assert all(type(tensor) is torch.Tensor for tensor in batch.values())
    batch["input_ids"].add_(1)
    assert batch["input_ids"].tolist() == [[2, 3]]


def test_the_inputs_are_left_alone():
    values = tensor_of([1, 2, 3], "int64")
    ds = RaggedDataset({"input_ids": (values, [0, 1, 3])})
    PadCollator(ids_field())(ds[:])["input_ids"].fill_(-1)
    assert values.tolist() == [1, 2, 3]


def test_a_sample_outside_the_data_set_is_refused():
    ds, collate = dataset([[1], [2]]), PadCollator(ids_field())
    for sample in (2, -3):
        message = rf"^`indices\[1\]` must be in \[-2, 2\), but is {sample}\.$"
        with pytest.raises(IndexError, match=message):
            collate(ds.__getitems__([0, sample]))


@given(problems(), st.data())
def test_lengths_are_those_of_the_batches(problem, draws):
    data, collate, _ = problem
    ds = ragged_dataset(data)
    ds = ds.select(draws.draw(st.permutations(range(len(ds)))))
    collate = dataclasses.replace(collate, lengths=True)
    assert collate.bound_to(ds).lengths().tolist() == collate(ds[:])["lengths"].tolist()


def test_lengths_need_a_ragged_field():
    ds = RaggedDataset({"label": np.arange(3)})
    bound = PadCollator({"label": Field()}, attention_mask=False).bound_to(ds)
    message = "A field of ['label'] must be ragged, so that there are lengths, but none is."
    with pytest.raises(ValueError, match=whole(message)):
        bound.lengths()


def test_a_class_that_changes_rows_changes_those_of_a_slice():
    class Doubled(RaggedDataset):
        def __getitem__(self, index):
            row = super().__getitem__(index)
            return row if isinstance(index, slice) else {"input_ids": 2 * row["input_ids"]}

    ds = Doubled.from_lists([[7], [4], [5, 6]])
    collate = PadCollator(ids_field())
    assert collate(ds[1:])["input_ids"].tolist() == [[8, 0], [10, 12]]
    assert collate(ds[:][1:])["input_ids"].tolist() == [[8, 0], [10, 12]]
    assert collate(ds.select([2])[:])["input_ids"].tolist() == [[10, 12]]
