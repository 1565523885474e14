"""Data sets of Hugging Face, in memory and as `save_to_disk` writes them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys

import pytest

from arrow_support import ROWS, is_in_a_buffer, pa, write_stream
from data_support import address, rows_of, some_rows
from evenstride.dataset import RaggedDataset
from evenstride.read_lengths import read_lengths

datasets = pytest.importorskip("datasets")


@pytest.fixture
def hugging_face():
    datasets.disable_progress_bars()
    rows = [{"input_ids": row, "label": i, "text": "t"} for i, row in enumerate(ROWS * 3)]
    features = datasets.Features(
        {
            "input_ids": datasets.List(datasets.Value("uint16")),
            "label": datasets.ClassLabel(num_classes=99),
            "text": datasets.Value("string"),
        }
    )
    return datasets.Dataset.from_list(rows, features=features)


def transformed(source):
    yield source
    yield source.select([3, 1, 1, 17])
    yield source.select(range(2, 9))
    yield source.shuffle(seed=5)
    yield source.filter(lambda row: row["label"] % 3 == 1)
    yield source.shuffle(seed=5).select(range(4, 12))
    yield source.with_format("torch")
    yield source.select([])


def test_a_data_set_of_hugging_face_keeps_its_mapping(hugging_face):
    for source in transformed(hugging_face):
        ds = RaggedDataset.from_arrow(source)
        expected = [row["input_ids"] for row in source.with_format(None)]
        assert list(ds.fields) == ["input_ids", "label"]
        assert rows_of(ds) == expected
        assert rows_of(ds, "label") == [row["label"] for row in source.with_format(None)]
        assert ds.lengths.tolist() == [len(row) for row in expected]
        assert ds.columns["input_ids"].num_rows == source.data.num_rows
        if len(ds) > 0:
            row = 0 if ds.rows is None else int(ds.rows[0])
            column = source.data.table["input_ids"]
            assert is_in_a_buffer(ds.columns["input_ids"].row(row), column)
        assert rows_of(pickle.loads(pickle.dumps(ds))) == expected


def test_a_mapping_is_viewed(hugging_face):
    source = hugging_face.shuffle(seed=5)
    ds = RaggedDataset.from_arrow(source)
    (chunk,) = source._indices.table["indices"].chunks
    assert address(ds.rows) == chunk.buffers()[1].address


def test_a_mapped_data_set_is_pickled_as_its_paths(tmp_path):
    rows = some_rows(5000)
    datasets.Dataset.from_dict({"input_ids": rows}).save_to_disk(tmp_path / "saved", num_shards=2)
    source = datasets.load_from_disk(tmp_path / "saved")
    data = pickle.dumps(RaggedDataset.from_arrow(source))
    assert len(data) < 3000
    assert rows_of(pickle.loads(data)) == rows
    ds = RaggedDataset.from_arrow(source.select([7, 7, 2]))
    assert rows_of(pickle.loads(pickle.dumps(ds))) == [rows[7], rows[7], rows[2]]
    more = datasets.concatenate_datasets([source, datasets.Dataset.from_dict({"input_ids": rows})])
    assert rows_of(pickle.loads(pickle.dumps(RaggedDataset.from_arrow(more)))) == rows + rows


def test_a_saved_data_set_of_hugging_face_is_read_without_that_library(tmp_path, hugging_face):
    source = hugging_face.shuffle(seed=2)
    source.save_to_disk(tmp_path / "saved", num_shards=4)
    expected = [row["input_ids"] for row in source]
    loaded = datasets.load_from_disk(str(tmp_path / "saved"))
    for opened in (tmp_path / "saved", loaded):
        ds = RaggedDataset.from_arrow(opened, "input_ids")
        assert rows_of(ds) == expected
        data = pickle.dumps(ds)
        assert len(data) < 2500
        assert rows_of(pickle.loads(data)) == expected
    code = (
        "import sys\n"
        "sys.modules['datasets'] = None\n"
        "from evenstride.dataset import RaggedDataset\n"
        "ds = RaggedDataset.from_arrow(sys.argv[1])\n"
        "print([row['input_ids'].tolist() for row in ds])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(expected)


@pytest.mark.parametrize("key", ["_indices_files", "_indices_data_files"])
def test_a_mapping_that_older_versions_saved_is_read(tmp_path, hugging_face, key):
    hugging_face.save_to_disk(tmp_path / "saved")
    state = json.loads((tmp_path / "saved" / "state.json").read_text())
    state[key] = [{"filename": "indices-0.arrow"}, {"filename": "indices-1.arrow"}]
    (tmp_path / "saved" / "state.json").write_text(json.dumps(state))
    for number, indices in enumerate(([5, 0], [3])):
        table = pa.table({"indices": pa.array(indices, pa.uint64())})
        write_stream(table, tmp_path / "saved" / f"indices-{number}.arrow")
    ds = RaggedDataset.from_arrow(tmp_path / "saved")
    assert rows_of(ds, "label") == [5, 0, 3]
    assert read_lengths(tmp_path / "saved", column="input_ids").tolist() == [
        len(ROWS[i]) for i in (5, 0, 3)
    ]
    write_stream(
        pa.table({"indices": pa.array([3, 18], pa.uint64())}),
        tmp_path / "saved" / "indices-1.arrow",
    )
    message = "`indices[3]` must be in [0, 18), but is 18."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(tmp_path / "saved")


def test_folders_that_are_no_saved_data_set_are_one_sentence(tmp_path, hugging_face):
    datasets.DatasetDict({"train": hugging_face}).save_to_disk(tmp_path / "both")
    (tmp_path / "empty").mkdir()
    for name, reason in (
        ("both", "must be one split, but is a DatasetDict; pass one of its folders."),
        ("empty", "must be a folder that `save_to_disk` wrote, but has no `state.json`."),
    ):
        message = f"`{tmp_path / name}` {reason}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            RaggedDataset.from_arrow(tmp_path / name)
    assert len(RaggedDataset.from_arrow(tmp_path / "both" / "train")) == 18
    for text in ("", "{", "[]", "{}", '{"_data_files": [{}]}', '{"_data_files": [3]}'):
        (tmp_path / "both" / "train" / "state.json").write_text(text)
        with pytest.raises(ValueError, match=r"state.json` must be a whole file of its format"):
            RaggedDataset.from_arrow(tmp_path / "both" / "train")


def test_a_shard_that_is_missing_or_other_is_refused(tmp_path, hugging_face):
    hugging_face.save_to_disk(tmp_path / "saved", num_shards=2)
    shard = next((tmp_path / "saved").glob("data-00001*"))
    shutil.copy(shard, tmp_path / "shard")
    shard.unlink()
    with pytest.raises(FileNotFoundError):
        RaggedDataset.from_arrow(tmp_path / "saved")
    write_stream(pa.table({"other": [1]}), shard)
    with pytest.raises(ValueError, match="saved` must be a whole file of its format"):
        RaggedDataset.from_arrow(tmp_path / "saved")
    shutil.copy(tmp_path / "shard", shard)
    assert rows_of(RaggedDataset.from_arrow(tmp_path / "saved")) == ROWS * 3


def test_what_has_no_rows_in_any_order_is_one_sentence(hugging_face):
    both = datasets.DatasetDict({"train": hugging_face, "test": hugging_face})
    message = "`source` must be one split, but is a DatasetDict of 'train', 'test'."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(both)
    message = (
        "`source` must be a Dataset, whose rows can be read in any order, but is an "
        "IterableDataset."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_arrow(hugging_face.to_iterable_dataset())
