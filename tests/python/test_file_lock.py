"""A lock between processes and threads."""

from __future__ import annotations

import os
import threading

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


def forked(work):
    """Return the exit status of a fork that does `work`: 0 if it is true."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = int(not work())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_does_not_have_the_lock_of_its_parent(tmp_path):
    path = tmp_path / "lock"
    with FileLock(path) as lock, FileLock(path) as other:
        assert lock.acquire()

        def let_go():
            is_mine = lock.is_acquired or lock.excludes
            lock.release()
            return not is_mine

        assert forked(let_go) == 0
        assert path.exists()
        assert not other.acquire()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_that_lets_go_closes_no_file_of_its_own(tmp_path):
    with FileLock(tmp_path / "lock") as lock:
        assert lock.acquire()

        def keeps_its_own():
            own = FileLock(tmp_path / "own")
            own.acquire()
            lock.release()
            return own.excludes and not FileLock(tmp_path / "own").acquire()

        assert forked(keeps_its_own) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_waits_for_a_thread_that_opens_a_lock(tmp_path, monkeypatch):
    is_open, may_go_on = threading.Event(), threading.Event()
    opened, system_open = [], os.open

    def slow_open(*arguments):
        opened.append(system_open(*arguments))
        is_open.set()
        may_go_on.wait(0.3)
        return opened[0]

    def is_closed():
        try:
            os.fstat(opened[0])
        except OSError:
            return True
        return False

    lock = FileLock(tmp_path / "lock")
    monkeypatch.setattr(file_lock.os, "open", slow_open)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    assert is_open.wait(60)
    assert forked(is_closed) == 0
    may_go_on.set()
    thread.join()
    lock.release()
