"""Whatever holds Arrow columns, as a data set or as lengths."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from arrow_support import NO_COLUMN, ROWS, WRITERS, array_of, pa, pq, table_of, write_stream
from data_support import rows_of
from evenstride.dataset import RaggedDataset
from evenstride.read_lengths import read_lengths
from evenstride.sources_arrow import column_lengths, index_rows


def test_arrow_arrays_are_fields_too():
    fields = {
        "a": array_of(ROWS),
        "b": pa.chunked_array([pa.array([1, 2]), pa.array([3, 4, 5, 6])]),
        "c": (pa.array([7, 8, 9]), pa.array([0, 1, 1, 2, 3, 3, 3])),
        "d": (pa.array([True, False]), pa.chunked_array([[0, 0, 0], [1, 1, 1, 2]])),
    }
    ds = RaggedDataset(fields)
    for name, expected in (
        ("a", ROWS),
        ("b", [1, 2, 3, 4, 5, 6]),
        ("c", [[7], [], [8], [9], [], []]),
        ("d", [[], [], [True], [], [], [False]]),
    ):
        assert rows_of(ds, name) == expected
    with pytest.raises(ValueError, match=r"^`x` must have no nulls, but value 1 is null\.$"):
        RaggedDataset({"x": (pa.array([1, None]), [0, 2])})


def test_columns_are_chosen_and_renamed():
    table = pa.table({"text": ["a"], "ids": [[1, 2]], "label": [3], "tags": [["x"]]})
    assert list(RaggedDataset.from_arrow(table).fields) == ["ids", "label"]
    for columns, fields in (
        ("label", ["label"]),
        (["label", "ids"], ["label", "ids"]),
        ((name for name in ("ids",)), ["ids"]),
        ({"input_ids": "ids", "labels": "ids"}, ["input_ids", "labels"]),
    ):
        assert list(RaggedDataset.from_arrow(table, columns).fields) == fields
    assert rows_of(RaggedDataset.from_arrow(table, {"x": "ids"}), "x") == [[1, 2]]
    assert rows_of(RaggedDataset.from_arrow(array_of(ROWS), "x"), "x") == ROWS
    batch = table.to_batches()[0]
    assert rows_of(RaggedDataset.from_arrow(batch), "ids") == [[1, 2]]


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (
            "none",
            ValueError,
            "`columns` must be among 'text', 'ids', 'ids', but there is no column named 'none'.",
        ),
        (
            {"x": "ids"},
            ValueError,
            (
                "`columns` must be among 'text', 'ids', 'ids', but there is more than one column "
                "named 'ids'."
            ),
        ),
        (
            ["text"],
            TypeError,
            f"`text` {NO_COLUMN} string.",
        ),
        (3, TypeError, "`columns` must be a name, names, or a mapping of fields to names, not 3."),
        ([1], TypeError, "The names of fields must be strings, but one is 1."),
        ([], ValueError, "A data set must have at least 1 field, but has 0."),
    ],
)
def test_columns_that_cannot_be_taken_are_one_sentence(columns, error, message):
    arrays = [pa.array(["a"]), pa.array([[1]]), pa.array([[2]])]
    table = pa.Table.from_arrays(arrays, ["text", "ids", "ids"])
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(table, columns)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            pa.array(["a"]),
            f"`input_ids` {NO_COLUMN} string.",
        ),
        (
            pa.array([[["a"]]]),
            f"`input_ids` {NO_COLUMN} list<item: list<item: string>>.",
        ),
        (
            pa.array([[[1]]]),
            f"`input_ids` {NO_COLUMN} list<item: list<item: int64>>.",
        ),
        (
            [[1, 2]],
            (
                "`source` must be a pyarrow Table, RecordBatch, array, a path, or a Hugging Face "
                "Dataset, but is of type list."
            ),
        ),
    ],
)
def test_what_is_no_source_is_one_sentence(source, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(source)


def test_a_table_without_a_column_of_numbers_is_one_sentence():
    for table, names in ((pa.table({"text": ["a"]}), "'text'"), (pa.table({}), "none")):
        message = (
            "`source` must have a column of integers, floats or bools, or of lists of them, but "
            f"has {names}."
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            RaggedDataset.from_arrow(table)
    with pytest.raises(TypeError, match="must be the name of the one column that an array is"):
        RaggedDataset.from_arrow(array_of(ROWS), ["a", "b"])


@pytest.mark.parametrize("name", WRITERS)
def test_lengths_come_from_lists_or_are_the_integers(tmp_path, name):
    WRITERS[name](table_of(), tmp_path / name)
    lengths = [len(row) for row in ROWS]
    assert read_lengths(tmp_path / name, column="input_ids").tolist() == lengths
    assert read_lengths(str(tmp_path / name), column="label").tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["a.arrow", "a.parquet"])
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([[1, 2], [3]], [2, 1]),
        (pa.chunked_array([[7], [8]]), [7, 8]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), [2, 2]),
        (pa.array([1, 200], pa.uint8()), [1, 200]),
        (pa.array([], pa.int64()), []),
        (pa.array([], pa.list_(pa.int64())), []),
        (pa.chunked_array([], pa.int64()), []),
    ],
)
def test_lengths_of_every_kind_of_column_are_read(tmp_path, name, column, expected):
    writer = write_stream if name == "a.arrow" else pq.write_table
    writer(pa.table({"x": column, "text": ["a"] * len(column)}), tmp_path / name)
    lengths = read_lengths(tmp_path / name, column="x")
    assert lengths.tolist() == expected
    assert lengths.dtype.kind in "iu"


def test_a_null_of_parquet_is_named_by_its_row_in_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"nulls": [[1]] * 57 + [[None]] + [[2]] * 42})
    pq.write_table(table, path, row_group_size=10)
    message = f"`nulls` of `{path}` must have no nulls, but row 57 has a null."
    for function in (read_lengths, RaggedDataset.from_arrow):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            function(path)


@pytest.mark.parametrize("name", ["a.arrow", "a.parquet"])
def test_lengths_of_another_kind_are_one_sentence(tmp_path, name):
    path = tmp_path / name
    writer = write_stream if name == "a.arrow" else pq.write_table
    writer(pa.table({"a": [[1]], "b": ["b"], "c": [0.5]}), path)
    with pytest.raises(TypeError, match=r"^`c` must hold lists or integers, but holds float64\.$"):
        column_lengths(path, "c")
    with pytest.raises(TypeError, match=re.escape(f"`b` {NO_COLUMN} string.")):
        column_lengths(path, "b")
    for column in ("b", "c", "d"):
        message = f"`column` must be one of 'a' for `{path}`, but is '{column}'."
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            read_lengths(path, column=column)


def test_lengths_need_no_torch(tmp_path):
    write_stream(table_of(), tmp_path / "a.arrow")
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from evenstride.read_lengths import read_lengths\n"
        "assert 'pyarrow' not in sys.modules\n"
        "print(read_lengths(sys.argv[1], column='input_ids').tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.arrow")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str([len(row) for row in ROWS])


def test_a_missing_library_is_one_sentence(tmp_path, monkeypatch):
    write_stream(table_of(), tmp_path / "a.arrow")
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = "Arrow data needs pyarrow: install it with `pip install 'evenstride[arrow]'`."
    for function in (RaggedDataset.from_arrow, read_lengths):
        for name in ("a.arrow", "a.parquet"):
            with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
                function(tmp_path / name)


@pytest.mark.parametrize("kind", ["uint8", "int32", "uint32", "int64", "uint64"])
def test_a_mapping_may_hold_any_integers(kind):
    table = pa.table({"indices": pa.array([2, 0, 1], kind)})
    assert index_rows(table, 3).tolist() == [2, 0, 1]


def test_a_mapping_must_hold_integers():
    table = pa.table({"indices": pa.array([0.5, 1.0])})
    message = "`indices` must hold integers, but have dtype float64."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        index_rows(table, 3)
