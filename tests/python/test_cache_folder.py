"""Which files of a folder with plans are taken away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from evenstride import cache_folder, file_lock
from evenstride.plan_cache import PlanCache
from plan_cache_support import (
    check_same,
    epochs_in,
    files_in,
    is_mapped,
    new_sampler,
    plan_of,
    the_plan,
)


def age(path, seconds):
    """Make it so many seconds longer ago that a file was used."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def age_all(folder, seconds):
    for path in folder.iterdir():
        age(path, seconds)


def test_epochs_before_the_previous_one_are_taken_away(tmp_path):
    plan_of(tmp_path, 0, seed=1)
    sampler = new_sampler(tmp_path)
    found = []
    for epoch in (0, 1, 2, 3):
        sampler.set_epoch(epoch)
        sampler.plan  # noqa: B018 - Made.
        found.append(epochs_in(tmp_path))
        age_all(tmp_path, 100)
    assert found == [[0, 0], [0, 0, 1], [0, 1, 2], [0, 2, 3]]


def test_what_was_not_used_for_days_is_taken_away(tmp_path):
    plan_of(tmp_path, 0, seed=1)
    plan_of(tmp_path, 0, seed=2)
    age_all(tmp_path, cache_folder.KEPT_S + 60)
    plan_of(tmp_path, 0, seed=1)  # Used, and so kept.
    other = tmp_path / "evenstride-mine.json"
    other.write_text("")
    age(other, 10 * cache_folder.KEPT_S)
    plan_of(tmp_path, 0)
    assert epochs_in(tmp_path) == [0, 0]
    assert len(files_in(tmp_path)) == 5
    assert other.exists()


def test_files_of_other_versions_are_taken_away_after_a_day(tmp_path, monkeypatch):
    for module in ("cache_folder", "plan_cache"):
        monkeypatch.setattr(f"evenstride.{module}.VERSION", "1.0.0.9")
    plan_of(tmp_path, 0)
    monkeypatch.undo()
    plan_of(tmp_path, 0)
    assert epochs_in(tmp_path) == [0, 0]
    age_all(tmp_path, cache_folder.KEPT_OTHERS_S + 60)
    plan_of(tmp_path, 1)
    assert epochs_in(tmp_path) == [0, 1]
    assert all("1.0.0.9" not in name for name in files_in(tmp_path))


def test_the_limit_is_kept_by_taking_away_what_was_not_used_for_longest(tmp_path, made):
    plan_of(tmp_path, 0)
    limit = 3 * the_plan(tmp_path).stat().st_size + 6000
    cache = PlanCache(tmp_path, max_bytes=limit)
    for seed in range(1, 5):
        age_all(tmp_path, 100)
        plan_of(cache, 0, seed=seed)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
        assert len(epochs_in(tmp_path)) == min(seed + 1, 3)
    made.clear()
    for seed in (2, 3, 4):
        plan_of(cache, 0, seed=seed)
    assert made == []


def test_what_was_used_in_the_last_minute_is_not_taken_away(tmp_path, made):
    plan_of(tmp_path, 0)
    size = the_plan(tmp_path).stat().st_size
    cache = PlanCache(tmp_path, max_bytes=int(1.5 * size))
    with pytest.warns(UserWarning, match=r"its limit leaves no room for [\d,]+ bytes\.$"):
        plan = plan_of(cache, 0, seed=1)
    check_same(plan, plan_of(None, 0, seed=1))
    assert is_mapped(plan_of(cache, 0))


@pytest.mark.parametrize(("free", "left"), [(4, 2), (2, 1)])
def test_by_itself_the_cache_takes_half_of_what_would_be_free(tmp_path, monkeypatch, free, left):
    plan_of(tmp_path, 0)
    used = sum(path.stat().st_size for path in tmp_path.iterdir())
    age_all(tmp_path, 100)
    usage = cache_folder.shutil.disk_usage(tmp_path)._replace(free=free * used)
    monkeypatch.setattr(cache_folder.shutil, "disk_usage", lambda _: usage)
    plan_of(tmp_path, 0, seed=1)
    assert len(epochs_in(tmp_path)) == left


def test_what_dead_processes_left_is_taken_away(tmp_path):
    plan_of(tmp_path, 0)
    mine, other = the_plan(tmp_path).name, the_plan(tmp_path).name.replace("-0.plan", "-5.plan")
    next_one = mine.replace("-0.plan", "-1.plan")
    left = [f".{name}.123.0a1b2c3d" for name in (mine, other, next_one)] + [f"{other}.lock"]
    for name in left:
        (tmp_path / name).write_text("half")
    plan_of(tmp_path, 1)
    assert len(files_in(tmp_path)) == 3
    assert epochs_in(tmp_path) == [0, 1]


def test_what_a_live_process_writes_is_left_alone(tmp_path):
    plan_of(tmp_path, 0)
    other = the_plan(tmp_path).name.replace("-0.plan", "-5.plan")
    draft = tmp_path / f".{other}.123.0a1b2c3d"
    draft.write_text("half")
    with file_lock.FileLock(tmp_path / f"{other}.lock") as lock:
        assert lock.acquire()
        plan_of(tmp_path, 1)
        assert draft.exists()
    plan_of(tmp_path, 2)
    assert not draft.exists()


def test_a_lock_that_was_left_long_ago_is_held_as_long_as_any_other(tmp_path):
    files = cache_folder.CacheFolder(tmp_path, 10**9)
    path = files.path_of("0" * 32, 3)
    left = path.with_name(f"{path.name}.lock")
    left.touch()
    age(left, 2 * cache_folder.KEPT_OTHERS_S)
    with files.lock_of(path) as lock, files.lock_of(path) as other:
        assert lock.acquire()
        assert time.time() - left.stat().st_mtime < cache_folder.IN_USE_S
        age(left, 2 * cache_folder.KEPT_OTHERS_S)
        assert files.make_room(path, lock, 10, "0" * 32, 3)
        assert left.exists()
        assert not other.acquire()


@pytest.mark.parametrize("is_excluding", [True, False])
def test_only_where_there_are_no_locks_does_a_draft_become_too_old(
    tmp_path, monkeypatch, is_excluding
):
    files = cache_folder.CacheFolder(tmp_path, 10**9)
    mine, other = files.path_of("0" * 32, 3), files.path_of("1" * 32, 3)
    drafts = [tmp_path / f".{path.name}.123.0a1b2c3d" for path in (mine, other)]
    left = mine.with_name(f"{mine.name}.lock")
    for path in (*drafts, left):
        path.touch()
        age(path, 2 * cache_folder.KEPT_OTHERS_S)
    if not is_excluding:
        monkeypatch.setattr(file_lock, "fcntl", None)
    with files.lock_of(mine) as lock, files.lock_of(other) as held:
        assert lock.acquire()
        assert held.acquire()
        assert files.make_room(mine, lock, 10, "0" * 32, 3)
        assert [path.exists() for path in drafts] == [False, is_excluding]
        assert left.exists()


@pytest.mark.parametrize("what", ["lock", "draft"])
def test_what_is_left_is_taken_away_while_its_lock_is_held(tmp_path, monkeypatch, what):
    files = cache_folder.CacheFolder(tmp_path, 10**9)
    mine, other = files.path_of("0" * 32, 3), files.path_of("1" * 32, 3)
    name = f"{other.name}.lock" if what == "lock" else f".{other.name}.123.0a1b2c3d"
    left = tmp_path / name
    left.touch()
    unlink, lock_is_free = Path.unlink, []

    def tried_first(path, **options):
        if path == left:
            with files.lock_of(other) as third:
                lock_is_free.append(third.acquire())
        unlink(path, **options)

    with files.lock_of(mine) as lock:
        assert lock.acquire()
        monkeypatch.setattr(Path, "unlink", tried_first)
        assert files.make_room(mine, lock, 10, "0" * 32, 3)
        monkeypatch.undo()
    assert lock_is_free == [False]
    assert not left.exists()


def test_epochs_that_another_job_is_in_are_kept(tmp_path, made):
    plan_of(tmp_path, 0)
    plan_of(tmp_path, 1)
    plan_of(tmp_path, 5)
    made.clear()
    assert is_mapped(plan_of(tmp_path, 0))
    assert made == []
    age_all(tmp_path, 100)
    plan_of(tmp_path, 1)
    plan_of(tmp_path, 6)
    assert epochs_in(tmp_path) == [1, 5, 6]
