"""What the tests of the plan cache share."""

from __future__ import annotations

import re

import numpy as np

import evenstride as es
from evenstride.epoch_plans import EpochPlans
from support import ARRAYS, lognormal

LENGTHS = lognormal(3000)
OPTIONS = {"token_budget": 8192, "num_replicas": 2, "rank": 1}


def new_sampler(folder=None, lengths=LENGTHS, **options):
    return es.BucketBatchSampler(lengths, **{**OPTIONS, **options}, plan_cache=folder)


def check_same(plan, wanted):
    for name in (*ARRAYS, "tokens"):
        found, expected = getattr(plan, name), getattr(wanted, name)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
        assert not found.flags.writeable
    for name in ("num_replicas", "epoch", "removed", "options", "num_steps"):
        assert getattr(plan, name) == getattr(wanted, name)


def is_mapped(plan):
    array = plan.indices
    while isinstance(array.base, np.ndarray):
        array = array.base
    return isinstance(array, np.memmap)


def files_in(folder, suffix=""):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


def the_plan(folder):
    (path,) = folder.glob("*.plan")
    return path


def epochs_in(folder):
    return sorted(int(re.search(r"-(\d+)\.plan$", name)[1]) for name in files_in(folder, ".plan"))


def plan_of(folder, epoch, **options):
    sampler = new_sampler(folder, **options)
    sampler.set_epoch(epoch)
    return sampler.plan


def count_made(monkeypatch):
    """Return a list that gets what is planned or settled, and not found."""
    made = []
    make, settle = EpochPlans._made, EpochPlans._made_settlement

    def counted(self, epoch):
        made.append(epoch)
        return make(self, epoch)

    def counted_settlement(self, num_replicas):
        made.append("settlement")
        return settle(self, num_replicas)

    monkeypatch.setattr(EpochPlans, "_made", counted)
    monkeypatch.setattr(EpochPlans, "_made_settlement", counted_settlement)
    return made
