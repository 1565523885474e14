"""Rows of a data set, as a DataLoader, a Subset and a user ask for them."""

from __future__ import annotations

import copy
import io
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

from data_support import VALUE_TYPES, dataset, flat, output_type, rows_of, some_rows
from evenstride.dataset import RaggedDataset, RaggedRows

ROWS = [[7, 8, 9], [], [4], [5, 6]]


@pytest.fixture
def ds():
    return dataset(ROWS, label=np.array([3, 1, 0, 2]))


def ids(rows):
    return [row["input_ids"].tolist() for row in rows]


@pytest.mark.parametrize("dtype", VALUE_TYPES)
def test_rows_come_out_in_the_output_type(dtype):
    rows = [[1, 0], [], [1, 1, 0]]
    ds = dataset(rows, dtype, label=np.array([1, 0, 1], dtype))
    assert rows_of(ds) == rows
    for i, label in enumerate([1, 0, 1]):
        assert ds[i]["input_ids"].dtype == ds[i]["label"].dtype == output_type(dtype)
        assert ds[i]["input_ids"].shape == (len(rows[i]),)
        assert ds[i]["label"].shape == ()
        assert ds[i]["label"] == label


def test_integers_keep_their_sign_and_size():
    assert rows_of(dataset([[-128, 127]], "int8")) == [[-128, 127]]
    assert rows_of(dataset([[0, 2**16 - 1]], "uint16")) == [[0, 2**16 - 1]]
    assert rows_of(dataset([[0, 2**32 - 1]], "uint32")) == [[0, 2**32 - 1]]
    assert rows_of(dataset([[-(2**63), 2**63 - 1]], "int64")) == [[-(2**63), 2**63 - 1]]
    assert rows_of(dataset([[0, 2**63 - 1]], "uint64")) == [[0, 2**63 - 1]]


def test_what_int64_cannot_hold_is_refused():
    ds = dataset([[1], [5, 2**63]], "uint64")
    assert ds[0]["input_ids"].tolist() == [1]
    message = "`input_ids`, row 1, must hold integers below 2**63, but holds 9223372036854775808."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ds[1]


def test_bfloat16_survives_bit_for_bit():
    values = torch.randn(12).bfloat16()
    values[3] = torch.nan
    ds = RaggedDataset({"x": (values, [0, 5, 12]), "y": values[:2]})
    for begin, end, row in ((0, 5, ds[0]), (5, 12, ds[1])):
        assert torch.equal(row["x"].view(torch.int16), values[begin:end].view(torch.int16))
    assert ds[1]["y"].dtype == torch.bfloat16
    assert ds.fields["x"] == ("bfloat16", (None,))


def test_a_bool_is_one_or_zero_whatever_its_byte():
    ds = dataset([[0, 2, 255]], "uint8")
    values = np.array([0, 2, 255], np.uint8).view(bool)
    ds = RaggedDataset({"x": (values, [0, 3])})
    assert ds[0]["x"].view(torch.uint8).tolist() == [0, 1, 1]


def test_cells_and_fixed_rows_have_their_shape():
    frames = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    ds = RaggedDataset({"frames": (frames, [0, 3, 3, 4]), "image": frames[:3], "id": [4, 5, 6]})
    assert ds[0]["frames"].tolist() == frames[:3].tolist()
    assert ds[1]["frames"].shape == (0, 2, 3)
    assert ds[2]["image"].tolist() == frames[2].tolist()
    assert ds[2]["id"].shape == ()
    assert ds.lengths.tolist() == [3, 0, 1]
    assert ds.fields == {
        "frames": ("float32", (None, 2, 3)),
        "image": ("float32", (2, 3)),
        "id": ("int64", ()),
    }


def test_rows_are_copies_that_may_be_written(ds):
    before = ds[0]["input_ids"]
    before += 1
    assert ds[0]["input_ids"].tolist() == [7, 8, 9]
    floats = dataset([[1, 2]], "float32")
    floats[0]["input_ids"].zero_()
    assert floats[0]["input_ids"].tolist() == [1, 2]


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.array, torch.tensor])
def test_any_integer_is_an_index(ds, kind):
    assert ds[kind(3)]["label"] == 2
    if kind is not np.uint8:
        assert ds[kind(-4)]["input_ids"].tolist() == [7, 8, 9]


def test_an_index_outside_is_a_sentence(ds):
    for index in (4, -5, 2**70):
        message = f"`index` must be in [-4, 4), but is {index}."
        with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
            ds[index]
    message = "`indices[1]` must be in [-4, 4), but is -5."
    for indices in ([0, -5], np.array([0, -5]), torch.tensor([0, -5])):
        with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
            ds[indices]
        with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
            ds.select(indices)
    with pytest.raises(IndexError, match=r"`indices\[0\]` must be in \[-4, 4\), but is 4\.$"):
        ds[[4]]
    message = "A mask must have an entry for each of 4 rows, but has 3."
    with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
        ds[[True, False, True]]


@pytest.mark.parametrize("index", ["label", 1.0, None, [0.5], [[1]], np.array(["1"]), {1}])
def test_an_index_of_another_kind_is_a_sentence(ds, index):
    message = (
        "An index must be an integer, a slice, or a 1-dimensional sequence of integers or bools, "
        f"but is {index!r}."
    )
    for function in (ds.__getitem__, ds.select):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            function(index)


INDICES = [
    [2, -1, 2],
    (3, 0),
    range(3, 0, -2),
    [],
    slice(1, None),
    slice(None, None, -1),
    slice(-2, 10),
    [True, False, False, True],
    np.array([False, True, True, False]),
    np.array([1, -1], np.int16),
    np.array([3, 0], np.uint64),
    torch.tensor([0, 3, 3]),
    torch.tensor([True, False, True, False]),
]


@pytest.mark.parametrize("indices", INDICES)
def test_several_rows_are_those_that_numpy_picks(ds, indices):
    as_numpy = list(indices) if isinstance(indices, (tuple, range)) else indices
    picked = np.arange(4)[as_numpy if len_of(as_numpy) else np.array([], int)]
    expected = [ROWS[i] for i in picked]
    assert isinstance(ds[indices], RaggedRows)
    assert ids(ds[indices]) == ids(ds.select(indices)) == expected
    assert ds.select(indices).lengths.tolist() == [len(row) for row in expected]
    assert rows_of(ds.select(indices), "label") == [[3, 1, 0, 2][i] for i in picked]


def len_of(indices):
    return 1 if isinstance(indices, slice) else len(indices)


@given(st.lists(st.integers(-4, 3)), st.data())
def test_a_selection_of_a_selection_composes(first, data):
    ds = dataset(ROWS)
    one = ds.select(first)
    second = data.draw(st.lists(st.integers(-len(first), len(first) - 1)) if first else st.just([]))
    expected = [[ROWS[i] for i in first][i] for i in second]
    two = one.select(second)
    assert rows_of(two) == expected
    assert len(two) == len(expected)
    assert two.lengths.tolist() == [len(row) for row in expected]
    assert rows_of(one) == [ROWS[i] for i in first]
    assert two.columns is ds.columns


def test_what_was_selected_with_may_change(ds):
    indices = np.array([1, 2])
    selected = ds.select(indices)
    indices[:] = 0
    assert rows_of(selected) == [[], [4]]


def test_rows_of_a_batch_are_lazy_and_index_as_a_sequence(ds):
    rows = ds.__getitems__([3, -4, 1])
    assert isinstance(rows, RaggedRows)
    assert (rows.dataset, rows.indices) == (ds, [3, -4, 1])
    assert len(rows) == 3
    assert ids(rows) == [[5, 6], [7, 8, 9], []]
    assert rows[-1]["label"] == 1
    assert ids(rows[1:]) == [[7, 8, 9], []]
    message = "`index` must be in [-3, 3), but is 3."
    with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
        rows[3]


def test_an_index_of_a_batch_that_is_outside_does_not_end_the_iteration(ds):
    with pytest.raises(IndexError, match="must be in"):
        list(ds.__getitems__([0, 4]))


def test_a_batch_of_a_single_index_is_that_row(ds):
    for index in (2, np.int64(2), torch.tensor(2)):
        assert ds.__getitems__(index)["input_ids"].tolist() == [4]


def test_a_batch_may_be_given_by_an_array(ds):
    for indices in (np.array([3, 0]), torch.tensor([3, 0]), range(3, -1, -3)):
        rows = ds.__getitems__(indices)
        assert ids(rows) == [[5, 6], [7, 8, 9]]
        assert rows.indices.dtype == np.int64


def test_a_subset_asks_for_rows_of_the_whole(ds):
    subset = Subset(ds, [3, 1, 0])
    assert ids([subset[0], subset[2]]) == [[5, 6], [7, 8, 9]]
    rows = subset.__getitems__([0, -1])
    assert isinstance(rows, RaggedRows)
    assert ids(rows) == [[5, 6], [7, 8, 9]]
    assert ids(Subset(subset, [2, 0]).__getitems__([0, 1])) == [[7, 8, 9], [5, 6]]
    assert ids(subset[[1, 0]]) == [[], [5, 6]]


def test_a_class_that_changes_rows_changes_those_of_batches():
    class Doubled(RaggedDataset):
        def __getitem__(self, index):
            return {name: 2 * value for name, value in super().__getitem__(index).items()}

    rows = Doubled({"input_ids": flat(ROWS, "int32")}).__getitems__([3, 0])
    assert ids(rows) == [[10, 12], [14, 16, 18]]
    assert not isinstance(rows, RaggedRows)  # Of which native code would read the data itself.


@pytest.mark.parametrize("num_workers", [0, 1])
def test_any_collate_function_works(ds, num_workers):
    loader = DataLoader(
        ds, batch_sampler=[[0, 3], [2, 1, -1]], collate_fn=list, num_workers=num_workers
    )
    assert [ids(batch) for batch in loader] == [[[7, 8, 9], [5, 6]], [[4], [], [5, 6]]]
    labels = DataLoader(ds.select([0, 0]), batch_size=2)
    assert [batch["label"].tolist() for batch in labels] == [[3, 3]]


def rows_themselves(rows):
    return rows


def test_rows_that_leave_a_worker_are_made_there(ds):
    loader = DataLoader(ds, batch_size=2, collate_fn=rows_themselves, num_workers=1)
    assert [ids(batch) for batch in loader] == [[[7, 8, 9], []], [[4], [5, 6]]]
    assert len(pickle.dumps(dataset(some_rows(2000)).__getitems__([0]))) < 2000


def test_lengths_are_those_of_the_first_ragged_field():
    one, two = flat([[1, 2], [3]], "int32"), flat([[1], [2, 3, 4]], "int32")
    label = np.array([7, 8])
    assert RaggedDataset({"x": label, "a": one, "b": two}).lengths.tolist() == [2, 1]
    assert RaggedDataset({"b": two, "a": one}).lengths.tolist() == [1, 3]


def test_lengths_are_cached_and_cannot_be_written(ds):
    assert ds.lengths is ds.lengths
    assert ds.lengths.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        ds.lengths[0] = 5
    assert ds.select([0]).lengths.tolist() == [3]


def test_lengths_beyond_int32_are_int64(tmp_path):
    with (tmp_path / "values").open("wb") as file:
        file.truncate(2**31)
    values = np.memmap(tmp_path / "values", np.uint8, "r")
    ds = RaggedDataset({"x": (values, [0, 2**31])})
    assert (ds.lengths.dtype, ds.lengths.tolist()) == (np.int64, [2**31])


def test_rows_of_one_shape_have_its_first_size_as_length():
    ds = RaggedDataset({"label": [1, 2, 3], "input_ids": np.zeros((3, 5), np.int32)})
    assert ds.lengths.tolist() == [5, 5, 5]
    assert ds.select([0, 1]).lengths.tolist() == [5, 5]


def test_numbers_alone_have_no_lengths():
    message = (
        "`lengths` must come from a field that has a shape, but there is {'label': ('int64', ())}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset({"label": [1, 2]}).lengths  # noqa: B018


def test_a_data_set_without_rows_is_one():
    ds = RaggedDataset({"input_ids": ([], [0]), "label": []})
    assert len(ds) == 0
    assert list(ds) == list(ds[:]) == []
    assert ds.lengths.tolist() == []
    assert len(ds.select([])) == 0


def test_iterating_ends(ds):
    assert ids(list(ds)) == ROWS


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_share_the_data(ds, copied):
    ds = ds.select([2, 0])
    other = copied(ds)
    assert rows_of(other) == [[4], [7, 8, 9]]
    assert other.columns["input_ids"] is ds.columns["input_ids"]
    other.remark = "only here"
    assert not hasattr(ds, "remark")


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_arrays_in_memory_survive_a_pickle(ds, protocol):
    ds.remark = "kept"
    for one, expected in ((ds, ROWS), (ds.select([-1, 0, 0]), [[5, 6], [7, 8, 9], [7, 8, 9]])):
        other = pickle.loads(pickle.dumps(one, protocol))
        assert rows_of(other) == expected
        assert other.lengths.tolist() == [len(row) for row in expected]
        assert not other.lengths.flags.writeable
        assert other.fields == ds.fields
        assert other.remark == "kept"


def test_a_cache_is_not_pickled(ds):
    data = pickle.dumps(ds)
    assert len(ds.lengths) == 4
    assert pickle.dumps(ds) == data


def test_torch_saves_and_loads_a_data_set(ds):
    file = io.BytesIO()
    torch.save(ds, file)
    file.seek(0)
    assert rows_of(torch.load(file, weights_only=False)) == ROWS


def test_a_spawned_process_reads_what_was_pickled(tmp_path, ds):
    (tmp_path / "ds.pickle").write_bytes(pickle.dumps(ds))
    code = (
        "import pickle, sys\n"
        "ds = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print([row['input_ids'].tolist() for row in ds])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ds.pickle")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(ROWS)


def test_what_a_data_set_is_can_be_seen(ds):
    shown = "num_rows=4, fields={'input_ids': ('int32', (None,)), 'label': ('int64', ())}"
    assert repr(ds) == f"RaggedDataset({shown})"
    assert repr(ds[1:]) == f"RaggedRows(3 of RaggedDataset({shown}))"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ([1, 2], TypeError, "`fields` must be a mapping of names to arrays, but is [1, 2]."),
        ({}, ValueError, "A data set must have at least 1 field, but has 0."),
        ({1: [2]}, TypeError, "The names of fields must be strings, but one is 1."),
        (
            {"a": [1], "b\ud800": [2]},
            ValueError,
            r"The names of fields must be text without surrogates, but one is 'b\ud800'.",
        ),
        (
            {"a": [1, 2], "b": ([1], [0, 1])},
            ValueError,
            "All fields must have equally many rows, but `a` has 2 and `b` has 1.",
        ),
    ],
)
def test_what_makes_no_data_set_is_one_sentence(fields, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        RaggedDataset(fields)
