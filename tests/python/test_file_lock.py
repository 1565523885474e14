"""A lock between processes and threads."""

from __future__ import annotations

import pytest

from evenstride import file_lock
from evenstride.file_lock import FileLock

pytestmark = pytest.mark.skipif(file_lock.fcntl is None, reason="needs the locks of POSIX")


def test_only_one_has_it_and_its_file_is_there_as_long(tmp_path):
    path = tmp_path / "lock"
    with FileLock(path) as one:
        assert one.acquire()
        assert path.exists()
        with FileLock(path) as other:
            assert not other.acquire()
            assert not other.is_acquired
        assert path.exists()
    assert not path.exists()
    with FileLock(path) as other:
        assert other.acquire()
        assert other.is_acquired
        assert other.excludes


def test_a_file_that_is_left_is_no_lock(tmp_path):
    path = tmp_path / "lock"
    path.write_text("")
    with FileLock(path) as lock:
        assert lock.acquire()


def test_a_file_that_was_taken_away_meanwhile_is_no_lock(tmp_path, monkeypatch):
    one, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert one.acquire()
    flock = file_lock.fcntl.flock

    def released_first(*arguments):
        monkeypatch.undo()
        one.release()
        flock(*arguments)

    monkeypatch.setattr(file_lock.fcntl, "flock", released_first)
    assert not other.acquire()
    assert other.acquire()
    other.release()


def test_no_file_stays_open(tmp_path):
    for _ in range(2):
        with FileLock(tmp_path / "lock") as one, FileLock(tmp_path / "lock") as other:
            one.acquire()
            other.acquire()
    assert not file_lock._opened


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with FileLock(tmp_path / "none" / "lock") as lock, pytest.raises(FileNotFoundError):
        lock.acquire()
