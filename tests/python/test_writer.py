"""Rows that are written one by one, without being held."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_support import NO_NUMBERS, VALUE_TYPES, rows_of, some_rows
from evenstride import writer as writer_module
from evenstride.dataset import RaggedDataset
from evenstride.writer import RaggedWriter

ROWS = [[7, 8, 9], [], [4], [5, 6]]


def write(folder, fields, rows):
    with RaggedWriter(folder, fields) as writer:
        writer.extend(rows)
    return RaggedDataset.open(folder)


@pytest.mark.parametrize("dtype", VALUE_TYPES)
def test_rows_of_every_type_are_written(tmp_path, dtype):
    rows = [[1, 0, 1], [], [1]]
    kind = bool if dtype == "bool" else int
    made = [{"x": [kind(value) for value in row], "y": kind(i > 0)} for i, row in enumerate(rows)]
    ds = write(tmp_path / "corpus", {"x": dtype, "y": (dtype, ())}, made)
    assert rows_of(ds, "x") == rows
    assert rows_of(ds, "y") == [0, 1, 1]
    assert ds.fields == {"x": (dtype, (None,)), "y": (dtype, ())}


def test_rows_may_be_lists_arrays_or_tensors(tmp_path):
    fields = {"x": ("float32", (None, 2)), "y": np.int16, "z": (torch.int64, (2,)), "b": "bfloat16"}
    row = {"x": [[1, 2.5]], "y": range(2), "z": (3, 4), "b": [0.1, 1e-40]}
    arrays = {name: np.array(value) for name, value in row.items()}
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    empty = {"x": [], "y": np.array([]), "z": [5, 6], "b": torch.zeros(0)}
    ds = write(tmp_path / "corpus", fields, [row, arrays, tensors, empty])
    for i in range(3):
        assert ds[i]["x"].tolist() == [[1, 2.5]]
        assert ds[i]["y"].tolist() == [0, 1]
        assert ds[i]["z"].tolist() == [3, 4]
        assert torch.equal(ds[i]["b"], torch.tensor([0.1, 1e-40], dtype=torch.bfloat16))
    assert ds[3]["x"].shape == (0, 2)
    assert ds[3]["b"].shape == (0,)


def test_bfloat16_is_written_bit_for_bit_and_as_other_floats(tmp_path):
    values = torch.randn(9).bfloat16()
    fields = {"x": "bfloat16", "y": "float32", "z": ("bfloat16", ())}
    ds = write(tmp_path / "corpus", fields, [{"x": values, "y": values, "z": values[0]}])
    assert torch.equal(ds[0]["x"], values)
    assert torch.equal(ds[0]["y"], values.float())
    assert ds[0]["z"] == values[0]


@given(st.lists(st.lists(st.integers(-(2**15), 2**15 - 1), max_size=20)), st.integers(0, 300))
def test_rows_come_back_however_few_are_held(tmp_path_factory, rows, held):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "_BUFFERED_BYTES", held)
        made = ({"x": row, "y": i} for i, row in enumerate(rows))
        folder = tmp_path_factory.mktemp("data") / "corpus"
        ds = write(folder, {"x": "int16", "y": ("int64", ())}, made)
    assert rows_of(ds, "x") == rows
    assert rows_of(ds, "y") == list(range(len(rows)))


def test_rows_are_not_held(tmp_path):
    row = {"x": np.arange(100_000)}
    tracemalloc.start()
    try:
        write(tmp_path / "corpus", {"x": "int64"}, (row for _ in range(60)))
        assert tracemalloc.get_traced_memory()[1] < 20e6 < 60 * row["x"].nbytes
    finally:
        tracemalloc.stop()


def test_a_row_that_changes_after_it_was_appended_does_not_matter(tmp_path):
    row = np.array([1, 2])
    with RaggedWriter(tmp_path / "corpus", {"x": "int64", "y": ("int64", (2,))}) as writer:
        writer.append({"x": row, "y": row})
        row[:] = 9
    assert RaggedDataset.open(tmp_path / "corpus")[0]["x"].tolist() == [1, 2]
    assert RaggedDataset.open(tmp_path / "corpus")[0]["y"].tolist() == [1, 2]


def test_the_fields_of_a_data_set_describe_a_copy_of_it(tmp_path):
    fields = {"x": "uint16", "y": ("float32", (None, 2)), "z": ("bool", ())}
    ds = write(tmp_path / "one", fields, [{"x": [1, 2], "y": [[1, 2]], "z": True}])
    other = write(tmp_path / "other", ds.fields, list(ds))
    assert other.fields == ds.fields
    for name in fields:
        assert other[0][name].tolist() == ds[0][name].tolist()


def test_no_row_is_a_data_set_too(tmp_path):
    assert len(write(tmp_path / "corpus", {"x": "uint16"}, [])) == 0


BAD_ROWS = [
    (
        {"x": [1]},
        ValueError,
        "A row must have the fields ['x', 'y'], but row 1 has ['x'].",
    ),
    ([1], ValueError, "A row must have the fields ['x', 'y'], but row 1 has [1]."),
    (
        {"x": [70_000], "y": [0, 0]},
        ValueError,
        "`x[1]` must be in [0, 65535], as uint16 is, but holds 70000.",
    ),
    (
        {"x": [3, -1], "y": [0, 0]},
        ValueError,
        "`x[1]` must be in [0, 65535], as uint16 is, but holds -1.",
    ),
    (
        {"x": [0.5], "y": [0, 0]},
        TypeError,
        "`x[1]` must hold what uint16 can hold, but holds float64.",
    ),
    ({"x": 1, "y": [0, 0]}, ValueError, "`x[1]` must have shape (None,), but has ()."),
    ({"x": [[1]], "y": [0, 0]}, ValueError, "`x[1]` must have shape (None,), but has (1, 1)."),
    ({"x": [1], "y": [0]}, ValueError, "`y[1]` must have shape (2,), but has (1,)."),
    ({"x": [1], "y": []}, ValueError, "`y[1]` must have shape (2,), but has (0,)."),
    (
        {"x": ["a"], "y": [0, 0]},
        TypeError,
        f"`x[1]` {NO_NUMBERS} <U1.",
    ),
    (
        {"x": None, "y": [0, 0]},
        TypeError,
        f"`x[1]` {NO_NUMBERS} object.",
    ),
]


@pytest.mark.parametrize(("row", "error", "message"), BAD_ROWS)
def test_a_row_that_does_not_fit_is_one_sentence_and_not_written(tmp_path, row, error, message):
    with RaggedWriter(tmp_path / "corpus", {"x": "uint16", "y": ("float32", (2,))}) as writer:
        writer.append({"x": [1], "y": [1, 2]})
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            writer.append(row)
        assert writer.num_rows == 1
        writer.append({"x": [2, 3], "y": np.array([3, 4.5])})
    ds = RaggedDataset.open(tmp_path / "corpus")
    assert rows_of(ds, "x") == [[1], [2, 3]]
    assert rows_of(ds, "y") == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({}, TypeError, "`fields` must map at least 1 name to the type of its values, but is {}."),
        (
            "x",
            TypeError,
            "`fields` must map at least 1 name to the type of its values, but is 'x'.",
        ),
        ({1: "int8"}, TypeError, "The names of fields must be strings, but one is 1."),
        (
            {"x": "int7"},
            ValueError,
            (
                "`x` must have one of the types bool, int8, uint8, int16, uint16, int32, uint32, "
                "int64, uint64, float16, float32, float64, bfloat16, but has 'int7'."
            ),
        ),
        (
            {"x": ("int8", 3)},
            TypeError,
            "`x` must be described by a type or a tuple (type, shape), but is by ('int8', 3).",
        ),
        (
            {"x": ("int8", (0,))},
            ValueError,
            "`shape of x` must be in [1, 2**63), but is 0.",
        ),
        ({"x": ("int8", (2, None))}, TypeError, "`shape of x` must be an integer, but is None."),
    ],
)
def test_fields_that_cannot_be_are_one_sentence(tmp_path, fields, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        RaggedWriter(tmp_path / "corpus", fields)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_nothing(tmp_path, monkeypatch, error):
    monkeypatch.setattr(writer_module, "_BUFFERED_BYTES", 100)

    def rows():
        yield from ({"x": row} for row in some_rows(100))
        assert [path.name[:8] for path in tmp_path.iterdir()] == [".corpus."]
        raise error

    with pytest.raises(error), RaggedWriter(tmp_path / "corpus", {"x": "uint16"}) as writer:
        writer.extend(rows())
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module.FolderDraft, "append", lambda *_: 1 / 0)
    with (
        pytest.raises(ZeroDivisionError),
        RaggedWriter(tmp_path / "corpus", {"x": "uint16"}) as writer,
    ):
        writer.append({"x": [1]})
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_left_alone(tmp_path):
    write(tmp_path / "corpus", {"x": "uint16"}, [{"x": [1]}])
    with pytest.raises(FileExistsError), RaggedWriter(tmp_path / "corpus", {"x": "uint16"}):
        pytest.fail("That is to be said before anything is written.")
    assert rows_of(RaggedDataset.open(tmp_path / "corpus"), "x") == [[1]]


def test_rows_outside_of_the_block_are_one_sentence(tmp_path):
    writer = RaggedWriter(tmp_path / "corpus", {"x": "uint16"})
    message = "Rows must be written inside the `with` block of a RaggedWriter."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        writer.append({"x": [1]})
    with writer:
        writer.append({"x": [1]})
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        writer.append({"x": [1]})
    assert rows_of(RaggedDataset.open(tmp_path / "corpus"), "x") == [[1]]


def test_a_killed_process_leaves_no_folder_but_a_draft(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from evenstride.writer import RaggedWriter\n"
        "with RaggedWriter(sys.argv[1], {'x': 'uint16'}) as writer:\n"
        "    while True:\n"
        "        writer.append({'x': range(1000)})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "corpus")])
    try:
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size for path in tmp_path.rglob("*.npy")) < 10_000_000:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "corpus").exists()
    (draft,) = tmp_path.iterdir()
    assert draft.name.startswith(".corpus.")
    assert not (draft / "fields.json").exists()
    assert rows_of(write(tmp_path / "corpus", {"x": "uint16"}, [{"x": [1]}]), "x") == [[1]]


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 1e6), ("float32", 1e300), ("bfloat16", 3.4e38)]
)
def test_a_number_beyond_the_range_of_a_float_is_refused(tmp_path, dtype, value):
    with RaggedWriter(tmp_path / "corpus", {"x": dtype}) as writer:
        writer.append({"x": [1.0, np.inf, np.nan]})
        message = f"`x[1]` must be in the range of {dtype}, but holds {value}."
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            writer.append({"x": [1.0, value]})
    assert writer.num_rows == 1


def test_a_writer_is_entered_once(tmp_path):
    writer = RaggedWriter(tmp_path / "corpus", {"x": "int8"})
    with writer:
        writer.append({"x": [1]})
    with pytest.raises(ValueError, match=r"^A RaggedWriter must be entered once; make another"):
        writer.__enter__()


def test_a_folder_is_written_where_it_was_named(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    with RaggedWriter("corpus", {"x": "int8"}) as writer:
        writer.append({"x": [1]})
        monkeypatch.chdir(tmp_path / "sub")
    assert RaggedDataset.open(tmp_path / "corpus").lengths.tolist() == [1]


def test_after_a_failure_to_write_there_is_no_folder(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    writer = RaggedWriter(tmp_path / "corpus", {"x": "int8"})
    writer.__enter__()
    with monkeypatch.context() as patched:
        patched.setattr("evenstride.folder._ArrayFile.append", fail)
        with pytest.raises(OSError, match=r"No space"):
            writer.append({"x": np.zeros(1 << 23, np.int8)})
    with pytest.raises(ValueError, match=r"^Rows must not be written any more"):
        writer.append({"x": [1]})
    with pytest.raises(ValueError, match=r"^A folder must be written whole, but writing to its"):
        writer.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []
