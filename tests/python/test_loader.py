"""A loader for one consumer: what it yields, counts and says of itself."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, random_split

import evenstride as es
from evenstride import device_memory
from loader_support import (
    BUDGET,
    Plain,
    batches_by_dataloader,
    collator,
    counted,
    loader_of,
    plan_of,
    ragged,
    rows,
    same,
    sampler_of,
    wait_until,
)

KINDS = [True, False]


@pytest.mark.parametrize("is_native", KINDS)
@pytest.mark.parametrize("num_workers", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 8, 1000])
def test_yields_what_a_dataloader_yields(is_native, num_workers, depth):
    loader = loader_of(is_native=is_native, num_workers=num_workers, depth=depth)
    wanted = batches_by_dataloader(loader)
    batches = [{key: value.clone() for key, value in batch.items()} for batch in loader]
    assert len(batches) == len(wanted) == len(loader)
    assert all(map(same, batches, wanted))


@pytest.mark.parametrize("is_native", KINDS)
def test_yields_each_batch_once_when_order_does_not_matter(is_native):
    loader = loader_of(is_native=is_native, num_workers=4, in_order=False)
    assert counted(map(rows, loader)) == counted(plan_of(loader))


@pytest.mark.parametrize("is_native", KINDS)
def test_each_pass_is_the_next_epoch(is_native):
    loader = loader_of(is_native=is_native)
    for epoch in range(3):
        assert [rows(batch) for batch in loader] == plan_of(loader, epoch)
        assert loader._sampler.epoch == epoch


def test_set_epoch_says_which_epoch_the_next_pass_is():
    loader = loader_of()
    for epoch in (5, 2, 2):
        loader._sampler.set_epoch(epoch)
        assert [rows(batch) for batch in loader] == plan_of(loader, epoch)


def test_a_whole_epoch_as_a_list_is_right_at_the_end():
    loader = loader_of(2000)
    with pytest.warns(UserWarning, match="copy what you keep"):
        batches = list(loader)
    assert [rows(batch) for batch in batches] == plan_of(loader)


def test_two_iterators_do_not_disturb_each_other():
    loader = loader_of(in_order=False, num_workers=3)
    wanted = counted(plan_of(loader))
    pairs = [(rows(one), rows(other)) for one, other in zip(loader, loader, strict=True)]
    assert counted(one for one, _ in pairs) == counted(other for _, other in pairs) == wanted


def test_an_iterator_that_is_not_used_changes_nothing():
    loader = loader_of()
    iter(loader)
    batches = iter(loader)
    assert [rows(batch) for batch in batches] == plan_of(loader)
    assert list(batches) == []
    assert next(batches, "over") == "over"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_gets_its_own_batches(rank):
    dataset = ragged()
    lengths = dataset.lengths
    options = {"token_budget": BUDGET, "buckets": 3, "num_replicas": 2}
    sampler = es.BucketBatchSampler(lengths, **options, rank=rank)
    loader = es.Loader(dataset, sampler, collator())
    wanted = [batch.tolist() for batch in es.plan_epoch(lengths, **options).batches(rank)]
    assert [rows(batch) for batch in loader] == wanted
    assert len(loader) == len(wanted)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("is_native", KINDS)
def test_counts_what_was_taken(is_native, in_order):
    loader = loader_of(is_native=is_native, in_order=in_order)
    plan = loader._sampler.plan
    assert loader.stats().batches == 0
    num_taken = 7
    batches = iter(loader)
    taken = counted(rows(next(batches)) for _ in range(num_taken))
    places = [k for k, batch in enumerate(plan_of(loader)) if tuple(batch) in taken]
    stats = loader.stats()
    assert (stats.epoch, stats.batches) == (0, num_taken)
    assert stats.samples == sum(map(len, taken))
    assert stats.tokens == plan.tokens[places].sum()
    assert stats.padded_tokens == plan.padded_tokens[places].sum()
    assert stats.batches_by_bucket == tuple(
        np.bincount(plan.buckets[places], minlength=len(plan.edges) - 1).tolist()
    )
    for _ in batches:
        pass
    stats = loader.stats()
    assert stats.batches == len(loader) == sum(stats.batches_by_bucket)
    assert stats.tokens == loader._sampler.lengths.sum()
    assert stats.batches_per_second == stats.batches / stats.seconds
    assert stats.tokens_per_second == stats.tokens / stats.seconds
    assert stats.seconds == loader.stats().seconds
    numbers = stats.to_dict()
    assert numbers["batches_by_bucket"] == list(stats.batches_by_bucket)
    assert numbers["tokens_per_second"] == stats.tokens_per_second


def test_counts_only_what_this_pass_took_of_a_resumed_epoch():
    loader = loader_of()
    loader.load_state_dict(
        {
            "sampler": {**loader.state_dict()["sampler"], "step": 3},
            "taken": [5, 6],
        }
    )
    next(iter(loader))
    assert loader.stats().batches == 1
    assert loader.stats().samples == len(plan_of(loader)[3])


def test_queues_fill_up_to_their_depth():
    loader = loader_of(depth=5)
    assert loader.queue_depths() == [0]
    batches = iter(loader)
    next(batches)
    wait_until(lambda: loader.queue_depths() == [5])
    loader.close()
    assert loader.queue_depths() == [0]


def test_waits_are_told_from_each_other():
    loader = loader_of(depth=1)
    batches = iter(loader)
    next(batches)
    wait_until(lambda: loader.stats().producers_waited_s > 0.05)
    assert loader.stats().consumers_waited_s < 0.05


@pytest.mark.parametrize(
    "indices", [[5, 3, 150, 7], range(0, 200, 2), torch.arange(20, 60), np.arange(9)]
)
def test_a_subset_is_read_natively(indices):
    subset = Subset(Subset(ragged(400), range(0, 400, 2)), indices)
    loader = es.Loader(subset, sampler_of(subset), collator())
    assert "native" in repr(loader)
    taken = [row for batch in loader for row in rows(batch)]
    assert sorted(taken) == sorted(2 * int(index) for index in indices)


def test_parts_of_a_random_split_are_read_natively():
    train, test = random_split(ragged(), [150, 50])
    parts = [es.Loader(part, sampler_of(part), collator()) for part in (train, test)]
    taken = [row for loader in parts for batch in loader for row in rows(batch)]
    assert all("native" in repr(loader) for loader in parts)
    assert sorted(taken) == list(range(200))


def test_a_subclass_that_reads_in_another_way_is_asked_for_its_rows():
    class Odd(es.RaggedDataset):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "odd": torch.tensor(1)}

    dataset = Odd({"input_ids": (np.arange(6), [0, 1, 3, 6])})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=6, buckets=1)
    loader = es.Loader(dataset, sampler, collator())
    assert "Python" in repr(loader)
    assert all("odd" in batch for batch in loader)


def test_batches_may_be_moved_to_a_device(monkeypatch):
    monkeypatch.setattr(device_memory, "_said", set())
    loader = loader_of(device="meta")
    with pytest.warns(UserWarning, match="^Batches for meta are collated on the host and copied"):
        batches = list(loader)
    for batch, wanted in zip(batches, plan_of(loader), strict=True):
        assert batch["row"].device.type == "meta"
        assert batch["row"].shape == (len(wanted),)


def test_type_keys_and_nesting_of_a_batch_stay_when_it_is_moved():
    from collections import OrderedDict, namedtuple  # noqa: PLC0415
    from types import MappingProxyType  # noqa: PLC0415

    Pair = namedtuple("Pair", "a b")  # noqa: PYI024

    def collate(samples):
        ids = samples[0]["input_ids"]
        nested = OrderedDict(b=Pair(ids, "text"), a=[ids, (ids, 3)], c=MappingProxyType({"d": ids}))
        return {"nested": nested, "none": None}

    loader = loader_of(is_native=False, collate=collate, device="meta")
    batch = next(iter(loader))
    nested = batch["nested"]
    assert list(batch) == ["nested", "none"]
    assert type(nested) is OrderedDict
    assert list(nested) == ["b", "a", "c"]
    assert type(nested["b"]) is Pair
    assert nested["b"].b == "text"
    tensors = [nested["b"].a, nested["a"][0], nested["a"][1][0], nested["c"]["d"]]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert nested["a"][1][1] == 3
    assert batch["none"] is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs no CUDA")
def test_pinning_without_cuda_does_nothing_and_says_so_once():
    message = "`pin_memory=True` has no effect: there is no CUDA device."
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$") as warned:
        loader = loader_of(pin_memory=True)
    assert len(warned) == 1
    assert [rows(batch) for batch in loader] == plan_of(loader)
    assert warned[0].filename == __file__.replace("test_loader.py", "loader_support.py")


def test_is_not_copied():
    message = (
        "A `Loader` has threads, and cannot be copied or pickled: make one where it is needed, of "
        "its data set, sampler and collator, which can."
    )
    with loader_of() as loader:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
                copied(loader)


def test_says_what_it_is():
    loader = loader_of(num_workers=3, targets=2)
    name = f"<Loader of {len(loader)} batches for 2 targets by 3 native threads>"
    assert repr(loader) == name
    assert repr(loader.targets[1]) == f"<Target 1 of {name}>"
    assert "Python" in repr(loader_of(is_native=False))
    assert isinstance(loader_of(is_native=False)._dataset, Plain)
