"""Rows that are Python lists, and what is wrong with others."""

from __future__ import annotations

import re
from array import array

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_support import NO_NUMBERS, rows_of
from evenstride import Field, PadCollator
from evenstride.dataset import RaggedDataset

ROWS = [[7, 8, 9], [], [4], [5, 6]]


def from_lists(*rows):
    return RaggedDataset.from_lists(rows)


def test_lists_are_one_field():
    for rows in (ROWS, tuple(ROWS), [tuple(row) for row in ROWS], [range(3), [], range(2)]):
        ds = RaggedDataset.from_lists(rows)
        assert rows_of(ds) == [list(row) for row in rows]
        assert ds.fields == {"input_ids": ("int64", (None,))}
    assert rows_of(RaggedDataset.from_lists(np.arange(6).reshape(2, 3))) == [[0, 1, 2], [3, 4, 5]]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_rows_come_back(rows):
    assert rows_of(RaggedDataset.from_lists(rows)) == rows
    ds = RaggedDataset.from_lists([{"x": row, "y": len(row)} for row in rows])
    assert rows_of(ds, "x") == rows
    assert rows_of(ds, "y") == [len(row) for row in rows]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (([1], [2, 3]), torch.int64, ([1], [2, 3])),
        (([True], [False, True]), torch.bool, ([True], [False, True])),
        (([True], [2]), torch.int64, ([1], [2])),
        (([1], [0.5]), torch.float32, ([1], [0.5])),
        (([], [0.5]), torch.float32, ([], [0.5])),
        (([], []), torch.int64, ([], [])),
        ((1, 2), torch.int64, (1, 2)),
        ((1, 0.5), torch.float32, (1, 0.5)),
        ((True, False), torch.bool, (True, False)),
        ((np.int8(1), torch.tensor(2)), torch.int64, (1, 2)),
        ((np.array([1], np.uint16), torch.tensor([2, 3])), torch.int64, ([1], [2, 3])),
        ((np.array([0.5]), np.array([1.5, 2])), torch.float64, ([0.5], [1.5, 2])),
        ((np.array([0.5], np.float16), [1]), torch.float16, ([0.5], [1])),
        ((torch.ones(2).bfloat16(), [2, 3]), torch.bfloat16, ([1, 1], [2, 3])),
        (([[1, 2]], [[3, 4], [5, 6]]), torch.int64, ([[1, 2]], [[3, 4], [5, 6]])),
        (([], [[1, 2]]), torch.int64, ([], [[1, 2]])),
        (([[1.5, 2]], np.zeros((0, 2))), torch.float32, ([[1.5, 2]], [])),
    ],
)
def test_numbers_have_the_type_that_torch_gives_them(values, dtype, expected):
    ds = from_lists(*({"x": value} for value in values))
    assert tuple(rows_of(ds, "x")) == expected
    assert ds[0]["x"].dtype == ds[1]["x"].dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_default_type_of_torch_is_that_of_python_floats(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        ds = from_lists({"x": [0.1, 2.7], "y": 0.3})
        assert torch.equal(ds[0]["x"], torch.tensor([0.1, 2.7]))
        assert torch.equal(ds[0]["y"], torch.tensor(0.3))
    finally:
        torch.set_default_dtype(before)


def test_lists_are_copied():
    row = np.array([1, 2])
    ds = from_lists(row, row)
    row[:] = 9
    assert rows_of(ds) == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (
            [],
            ValueError,
            "`rows` must have at least 1 row, which says what the fields are, but has 0.",
        ),
        (3, TypeError, "`rows` must be a sequence of dicts or of lists, but is 3."),
        ([1, 2], TypeError, "`rows` must be a sequence of dicts or of lists, but has a row 1."),
        ("abc", TypeError, "`rows` must be a sequence of dicts or of lists, but is 'abc'."),
        (
            {"x": [1]},
            TypeError,
            "`rows` must be a sequence of dicts or of lists, but is {'x': [1]}.",
        ),
        (
            [{"x": [1]}, {"y": [1]}],
            ValueError,
            "All rows must have the keys ['x'], but row 1 has ['y'].",
        ),
        ([{"x": [1]}, [1]], TypeError, "All rows must be dicts, as row 0 is, but row 1 is [1]."),
        ([{1: [1]}], TypeError, "The names of fields must be strings, but one is 1."),
        (
            [{"x": [1]}, {"x": 1}],
            TypeError,
            "`x[1]` must be a sequence, as in other rows, but is a single value.",
        ),
        (
            [{"x": 1}, {"x": [1]}],
            TypeError,
            "`x[1]` must be a single value, as in other rows, but is a sequence.",
        ),
        (
            [{"x": []}, {"x": [1]}, {"x": [[1, 2]]}],
            ValueError,
            (
                "`x[2]` must have cells of shape (), as other rows have, but has cells of shape "
                "(2,)."
            ),
        ),
        (
            [{"x": [[1, 2]]}, {"x": [[1, 2, 3]]}],
            ValueError,
            (
                "`x[1]` must have cells of shape (2,), as other rows have, but has cells of shape "
                "(3,)."
            ),
        ),
        (
            [[1], ["a"]],
            TypeError,
            f"`input_ids[1]` {NO_NUMBERS} <U1.",
        ),
        (
            [[1], [None]],
            TypeError,
            f"`input_ids[1]` {NO_NUMBERS} object.",
        ),
        (
            [{"x": "text"}],
            TypeError,
            f"`x[0]` {NO_NUMBERS} <U4.",
        ),
        (
            [[1], [2**63]],
            ValueError,
            "`input_ids[1]` must hold integers below 2**63, but holds 9223372036854775808.",
        ),
        (
            [[2**63, -1]],
            ValueError,
            (
                "`input_ids[0]` must hold integers that int64 or uint64 holds, but holds -1 and "
                "9223372036854775808."
            ),
        ),
        (
            [[1.0], [1e39]],
            ValueError,
            "`input_ids[1]` must be in the range of float32, but holds 1e+39.",
        ),
        (
            [{"x": np.ones(1, np.float16)}, {"x": []}, {"x": [70_000]}],
            ValueError,
            "`x[2]` must be in the range of float16, but holds 70000.",
        ),
        (
            [np.ones(1), np.ones(1, np.float16)],
            TypeError,
            "The rows of `input_ids` must be of one type, but are float16 and float64.",
        ),
    ],
)
def test_what_cannot_be_a_row_is_one_sentence(rows, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_lists(rows)


@pytest.mark.parametrize(
    "rows",
    [
        [[1], 2],
        [2, [1]],
        [[1], [[1, 2]]],
        [[[1, 2]], [[1, 2, 3]]],
        [np.ones(1), np.ones(1, np.float16)],
        [[1], ["a"]],
        [[1], None],
        [[1], [[1], [2, 3]]],
        [[2**63, -1]],
        [[1], [2**64]],
        [[1], [2**63]],
        [[1.0], [1e39]],
        [np.ones(1, np.float16), [70_000]],
        [[1], np.ma.masked_array([1, 2], [False, True])],
    ],
)
def test_what_cannot_be_a_row_cannot_be_a_sample(rows):
    """With the same sentence, but for how rows are called."""
    samples = [{"x": row} for row in rows]
    with pytest.raises((TypeError, ValueError)) as of_rows:
        RaggedDataset.from_lists(samples)
    with pytest.raises(of_rows.type) as of_samples:
        PadCollator({"x": Field()})(samples)
    assert re.sub(r"rows\[(\d)\]\['x'\]", r"x[\1]", str(of_samples.value)) == str(of_rows.value)


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        ([0.5], torch.float32),
        ([np.float16(0.5)], torch.float16),
        ([torch.tensor(0.5).bfloat16().half()], torch.float16),
        (array("d", [0.5]), torch.float64),
        (memoryview(array("d", [0.5])), torch.float64),
        (array("f", [0.5]), torch.float32),
        (np.float64(0.5), torch.float64),
    ],
)
def test_floats_have_the_type_that_they_have_in_samples(row, dtype):
    collate = PadCollator({"x": Field()}, attention_mask=False)
    assert from_lists({"x": row})[0]["x"].dtype == collate([{"x": row}])["x"].dtype == dtype


def test_lists_of_lists_of_different_lengths_are_one_sentence():
    with pytest.raises(TypeError, match=r"^`x\[0\]` must be an array of numbers, but numpy says: "):
        from_lists({"x": [[1], [2, 3]]})
