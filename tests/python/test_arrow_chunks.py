"""Arrow arrays of every kind, and nulls and bounds that they should not have."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_support import LISTS, ROWS, TYPES, array_of, is_in_a_buffer, numbers, pa
from data_support import rows_of
from evenstride import arrow_chunks
from evenstride.dataset import RaggedDataset


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_every_kind_are_read_in_place(dtype, kind):
    table = pa.table({"x": array_of(ROWS, dtype, kind)})
    ds = RaggedDataset.from_arrow(table)
    assert rows_of(ds, "x") == ROWS
    assert ds.lengths.tolist() == [len(row) for row in ROWS]
    assert ds.fields == {"x": (dtype, (None,))}
    in_place = [is_in_a_buffer(ds.columns["x"].row(i), table["x"]) for i in (0, 2, 5)]
    assert all(in_place) == (dtype != "bool")


@pytest.mark.parametrize("dtype", TYPES)
def test_one_number_a_row_is_read_in_place(dtype):
    flags = [1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1]
    table = pa.table({"x": pa.array(numbers([flags], dtype)[0], TYPES[dtype])})
    for begin in (0, 1, 3):
        ds = RaggedDataset.from_arrow(table.slice(begin))
        assert rows_of(ds, "x") == flags[begin:]
        assert ds.fields == {"x": (dtype, ())}
        assert is_in_a_buffer(ds.columns["x"].row(2), table["x"]) == (dtype != "bool")


@pytest.mark.parametrize("dtype", ["bool", "int16"])
@pytest.mark.parametrize("kind", LISTS)
@given(data=st.data())
def test_slices_and_chunks_have_the_rows_that_arrow_says(dtype, kind, data):
    pieces = data.draw(st.lists(st.lists(st.lists(st.integers(0, 1), max_size=9), max_size=9)))
    chunks = []
    for rows in pieces:
        begin = data.draw(st.integers(0, len(rows)))
        chunk = array_of(rows, dtype, kind).slice(begin, data.draw(st.integers(0, 9)))
        chunks += [chunk, chunk.slice(data.draw(st.integers(0, len(chunk))))]
    column = pa.chunked_array(chunks, LISTS[kind](TYPES[dtype]))
    begin = data.draw(st.integers(0, len(column)))
    column = column.slice(begin, data.draw(st.integers(0, 30)))
    ds = RaggedDataset.from_arrow(column)
    assert rows_of(ds) == column.to_pylist()
    assert rows_of(pickle.loads(pickle.dumps(ds))) == column.to_pylist()


def test_lists_of_fixed_size_are_one_value_of_a_shape():
    array = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)).slice(1)
    ds = RaggedDataset.from_arrow(array)
    assert ds.fields == {"input_ids": ("int32", (2,))}
    assert rows_of(ds) == [[3, 4], [5, 6]]
    assert ds.lengths.tolist() == [2, 2]
    assert is_in_a_buffer(ds.columns["input_ids"].row(0), pa.chunked_array([array]))


@pytest.mark.parametrize("kind", LISTS)
def test_lists_in_lists_of_fixed_size_are_cells(kind):
    rows = [[[[1, 2]], [[3, 4]]], [], [[[5, 6]]], [[[7, 8]], [[9, 10]]]]
    cell = pa.list_(pa.list_(pa.float32(), 2), 1)
    array = pa.array(rows, LISTS[kind](cell)).slice(1)
    ds = RaggedDataset.from_arrow(array)
    assert ds.fields == {"input_ids": ("float32", (None, 1, 2))}
    assert rows_of(ds) == rows[1:]
    assert is_in_a_buffer(ds.columns["input_ids"].row(1), pa.chunked_array([array]))


@pytest.mark.parametrize("kind", LISTS)
def test_of_bools_only_those_in_use_are_unpacked(kind):
    array = array_of([[1, 0, 1]] * 1000, "bool", kind)
    chunks = [array.slice(begin, 10) for begin in range(0, 1000, 10)]
    ds = RaggedDataset.from_arrow(pa.chunked_array(chunks))
    assert [len(chunk.values) for chunk in ds._arrays["input_ids"].chunks] == [30] * 100
    assert rows_of(ds) == array.to_pylist()


def test_views_may_overlap_and_come_in_any_order():
    for dtype, values in (("int32", [7, 8, 9]), ("bool", [True, True, False])):
        child = pa.array(values, TYPES[dtype])
        array = pa.ListViewArray.from_arrays([1, 0, 0, 3], [2, 3, 1, 0], child)
        assert rows_of(RaggedDataset.from_arrow(array)) == array.to_pylist()
        assert rows_of(RaggedDataset.from_arrow(array.slice(2))) == array.to_pylist()[2:]


CELLS = pa.list_(pa.int32(), 2)


@pytest.mark.parametrize(
    ("rows", "type_", "reason"),
    [
        *([([[1], None, [2]], kind(pa.int32()), "row 1 is null") for kind in LISTS.values()]),
        *(
            ([[1, 2], [], [3, None, None], [4]], kind(dtype), "row 2 has a null")
            for kind in LISTS.values()
            for dtype in (pa.int32(), pa.float16())
        ),
        *(
            ([[True], [True, None]], kind(pa.bool_()), "row 1 has a null")
            for kind in LISTS.values()
        ),
        *(
            ([[[1, 2]], [], [[3, 4], [5, None]]], kind(CELLS), "row 2 has a null")
            for kind in LISTS.values()
        ),
        *(
            ([[[1, 2]], [[3, 4], None], [[5, None]]], kind(CELLS), "row 1 has a null")
            for kind in LISTS.values()
        ),
        ([1, 2, None], pa.int32(), "row 2 is null"),
        ([True, None], pa.bool_(), "row 1 is null"),
        ([[1, 2], None], CELLS, "row 1 is null"),
        ([[1, 2], [3, 4], [5, None]], CELLS, "row 2 has a null"),
    ],
)
def test_a_null_is_an_error_that_names_its_row(rows, type_, reason):
    array = pa.array(rows, type_)
    message = f"`x` must have no nulls, but {reason}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(array, "x")
    whole = pa.array(rows[:1] * 5, type_)
    row = int(re.search(r"\d", reason)[0])
    chunks = pa.chunked_array([whole, array.slice(row), whole])
    message = f"`x` must have no nulls, but {re.sub(r'[0-9]', '5', reason)}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(chunks, "x")


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_nulls_outside_of_the_rows_do_no_harm(kind, dtype):
    rows = numbers([[1, 1], [1], [0, 1], [1, 0], [1, 1]], dtype)
    rows[0][1] = rows[4][0] = None
    array = pa.array(rows, LISTS[kind](TYPES[dtype]))
    ds = RaggedDataset.from_arrow(array.slice(1, 3))
    assert rows_of(ds) == rows[1:4]
    for begin, row in ((0, 0), (1, 3)):
        with pytest.raises(ValueError, match=f"row {row} has a null"):
            RaggedDataset.from_arrow(array.slice(begin))


def test_a_null_between_views_does_no_harm():
    for values in ([1, None, 2, 3], [True, None, False, True]):
        array = pa.ListViewArray.from_arrays([2, 0], [2, 1], pa.array(values))
        assert rows_of(RaggedDataset.from_arrow(array)) == [values[2:], values[:1]]


def test_a_null_cell_counts_whatever_its_values_are():
    values = pa.array([1, 2, 3, 4, 5, None], pa.int32())
    cells = pa.Array.from_buffers(CELLS, 3, [pa.py_buffer(b"\x05")], children=[values])
    array = pa.ListArray.from_arrays([0, 1, 2, 3], cells)
    assert cells.to_pylist()[1] is None
    with pytest.raises(ValueError, match="row 1 has a null"):
        RaggedDataset.from_arrow(array)
    with pytest.raises(ValueError, match="row 0 has a null"):
        RaggedDataset.from_arrow(array.slice(2))


@pytest.mark.parametrize("begin", [0, 1, 7, 8, 9])
def test_nulls_are_found_piece_by_piece(monkeypatch, begin):
    monkeypatch.setattr(arrow_chunks, "_BITS", 8)
    for row in range(begin, 40):
        array = pa.array([None if i == row else i for i in range(40)])
        with pytest.raises(ValueError, match=f"row {row - begin} is null"):
            RaggedDataset.from_arrow(array.slice(begin))
        assert len(RaggedDataset.from_arrow(array.slice(row + 1))) == 39 - row


def test_a_buffer_that_is_too_small_is_one_sentence():
    message = "`x` must have a buffer of at least 16 bytes, but it has 8."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        arrow_chunks._view(pa.py_buffer(b"12345678"), np.dtype(np.int64), 1, 1, "`x`")


def test_a_chunk_without_rows_needs_no_offsets():
    type_ = pa.list_(pa.int32())
    children = [pa.array([], pa.int32())]
    empty = pa.Array.from_buffers(type_, 0, [None, pa.py_buffer(b"")], children=children)
    ds = RaggedDataset.from_arrow(pa.chunked_array([empty, array_of(ROWS), empty]))
    assert rows_of(ds) == ROWS


def broken_lists(offsets, values=(1, 2, 3), type_=None):
    """Return lists with any offsets, which Arrow itself does not check but for the last."""
    type_ = type_ or pa.list_(pa.int32())
    dtype = np.int64 if "large" in str(type_) else np.int32
    return pa.Array.from_buffers(
        type_,
        len(offsets) - 1,
        [None, pa.py_buffer(np.array(offsets, dtype))],
        children=[pa.array(values, type_.value_type)],
    )


@pytest.mark.parametrize("type_", [pa.list_(pa.int32()), pa.large_list(pa.int32())])
@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2, 1, 3], "`x`, row 1: ends at 1, before its begin at 2."),
        ([0, 1, 9, 3], "`x`, row 1: ends at 9, outside [0, 3], the values that there are."),
        ([0, -1, 3], "`x`, row 0: ends at -1, outside [0, 3], the values that there are."),
    ],
)
def test_offsets_that_arrow_should_not_have_are_one_sentence(type_, offsets, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(broken_lists(offsets, type_=type_), "x")
    chunks = pa.chunked_array(
        [broken_lists([0, 1, 1], type_=type_), broken_lists(offsets, type_=type_)]
    )
    row = int(re.search(r"row (\d)", message)[1])
    with pytest.raises(ValueError, match=f"^`x`, row {row + 2}: "):
        RaggedDataset.from_arrow(chunks, "x")


@pytest.mark.parametrize("dtype", ["int32", "bool", "float64"])
@pytest.mark.parametrize("large", [False, True])
@given(data=st.data())
def test_no_offsets_read_outside_of_the_values(dtype, large, data):
    values = numbers([data.draw(st.lists(st.integers(0, 1), max_size=20))], dtype)[0]
    anywhere = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 25)
    inner = data.draw(st.lists(anywhere, max_size=8))
    last = data.draw(st.integers(0, len(values)))
    offsets = [data.draw(st.integers(0, last)), *inner, last]
    type_ = (pa.large_list if large else pa.list_)(TYPES[dtype])
    array = broken_lists(offsets, values, type_)
    begin = data.draw(st.integers(0, len(array)))
    check_rows_or_refusal(array.slice(begin), offsets[begin:], values)


def check_rows_or_refusal(array, offsets, values):
    is_right = all(0 <= a <= b <= len(values) for a, b in pairwise(offsets))
    if is_right or len(array) == 0:
        expected = [values[a:b] for a, b in pairwise(offsets)]
        assert rows_of(RaggedDataset.from_arrow(array)) == expected
    else:
        with pytest.raises(ValueError, match=r"^`input_ids`, row "):
            RaggedDataset.from_arrow(array)


@pytest.mark.parametrize("dtype", ["int32", "bool"])
@given(data=st.data())
def test_no_views_read_outside_of_the_values(dtype, data):
    values = numbers([data.draw(st.lists(st.integers(0, 1), max_size=20))], dtype)[0]
    anywhere = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 25)
    views = data.draw(st.lists(st.tuples(anywhere, anywhere), min_size=1, max_size=5))
    bounds = (np.array(side, np.int32) for side in zip(*views, strict=True))
    type_ = pa.list_view(TYPES[dtype])
    buffers = [None, *map(pa.py_buffer, bounds)]
    children = [pa.array(values, type_.value_type)]
    array = pa.Array.from_buffers(type_, len(views), buffers, children=children)
    if all(0 <= begin <= begin + size <= len(values) for begin, size in views):
        expected = [values[begin : begin + size] for begin, size in views]
        assert rows_of(RaggedDataset.from_arrow(array)) == expected
    elif any(size and not 0 <= begin <= begin + size <= len(values) for begin, size in views):
        with pytest.raises(ValueError, match=r"^`input_ids`, row "):
            RaggedDataset.from_arrow(array)
