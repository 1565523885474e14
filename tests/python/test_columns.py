"""Arrays of all kinds, as users have them, in the columns of a data set."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_support import (
    NO_NUMBERS,
    VALUE_TYPES,
    address,
    dataset,
    flat,
    lies_in,
    rows_of,
    some_rows,
)
from evenstride.columns import converted
from evenstride.dataset import RaggedDataset

ROWS = [[7, 8, 9], [], [4], [5, 6]]
VALUES, OFFSETS = flat(ROWS, "int32")
OFFSETS_OF_X = "The offsets of `x` must be integers in 1 dimension, but have"


def rows_with(values, offsets):
    return rows_of(RaggedDataset({"x": (values, offsets)}), "x")


@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_the_first_copy_is_the_last(dtype, kind):
    values = np.ones(6, dtype)
    ds = RaggedDataset({"x": (kind(values), [0, 2, 6]), "y": kind(values[:2])})
    for name, begin in (("x", 2), ("y", 1)):
        row = ds.columns[name].row(1)
        assert np.shares_memory(row, values)
        assert address(row) == address(values[begin:])


def test_memory_is_kept_alive():
    ds = dataset(ROWS)
    row = ds.columns["input_ids"].row(0)
    expected = rows_of(ds)
    del ds
    assert row.tolist() == expected[0]


def test_a_memmap_is_read_in_place(tmp_path):
    np.save(tmp_path / "values.npy", VALUES)
    np.save(tmp_path / "offsets.npy", OFFSETS)
    values = np.load(tmp_path / "values.npy", mmap_mode="r")
    ds = RaggedDataset({"x": (values, np.load(tmp_path / "offsets.npy", mmap_mode="r"))})
    assert rows_of(ds, "x") == ROWS
    assert lies_in(ds.columns["x"].row(3), address(values), values.nbytes)


def test_a_memmap_is_pickled_as_its_place_in_a_file(tmp_path):
    rows = some_rows(5000)
    values, offsets = flat(rows, "uint16")
    for name, array in (("values", values), ("offsets", offsets)):
        (tmp_path / name).write_bytes(b"head" + array.tobytes())
    values, offsets = (
        np.memmap(tmp_path / name, array.dtype, "r", 4)
        for name, array in (("values", values), ("offsets", offsets))
    )
    ds = RaggedDataset({"input_ids": (values, offsets)})
    data = pickle.dumps(ds)
    assert len(data) < 1500
    assert rows_of(pickle.loads(data)) == rows
    (tmp_path / "offsets").write_bytes(b"head" + np.full(5001, 2**40).tobytes())
    with pytest.raises(ValueError, match="`input_ids`, row 0"):
        pickle.loads(data)


def test_only_cells_in_use_are_pickled():
    values = np.arange(1_000_000)
    ds = RaggedDataset({"x": (values, np.array([500, 503, 504])), "y": values[:2]})
    data = pickle.dumps(ds)
    assert len(data) < 2000
    other = pickle.loads(data)
    assert rows_of(other, "x") == [[500, 501, 502], [503]]
    assert rows_of(other, "y") == [0, 1]


OFFSET_KINDS = [
    list,
    tuple,
    np.int8,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.dtype(">i4").type,
    torch.tensor,
    lambda offsets: np.array(offsets, ">i8"),
    lambda offsets: np.repeat(offsets, 2)[::2],
]


@pytest.mark.parametrize("kind", OFFSET_KINDS)
def test_offsets_of_any_integers_are_read(kind):
    assert rows_with(VALUES, kind(OFFSETS.tolist())) == ROWS


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_offsets_may_be_misaligned(dtype):
    memory = np.zeros(8 * len(OFFSETS) + 1, np.uint8)
    offsets = memory[1 : 1 + len(OFFSETS) * np.dtype(dtype).itemsize].view(dtype)
    offsets[:] = OFFSETS
    assert not offsets.flags.aligned
    ds = RaggedDataset({"x": (VALUES, offsets)})
    assert rows_of(ds, "x") == ROWS
    (chunk,) = ds._arrays["x"].chunks
    assert np.shares_memory(chunk.offsets, memory)


def test_values_may_be_misaligned_strided_or_of_a_foreign_byte_order():
    memory = np.zeros(4 * len(VALUES) + 1, np.uint8)
    misaligned = memory[1:].view(np.int32)
    misaligned[:] = VALUES
    assert rows_with(misaligned, OFFSETS) == ROWS
    assert rows_with(np.repeat(VALUES, 3)[::3], OFFSETS) == ROWS
    assert rows_with(VALUES.astype(">i4"), OFFSETS) == ROWS
    cells = np.arange(12).reshape(2, 6).T
    assert rows_with(cells, OFFSETS)[2] == [[3, 9]]
    assert rows_with(torch.arange(12).reshape(2, 6).T, OFFSETS)[2] == [[3, 9]]
    assert rows_with(torch.arange(12).reshape(2, 6).T.bfloat16(), OFFSETS)[2] == [[3, 9]]


def test_rows_need_not_cover_all_values():
    assert rows_with(VALUES, [1, 3, 3]) == [[8, 9], []]
    assert rows_with(VALUES, [6]) == []


@given(st.lists(st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=6), min_size=1))
def test_chunks_follow_each_other(chunks):
    ds = RaggedDataset({"x": [flat(chunk, "uint8") for chunk in chunks]})
    rows = [row for chunk in chunks for row in chunk]
    assert rows_of(ds, "x") == rows
    assert ds.lengths.tolist() == [len(row) for row in rows]
    assert rows_of(pickle.loads(pickle.dumps(ds)), "x") == rows


def test_chunks_may_have_offsets_of_different_types():
    pairs = [(VALUES, OFFSETS.astype(np.uint32)), (VALUES, OFFSETS.tolist())]
    assert rows_of(RaggedDataset({"x": pairs}), "x") == ROWS + ROWS


def test_lists_and_other_sequences_are_values():
    ds = RaggedDataset({"a": [1, 2], "b": [True, False], "c": [0.5, 1], "d": range(2)})
    assert {name: dtype for name, (dtype, _) in ds.fields.items()} == {
        "a": "int64",
        "b": "bool",
        "c": "float64",
        "d": "int64",
    }


def test_the_float_of_machine_learning_in_numpy_is_known():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
    ds = RaggedDataset({"x": (values, [0, 1, 3])})
    assert (ds[1]["x"].dtype, ds[1]["x"].tolist()) == (torch.bfloat16, [-2, 3])


@pytest.mark.parametrize(
    ("field", "error", "message"),
    [
        (
            (VALUES, [0, 9, 6]),
            ValueError,
            "`x`, row 0: ends at 9, outside [0, 6], the values that there are.",
        ),
        ((VALUES, [0, 4, 3]), ValueError, "`x`, row 1: ends at 3, before its begin at 4."),
        (
            (VALUES, [-1, 4]),
            ValueError,
            "`x`, row 0: begins at -1, outside [0, 6], the values that there are.",
        ),
        (
            [(VALUES, [0, 6]), (VALUES, [0, 7])],
            ValueError,
            "`x`, row 1: ends at 7, outside [0, 6], the values that there are.",
        ),
        (
            (VALUES, []),
            ValueError,
            "The offsets of `x` must be one more than there are rows, but are 0.",
        ),
        (
            (VALUES, [0.0, 6.0]),
            TypeError,
            f"{OFFSETS_OF_X} dtype float64 and shape (2,).",
        ),
        (
            (VALUES, [[0, 6]]),
            TypeError,
            f"{OFFSETS_OF_X} dtype int64 and shape (1, 2).",
        ),
        (
            (VALUES, np.array([False, True])),
            TypeError,
            f"{OFFSETS_OF_X} dtype bool and shape (2,).",
        ),
        ((VALUES,), TypeError, "`x` must be tuples (values, offsets), but has a tuple of 1."),
        (
            [(VALUES, OFFSETS), VALUES],
            TypeError,
            "`x` must be tuples (values, offsets), but has one of type ndarray.",
        ),
        (
            [(VALUES, OFFSETS), (VALUES.astype(np.int64), OFFSETS)],
            ValueError,
            (
                "All chunks of `x` must have cells of one type and shape, but have int32 () and "
                "int64 ()."
            ),
        ),
        (
            ["a", "b"],
            TypeError,
            f"`x` {NO_NUMBERS} <U1.",
        ),
        (
            np.ones(2, complex),
            TypeError,
            f"`x` {NO_NUMBERS} complex128.",
        ),
        (
            [2**64],
            TypeError,
            f"`x` {NO_NUMBERS} object.",
        ),
        (7, TypeError, "`x` must be an array of at least 1 dimension, but is 7."),
        (
            np.ma.array([1, 2, 3], mask=[0, 1, 1]),
            ValueError,
            "`x` must not be masked, but 2 values are.",
        ),
        (
            np.ones((2, 0)),
            ValueError,
            "`x` must have cells of 1 value to 2**31 - 1 bytes, but one of its dimensions is 0.",
        ),
    ],
)
def test_what_is_wrong_with_a_field_is_one_sentence(field, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        RaggedDataset({"x": field})


@pytest.mark.parametrize("field", [[[1], [2, 3]], torch.ones(2).to_sparse()])
def test_what_is_no_array_is_one_sentence(field):
    with pytest.raises(TypeError, match=r"^`x` must be .*, but \w+ says: "):
        RaggedDataset({"x": field})


LOW_BITS = st.sampled_from([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])


HIGH_BITS = st.sampled_from([0x7F80, 0xFF80, 0x7FC0, 0x7F7F]) | st.integers(0, 2**16 - 1)


@given(st.lists(st.tuples(HIGH_BITS, LOW_BITS), min_size=1))
def test_floats_become_bfloat16_as_torch_makes_them(halves):
    values = np.array([(high << 16) + low for high, low in halves], np.uint32).view(np.float32)
    expected = torch.from_numpy(values).bfloat16()
    values = values[~(expected.isinf().numpy() & np.isfinite(values))]  # They are refused.
    expected = torch.from_numpy(values).bfloat16()
    with np.errstate(all="raise"):
        raw = converted("x[0]", values, "float32", "bfloat16")
    got = torch.from_numpy(raw.view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got[~got.isnan()], expected[~expected.isnan()])
    back = converted("x[0]", raw, "bfloat16", "float32")
    assert np.array_equal(back, expected.float().numpy(), equal_nan=True)


@pytest.mark.parametrize(
    ("values", "to", "message"),
    [
        ([1.0, 1e39, 1e40], "float32", "`x[3]` must be in the range of float32, but holds 1e+39."),
        ([3, -70_000], "float16", "`x[3]` must be in the range of float16, but holds -70000."),
        ([3.4e38], "bfloat16", "`x[3]` must be in the range of bfloat16, but holds 3.4e+38."),
        (
            np.array([1, 2**63], np.uint64),
            "int64",
            f"`x[3]` must hold integers below 2**63, but holds {2**63}.",
        ),
    ],
)
def test_a_value_that_another_type_lacks_is_named(values, to, message):
    values = np.array(values)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        converted("x[3]", values, values.dtype.name, to)
