"""Batches that a loader has made, on the last step to their consumer."""

from __future__ import annotations

import contextlib
import copy
import itertools

import numpy as np
import pytest
import torch

import evenstride as es
from evenstride import loader_targets
from loader_support import counted, loader_of, plan_of, rows


@pytest.mark.filterwarnings("ignore:Batches for meta are collated on the host")
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_cannot_be_moved_once_is_not_lost(monkeypatch, targets, in_order):
    loader = loader_of(targets=targets, in_order=in_order, device="meta")
    moved, failures = loader_targets.moved, []

    def fails_at_times(batch, **options):
        if len(failures) < 3:
            failures.append(loader.state_dict())
            raise MemoryError
        assert moved(batch, **options)["row"].device.type == "meta"
        return batch

    monkeypatch.setattr(loader_targets, "moved", fails_at_times)
    taken = []
    ended = object()
    iterators = [iter(target) for target in loader.targets]
    for batches in itertools.cycle(iterators):
        batch = None
        with contextlib.suppress(MemoryError):
            batch = next(batches, ended)
        if batch is ended:
            break
        if batch is None:
            assert loader.state_dict()["sampler"]["step"] == len(taken)
        else:
            taken.append(rows(batch))
    taken += [rows(batch) for batches in iterators for batch in batches]
    assert len(failures) == 3
    assert counted(taken) == counted(plan_of(loader))


def test_a_batch_that_cannot_be_finished_is_not_passed_over():
    values = np.array([1, 2**63, 3, 4], np.uint64)
    offsets = np.arange(5)
    dataset = es.RaggedDataset({"input_ids": (values, offsets), "other": (values, offsets)})
    collate = es.PadCollator({"input_ids": es.Field(dtype=torch.uint64)})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=1, buckets=1, shuffle=False)
    bad = list(copy.deepcopy(sampler)).index([1])
    loader = es.Loader(dataset, sampler, collate)
    batches = iter(loader)
    for _ in range(bad):
        next(batches)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"9223372036854775808"):
            next(batches)
    assert loader.state_dict()["sampler"]["step"] == bad
