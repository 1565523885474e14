"""Lengths of samples that lie in tables, saved folders and indexed files."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest

import evenstride as es
from command_support import command_without, fails
from data_support import flat, write_megatron
from evenstride.commands import run
from evenstride.read_lengths import read_lengths

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

pytestmark = pytest.mark.usefixtures("no_columns")

ROWS = [[3, 1, 4, 1, 5], [9, 2], [], [6, 5, 3]]
LENGTHS = [5, 2, 0, 3]
BUDGET = ["--token-budget", "10"]


def write_stream(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def write_folder(table, path):
    """Write what the data sets of Hugging Face write to a disk."""
    path.mkdir()
    write_stream(table, path / "data-00000-of-00001.arrow")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (path / "state.json").write_text(json.dumps(state))


def write_feather(table, path):
    feather.write_feather(table, str(path))


WRITERS = {
    "a.parquet": pq.write_table,
    "a.PQ": pq.write_table,
    "a.arrow": write_stream,
    "a.ipc": write_stream,
    "a.feather": write_feather,
    "saved_to_disk": write_folder,
}


def table_of(**columns):
    return pa.table({"text": ["a", "b", "c", "d"], "input_ids": ROWS, **columns})


def written(folder, name, table):
    path = folder / name
    WRITERS[name](table, path)
    return str(path)


# ---- tables ----


@pytest.mark.parametrize("name", WRITERS)
def test_the_lists_of_a_column_are_measured_and_integers_are_lengths(capsys, tmp_path, name):
    path = written(tmp_path, name, table_of(size=pa.array([1, 2, 3, 4], pa.uint16())))
    for lengths, flags in ((LENGTHS, []), ([1, 2, 3, 4], ["--column", "size"])):
        assert run(["plan", path, *BUDGET, "--json", *flags]) == 0
        expected = es.plan_epoch(lengths, token_budget=10).stats().to_dict()
        assert json.loads(capsys.readouterr().out) == expected


def test_orders_are_compared_on_the_rows_of_a_column(capsys, tmp_path):
    path = written(tmp_path, "a.parquet", table_of())
    assert run(["compare", path, *BUDGET, "--json"]) == 0
    orders = json.loads(capsys.readouterr().out)["orders"]
    assert orders[0]["batches"] == len(es.plan_epoch(LENGTHS, token_budget=10))


@pytest.mark.parametrize(
    ("columns", "lengths"),
    [
        ({"x": [[1, 2], [3]]}, [2, 1]),
        ({"length": [7, 8], "x": [[1, 2], [3]]}, [2, 1]),
        ({"labels": [[1], [3, 4]], "length": [7, 8], "input_ids": [[1, 2], [3]]}, [2, 1]),
        ({"labels": [[1], [3, 4]], "mask": [[1], [1, 1]], "length": [7, 8]}, [7, 8]),
        ({"id": [1, 2], "lengths": [7, 8]}, [7, 8]),
        ({"lengths": [7, 8], "length": [5, 6]}, [5, 6]),
        ({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), "id": [5, 6]}, [2, 2]),
        ({"x": [["a"], ["b", "c"]], "length": [5, 6]}, [5, 6]),
        ({"x": [[1, 2], [3]], "length": [7, None]}, [2, 1]),
    ],
)
def test_the_only_column_of_lists_is_meant_or_else_one_with_a_known_name(
    tmp_path, columns, lengths
):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert read_lengths(tmp_path / "a.parquet").tolist() == lengths


@pytest.mark.parametrize(
    ("columns", "flags", "message"),
    [
        (
            {"a": [[1]], "text": ["x"], "b": [[1]], "n": [1]},
            [],
            "--column must be one of 'a', 'b', 'n' for `{}`, but is not given.",
        ),
        (
            {"a": [[1]], "text": ["x"], "score": [0.5]},
            ["--column", "text"],
            "--column must be one of 'a' for `{}`, but is 'text'.",
        ),
        (
            {"a": [[1]]},
            ["--column", "0"],
            "--column must be one of 'a' for `{}`, but is '0'.",
        ),
        (
            {"text": ["x"], "score": [0.5], "words": [["y"]]},
            [],
            (
                "`{}` must have a column of integers or of lists of numbers, but has 'text', "
                "'score', 'words'."
            ),
        ),
        (
            {"a": [[1], None]},
            [],
            "`a` of `{}` must have no nulls, but row 1 is null.",
        ),
        (
            {"a": [[1], [2, None]]},
            [],
            "`a` of `{}` must have no nulls, but row 1 has a null.",
        ),
        (
            {"length": [5, None]},
            [],
            "`length` of `{}` must have no nulls, but row 1 is null.",
        ),
        ({"length": [5, -1]}, [], "The length of row 1 in `{}` must be at least 0, but is -1."),
        (
            {"length": pa.array([], pa.int64())},
            [],
            "`lengths` must have at least 1 sample, but has 0 samples.",
        ),
        ({"a": [[1]]}, ["--key", "a"], "--key must be left out for `{}`, which is no .npz file."),
        ({"a": [[1]]}, ["--counts"], "--counts must be left out for `{}`, which is no text file."),
    ],
)
def test_what_is_wrong_with_a_table_is_one_sentence(capsys, tmp_path, columns, flags, message):
    path = written(tmp_path, "a.parquet", pa.table(columns))
    assert fails(capsys, "plan", path, *BUDGET, *flags) == message.format(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.idx"])
def test_a_missing_file_is_named(capsys, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    assert fails(capsys, "plan", name, *BUDGET) == (
        f"`{name}` cannot be read or written: No such file or directory."
    )


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
def test_a_table_that_is_cut_off_is_one_sentence(capsys, tmp_path, name):
    path = tmp_path / name
    written(tmp_path, name, table_of())
    path.write_bytes(path.read_bytes()[:-9])
    sentence = fails(capsys, "plan", str(path), *BUDGET)
    assert sentence.startswith(f"`{path}` must be a whole file of its format, but cannot be read: ")


# ---- folders ----


@pytest.fixture
def saved(tmp_path):
    """Return a folder with two ragged fields, behind a label."""
    labels = [row[1:] for row in ROWS]
    fields = {
        "label": np.arange(4),
        "input_ids": flat(ROWS, "uint16"),
        "labels": flat(labels, "int32"),
    }
    es.RaggedDataset(fields).save(tmp_path / "saved")
    return tmp_path / "saved"


def test_the_first_ragged_field_of_a_saved_folder_is_measured_or_the_one_that_is_named(saved):
    assert read_lengths(saved).tolist() == es.RaggedDataset.open(saved).lengths.tolist() == LENGTHS
    assert read_lengths(saved, column="labels").tolist() == [4, 1, 0, 2]


def test_what_is_wrong_with_a_folder_is_one_sentence(capsys, saved, tmp_path):
    assert fails(capsys, "plan", str(saved), *BUDGET, "--column", "label") == (
        f"--column must be one of 'input_ids', 'labels' for `{saved}`, but is 'label'."
    )
    es.RaggedDataset({"label": [1, 2]}).save(tmp_path / "labels")
    assert fails(capsys, "plan", str(tmp_path / "labels"), *BUDGET) == (
        f"`{tmp_path / 'labels'}` must have a ragged field, but has 'label'."
    )
    (saved / "0.label.values.npy").unlink()
    assert fails(capsys, "plan", str(saved), *BUDGET) == (
        f"`{saved / '0.label.values.npy'}` cannot be read or written: No such file or directory."
    )
    (tmp_path / "other").mkdir()
    assert fails(capsys, "plan", str(tmp_path / "other"), *BUDGET) == (
        f"`{tmp_path / 'other'}` must be a folder that `RaggedDataset.save` or Hugging Face's "
        "`save_to_disk` wrote, or have Parquet, Arrow, .idx, .npy or text files in it, but has "
        "neither."
    )
    (tmp_path / "other" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert fails(capsys, "plan", str(tmp_path / "other"), *BUDGET) == (
        f"`{tmp_path / 'other'}` must be one split, but is a DatasetDict; pass one of its folders."
    )


# ---- indexed files ----


@pytest.mark.parametrize("suffix", ["", ".idx", ".bin"])
def test_an_index_is_found_by_its_prefix_and_read_alone(tmp_path, suffix):
    prefix = write_megatron(tmp_path / "corpus", ROWS, "uint16")
    (tmp_path / "corpus.bin").write_bytes(b"")
    assert read_lengths(f"{prefix}{suffix}").tolist() == LENGTHS


def test_standard_input_is_no_prefix(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-.idx").touch()
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n2\n"))
    assert run(["plan", "-", *BUDGET, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 7


def test_what_is_wrong_with_an_index_is_one_sentence(capsys, tmp_path):
    path = tmp_path / "corpus.idx"
    path.write_bytes(b"rubbish")
    assert fails(capsys, "plan", str(path), *BUDGET) == (
        f"`{path}` must be an index of Megatron that is whole, but does not begin as one."
    )
    assert fails(capsys, "plan", str(path), *BUDGET, "--column", "a") == (
        f"--column must be left out for `{path}`, which has no columns."
    )


# ---- modules ----


def test_pyarrow_is_asked_for_where_it_is_missing_and_nowhere_else(tmp_path, saved):
    path = written(tmp_path, "a.parquet", table_of())
    done = command_without({"pyarrow"}, ["plan", path, *BUDGET])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "evenstride: Arrow data needs pyarrow: install it with `pip install 'evenstride[arrow]'`.\n"
    )
    write_megatron(tmp_path / "corpus", ROWS, "uint16")
    for other in (saved, tmp_path / "corpus"):
        done = command_without({"pyarrow"}, ["plan", str(other), *BUDGET, "--json"])
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["samples"] == 4


@pytest.mark.parametrize("name", ["plan", "compare"])
def test_the_commands_that_plan_need_no_torch(tmp_path, saved, name):
    write_megatron(tmp_path / "corpus", ROWS, "uint16")
    tables = [written(tmp_path, kind, table_of()) for kind in ("a.parquet", "saved_to_disk")]
    for path in (*tables, str(saved), str(tmp_path / "corpus")):
        done = command_without({"torch"}, [name, path, *BUDGET])
        assert (done.returncode, done.stderr) == (0, "")


def test_reading_numbers_brings_in_no_pyarrow(tmp_path):
    np.save(tmp_path / "lengths.npy", LENGTHS)
    code = (
        "import sys\n"
        "from evenstride.read_lengths import read_lengths\n"
        "assert read_lengths(sys.argv[1]).tolist() == [5, 2, 0, 3]\n"
        "assert not {'pyarrow', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "lengths.npy"], check=True)
