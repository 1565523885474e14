"""Prompts that a key leaves out, against their definition, wherever rows come from."""

from __future__ import annotations

import dataclasses
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from collate_support import (
    ALL_TYPES,
    INTEGER_TYPES,
    ids_field,
    output_type,
    ragged,
    same,
    whole,
)
from data_support import dataset, flat, some_rows
from evenstride import BucketBatchSampler, Field, Loader, PadCollator, RaggedDataset

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
LABELS = {**ids_field(), "labels": Field(-100, source="input_ids", prompt="prompt")}
COLLATE = PadCollator(LABELS, position_ids=True, lengths=True)

ROWS = some_rows(40, seed=7)
PROMPTS = np.random.default_rng(8).integers(0, 12, 40)


def by_definition(rows, prompts, collate, dtype, cell_shape=()):
    """Pad over the prompt in a copy of each row, then cut the row, then put it in its place."""
    field = collate.fields["labels"]
    most = field.max_length or collate.max_length
    kept = []
    for row, prompt in zip(rows, prompts, strict=True):
        labels = np.array(row, float).reshape(-1, *cell_shape)
        labels[:prompt] = field.padding_value
        kept.append(labels[field.start :][:most])
    multiple = collate.pad_to_multiple_of
    width = -(-max(1, *map(len, kept)) // multiple) * multiple
    expected = np.full((len(rows), width, *cell_shape), float(field.padding_value))
    for i, labels in enumerate(kept):
        pads_left = (field.padding_side or collate.padding_side) == "left"
        first = width - len(labels) if pads_left else 0
        expected[i, first : first + len(labels)] = labels
    return torch.from_numpy(expected).to(field.dtype or output_type(dtype))


@st.composite
def problems(draw):
    """Draw rows, their type and the shape of their cells, prompts and their type, a collator."""
    dtype, cell_shape = draw(st.sampled_from(ALL_TYPES)), draw(st.sampled_from([(), (), (3,)]))
    cell = st.integers(0, 1 if dtype == "bool" else 100)
    for size in cell_shape:
        cell = st.lists(cell, min_size=size, max_size=size)
    rows = draw(st.lists(st.lists(cell, max_size=7), min_size=1, max_size=8))
    of_prompts = draw(st.sampled_from(INTEGER_TYPES))
    top = min(np.iinfo(of_prompts).max, 2**63 - 1)
    prompt = st.integers(0, 9) | st.sampled_from([0, top])
    prompts = draw(st.lists(prompt, min_size=len(rows), max_size=len(rows)))
    labels = Field(
        padding_value=1 if dtype == "bool" else -100,
        dtype=torch.int32 if "int" in dtype and draw(st.booleans()) else None,
        source="input_ids",
        padding_side=draw(st.sampled_from([None, "left", "right"])),
        max_length=draw(st.none() | st.integers(1, 8)),
        start=draw(st.sampled_from([0, 0, 1, 2, 7, 2**63 - 1])),
        prompt="prompt",
    )
    collate = PadCollator(
        {**ids_field(), "labels": labels},
        position_ids=True,
        lengths=True,
        pad_to_multiple_of=draw(st.sampled_from([1, 1, 3, 8])),
        padding_side=draw(st.sampled_from(["left", "right"])),
        max_length=draw(st.none() | st.integers(1, 8)),
    )
    return rows, dtype, cell_shape, np.array(prompts, of_prompts), collate


@given(problems(), st.data())
def test_the_padding_stands_in_place_of_the_prompt(problem, draws):
    rows, dtype, cell_shape, prompts, collate = problem
    ds = RaggedDataset({"input_ids": ragged(rows, dtype, cell_shape, 2), "prompt": prompts})
    expected = by_definition(rows, prompts, collate, dtype, cell_shape)
    batch = collate(ds[:])
    assert same(batch["labels"], expected)
    assert same(collate([ds[i] for i in range(len(ds))]), batch)
    order = draws.draw(st.permutations(range(len(ds))))
    assert same(collate(ds.select(order)[:])["labels"], expected[order])
    assert same(collate(Subset(ds, order).__getitems__(range(len(ds))))["labels"], expected[order])


@given(problems())
def test_everything_else_of_a_batch_is_as_without_a_prompt(problem):
    rows, dtype, cell_shape, prompts, collate = problem
    ds = RaggedDataset({"input_ids": ragged(rows, dtype, cell_shape), "prompt": prompts})
    labels = dataclasses.replace(collate.fields["labels"], prompt=None)
    without = dataclasses.replace(collate, fields={**collate.fields, "labels": labels})
    batch, expected = collate(ds[:]), without(ds[:])
    assert list(batch) == list(expected)
    for key in expected.keys() - {"labels"}:
        assert same(batch[key], expected[key])
    assert same(batch["prompt"], torch.from_numpy(prompts.astype(np.int64)))
    assert collate.truncated == without.truncated
    assert same(collate.bound_to(ds).lengths().tolist(), without.bound_to(ds).lengths().tolist())


@pytest.mark.parametrize("width", [15, 16, 17, 63, 64, 65, 257, 1000])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64"])
def test_prompts_around_the_widths_of_vectors_are_whole(dtype, width):
    rows = [np.arange(width) % 127] * (width + 2)
    prompts = np.arange(width + 2)
    ds = RaggedDataset({"input_ids": ragged(rows, dtype), "prompt": prompts})
    assert same(COLLATE(ds[:])["labels"], by_definition(rows, prompts, COLLATE, dtype))


def memmaps(tmp_path):
    values, offsets = flat(ROWS, "uint16")
    values.tofile(tmp_path / "values")
    PROMPTS.astype(np.uint8).tofile(tmp_path / "prompts")
    prompts = np.memmap(tmp_path / "prompts", np.uint8, "r")
    return RaggedDataset(
        {"input_ids": (np.memmap(tmp_path / "values", np.uint16, "r"), offsets), "prompt": prompts}
    )


def folder(tmp_path):
    dataset(ROWS, prompt=PROMPTS.astype(np.int16)).save(tmp_path / "folder")
    return RaggedDataset.open(tmp_path / "folder")


def arrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    prompts = pa.chunked_array([PROMPTS[:13].astype(np.int8), PROMPTS[13:].astype(np.int8)])
    return RaggedDataset.from_arrow(pa.table({"input_ids": ROWS, "prompt": prompts}))


class Samples(Dataset):
    """Samples as users write their own data sets: of lists or arrays, and numbers of any kind."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        number = (int, np.uint8, np.array, torch.tensor)[index % 4]
        kind = list if index % 2 else np.array
        return {"input_ids": kind(ROWS[index]), "prompt": number(int(PROMPTS[index]))}


def expected_of(samples):
    """Return the labels of some samples."""
    rows, prompts = [ROWS[i] for i in samples], PROMPTS[samples]
    return by_definition(rows, prompts, COLLATE, "int64")


@pytest.mark.parametrize("opened", [memmaps, folder, arrow])
def test_prompts_are_read_where_they_lie(opened, tmp_path):
    ds = opened(tmp_path)
    samples = [3, 39, 12, 0, 13, 3]
    for data in (ds, pickle.loads(pickle.dumps(ds))):
        assert same(COLLATE(data.__getitems__(samples))["labels"], expected_of(samples))


DATASETS = {
    "ragged": lambda: dataset(ROWS, prompt=PROMPTS),
    "samples": Samples,
    "subset": lambda: Subset(dataset(ROWS, prompt=PROMPTS), range(40)),
    "concat": lambda: ConcatDataset(
        [Subset(DATASETS["ragged"](), range(25)), Subset(Samples(), range(25, 40))]
    ),
}


@pytest.mark.parametrize(
    ("kind", "method"), [*product(DATASETS, [None, "fork"]), ("concat", "spawn")]
)
def test_a_data_loader_leaves_prompts_out(kind, method):
    loader = DataLoader(
        DATASETS[kind](),
        batch_size=7,
        collate_fn=COLLATE,
        num_workers=0 if method is None else 2,
        multiprocessing_context=method,
    )
    for first, batch in zip(range(0, 40, 7), loader, strict=True):
        samples = [*range(first, min(first + 7, 40))]
        assert same(batch["labels"], expected_of(samples))
        assert batch["prompt"].tolist() == PROMPTS[samples].tolist()


@pytest.mark.parametrize("kind", ["ragged", "samples", "subset"])
def test_a_loader_leaves_prompts_out(kind):
    data = DATASETS[kind]()
    lengths = np.array([len(row) for row in ROWS])
    sampler = BucketBatchSampler(lengths, token_budget=32, buckets=3)
    loader = Loader(data, sampler, COLLATE, num_workers=2)
    for samples, batch in zip(sampler, loader, strict=True):
        assert same(batch["labels"], expected_of(samples))


def test_a_pickled_collator_leaves_prompts_out():
    again = pickle.loads(pickle.dumps(COLLATE))
    assert again.fields == COLLATE.fields
    samples = [*range(40)]
    assert same(again(DATASETS["ragged"]()[:])["labels"], expected_of(samples))


def both_ways(collate, **fields):
    """Return the batch of all rows of a data set, which must be that of its samples."""
    ds = dataset([[7, 8, 9], [4]], **fields)
    batch = collate(ds[:])
    assert same(batch, collate([ds[i] for i in range(len(ds))]))
    return {key: value.tolist() for key, value in batch.items()}


def test_a_field_of_prompts_may_have_a_field_of_its_own():
    batch = both_ways(
        PadCollator({**LABELS, "n": Field(dtype=torch.uint8, source="prompt")}),
        prompt=np.array([2, 0]),
    )
    assert list(batch) == ["input_ids", "labels", "n", "attention_mask"]
    assert batch["labels"] == [[-100, -100, 9], [4, -100, -100]]
    assert batch["n"] == [2, 0]


def test_prompts_that_are_named_like_the_key_are_left_out_of_the_batch():
    labels = Field(-100, source="input_ids", prompt="labels")
    batch = both_ways(PadCollator({**ids_field(), "labels": labels}), labels=np.array([2, 0]))
    assert list(batch) == ["input_ids", "labels", "attention_mask"]
    assert batch["labels"] == [[-100, -100, 9], [4, -100, -100]]


@pytest.mark.parametrize("is_added", [False, True])
def test_prompts_may_be_named_like_what_is_made_of_other_keys(is_added):
    labels = Field(-100, source="input_ids", prompt="lengths")
    collate = PadCollator({**ids_field(), "labels": labels}, lengths=is_added)
    batch = both_ways(collate, lengths=np.array([2, 0], np.int8))
    assert batch["labels"] == [[-100, -100, 9], [4, -100, -100]]
    assert batch["lengths"] == [2, 0]


def test_keys_may_have_different_prompts():
    fields = {"input_ids": Field(prompt="b"), "labels": Field(-1, source="input_ids", prompt="a")}
    batch = both_ways(PadCollator(fields), a=np.array([1, 0]), b=np.array([0, 1]))
    assert batch["input_ids"] == [[7, 8, 9], [0, 0, 0]]
    assert batch["labels"] == [[-1, 8, 9], [4, -1, -1]]
    assert batch["attention_mask"] == [[1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_a_negative_prompt_is_refused(row, dtype):
    prompts = np.array([3, 3], dtype)
    prompts[row] = np.iinfo(dtype).min
    message = (
        f"`prompt`, row {row}: must be at least 0, the cells of a prompt, but is {prompts[row]}."
    )
    ds = dataset([[7, 8, 9], [4]], prompt=prompts)
    for rows in (ds[:], [ds[0], ds[1]]):
        with pytest.raises(ValueError, match=whole(message)):
            COLLATE(rows)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_negative_prompt_is_named_by_its_row_in_a_selection(num_workers):
    ds = dataset(ROWS, prompt=np.where(np.arange(40) == 17, -1, PROMPTS)).select([5, 17])
    loader = DataLoader(ds, batch_size=2, collate_fn=COLLATE, num_workers=num_workers)
    message = r"`prompt`, row 17: must be at least 0, the cells of a prompt, but is -1\."
    with pytest.raises(ValueError, match=message):
        list(loader)


@pytest.mark.parametrize(
    ("prompts", "fault"),
    [
        (np.array([1.0, 0.0]), "holds float64"),
        (torch.ones(2, dtype=torch.bfloat16), "holds bfloat16"),
        (np.array([True, False]), "holds bool"),
        (flat([[1], [0]], "int64"), "is ragged"),
    ],
)
def test_prompts_that_are_no_integers_are_refused(prompts, fault):
    ds = dataset([[7, 8, 9], [4]], prompt=prompts)
    message = (
        f"`fields['labels'].prompt` must name a field of one integer a row, but 'prompt' {fault}."
    )
    for rows in (ds[:], [ds[0], ds[1]]):
        with pytest.raises(TypeError, match=whole(message)):
            COLLATE(rows)


@pytest.mark.parametrize("shape", [(1,), (2,), (2, 3)])
def test_several_prompts_a_row_are_refused(shape):
    ds = dataset([[7, 8, 9], [4]], prompt=np.ones((2, *shape), np.int64))
    message = (
        "`fields['labels'].prompt` must name a field of one integer a row, but 'prompt' has rows "
        f"of shape {shape}."
    )
    with pytest.raises(TypeError, match=whole(message)):
        COLLATE(ds[:])


def test_a_field_of_floats_does_not_make_floats_of_prompts():
    """The numbers of Python stay what they are, whatever a key of them asks for."""
    collate = PadCollator({**LABELS, "prompt": Field(dtype=torch.float32)})
    message = (
        "The type of `prompt` must be a type of integers or bool, because 'prompt' holds int64, "
        "but is float32."
    )
    rows = [{"input_ids": [7, 8, 9], "prompt": 2}]
    for data in (rows, RaggedDataset.from_lists(rows)[:]):
        with pytest.raises(TypeError, match=whole(message)):
            collate(data)


def test_prompts_that_the_data_has_not_are_named():
    message = (
        "`fields['labels'].prompt` must name a field of the data, one of ['input_ids', 'n'], but "
        "is 'prompt'."
    )
    ds = dataset([[7, 8, 9], [4]], n=np.array([1, 0]))
    for rows in (ds[:], [ds[0], ds[1]]):
        with pytest.raises(ValueError, match=whole(message)):
            COLLATE(rows)
