"""What a folder that is being written leaves, and how its errors name it."""

from __future__ import annotations

import os
import resource
import signal
import stat
from contextlib import contextmanager

import numpy as np
import pytest

from data_support import dataset, rows_of
from evenstride import folder as folder_module
from evenstride.dataset import RaggedDataset

ROWS = [[7, 8, 9], [], [4], [5, 6]]


@pytest.fixture
def saved(tmp_path):
    dataset(ROWS).save(tmp_path / "corpus")
    return tmp_path / "corpus"


def test_an_existing_folder_or_file_is_left_alone(tmp_path, saved):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("corpus", "file", "empty", "link"):
        with pytest.raises(FileExistsError, match=name):
            dataset([[1]]).save(tmp_path / name)
    assert rows_of(RaggedDataset.open(saved)) == ROWS
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "file", "empty", "link"}


def test_a_folder_that_appears_meanwhile_is_left_alone(tmp_path, monkeypatch):
    save = folder_module.FolderDraft.append

    def append(*arguments):
        (tmp_path / "corpus").mkdir(exist_ok=True)
        save(*arguments)

    monkeypatch.setattr(folder_module.FolderDraft, "append", append)
    with pytest.raises(FileExistsError):
        dataset(ROWS).save(tmp_path / "corpus")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert not list((tmp_path / "corpus").iterdir())


def test_a_missing_parent_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none/corpus'$"):
        dataset(ROWS).save(tmp_path / "none" / "corpus")
    with pytest.raises(FileNotFoundError, match=r"fields\.json"):
        RaggedDataset.open(tmp_path / "none")


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127])
def test_a_name_may_be_as_long_as_the_disk_has_it(tmp_path, name):
    dataset(ROWS).save(tmp_path / name)
    assert rows_of(RaggedDataset.open(tmp_path / name)) == ROWS
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_that_cannot_be_made_is_named_as_the_user_did(tmp_path, monkeypatch):
    with pytest.raises(OSError, match=rf"File name too long: '{tmp_path}/{'a' * 256}'$"):
        dataset(ROWS).save(tmp_path / ("a" * 256))

    def fail(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", fail)
    with pytest.raises(PermissionError, match=rf"Permission denied: '{tmp_path}/corpus'$"):
        dataset(ROWS).save(tmp_path / "corpus")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 4])
def test_a_folder_that_cannot_be_written_is_not_there(tmp_path, monkeypatch, calls):
    fsync = os.fsync
    left = iter(range(calls))

    def fail(descriptor):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        dataset(ROWS, label=np.arange(4)).save(tmp_path / "corpus")
    assert not list(tmp_path.iterdir())


@contextmanager
def small_files():
    """Let no file grow beyond 100 bytes, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="File too large"), small_files():
        dataset(ROWS, label=np.arange(4)).save(tmp_path / "corpus")
    assert not list(tmp_path.iterdir())


def test_an_exception_before_the_disk_is_full_is_what_is_seen(tmp_path):
    draft = folder_module.FolderDraft(tmp_path / "corpus", {"x": ("int64", ()), "y": ("int8", ())})
    with pytest.raises(ZeroDivisionError), small_files(), draft:  # noqa: PT012 - A user's block.
        files = [file._file for file in draft._values.values()]
        draft.append("x", np.arange(9), None)
        draft.append("y", np.zeros(9, np.int8), None)
        raise ZeroDivisionError
    assert all(file.closed for file in files)
    assert not list(tmp_path.iterdir())


def test_a_draft_that_cannot_be_made_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "_MAGIC", None)
    with pytest.raises(TypeError):
        dataset(ROWS).save(tmp_path / "corpus")
    assert not list(tmp_path.iterdir())


def test_everything_is_on_the_disk_before_the_folder_is(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def record(descriptor):
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    dataset(ROWS, label=np.arange(4)).save(tmp_path / "corpus")
    paths = [*(tmp_path / "corpus").iterdir(), tmp_path / "corpus", tmp_path]
    assert sorted(synced[:-2]) == sorted(path.stat().st_ino for path in paths[:-2])
    assert synced[-2:] == [path.stat().st_ino for path in paths[-2:]]


def test_whoever_may_read_new_files_may_read_a_saved_folder(tmp_path, saved):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in saved.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "file").stat().st_mode)
    assert saved.stat().st_mode == (tmp_path / "folder").stat().st_mode
