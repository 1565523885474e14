"""Megatron's indexed format: every type, and files that are not whole."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from data_support import (
    MEGATRON_CODES,
    address,
    damaged,
    flat,
    megatron_index,
    rows_of,
    some_rows,
    write_megatron,
)
from evenstride.dataset import RaggedDataset
from evenstride.read_lengths import read_lengths

ROWS = [[7, 8, 9], [], [4], [5, 6]]
HEADER = 34


@pytest.fixture
def prefix(tmp_path):
    return write_megatron(tmp_path / "corpus", ROWS, "uint16")


@pytest.mark.parametrize("dtype", MEGATRON_CODES)
def test_every_type_is_read(tmp_path, dtype):
    rows = some_rows(50)
    ds = RaggedDataset.from_megatron(write_megatron(tmp_path / "corpus", rows, dtype))
    assert rows_of(ds) == rows
    assert ds.fields == {"input_ids": (dtype, (None,))}
    assert ds.lengths.tolist() == [len(row) for row in rows]


def test_values_have_their_whole_range(tmp_path):
    for dtype, rows in (("uint16", [[0, 65_535]]), ("int32", [[-(2**31), 2**31 - 1]])):
        prefix = write_megatron(tmp_path / dtype, rows, dtype)
        assert rows_of(RaggedDataset.from_megatron(prefix)) == rows


@pytest.mark.parametrize("suffix", ["", ".bin", ".idx"])
@pytest.mark.parametrize("kind", [str, None])
def test_the_path_may_have_a_suffix(tmp_path, suffix, kind):
    write_megatron(tmp_path / "corpus", ROWS, "int32")
    path = tmp_path / f"corpus{suffix}"
    path = path if kind is None else kind(path)
    assert rows_of(RaggedDataset.from_megatron(path)) == ROWS
    assert read_lengths(path).tolist() == [3, 0, 1, 2]


def test_a_prefix_may_have_dots(tmp_path):
    write_megatron(tmp_path / "corpus", ROWS, "int32")
    for suffix in (".bin", ".idx"):
        (tmp_path / f"corpus{suffix}").rename(tmp_path / f"corpus.v1{suffix}")
    assert rows_of(RaggedDataset.from_megatron(tmp_path / "corpus.v1")) == ROWS


def test_files_are_read_where_they_are_mapped(tmp_path):
    prefix = write_megatron(tmp_path / "corpus", ROWS, "int32")
    ds = RaggedDataset.from_megatron(prefix)
    (chunk,) = ds._arrays["input_ids"].chunks
    assert isinstance(chunk.values, np.memmap)
    assert address(ds.columns["input_ids"].row(2)) == address(chunk.values) + 12
    for array in (chunk.starts, chunk.lengths):
        assert isinstance(array, np.memmap)
        assert not array.flags.aligned


def test_rows_may_lie_in_any_order_and_share_values(tmp_path):
    rows = [[5, 6], [7, 8, 9], [8], []]
    prefix = write_megatron(tmp_path / "corpus", rows, "int32", pointers=[12, 0, 4, 20])
    (tmp_path / "corpus.bin").write_bytes(np.int32([7, 8, 9, 5, 6]).tobytes())
    assert rows_of(RaggedDataset.from_megatron(prefix)) == rows


def test_a_corpus_without_rows_or_values_is_one(tmp_path):
    for rows in ([], [[], []]):
        ds = RaggedDataset.from_megatron(write_megatron(tmp_path / "corpus", rows, "uint16"))
        assert rows_of(ds) == rows
        assert read_lengths(tmp_path / "corpus").tolist() == [0] * len(rows)


def test_a_corpus_is_pickled_as_its_path(tmp_path, monkeypatch):
    rows = some_rows(5000)
    write_megatron(tmp_path / "corpus", rows, "uint16")
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(RaggedDataset.from_megatron("corpus"))
    assert len(data) < 500
    monkeypatch.chdir("/")
    assert rows_of(pickle.loads(data)) == rows
    (tmp_path / "corpus.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="row 0"):
        pickle.loads(data)


def with_bytes(data, place, new):
    return data[:place] + new + data[place + len(new) :]


INDEX = megatron_index(ROWS, "uint16")


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (b"", "does not begin as one"),
        (INDEX[: HEADER - 1], "does not begin as one"),
        (b"TNTIDX\x00\x00" + INDEX[8:], "does not begin as one"),
        (with_bytes(INDEX, 9, b"\x02"), "has version 2 instead of 1"),
        (with_bytes(INDEX, 17, b"\x00"), "has code 0 of a type, of which there are 1 to 8"),
        (with_bytes(INDEX, 17, b"\x09"), "has code 9 of a type, of which there are 1 to 8"),
        (INDEX[:-1], "has 121 bytes instead of 122 for 4 rows and 5 documents"),
        (INDEX + b"\x00", "has 123 bytes instead of 122 for 4 rows and 5 documents"),
        (
            with_bytes(INDEX, 18, b"\x05"),
            "has 122 bytes instead of 134 for 5 rows and 5 documents",
        ),
        (
            with_bytes(INDEX, 18, b"\xff" * 8),
            (
                "has 122 bytes instead of 221360928884514619454 for 18446744073709551615 rows "
                "and 5 documents"
            ),
        ),
    ],
)
def test_an_index_that_is_not_whole_is_one_sentence(prefix, index, reason):
    path = prefix.with_suffix(".idx")
    path.write_bytes(index)
    message = f"`{path}` must be an index of Megatron that is whole, but {reason}."
    for function in (RaggedDataset.from_megatron, read_lengths):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            function(prefix)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (
            {"lengths": [3, 0, 7, 2], "pointers": [0, 6, 6, 8]},
            "row 2: has length 7, outside [0, 6], the values that there are.",
        ),
        (
            {"lengths": [3, -1, 1, 2], "pointers": [0, 6, 6, 8]},
            "row 1: has length -1, outside [0, 6], the values that there are.",
        ),
        (
            {"pointers": [0, 6, 6, 10]},
            "row 3: begins at 10 and has length 2, which is outside the 6 values that there are.",
        ),
        (
            {"pointers": [-2, 6, 6, 8]},
            "row 0: begins at -2 and has length 3, which is outside the 6 values that there are.",
        ),
        (
            {"pointers": [0, 6, 7, 8]},
            "row 2: begins at byte 7, which is no multiple of 2, the bytes of a value.",
        ),
    ],
)
def test_a_row_outside_of_the_values_is_one_sentence(tmp_path, arrays, reason):
    prefix = write_megatron(tmp_path / "corpus", ROWS, "uint16", **arrays)
    message = f"`input_ids` of `{prefix}.idx`, {reason}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RaggedDataset.from_megatron(prefix)


def test_values_that_are_cut_are_refused(prefix):
    path = prefix.with_suffix(".bin")
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(ValueError, match=r"^`input_ids` of .*, row "):
            RaggedDataset.from_megatron(prefix)
    path.write_bytes(data + b"\x00")
    assert rows_of(RaggedDataset.from_megatron(prefix)) == ROWS


def test_a_negative_length_is_one_sentence(tmp_path):
    prefix = write_megatron(tmp_path / "corpus", ROWS, "uint16", lengths=[3, -1, 1, 2])
    message = f"The length of row 1 in `{prefix}.idx` must be at least 0, but is -1."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_lengths(prefix)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path, prefix):
    for function in (RaggedDataset.from_megatron, read_lengths):
        with pytest.raises(FileNotFoundError, match=r"none\.idx"):
            function(tmp_path / "none.idx")
    prefix.with_suffix(".bin").unlink()
    assert read_lengths(prefix).tolist() == [3, 0, 1, 2]
    with pytest.raises(FileNotFoundError, match=r"corpus\.bin"):
        RaggedDataset.from_megatron(prefix)


def test_a_damaged_index_is_refused_or_has_rows_inside_the_values(tmp_path):
    rows = some_rows(20)
    prefix = write_megatron(tmp_path / "corpus", rows, "uint16")
    data = prefix.with_suffix(".idx").read_bytes()
    size = len(flat(rows, "uint16")[0])
    refused = 0
    for broken, _ in zip(damaged(data, np.random.default_rng(0)), range(1500), strict=False):
        prefix.with_suffix(".idx").write_bytes(broken)
        try:
            ds = RaggedDataset.from_megatron(prefix)
        except ValueError as error:
            refused += 1
            assert re.search(r"^`.*\.$", str(error))  # noqa: PT017 - It need not be raised.
        else:
            assert len(ds) in {20, 0}
            assert all(0 <= length <= size for length in ds.lengths)
            assert sum(len(row["input_ids"]) for row in ds) == ds.lengths.sum()
    assert refused > 1000


def test_lengths_are_narrow_and_need_no_torch(prefix):
    assert read_lengths(prefix).dtype == np.uint16
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['pyarrow'] = None\n"
        "from evenstride.read_lengths import read_lengths\n"
        "print(read_lengths(sys.argv[1]).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(prefix)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[3, 0, 1, 2]"


def test_a_sparse_file_far_larger_than_memory_opens(tmp_path):
    rows = 1000
    cells = 10_000_000  # In each row, of which none is ever written.
    index = megatron_index(
        [()] * rows, "uint16", lengths=[cells] * rows, pointers=np.arange(rows) * cells * 2
    )
    (tmp_path / "corpus.idx").write_bytes(index)
    with (tmp_path / "corpus.bin").open("wb") as file:
        file.truncate(2 * rows * cells)
    ds = RaggedDataset.from_megatron(tmp_path / "corpus")
    assert ds.lengths.sum() == rows * cells
    assert not ds[rows - 1]["input_ids"].any()
