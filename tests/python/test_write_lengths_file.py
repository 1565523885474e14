"""The file that lengths are written to: whole or not there, with threads, in little memory."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import evenstride as es
from arrow_support import pa, pq
from evenstride import gather_lengths, length_sources
from evenstride.write_lengths import write_lengths
from lengths_support import refuses


@pytest.fixture
def output(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "lengths.npy"


@pytest.mark.parametrize("name", ["lengths.txt", "lengths", "lengths.npz"])
def test_the_output_is_an_npy_file(tmp_path, name):
    np.save(tmp_path / "a.npy", [1])
    path = tmp_path / name
    refuses(ValueError, f"`output` must end in .npy, but is `{path}`.", tmp_path / "a.npy", path)


def test_the_output_never_takes_the_place_of_an_input(tmp_path):
    np.save(tmp_path / "a.npy", [1])
    (tmp_path / "link.npy").symlink_to(tmp_path / "a.npy")
    os.link(tmp_path / "a.npy", tmp_path / "hard.npy")
    es.RaggedDataset.from_lists([[1]]).save(tmp_path / "saved")
    inside = tmp_path / "saved" / "0.input_ids.offsets.npy"
    before = inside.read_bytes()
    for output in (tmp_path / "a.npy", tmp_path / "link.npy", tmp_path / "hard.npy", inside):
        message = f"`output` must be another file than the samples', but is `{output}`."
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            write_lengths([tmp_path / "saved", tmp_path / "a.npy"], output)
    assert (np.load(tmp_path / "a.npy").tolist(), inside.read_bytes()) == ([1], before)


def test_a_failure_leaves_the_old_output(tmp_path, output):
    np.save(output, [7])
    pq.write_table(pa.table({"length": [1, 70_000, None]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="is null"):
        write_lengths(tmp_path / "a.parquet", output)
    assert (np.load(output).tolist(), os.listdir(output.parent)) == ([7], ["lengths.npy"])  # noqa: PTH208


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device of Linux")
def test_a_full_disk_is_an_error_that_names_the_output(tmp_path, output, monkeypatch):
    np.save(tmp_path / "a.npy", [1])

    def created(self, path, dtype):
        return Path("/dev/full").open("r+b", buffering=0), 0

    monkeypatch.setattr(gather_lengths.FileLengths, "_created", created)
    with pytest.raises(OSError, match="No space left") as error:
        write_lengths(tmp_path / "a.npy", output)
    assert error.value.filename == str(output)
    assert not output.exists()


class _Full:
    """A file on a disk without room."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_too_full_for_a_wider_type_is_the_error_of_all_threads(tmp_path, monkeypatch):
    is_widening = threading.Event()

    def first():
        is_widening.wait(30)
        time.sleep(0.1)  # Until the other thread has failed.
        yield np.array([1, 2])

    def second():
        yield np.array([70_000, 1])

    lengths = gather_lengths.FileLengths(tmp_path / "lengths.npy", 4)
    lengths.put(0, np.array([1, 2]))

    def created(_, dtype):
        assert dtype == np.uint32
        is_widening.set()
        return _Full(), 0

    monkeypatch.setattr(lengths, "_created", created)
    pieces = (length_sources.Piece(2, first), length_sources.Piece(2, second))
    source = length_sources.LengthSource(tmp_path / "source", pieces)
    with lengths, pytest.raises(OSError, match="No space left"):
        gather_lengths.gather_lengths([source], lengths, num_threads=2)


def test_progress_is_told_in_the_calling_thread_up_to_the_end(tmp_path, output):
    np.save(tmp_path / "a.npy", np.ones(50, np.int64))
    told = []
    write_lengths(tmp_path / "a.npy", output, progress=lambda *told_now: told.append(told_now))
    assert told[-1] == (50, 50)
    assert told == sorted(told)


def test_an_interrupt_stops_the_threads_and_leaves_nothing(tmp_path, output, monkeypatch):
    monkeypatch.setattr(length_sources, "_PIECE_ROWS", 1)
    np.save(tmp_path / "a.npy", np.ones(100_000, np.uint8))

    def interrupt(done, total):
        assert done < total
        raise KeyboardInterrupt

    put, starts = gather_lengths.FileLengths.put, []
    monkeypatch.setattr(
        gather_lengths.FileLengths, "put", lambda *call: starts.append(call[1]) or put(*call)
    )
    monkeypatch.setattr(gather_lengths, "_BETWEEN_LOOKS_S", 0.001)
    with pytest.raises(KeyboardInterrupt):
        write_lengths(tmp_path / "a.npy", output, progress=interrupt)
    assert len(starts) < 50_000
    assert os.listdir(output.parent) == []  # noqa: PTH208


_MEASURE = """
import resource, sys, tracemalloc
import pyarrow.parquet
from evenstride.write_lengths import write_lengths

write_lengths(sys.argv[1] + "/small.parquet", sys.argv[1] + "/small.npy")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tracemalloc.start()
blocks, most = sys.getallocatedblocks(), 0

def look(*_):
    global most
    most = max(most, sys.getallocatedblocks() - blocks)

written = write_lengths(sys.argv[1] + "/large.parquet", sys.argv[1] + "/out.npy", progress=look)
_, peak = tracemalloc.get_traced_memory()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(written.samples, most, peak, grown)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs kilobytes in ru_maxrss")
def test_millions_of_rows_become_no_python_objects_and_take_little_memory(tmp_path):
    num_rows = 3_000_000
    offsets = np.arange(num_rows + 1, dtype=np.int32) * 4
    values = pa.array(np.zeros(4 * num_rows, np.uint16))
    table = pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(offsets), values)})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=num_rows)
    pq.write_table(table.slice(0, 200_000), tmp_path / "small.parquet")
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, tmp_path], capture_output=True, text=True, check=True
    )
    samples, most_objects, peak_bytes, grown_kilobytes = map(int, done.stdout.split())
    assert samples == num_rows
    assert most_objects < 20_000
    assert peak_bytes < 8_000_000  # As offsets of 4 bytes, all rows would take 12 MB.
    assert grown_kilobytes < 30_000


def test_a_histogram_among_files_is_still_noted(tmp_path, output):
    (tmp_path / "a.csv").write_text("length,count\n5,2\n")
    with pytest.warns(UserWarning, match="pass counts=True"):
        write_lengths([tmp_path / "a.csv", tmp_path / "a.csv"], output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_lengths([tmp_path / "a.csv"] * 2, output, counts=True)
    assert np.load(output).tolist() == [5, 5, 5, 5]
