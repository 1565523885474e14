"""Data sets in folders: what is written is read, whole or not at all."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import tracemalloc

import numpy as np
import pytest
import torch

from data_support import VALUE_TYPES, damaged, dataset, flat, lies_in, rows_of, some_rows
from evenstride import folder as folder_module
from evenstride.dataset import RaggedDataset

ROWS = [[7, 8, 9], [], [4], [5, 6]]


@pytest.fixture
def saved(tmp_path):
    dataset(ROWS, "uint16", label=np.array([3, 1, 0, 2])).save(tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.mark.parametrize("dtype", [*VALUE_TYPES, "bfloat16"])
def test_what_is_saved_is_opened(tmp_path, dtype):
    rows = [[1, 0], [], [1, 1, 0], [1]]
    values, offsets = flat(rows, "float32" if dtype == "bfloat16" else dtype)
    values = torch.from_numpy(values).bfloat16() if dtype == "bfloat16" else values
    fields = {"x": (values, offsets), "y": values[:4], "z": (values.reshape(3, 2), [0, 1, 1, 1, 3])}
    ds = RaggedDataset({**fields, "w": values.reshape(-1, 1, 1)[:4]})
    ds.save(tmp_path / "corpus")
    opened = RaggedDataset.open(tmp_path / "corpus")
    assert opened.fields == ds.fields
    for name in ds.fields:
        assert rows_of(opened, name) == rows_of(ds, name)
        assert opened[0][name].dtype == ds[0][name].dtype


def test_rows_are_saved_in_the_order_of_a_selection(tmp_path):
    ds = dataset(ROWS, label=np.arange(4)).select([3, 0, 0, 1])
    ds.save(str(tmp_path / "corpus"))
    opened = RaggedDataset.open(str(tmp_path / "corpus"))
    assert rows_of(opened) == [ROWS[i] for i in (3, 0, 0, 1)]
    assert rows_of(opened, "label") == [3, 0, 0, 1]
    assert opened.columns["label"].num_rows == 4


def test_large_data_is_saved_in_pieces(tmp_path, monkeypatch):
    rows = some_rows(500, longest=30)
    pieces = []
    append = folder_module.FolderDraft.append
    monkeypatch.setattr(folder_module, "_PIECE_BYTES", 640)
    monkeypatch.setattr(
        folder_module.FolderDraft,
        "append",
        lambda draft, name, cells, lengths: (
            pieces.append(cells.nbytes),
            append(draft, name, cells, lengths),
        ),
    )
    dataset(rows, "uint32", label=np.arange(500)).save(tmp_path / "corpus")
    assert max(pieces) <= 640
    assert len(pieces) < 2 * sum(pieces) / 640
    assert sum(pieces) == 4 * sum(map(len, rows)) + 8 * 500
    opened = RaggedDataset.open(tmp_path / "corpus")
    assert rows_of(opened) == rows
    assert rows_of(opened, "label") == list(range(500))


@pytest.mark.parametrize("seed", range(20))
def test_rows_in_order_and_in_any_order_are_saved_alike(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(folder_module, "_PIECE_ROWS", 7)
    random = np.random.default_rng(seed)
    chunks = []
    for num_rows in random.integers(0, 25, random.integers(1, 4)):
        offsets = random.integers(0, 3) + np.cumsum([0, *random.integers(0, 5, num_rows)])
        chunks.append((random.integers(0, 99, (offsets[-1] + 2, 2), np.int16), offsets))
    num_rows = sum(len(offsets) - 1 for _, offsets in chunks)
    frames = random.integers(0, 99, (num_rows, 3), np.int32)
    ds = RaggedDataset({"ids": chunks, "frame": frames, "flag": frames[:, 0] > 50})
    if seed % 2 and num_rows:
        ds = ds.select(np.sort(random.integers(0, num_rows, 2 * num_rows)))
    ds.save(tmp_path / "corpus")
    opened = RaggedDataset.open(tmp_path / "corpus")
    assert opened.fields == ds.fields
    assert len(opened) == len(ds)
    for row, expected in zip(opened, ds, strict=True):
        assert all(torch.equal(row[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "field",
    [np.zeros(200_000, np.int8), (np.zeros(0, np.int32), np.zeros(200_001, np.int64))],
    ids=["labels", "empty rows"],
)
def test_short_rows_are_saved_few_at_a_time(tmp_path, field):
    ds = RaggedDataset({"x": field})
    tracemalloc.start()
    try:
        ds.save(tmp_path / "corpus")
        # What is made of a row takes well over 100 bytes, its number and length at most 16.
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()
    opened = RaggedDataset.open(tmp_path / "corpus")
    assert opened.fields == ds.fields
    assert len(opened) == 200_000


def test_every_source_can_be_saved(tmp_path):
    pa = pytest.importorskip("pyarrow")
    chunks = [pa.array(rows, pa.list_view(pa.int16())) for rows in (ROWS, ROWS[:1])]
    array = pa.chunked_array([chunks[0].slice(1), chunks[1]])
    RaggedDataset.from_arrow(array).save(tmp_path / "corpus")
    assert rows_of(RaggedDataset.open(tmp_path / "corpus")) == [*ROWS[1:], ROWS[0]]


def test_a_data_set_without_rows_can_be_saved(tmp_path):
    for number, ds in enumerate((dataset(ROWS).select([]), dataset([[], []]))):
        ds.save(tmp_path / str(number))
        opened = RaggedDataset.open(tmp_path / str(number))
        assert rows_of(opened) == rows_of(ds)
        assert opened.fields == ds.fields


def test_numpy_reads_the_files_alone(saved):
    description = json.loads((saved / "fields.json").read_text())
    assert description == {
        "format": "evenstride ragged",
        "version": 1,
        "num_rows": 4,
        "fields": {
            "input_ids": {
                "dtype": "uint16",
                "shape": [None],
                "values": "0.input_ids.values.npy",
                "offsets": "0.input_ids.offsets.npy",
            },
            "label": {"dtype": "int64", "shape": [], "values": "1.label.values.npy"},
        },
    }
    arrays = {path.name: np.load(path, mmap_mode="r") for path in saved.glob("*.npy")}
    values, offsets = arrays["0.input_ids.values.npy"], arrays["0.input_ids.offsets.npy"]
    assert (values.dtype, values.tolist()) == (np.uint16, [7, 8, 9, 4, 5, 6])
    assert (offsets.dtype, offsets.tolist()) == (np.int64, [0, 3, 3, 4, 6])
    assert arrays["1.label.values.npy"].tolist() == [3, 1, 0, 2]
    assert len(arrays) == 3


@pytest.mark.parametrize("ones", range(30))
def test_a_header_has_room_for_any_number_of_cells(tmp_path, ones):
    values = np.arange(12_345, dtype=np.uint8).reshape(-1, *[1] * ones)
    RaggedDataset({"x": values}).save(tmp_path / "corpus")
    assert np.array_equal(np.load(tmp_path / "corpus" / "0.x.values.npy"), values)


def test_files_that_numpy_writes_are_opened(saved):
    for path in saved.glob("*.npy"):
        np.save(path, np.load(path))
    assert rows_of(RaggedDataset.open(saved)) == ROWS


def test_names_of_fields_become_names_of_files(tmp_path):
    names = ["a/b", "a b", "../c", "", "ä" * 300, "a_b"]
    ds = RaggedDataset({name: np.arange(i, i + 2) for i, name in enumerate(names)})
    ds.save(tmp_path / "corpus")
    assert all(re.fullmatch(r"[\w.-]{1,90}", path.name) for path in (tmp_path / "corpus").iterdir())
    opened = RaggedDataset.open(tmp_path / "corpus")
    assert list(opened.fields) == names
    assert [rows_of(opened, name)[0] for name in names] == list(range(6))


def test_an_opened_data_set_is_memory_mapped(saved):
    ds = RaggedDataset.open(saved)
    for name, arrays in ds._arrays.items():
        (chunk,) = arrays.chunks
        root = chunk.values
        assert isinstance(root, np.memmap)
        assert lies_in(ds.columns[name].row(3), root.ctypes.data, root.nbytes)


def test_an_opened_data_set_is_pickled_as_its_path(tmp_path, monkeypatch):
    rows = some_rows(5000)
    dataset(rows).save(tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(RaggedDataset.open("corpus"))
    assert len(data) < 500
    monkeypatch.chdir("/")
    assert rows_of(pickle.loads(data)) == rows


def changed(saved, **fields):
    path = saved / "fields.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


IDS = {"dtype": "uint16", "shape": [None], "values": "0.input_ids.values.npy"}
OFFSETS = {"offsets": "0.input_ids.offsets.npy"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"version": 0}, "is of the format 'evenstride ragged', version 0"),
        ({"version": "2"}, "is of the format 'evenstride ragged', version '2'"),
        ({"format": "other"}, "is of the format 'other', version 1"),
        ({"format": "other", "version": 2}, "is of the format 'other', version 2"),
        ({"num_rows": -1}, "is said to have -1 rows"),
        ({"num_rows": True}, "is said to have True rows"),
        ({"num_rows": 5}, "its `0.input_ids.offsets.npy` has 4 rows instead of 5"),
        (
            {"fields": []},
            "its `fields.json` has AttributeError 'list' object has no attribute 'items'",
        ),
        (
            {"fields": {"a": {**IDS, **OFFSETS, "dtype": "int7"}}},
            "its `fields.json` has ValueError values of type 'int7' and shape [None]",
        ),
        (
            {"fields": {"a": {**IDS, **OFFSETS, "shape": [None, 0]}}},
            "its `fields.json` has ValueError values of type 'uint16' and shape [None, 0]",
        ),
        (
            {"fields": {"a": {**IDS, "offsets": "../0.input_ids.offsets.npy"}}},
            "its `fields.json` has ValueError a file '../0.input_ids.offsets.npy'",
        ),
        (
            {"fields": {"a": {**IDS, **OFFSETS, "dtype": "int16"}}},
            "its `0.input_ids.values.npy` has cells of uint16 () instead of int16 ()",
        ),
        (
            {"fields": {"a": {**IDS, **OFFSETS, "shape": [None, 2]}}},
            "its `0.input_ids.values.npy` has cells of uint16 () instead of uint16 (2,)",
        ),
        (
            {"fields": {"a": {**IDS, "shape": []}}},
            "its `0.input_ids.values.npy` has 6 rows instead of 4",
        ),
    ],
)
def test_a_description_that_does_not_fit_is_one_sentence(saved, fields, reason):
    changed(saved, **fields)
    message = f"`{saved}` must be a data set that was saved whole, but {reason}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.open(saved)


@pytest.mark.parametrize(
    "fields",
    [{}, {"num_rows": None, "fields": None}, {"fields": {"a": {**IDS, "codec": "zstd"}}}],
)
def test_a_folder_of_a_newer_version_is_said_to_be_newer(saved, fields):
    changed(saved, version=2, **fields)
    message = (
        f"`{saved}` must be a data set of version 1, which this evenstride reads, but is newer: "
        "of version 2."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.open(saved)


def test_values_and_offsets_that_do_not_fit_are_refused(saved):
    path = saved / "0.input_ids.offsets.npy"
    for offsets in ([0, 3, 3, 4, 5], [1, 3, 3, 4, 6], [0, 3, 3, 4, 7]):
        np.save(path, np.array(offsets))
        with pytest.raises(ValueError, match="does not go from 0 to 6, the cells in"):
            RaggedDataset.open(saved)
    np.save(path, np.array([], np.int64))
    with pytest.raises(ValueError, match="does not go from 0 to 6, the cells in"):
        RaggedDataset.open(saved)
    np.save(path, np.array([0, 3, 2, 4, 6]))
    message = f"`input_ids` of `{saved}/0.input_ids.values.npy`, row 1: ends at 2, before its begin"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        RaggedDataset.open(saved)


def test_values_in_the_order_of_fortran_are_refused(tmp_path):
    RaggedDataset({"x": np.arange(12).reshape(3, 4)}).save(tmp_path / "corpus")
    np.save(tmp_path / "corpus" / "0.x.values.npy", np.arange(12).reshape(4, 3).T)
    with pytest.raises(ValueError, match="must be a data set that was saved whole"):
        RaggedDataset.open(tmp_path / "corpus")


def test_a_missing_file_is_said_to_be_missing(saved):
    for path in saved.iterdir():
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(FileNotFoundError, match=path.name):
            RaggedDataset.open(saved)
        path.write_bytes(data)


def test_a_file_that_is_cut_anywhere_is_refused(saved):
    for path in saved.iterdir():
        data = path.read_bytes()
        for end in range(len(data) - 1):
            path.write_bytes(data[:end])
            with pytest.raises(ValueError, match="must be a data set that was saved whole, but "):
                RaggedDataset.open(saved)
        path.write_bytes(data)
    assert rows_of(RaggedDataset.open(saved)) == ROWS


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize(
    "name", ["fields.json", "0.input_ids.values.npy", "0.input_ids.offsets.npy"]
)
def test_a_damaged_file_is_refused_or_has_rows_inside_the_values(tmp_path, saved, name):
    data = (saved / name).read_bytes()
    refused = 0
    for broken, _ in zip(damaged(data, np.random.default_rng(0)), range(400), strict=False):
        shutil.copytree(saved, tmp_path / "broken")
        (tmp_path / "broken" / name).write_bytes(broken)
        try:
            ds = RaggedDataset.open(tmp_path / "broken")
        except (ValueError, OSError) as error:
            refused += 1
            assert "`" in str(error) or isinstance(error, OSError)  # noqa: PT017
        else:
            assert len(ds) == 4
            lengths = [len(row["input_ids"]) for row in ds if "input_ids" in row]
            assert sum(lengths) in {0, 6}
        shutil.rmtree(tmp_path / "broken")
    assert refused > 200
