"""Arrow and Parquet files: whole, missing, cut and damaged ones."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from arrow_support import WRITERS, table_of
from data_support import damaged, lies_in, rows_of, some_rows
from evenstride.arrow_files import arrow_schema
from evenstride.dataset import RaggedDataset


@pytest.mark.parametrize("name", WRITERS)
def test_files_have_the_rows_that_were_written(tmp_path, name):
    rows = some_rows(9, seed=3)
    WRITERS[name](table_of(rows), tmp_path / name)
    for path in (tmp_path / name, str(tmp_path / name)):
        ds = RaggedDataset.from_arrow(path)
        assert rows_of(ds) == rows
        assert rows_of(ds, "label") == list(range(9))
    assert list(RaggedDataset.from_arrow(path, {"x": "input_ids"}).fields) == ["x"]


def mapped_at(path):
    """Where this process has mapped a file: pairs of begin and size."""
    ranges = []
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - No file on a disk.
        for line in maps:
            if line.rstrip().endswith(str(path)):
                begin, end = (int(text, 16) for text in line.split()[0].split("-"))
                ranges.append((begin, end - begin))
    return ranges


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="no list of mapped files")  # noqa: PTH110
@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow"])
def test_files_of_arrow_are_read_where_they_are_mapped(tmp_path, name):
    WRITERS[name](table_of(), tmp_path / name)
    ds = RaggedDataset.from_arrow(tmp_path / name)
    (mapping,) = mapped_at(tmp_path / name)
    for column in ds.columns.values():
        assert lies_in(column.row(5), *mapping)


@pytest.mark.parametrize("name", WRITERS)
def test_a_data_set_from_a_file_is_pickled_as_its_path(tmp_path, monkeypatch, name):
    rows = some_rows(5000)
    WRITERS[name](table_of(rows), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    ds = RaggedDataset.from_arrow(name, ["input_ids"])
    data = pickle.dumps(ds)
    assert len(data) < 500
    monkeypatch.chdir("/")
    other = pickle.loads(data)
    assert rows_of(other) == rows
    assert list(other.fields) == ["input_ids"]
    selected = pickle.loads(pickle.dumps(ds.select([7, -1])))
    assert rows_of(selected) == [rows[7], rows[-1]]
    WRITERS[name](table_of(rows[:4000]), tmp_path / name)
    message = (
        "The data must be what it was when it was pickled, 5000 rows of {'input_ids': ('uint16', "
        "(None,))}, but is 4000 rows of {'input_ids': ('uint16', (None,))}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        pickle.loads(data)


@pytest.mark.parametrize("columns", [{"x": "label"}, ["label"]])
def test_what_says_which_columns_to_take_may_change(tmp_path, columns):
    WRITERS["file.arrow"](table_of(), tmp_path / "file.arrow")
    ds = RaggedDataset.from_arrow(tmp_path / "file.arrow", columns)
    fields = list(columns)
    columns.clear()
    assert list(pickle.loads(pickle.dumps(ds)).fields) == list(ds.fields) == fields
    once = RaggedDataset.from_arrow(tmp_path / "file.arrow", (name for name in ("label",)))
    assert list(pickle.loads(pickle.dumps(once)).fields) == ["label"]


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow", "c.parquet"])
def test_a_name_that_is_no_text_is_refused(tmp_path, name):
    WRITERS[name](table_of(), tmp_path / name)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(data.replace(b"label", b"labe\xff"))
    with pytest.raises(ValueError, match="must be a whole file of its format"):
        RaggedDataset.from_arrow(tmp_path / name)


def test_a_file_of_another_kind_is_one_sentence(tmp_path):
    for source in (tmp_path / "a.csv", tmp_path / "a"):
        message = (
            f"`{source}` must be a folder, or a file whose name ends in one of .arrow, .feather, "
            ".ipc, .parquet, .pq."
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            RaggedDataset.from_arrow(source)


@pytest.mark.parametrize("name", WRITERS)
def test_a_schema_is_that_of_the_columns(tmp_path, name):
    table = table_of()
    WRITERS[name](table, tmp_path / name)
    assert arrow_schema(tmp_path / name).names == ["input_ids", "label"]
    assert arrow_schema(tmp_path / name).types == table.schema.types


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path, name):
    with pytest.raises(FileNotFoundError):
        RaggedDataset.from_arrow(tmp_path / name)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](table_of(), path)
    data = path.read_bytes()
    for end in range(0, len(data), 1 if len(data) < 2000 else 3):
        path.write_bytes(data[:end])
        with pytest.raises(ValueError, match=f"^`{re.escape(str(path))}` must be a whole file"):
            RaggedDataset.from_arrow(path)


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow", "c.parquet"])
def test_a_damaged_file_is_refused_or_read_without_harm(tmp_path, name):
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path), name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused, read = map(int, done.stdout.split())
    assert refused > 50
    assert refused + read == DAMAGES


DAMAGES = 400


def read_damaged(folder, name):
    """Damage a file again and again, and read each. In a process of its own, which may crash."""
    path = os.path.join(folder, name)  # noqa: PTH118
    WRITERS[name](table_of(some_rows(9)), path)
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read()
    read, told = 0, []
    for broken, _ in zip(damaged(data, np.random.default_rng(1)), range(DAMAGES), strict=False):
        os.unlink(path)  # noqa: PTH108 - A file that is mapped must not be cut.
        with open(path, "xb") as file:  # noqa: PTH123
            file.write(broken)
        try:
            ds = RaggedDataset.from_arrow(path)
            for row in ds:
                for value in row.values():
                    value.sum()
            read += 1
        except (ValueError, TypeError) as error:
            told.append(str(error))
    assert all("`" in message for message in told), told
    print(len(told), read)  # noqa: T201


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow"])
def test_sizes_that_are_no_sizes_are_refused(tmp_path, name):
    rows = some_rows(57, seed=2)
    count = sum(map(len, rows))
    path = tmp_path / name
    WRITERS[name](table_of(rows, chunks=1), path)
    data = path.read_bytes()
    for size in (57, count):
        places = list(re.finditer(re.escape(np.int64(size).tobytes()), data))
        assert places
        for place in places:
            for wrong in (-5, size + 1, 2**60):
                path.unlink()
                path.write_bytes(
                    data[: place.start()] + np.int64(wrong).tobytes() + data[place.end() :]
                )
                with pytest.raises(ValueError, match="must be a whole file of its format"):
                    RaggedDataset.from_arrow(path)


if __name__ == "__main__":
    read_damaged(*sys.argv[1:])
