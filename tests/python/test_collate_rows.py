"""Batches of any samples: what rows may be, and what is said of those that do not fit."""

from __future__ import annotations

from array import array
from collections import UserDict, UserList

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collate_support import (
    ALL_TYPES,
    FLOAT_TYPES,
    INTEGER_TYPES,
    ids_field,
    ragged,
    same,
    tensor_of,
    torch_type,
    whole,
)
from evenstride import Field, PadCollator, RaggedDataset

COLLATE = PadCollator(ids_field(-1))
ROWS = [[7, 8, 9], [], [4]]
BATCH = {
    "input_ids": torch.tensor([[7, 8, 9], [-1, -1, -1], [4, -1, -1]]),
    "attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 0]]),
}
NO_NUMBERS = "must hold bools, integers, or floats of 16, 32 or 64 bits, but has dtype"


def read_only(values):
    values = np.array(values, np.int32)
    values.flags.writeable = False
    return values


def samples(rows):
    return [{"input_ids": row} for row in rows]


KINDS = {
    "list": list,
    "tuple": tuple,
    "int8 array": lambda row: np.array(row, np.int8),
    "uint64 array": lambda row: np.array(row, np.uint64),
    "read-only array": read_only,
    "array with strides": lambda row: np.repeat(np.array(row, np.int64), 3)[::3],
    "array backwards": lambda row: np.array(row[::-1], np.int16)[::-1],
    "big-endian array": lambda row: np.array(row, ">i4"),
    "misaligned array": lambda row: (
        np.frombuffer(b"x" + np.array(row, "<i8").tobytes(), "<i8", -1, 1)
        if row
        else np.zeros(0, "<i8")
    ),
    "memmap": lambda row: np.array(row, np.int64).view(np.memmap),
    "tensor": lambda row: torch.tensor(row, dtype=torch.int32),
    "tensor with strides": lambda row: torch.tensor(row, dtype=torch.int64).repeat_interleave(2)[
        ::2
    ],
    "array.array": lambda row: array("h", row),
    "memoryview": lambda row: memoryview(array("i", row)),
    "list of numpy's": lambda row: [np.int16(value) for value in row],
    "list of torch's": lambda row: [torch.tensor(value) for value in row],
    "UserList": UserList,
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_be_of_many_kinds(kind):
    assert same(COLLATE(samples(map(KINDS[kind], ROWS))), BATCH)


def test_rows_of_different_kinds_go_together():
    kinds = list(KINDS.values())
    mixed = [kinds[i % len(kinds)](ROWS[i % 3]) for i in range(3 * len(kinds))]
    batch = COLLATE(samples(mixed))["input_ids"]
    assert same(batch, BATCH["input_ids"].repeat(len(kinds), 1))


def test_a_range_is_a_row():
    assert COLLATE(samples([range(2), [5]]))["input_ids"].tolist() == [[0, 1], [5, -1]]


@pytest.mark.parametrize("container", [list, tuple, iter, UserList])
def test_samples_may_come_in_any_sequence_of_mappings(container):
    assert same(COLLATE(container(samples(ROWS))), BATCH)
    assert same(COLLATE(container([UserDict(row) for row in samples(ROWS)])), BATCH)


@pytest.mark.parametrize("dtype", ALL_TYPES)
@pytest.mark.parametrize("as_row", [lambda row: row, lambda row: row.detach().requires_grad_()])
def test_tensors_give_what_a_data_set_of_them_gives(dtype, as_row):
    rows = [tensor_of(row, dtype) for row in ([1, 0, 1], [], [1])]
    if torch_type(dtype).is_floating_point:
        rows = [as_row(row) for row in rows]
    collate = PadCollator({"input_ids": Field(1)})
    ds = RaggedDataset({"input_ids": ragged([[1, 0, 1], [], [1]], dtype)})
    batch = collate(samples(rows))
    assert same(batch, collate(ds[:]))
    assert not batch["input_ids"].requires_grad


@pytest.mark.parametrize("dtype", [*INTEGER_TYPES, "bool", "float16", "float32", "float64"])
def test_arrays_and_single_values_keep_their_type(dtype):
    rows = [{"x": np.array([1, 0], dtype), "y": np.dtype(dtype).type(1)} for _ in range(2)]
    rows[1]["y"] = np.array(0, dtype)
    collate = PadCollator(
        {
            "x": Field(dtype=torch_type(dtype)),
            "y": Field(dtype=torch_type(dtype)),
        }
    )
    batch = collate(rows)
    assert same(batch["x"], torch.tensor([[1, 0], [1, 0]], dtype=torch_type(dtype)))
    assert same(batch["y"], torch.tensor([1, 0], dtype=torch_type(dtype)))


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.bfloat16])
def test_the_floats_of_python_have_torchs_default_type(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        row = {"x": [0.5, 1], "y": 0.25, "unnamed": [0.1, 3]}
        batch = PadCollator({"x": Field(), "y": Field()})([row])
        assert same(batch["x"], torch.tensor([[0.5, 1]]))
        assert same(batch["y"], torch.tensor([0.25]))
        assert same(batch["unnamed"], torch.tensor([[0.1, 3]]))
        assert batch["x"].dtype == default
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize(
    "rows", [[[0.1, 2], [3.5]], [[1, 2], [3]], [[], []], [[], [0.1]], [[True]]]
)
def test_the_numbers_of_python_have_the_float_type_that_is_asked_for(dtype, rows):
    """Whether the floats of a batch happen to be whole, or to be none, changes nothing."""
    collate = PadCollator({"x": Field(0.5, torch_type(dtype)), "y": Field(0, torch_type(dtype))})
    batch = collate([{"x": row, "y": len(row)} for row in rows])
    width = max(1, *map(len, rows))
    expected = [row + [0.5] * (width - len(row)) for row in rows]
    assert same(batch["x"], tensor_of(expected, dtype))
    assert same(batch["y"], tensor_of([len(row) for row in rows], dtype))


def test_whole_rows_among_floats_are_floats():
    batch = PadCollator({"x": Field(), "y": Field()})([{"x": [1], "y": 1}, {"x": [0.5], "y": 0.5}])
    assert same(batch["x"], torch.tensor([[1.0], [0.5]]))
    assert same(batch["y"], torch.tensor([1.0, 0.5]))


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_integers_of_python_are_exact(rows):
    batch = COLLATE(samples(rows))["input_ids"]
    width = max(1, *map(len, rows))
    assert batch.dtype == torch.int64
    assert batch.tolist() == [row + [-1] * (width - len(row)) for row in rows]


def test_bools_among_integers_are_integers():
    for rows in ([[True, 5], [False, False]], [[False], [7, 8]]):
        batch = COLLATE(samples(rows))["input_ids"]
        assert batch.dtype == torch.int64
        assert batch[:, 0].tolist() == [int(row[0]) for row in rows]
    batch = PadCollator(ids_field())(samples([[True, False], [True]]))["input_ids"]
    assert same(batch, torch.tensor([[True, False], [True, False]]))


def test_an_empty_row_has_the_type_of_the_others():
    """What numpy calls empty is float64."""
    collate = PadCollator(ids_field())
    assert same(
        collate(samples([np.array([]), np.array([5], np.int8)])), collate(samples([[], [5]]))
    )
    assert collate(samples([[], [True]]))["input_ids"].dtype == torch.bool


def test_buffers_of_python_keep_their_type():
    batch = PadCollator(ids_field())(samples([array("d", [0.5]), memoryview(array("d", [1.5]))]))
    assert same(batch["input_ids"], torch.tensor([[0.5], [1.5]], dtype=torch.float64))


def test_lists_of_lists_are_cells():
    batch = COLLATE(samples([[[1, 2], [3, 4]], [[5, 6]], []]))["input_ids"]
    assert batch.tolist() == [[[1, 2], [3, 4]], [[5, 6], [-1, -1]], [[-1, -1], [-1, -1]]]


def test_frames_are_padded_along_time_only():
    random = np.random.default_rng(0)
    frames = [random.normal(size=(size, 80)).astype(np.float32) for size in (3, 0, 5)]
    batch = PadCollator({"x": Field(-1.5)})([{"x": one} for one in frames])["x"]
    assert batch.shape == (3, 5, 80)
    for row, one in zip(batch.numpy(), frames, strict=True):
        assert np.array_equal(row[: len(one)], one)
        assert (row[len(one) :] == -1.5).all()


@pytest.mark.parametrize(
    "kind", [np.asarray, torch.as_tensor, lambda x: np.asfortranarray(x)[::-1]]
)
def test_cells_of_another_shape_are_named_with_both_shapes(kind):
    rows = [kind(np.zeros((size, width))) for size, width in ((3, 80), (0, 7), (2, 80), (4, 81))]
    message = (
        "`rows[3]['x']` must have cells of shape (80,), as other rows have, but has cells of shape "
        "(81,)."
    )
    with pytest.raises(ValueError, match=whole(message)):
        PadCollator({"x": Field()})([{"x": row} for row in rows])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (3, "`rows` must be a sequence of samples, but is a int."),
        (None, "`rows` must be a sequence of samples, but is a NoneType."),
        ({"input_ids": [[1]]}, "`rows` must be a sequence of samples, but is a dict."),
        ("ab", "`rows` must be a sequence of samples, but is a str."),
        ([[1, 2]], "`rows[0]` must be a mapping of names to values, but is a list."),
        (
            [{"input_ids": [1]}, (1,)],
            "`rows[1]` must be a mapping of names to values, but is a tuple.",
        ),
        (
            samples([[1], 2]),
            "`rows[1]['input_ids']` must be a sequence, as in other rows, but is a single value.",
        ),
        (
            samples([np.float32(1), np.ones(2)]),
            "`rows[1]['input_ids']` must be a single value, as in other rows, but is a sequence.",
        ),
        (
            samples([np.ones(2, np.int8), np.array(1, np.int8)]),
            "`rows[1]['input_ids']` must be a sequence, as in other rows, but is a single value.",
        ),
        (
            samples([["a"]]),
            f"`rows[0]['input_ids']` {NO_NUMBERS} <U1.",
        ),
        (
            samples([[1], None]),
            f"`rows[1]['input_ids']` {NO_NUMBERS} object.",
        ),
        (
            samples([torch.zeros(2, dtype=torch.complex64)]),
            f"`rows[0]['input_ids']` {NO_NUMBERS} complex64.",
        ),
        (
            samples([np.ones(2, np.float16), np.ones(2, np.float32)]),
            "The rows of `input_ids` must be of one type, but are float16 and float32.",
        ),
        (
            samples([torch.ones(2).bfloat16(), [0.5], [1]]),
            "The rows of `input_ids` must be of one type, but are bfloat16 and float32.",
        ),
    ],
)
def test_another_kind_is_named(rows, message):
    with pytest.raises(TypeError, match=whole(message)):
        COLLATE(rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "`rows` must have at least 1 sample, but has 0."),
        (
            [{"input_ids": [1]}, {"input_ids": [1], "x": 2}],
            "`rows[1]` must have the keys of `rows[0]`, ['input_ids'], but has ['input_ids', 'x'].",
        ),
        (
            samples([[1], [2**63, -1]]),
            (
                "`rows[1]['input_ids']` must hold integers that int64 or uint64 holds, but holds "
                f"-1 and {2**63}."
            ),
        ),
        (
            samples([[1], [2**63]]),
            f"`rows[1]['input_ids']` must hold integers below 2**63, but holds {2**63}.",
        ),
        (
            samples([np.array([1], np.int8), np.array([2**63], np.uint64)]),
            f"`rows[1]['input_ids']` must hold integers below 2**63, but holds {2**63}.",
        ),
        (
            samples([[2**63]]),
            (
                f"`input_ids`, row 0: holds {2**63}, which does not fit into int64, the type of "
                "`input_ids`."
            ),
        ),
        (
            samples([[1.0], [1e39]]),
            "`rows[1]['input_ids']` must be in the range of float32, but holds 1e+39.",
        ),
        (
            samples([np.ones(1, np.float16), [70_000]]),
            "`rows[1]['input_ids']` must be in the range of float16, but holds 70000.",
        ),
        (
            samples([np.ma.masked_array([1, 2], [False, True])]),
            "`rows[0]['input_ids']` must not be masked, but 1 values are.",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named(rows, message):
    with pytest.raises(ValueError, match=whole(message)):
        COLLATE(rows)


@pytest.mark.parametrize(
    ("dtype", "beyond"), [("float16", 70_000.0), ("float16", 70_000), ("bfloat16", 3.4e38)]
)
def test_a_number_beyond_the_float_type_that_is_asked_for_is_named(dtype, beyond):
    message = f"`rows[1]['x']` must be in the range of {dtype}, but holds {beyond}."
    with pytest.raises(ValueError, match=whole(message)):
        PadCollator({"x": Field(dtype=torch_type(dtype))})([{"x": [1.0]}, {"x": [beyond]}])
