"""Plans in files."""

from __future__ import annotations

import json
import os
import pickle
import stat

import numpy as np
import pytest

import evenstride as es
from support import ARRAYS, lognormal, same_plans

OPTIONS = {"token_budget": 4096, "buckets": [300, 900], "num_replicas": 2}


@pytest.fixture
def plan():
    lengths = np.append(lognormal(2000), [0, 9000])
    return es.plan_epoch(
        lengths, **OPTIONS, max_length=8000, too_long="drop", empty="drop", epoch=3
    )


@pytest.mark.filterwarnings("ignore:.* are in no epoch")
def test_what_is_saved_is_loaded(tmp_path, plan):
    plan.save(tmp_path / "epoch.plan")
    loaded = es.EpochPlan.load(tmp_path / "epoch.plan")
    assert same_plans(plan, loaded)
    for name in ARRAYS:
        assert getattr(loaded, name).dtype == getattr(plan, name).dtype
        assert not getattr(loaded, name).flags.writeable
    assert loaded.epoch == 3
    assert (loaded.num_steps, loaded.num_replicas) == (plan.num_steps, 2)
    assert loaded.removed == plan.removed
    assert loaded.options == plan.options
    assert loaded.stats() == plan.stats()
    assert loaded.step_info(5, 1) == plan.step_info(5, 1)
    assert loaded.largest_step == plan.largest_step


@pytest.mark.parametrize("kind", [str, os.fspath])
def test_a_path_may_be_a_string(tmp_path, plan, kind):
    path = kind(tmp_path / "epoch.plan")
    plan.save(path)
    assert same_plans(plan, es.EpochPlan.load(path))


def test_a_loaded_plan_is_memory_mapped(tmp_path, plan):
    plan.save(tmp_path / "epoch.plan")
    loaded = es.EpochPlan.load(tmp_path / "epoch.plan")
    for name in ("indices", "offsets", "buckets", "widths"):
        array = getattr(loaded, name)
        while isinstance(array.base, np.ndarray):
            array = array.base
        assert isinstance(array, np.memmap)


def test_a_loaded_plan_is_pickled_as_its_path(tmp_path, plan):
    plan.save(tmp_path / "epoch.plan")
    text = pickle.dumps(es.EpochPlan.load(tmp_path / "epoch.plan"))
    assert len(text) < 1000
    assert same_plans(plan, pickle.loads(text))


def test_empty_arrays_survive(tmp_path):
    plan = es.plan_epoch([3], token_budget=4)
    plan.save(tmp_path / "epoch.plan")
    loaded = es.EpochPlan.load(tmp_path / "epoch.plan")
    assert loaded.repeats.shape == loaded.dropped.shape == (0,)
    assert same_plans(plan, loaded)


def test_a_loaded_plan_can_be_saved_over_its_own_file(tmp_path, plan):
    path = tmp_path / "epoch.plan"
    plan.save(path)
    es.EpochPlan.load(path).save(path)
    assert same_plans(plan, es.EpochPlan.load(path))


def test_saving_is_atomic(tmp_path, plan, monkeypatch):
    path = tmp_path / "epoch.plan"
    plan.save(path)
    before = path.read_bytes()

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        es.plan_epoch([3, 4], token_budget=4).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_file_can_be_read_by_whoever_may_read_new_files(tmp_path, plan):
    (tmp_path / "other").write_text("")
    plan.save(tmp_path / "epoch.plan")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("other", "epoch.plan")}
    assert len(modes) == 1


def test_a_missing_file_or_folder_is_said_to_be_missing(tmp_path, plan):
    with pytest.raises(FileNotFoundError):
        es.EpochPlan.load(tmp_path / "none.plan")
    with pytest.raises(FileNotFoundError):
        plan.save(tmp_path / "none" / "epoch.plan")


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path, plan):
    path = tmp_path / "epoch.plan"
    plan.save(path)
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    places = {0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1, len(data) - 1}
    places |= set(range(header, len(data), 997))
    for place in sorted(places):
        path.write_bytes(data[:place])
        with pytest.raises(ValueError, match=r"must be a plan that was saved whole, but .*\.$"):
            es.EpochPlan.load(path)


def test_a_header_with_any_byte_flipped_is_refused_or_means_the_same_shapes(tmp_path):
    path = tmp_path / "epoch.plan"
    plan = es.plan_epoch([3, 9, 4, 8, 3, 9], token_budget=18, buckets=[6])
    plan.save(path)
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    for place in range(header):
        for flip in (0x01, 0x10, 0x80):
            broken = bytearray(data)
            broken[place] ^= flip
            path.write_bytes(broken)
            try:
                loaded = es.EpochPlan.load(path)
            except ValueError as error:
                assert str(error).endswith(".")  # noqa: PT017 - Either is right.
                continue
            # A flip inside of a fact, such as a digit of the seed, makes another plan, whole.
            assert all(getattr(loaded, name).ndim == 1 for name in ARRAYS)
            assert len(loaded.buckets) == len(loaded.widths) == len(loaded)


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 8, b"\xff" * 64, b"PK\x03\x04" * 9])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be a plan that was saved whole"):
        es.EpochPlan.load(path)


def test_another_version_of_the_format_is_refused_with_both_versions(tmp_path, plan):
    path = tmp_path / "epoch.plan"
    plan.save(path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["evenstride_plan"] = "99"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(ValueError, match=r"must be a plan of version 1, but has version 99\.$"):
        es.EpochPlan.load(path)


def test_indices_that_point_outside_their_arrays_are_refused(tmp_path):
    path = tmp_path / "epoch.plan"
    plan = es.plan_epoch([3, 9, 4, 8, 3, 9], token_budget=18, buckets=[6])
    plan.save(path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    begin = json.loads(data[8 : 8 + length])["offsets"]["data_offsets"][0] + 8 + length
    for entry, value in [(1, 10**6), (1, -4), (3, 10**6), (3, 5)]:
        broken = bytearray(data)
        broken[begin + 8 * entry : begin + 8 * entry + 8] = value.to_bytes(8, "little", signed=True)
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="offsets"):
            es.EpochPlan.load(path)
