"""Lengths of many files in one .npy file, against what the rows say themselves."""

from __future__ import annotations

import os

import numpy as np
import pytest

import evenstride as es
from arrow_support import ROWS, WRITERS, array_of, pa, pq, table_of, write_file, write_stream
from data_support import some_rows, write_megatron
from evenstride import gather_lengths, length_sources, open_lengths
from evenstride.read_lengths import read_lengths
from evenstride.write_lengths import write_lengths
from lengths_support import refuses, written


@pytest.fixture
def output(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "lengths.npy"


@pytest.fixture
def small_pieces(monkeypatch):
    """Make pieces and batches so small that the tests' data have several."""
    for name, rows in (("_PIECE_ROWS", 7), ("_ARROW_PIECE_ROWS", 5), ("_BATCH_ROWS", 3)):
        monkeypatch.setattr(length_sources, name, rows)
    monkeypatch.setattr(length_sources, "_BATCH_CELLS", 20)
    monkeypatch.setattr(gather_lengths, "_COPY_BYTES", 16)


# ---- what is read ----


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("num_threads", [1, 4])
def test_all_files_and_folders_are_read_in_their_order(tmp_path, output, num_threads):
    rows = some_rows(60)
    lengths = [len(row) for row in rows]
    sources, expected = [], []
    for name, write in WRITERS.items():
        write(table_of(rows, chunks=9), tmp_path / name)
        sources.append(tmp_path / name)
    es.RaggedDataset.from_lists(rows).save(tmp_path / "saved")
    write_megatron(tmp_path / "corpus", rows, "uint16")
    np.save(tmp_path / "a.npy", np.array(lengths, ">i8"))
    np.savez(tmp_path / "b.npz", lengths=np.array(lengths, np.uint8))
    (tmp_path / "c.txt").write_text("\n".join(map(str, lengths)))
    others = ("saved", "corpus", "corpus.idx", "a.npy", "b.npz", "c.txt")
    sources += [tmp_path / name for name in others]
    for source in sources:
        found = written(source, output, num_threads=num_threads)
        assert (found.dtype, found.tolist()) == (np.uint16, lengths), source
    rotated = [*sources[3:], *sources[:3]]
    for number in range(len(rotated)):
        if number % 2:  # So that a wrong order would show.
            np.save(tmp_path / "out" / f"{number}.npy", [number])
            rotated[number] = tmp_path / "out" / f"{number}.npy"
        expected += [number] if number % 2 else lengths
    assert written(rotated, output, num_threads=num_threads).tolist() == expected


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("writer", [write_file, write_stream, pq.write_table])
@pytest.mark.parametrize(
    "column",
    [
        pa.array(ROWS * 3, pa.list_(pa.uint16())),
        array_of(ROWS * 3, "bool"),
        array_of(ROWS * 3, "float32", "large_list"),
        pa.array(ROWS * 3, pa.list_(pa.uint16())).slice(2, 13),
        pa.chunked_array([ROWS, [], ROWS[1:3]], pa.list_(pa.int64())),
        pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int8(), 2))),
        pa.array([[1, 2, 3]] * 20, pa.list_(pa.int32(), 3)),
        pa.array(range(20), pa.uint64()),
        pa.array([0] * 20, pa.int8()),
        pa.array([[]] * 20, pa.list_(pa.int32())),
        pa.array([], pa.list_(pa.int32())),
        pa.array([], pa.int32()),
    ],
)
def test_every_kind_of_column_gives_what_its_rows_say(tmp_path, output, writer, column):
    path = tmp_path / ("a.parquet" if writer is pq.write_table else "a.arrow")
    table = pa.table({"text": ["t"] * len(column), "x": column})
    options = {"row_group_size": 8} if writer is pq.write_table else {}
    writer(table, path, **options)
    rows = table.column("x").to_pylist()
    expected = [row if isinstance(row, int) else len(row) for row in rows]
    for num_threads in (1, 3):
        assert written(path, output, column="x", num_threads=num_threads).tolist() == expected
    assert read_lengths(table, column="x").tolist() == expected


def test_a_compressed_arrow_file_is_read_too(tmp_path, output):
    table = table_of(some_rows(200))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        with new(tmp_path / "a.arrow", table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=30)
        expected = [len(row) for row in table.column("input_ids").to_pylist()]
        assert written(tmp_path / "a.arrow", output).tolist() == expected


@pytest.mark.usefixtures("small_pieces")
def test_a_folder_of_hugging_face_is_one_file_with_its_mapping(tmp_path, output):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    source = datasets.Dataset.from_dict({"input_ids": some_rows(50), "text": ["t"] * 50})
    for number, ds in enumerate((source, source.shuffle(seed=3), source.select([5, 1, 1]))):
        ds.save_to_disk(tmp_path / f"{number}", num_shards=3)
        expected = [len(row) for row in ds["input_ids"]]
        assert written(tmp_path / f"{number}", output).tolist() == expected
        assert read_lengths(ds).tolist() == expected


# ---- folders and patterns ----


def test_the_files_of_a_folder_are_sorted_by_their_paths(tmp_path, output):
    names = ["part-2.parquet", "part-10.parquet", "a/z.parquet", "b.PQ"]
    hidden = [".x.parquet", "_y.parquet", "_tmp/z.parquet", ".git/z.parquet"]
    for length, name in enumerate([*names, *hidden]):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"input_ids": array_of([[0] * length])}), path)
    for name in ("README.txt", "lengths.npy", "info.json"):
        (tmp_path / "corpus" / name).write_text("no Parquet")
    assert written(tmp_path / "corpus", output).tolist() == [2, 3, 1, 0]
    assert written(f"{tmp_path}/corpus/*.parquet", output).tolist() == [5, 1, 0]
    assert written(f"{tmp_path}/corpus/**/[az]*.parquet", output).tolist() == [6, 2]
    both = [tmp_path / "corpus" / "b.PQ", f"{tmp_path}/corpus/part*"]
    assert written(both, output).tolist() == [3, 1, 0]


def test_a_folder_without_other_files_may_be_of_npy_or_text(tmp_path, output):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("3\n4\n")
    assert written(tmp_path / "a", output).tolist() == [3, 4]
    np.save(tmp_path / "a" / "c.npy", [5])
    assert written(tmp_path / "a", output).tolist() == [5]


def test_a_file_whose_name_is_a_pattern_is_itself(tmp_path, output):
    np.save(tmp_path / "[a].npy", [5])
    assert written(tmp_path / "[a].npy", output).tolist() == [5]


def test_what_no_folder_or_pattern_can_mean_is_one_sentence(tmp_path, output):
    refuses(
        ValueError,
        f"`{tmp_path}/*.parquet` must match at least 1 file, but matches 0.",
        f"{tmp_path}/*.parquet",
        output,
    )
    refuses(ValueError, "`source` must be at least 1 path, but is 0.", [], output)
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("a.parquet", "cache-1.arrow"):
        (folder / name).touch()
    refuses(
        ValueError,
        f"`{folder}` must have files of one kind, but has 'a.parquet', 'cache-1.arrow'; name those "
        "that are meant, for example with a pattern.",
        folder,
        output,
    )
    (folder / "a.parquet").rename(folder / "b.arrow")
    refuses(
        ValueError,
        f"`{folder}` must not have what datasets was given beside what it made of it, but has "
        "'b.arrow', 'cache-1.arrow'; name those that are meant, for example with a pattern.",
        folder,
        output,
    )


# ---- the type ----


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("longest", "dtype"),
    [
        (65_535, np.uint16),
        (65_536, np.uint32),
        (2**32 - 1, np.uint32),
        (2**32, np.uint64),
        (2**63 - 1, np.uint64),
    ],
)
@pytest.mark.parametrize("place", [0, 24, 49])
def test_the_type_is_the_narrowest_wherever_the_longest_comes(
    tmp_path, output, longest, dtype, place
):
    lengths = list(range(50))
    lengths[place] = longest
    if place == 24:
        lengths[40] = min(longest, 70_000)  # So that it is widened step by step, or not again.
    pq.write_table(pa.table({"length": lengths}), tmp_path / "a.parquet", row_group_size=4)
    for num_threads in (1, 4):
        found = written(tmp_path / "a.parquet", output, num_threads=num_threads)
        assert (found.dtype, found.tolist()) == (dtype, lengths)


# ---- what is wrong ----


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", ["b.parquet", "b.arrow"])
@pytest.mark.parametrize(
    ("column", "what"),
    [
        ([[1]] * 23 + [None] + [[2], None], "is null"),
        ([[1]] * 23 + [[2, None]] + [[None]], "has a null"),
        ([1] * 23 + [None, 2, None], "is null"),
    ],
)
def test_the_first_null_is_named_with_its_file_and_row(tmp_path, output, name, column, what):
    good = [[1]] * 30 if isinstance(column[0], list) else [1] * 30
    for file, rows in (("a" + name[1:], good), (name, column), ("c" + name[1:], column[::-1])):
        table = pa.table({"x": rows, "input_ids": rows})
        if name == "b.arrow":
            write_file(table, tmp_path / file)
        else:
            pq.write_table(table, tmp_path / file, row_group_size=10)
    message = f"`x` of `{tmp_path / name}` must have no nulls, but row 23 {what}."
    for num_threads in (1, 4):
        source = f"{tmp_path}/*{name[1:]}"
        refuses(ValueError, message, source, output, column="x", num_threads=num_threads)


def test_a_length_that_is_none_is_named(tmp_path, output):
    np.save(tmp_path / "a.npy", [1, 2])
    np.save(tmp_path / "b.npy", [3, -4])
    message = f"The length of row 1 in `{tmp_path / 'b.npy'}` must be at least 0, but is -4."
    refuses(ValueError, message, f"{tmp_path}/*.npy", output)
    np.save(tmp_path / "b.npy", np.array([2**63], np.uint64))
    message = f"The length of row 0 in `{tmp_path / 'b.npy'}` must be below 2**63, but is {2**63}."
    refuses(ValueError, message, f"{tmp_path}/*.npy", output)
    np.save(tmp_path / "b.npy", [0.5])
    message = (
        f"`{tmp_path / 'b.npy'}` must hold integers in 1 dimension, but has dtype float64 and "
        "shape (1,)."
    )
    refuses(TypeError, message, f"{tmp_path}/*.npy", output)


def test_a_saved_row_outside_its_values_is_named_as_in_the_whole(tmp_path, output, monkeypatch):
    monkeypatch.setattr(length_sources, "_PIECE_ROWS", 3)
    es.RaggedDataset.from_lists([[1, 2]] * 9).save(tmp_path / "saved")
    offsets = np.load(tmp_path / "saved" / "0.input_ids.offsets.npy", mmap_mode="r+")
    offsets[8] = 99
    offsets.flush()
    with pytest.raises(ValueError, match=r"`input_ids` of `.*saved.*`, row 7: ") as error:
        write_lengths(tmp_path / "saved", output)
    with pytest.raises(ValueError, match=r"row 7: ") as expected:
        es.RaggedDataset.open(tmp_path / "saved")
    assert str(error.value) == str(expected.value)


@pytest.mark.parametrize("other", [{"length": [1]}, {"b": [[1]]}])
def test_files_with_lengths_in_different_columns_are_refused(tmp_path, output, other):
    pq.write_table(pa.table({"a": [[1]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    described = "integers `length`" if "length" in other else "lists `b`"
    message = (
        f"All files must have their lengths in one column, but `{tmp_path / 'a.parquet'}` has them "
        f"in the lists `a`, and `{tmp_path / 'b.parquet'}` in the {described}."
    )
    refuses(ValueError, message, f"{tmp_path}/*.parquet", output)


@pytest.mark.parametrize("read", [write_lengths, read_lengths])
def test_text_that_changes_while_it_is_opened_is_refused(tmp_path, output, monkeypatch, read):
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n")
    opened = open_lengths.read_text

    def read_text(*given, **options):
        lengths = opened(*given, **options)
        path.write_text("1\n2\n3\n")
        return lengths

    monkeypatch.setattr(open_lengths, "read_text", read_text)
    with pytest.raises(ValueError, match="must not change while it is read"):
        read(path, *([output] if read is write_lengths else []))


@pytest.mark.parametrize("how", ["append", "replace", "shorten"])
def test_a_file_that_changes_meanwhile_is_refused(tmp_path, output, how):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"length": range(50)}), path, row_group_size=10)

    def change(*_):
        if how == "append":
            with path.open("ab") as file:
                file.write(b"x")
        elif how == "replace":
            pq.write_table(pa.table({"length": range(50)}), tmp_path / "b", row_group_size=10)
            (tmp_path / "b").replace(path)
        else:
            os.truncate(path, 10)

    refuses(
        ValueError,
        f"`{path}` must not change while it is read, but has.",
        path,
        output,
        progress=change,
    )
