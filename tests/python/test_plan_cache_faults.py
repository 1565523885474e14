"""A folder with plans that has something wrong with it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenstride import file_lock
from evenstride.plan import EpochPlan
from evenstride.plan_cache import PlanCache
from plan_cache_support import (
    LENGTHS,
    check_same,
    files_in,
    is_mapped,
    new_sampler,
    the_plan,
)

USELESS = r"^`plan_cache` is of no use, so that this process plans for itself: .*\.$"


# ---- what is wrong with a file ----


def damaged(data, how):
    half = len(data) // 2
    return {
        "empty": b"",
        "truncated": data[:half],
        "one byte less": data[:-1],
        "garbage": bytes(range(256)) * 8,
        "no header": b"\0" * len(data),
        "another version": data.replace(b'"evenstride_plan":"1"', b'"evenstride_plan":"9"'),
        "another epoch": data.replace(b'\\"epoch\\": 0', b'\\"epoch\\": 7'),
        "other options": data.replace(b'\\"seed\\": 0', b'\\"seed\\": 5'),
    }[how]


DAMAGES = [
    "empty",
    "truncated",
    "one byte less",
    "garbage",
    "no header",
    "another version",
    "another epoch",
    "other options",
]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_plan_is_made_again_with_one_warning(tmp_path, made, how):
    new_sampler(tmp_path).plan  # noqa: B018 - Made.
    made.clear()
    path = the_plan(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damaged(whole, how))
    assert path.read_bytes() != whole
    with pytest.warns(UserWarning, match=r"^A file of `plan_cache` is made again: `") as caught:
        plan = new_sampler(tmp_path).plan
    assert len(caught) == 1
    assert Path(caught[0].filename).parent == Path(__file__).parent
    assert path.read_bytes() == whole
    assert is_mapped(new_sampler(tmp_path).plan)
    assert made == [0]
    check_same(plan, new_sampler().plan)


@pytest.mark.parametrize("how", ["empty", "truncated", "garbage", "digits"])
def test_a_damaged_settlement_is_made_again_with_one_warning(tmp_path, made, how):
    new_sampler(tmp_path)
    made.clear()
    (path,) = tmp_path.glob("*.json")
    whole = path.read_bytes()
    steps = re.search(rb'"steps": \d+', whole)[0]
    path.write_bytes(whole.replace(steps, steps + b"0") if how == "digits" else damaged(whole, how))
    with pytest.warns(UserWarning, match=r"^A file of `plan_cache` is made again: `") as caught:
        sampler = new_sampler(tmp_path)
    assert len(caught) == 1
    assert path.read_bytes() == whole
    assert made == ["settlement"]
    assert len(sampler) == len(new_sampler())


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_leaves_a_plan_of_the_same_shape(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("plans")
    wanted = new_sampler(folder, LENGTHS[:50]).plan
    path = the_plan(folder)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    path.write_bytes(data)
    cache = PlanCache(folder)
    cache._warned.add("damage")
    plan = new_sampler(cache, LENGTHS[:50]).plan
    assert plan.indices.shape == wanted.indices.shape
    assert plan.offsets[-1] == len(plan.indices)
    assert plan.num_steps == wanted.num_steps


# ---- what is wrong with the folder ----


def no_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "folder"


def full_disk(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    return tmp_path


def read_only(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(file_lock.os, "open", refuse)
    return tmp_path


def held_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr("evenstride.plan_cache._LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr(file_lock.FileLock, "acquire", lambda _: False)
    return tmp_path


def no_room(tmp_path, monkeypatch):
    return PlanCache(tmp_path, max_bytes=1)


FAULTS = [no_folder, full_disk, read_only, held_for_long, no_room]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_without_a_folder_of_use_there_is_one_warning_and_the_same_plan(
    tmp_path, monkeypatch, made, fault
):
    folder = fault(tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match=USELESS) as caught:  # noqa: PT031 - One in all.
        sampler = new_sampler(folder)
        batches = list(sampler)
        sampler.set_epoch(1)
        plan = sampler.plan
    assert len(caught) == 1
    assert Path(caught[0].filename).parent == Path(__file__).parent
    assert made == ["settlement", 0, 1]
    check_same(plan, sampler._plans._made(1))
    monkeypatch.undo()
    assert batches == list(new_sampler())
    assert not files_in(tmp_path, ".plan")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.filterwarnings("error")
def test_a_folder_that_cannot_be_written_is_still_read(tmp_path, monkeypatch, made):
    new_sampler(tmp_path).plan  # noqa: B018 - Made.
    made.clear()
    read_only(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "utime", lambda _: os.open("", 0))
    assert is_mapped(new_sampler(tmp_path).plan)
    assert made == []


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("num_reads", [0, 1])
def test_a_plan_that_cannot_be_read_is_left_alone(tmp_path, monkeypatch, made, error, num_reads):
    sampler = new_sampler(tmp_path)
    wanted = sampler.plan
    path = the_plan(tmp_path)
    status = path.stat()
    mapped, reads = EpochPlan.mapped, []

    def refuse(path):
        reads.append(path)
        if len(reads) <= num_reads:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        raise OSError(error, os.strerror(error), str(path))

    made.clear()
    monkeypatch.setattr(EpochPlan, "mapped", refuse)
    with pytest.warns(UserWarning, match=USELESS) as caught:
        check_same(new_sampler(tmp_path).plan, wanted)
    assert len(caught) == 1
    assert made == [0]
    monkeypatch.setattr(EpochPlan, "mapped", mapped)
    assert path.stat().st_ino == status.st_ino
    assert is_mapped(new_sampler(tmp_path).plan)
    assert made == [0]
    assert len(files_in(tmp_path)) == 2


def test_a_plan_that_was_written_but_cannot_be_read_is_used_all_the_same(tmp_path, monkeypatch):
    sampler = new_sampler(tmp_path)
    mapped = EpochPlan.mapped

    def refuse(path):
        if path.exists():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return mapped(path)

    monkeypatch.setattr(EpochPlan, "mapped", refuse)
    with pytest.warns(UserWarning, match=USELESS):
        check_same(sampler.plan, new_sampler().plan)
    monkeypatch.undo()
    assert is_mapped(new_sampler(tmp_path).plan)


def test_errors_of_the_options_are_as_without_a_folder(tmp_path):
    for folder in (None, tmp_path):
        with pytest.raises(ValueError, match=r"^`steps_per_epoch` must be in \["):
            new_sampler(folder, steps_per_epoch=1)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("without", ["module", "file system"])
def test_where_there_are_no_locks_whoever_comes_first_wins(tmp_path, monkeypatch, made, without):
    if without == "module":
        monkeypatch.setattr(file_lock, "fcntl", None)
    else:
        monkeypatch.setattr(file_lock.fcntl, "flock", lambda *_: os.open(b"", 0))
    plans = [new_sampler(tmp_path).plan for _ in range(2)]
    assert made == ["settlement", 0]
    for plan in plans:
        assert is_mapped(plan)
    assert files_in(tmp_path, ".plan")
