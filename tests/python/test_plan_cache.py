"""A folder with plans, as one process sees it."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import evenstride as es
from evenstride import _core
from evenstride.options import check_names_for_trainer
from evenstride.plan_cache import PlanCache
from plan_cache_support import (
    LENGTHS,
    check_same,
    files_in,
    is_mapped,
    new_sampler,
)
from support import problems

SMAPS = Path("/proc/self/smaps_rollup")


def test_a_plan_is_made_once_and_found_by_the_others(tmp_path, made):
    wanted = new_sampler().plan
    made.clear()
    plans = [new_sampler(tmp_path / "new" / "folder").plan for _ in range(3)]
    assert made == ["settlement", 0]
    for plan in plans:
        check_same(plan, wanted)
        assert is_mapped(plan)
    assert len(files_in(tmp_path / "new" / "folder")) == 2


@pytest.mark.filterwarnings("ignore:.* are in no epoch")
@given(problems(num_replicas=3))
def test_any_plan_is_the_same_from_the_folder(tmp_path_factory, problem):
    lengths, options = problem
    epoch = options.pop("epoch")
    try:
        wanted = es.BucketBatchSampler(lengths, **options)
    except ValueError as error:
        with pytest.raises(ValueError, match=f"^{re.escape(str(error))}$"):
            new_sampler(tmp_path_factory.mktemp("plans"), lengths, **options)
        return
    folder = tmp_path_factory.mktemp("plans")
    wanted.set_epoch(epoch)
    for _ in range(2):
        sampler = new_sampler(folder, lengths, **options, rank=2)
        sampler.set_epoch(epoch)
        assert len(sampler) == len(wanted)
        check_same(sampler.plan, wanted.plan)
        assert is_mapped(sampler.plan)


@pytest.mark.skipif(not SMAPS.exists(), reason="needs the kernel's account of memory")
def test_with_the_folder_nobody_holds_memory_of_the_planner(tmp_path):
    lengths = np.full(6_000_000, 500, np.uint16)
    planners = []
    for _ in range(2):
        sampler = new_sampler(tmp_path, lengths, num_replicas=1, rank=0)
        sampler.plan  # noqa: B018 - Made.
        planners.append(sampler._plans.planner)
        assert held_by(planners[-1]) < 2**20
    planners[-1].plan(0, num_replicas=1, drop_last=False)
    assert held_by(planners[-1]) > 8 * len(lengths)


def held_by(planner):
    """Return the bytes that a planner keeps from plan to plan."""
    before = anonymous_bytes()
    planner.release_memory()
    return before - anonymous_bytes()


def anonymous_bytes():
    return 1024 * int(re.search(r"^Anonymous:\s+(\d+) kB", SMAPS.read_text(), re.MULTILINE)[1])


def test_a_settlement_can_be_made_of_its_numbers():
    planner = new_sampler()._plans.planner
    settled = planner.settle(num_replicas=2, drop_last=False, steps_per_epoch=None)
    other = _core.Settlement(batches=settled.batches, steps=settled.steps, repeats=settled.repeats)
    assert sum(other.batches) == 2 * other.steps
    one, same = (
        planner.plan(3, num_replicas=2, drop_last=False, settlement=s) for s in (settled, other)
    )
    assert all(np.array_equal(one[name], same[name]) for name in one)


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": LENGTHS[:-1]},
        {"lengths": LENGTHS[::-1]},
        {"lengths": np.append(LENGTHS[:-1], LENGTHS[-1] + 1)},
        {"seed": 1},
        {"token_budget": 8193},
        {"num_replicas": 3},
        {"order": "balanced"},
        {"jitter": 0.3},
        {"steps_per_epoch": 250},
        {"buckets": [300, 900]},
        {"drop_last": True},
    ],
    ids=str,
)
def test_plans_of_other_inputs_are_other_files(tmp_path, made, change):
    new_sampler(tmp_path).plan  # noqa: B018 - Made.
    made.clear()
    plan = new_sampler(tmp_path, **change).plan
    assert made == ["settlement", 0]
    assert len(files_in(tmp_path)) == 4
    check_same(plan, new_sampler(**change).plan)


def test_what_does_not_change_the_plan_does_not_change_the_files(tmp_path, made):
    new_sampler(tmp_path).plan  # noqa: B018 - Made.
    made.clear()
    others = [
        new_sampler(tmp_path, LENGTHS.astype(np.uint16)),
        new_sampler(tmp_path, LENGTHS.tolist(), num_threads=1),
        new_sampler(PlanCache(str(tmp_path), max_bytes=2**40), rank=0),
    ]
    assert all(is_mapped(sampler.plan) for sampler in others)
    assert made == []


# ---- samplers that have one ----


def test_the_folder_is_no_part_of_states_or_options(tmp_path):
    with_it, without = new_sampler(tmp_path), new_sampler()
    assert with_it.state_dict() == without.state_dict()
    assert with_it.plan.options == without.plan.options
    without.load_state_dict({**with_it.state_dict(), "step": 3})
    assert list(without) == list(with_it)[3:]


def test_samplers_and_plans_are_copied_and_pickled(tmp_path):
    sampler = new_sampler(PlanCache(tmp_path, max_bytes=10**9))
    batches = iter(sampler)
    next(batches)
    plan = sampler.plan
    copies = [copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))]
    plans = [copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))]
    text = pickle.dumps(plan)
    for path in list(tmp_path.iterdir()):
        path.unlink()
    for same in [*plans, pickle.loads(text)]:
        check_same(same, new_sampler().plan)
    for other in copies:
        other.load_state_dict(sampler.state_dict())
        assert list(other) == list(new_sampler())[1:]


def test_a_plan_outlives_its_file(tmp_path):
    sampler = new_sampler(tmp_path)
    batches = iter(sampler)
    first = next(batches)
    for path in list(tmp_path.iterdir()):
        path.unlink()
    assert [first, *batches] == list(new_sampler())


@pytest.mark.parametrize("value", [3, True, b"folder", ["folder"]], ids=repr)
def test_a_cache_is_a_path_or_a_plan_cache(value):
    message = f"`plan_cache` must be a path or a PlanCache, but is {value!r}."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        new_sampler(value)
    with pytest.raises(TypeError, match=r"^`folder` must be a path, but is "):
        PlanCache(value)


@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_at_least_one(tmp_path, value):
    message = f"`max_bytes` must be in [1, 2**63), but is {value}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PlanCache(tmp_path, max_bytes=value)


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sampler = new_sampler("plans")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    sampler.plan  # noqa: B018 - Made.
    assert len(files_in(tmp_path / "plans")) == 2


def test_samplers_that_are_made_for_a_trainer_may_have_one():
    check_names_for_trainer(["plan_cache", "num_threads"])
    with pytest.raises(TypeError, match=r"^`plan_caches` must be an option of"):
        check_names_for_trainer(["plan_caches"])
