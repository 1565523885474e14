"""Batches in pinned memory: made there where the loader can, and never in memory that is in use."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch

import evenstride as es
from evenstride import loader_targets, start_producers
from evenstride.blocks import PinnedBlocks
from loader_support import (
    collator,
    consume_all,
    counted,
    in_threads,
    loader_of,
    no_threads,
    plan_of,
    rows,
    same,
    wait_until,
)
from pinned_support import PlainBlocks, block_of

# Devices are no part of this.
pytestmark = pytest.mark.filterwarnings("ignore:Batches for .* are collated on the host")


@pytest.fixture(autouse=True)
def plain_blocks(monkeypatch):
    blocks = PlainBlocks()
    blocks.put_in_place(monkeypatch)
    return blocks


def all_batches(loader):
    """Take all batches in one thread, in the order of the plan."""
    return [batch for turn in itertools.zip_longest(*loader.targets) for batch in turn if batch]


def plain_batches(loader):
    """Copy what a loader yields whose own memory is to be used again."""
    return [{key: tensor.clone() for key, tensor in batch.items()} for batch in loader]


def two_fields(count=60):
    """Make a data set whose second ragged field is longer than the first."""
    lengths = np.arange(count) % 5 + 1
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    more = np.concatenate([[0], np.cumsum(9 * lengths)])
    return es.RaggedDataset(
        {
            "input_ids": (np.arange(bounds[-1], dtype=np.int32), bounds),
            "other": (np.arange(more[-1], dtype=np.int32), more),
        }
    )


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize(("num_workers", "depth"), [(1, 1), (3, 1), (2, 8)])
def test_batches_are_the_same_bit_for_bit(plain_blocks, targets, num_workers, depth):
    options = {"targets": targets, "num_workers": num_workers, "depth": depth}
    pinned = all_batches(loader_of(**options, pin_memory=True))
    plain = plain_batches(loader_of())
    assert len(pinned) == len(plain)
    for batch, other in zip(pinned, plain, strict=True):
        assert type(batch) is dict
        assert list(batch) == list(other)
        assert same(batch, other)
        assert all(plain_blocks.has(tensor) for tensor in batch.values())
        assert not any(plain_blocks.has(tensor) for tensor in other.values())
    assert plain_blocks.num_copied == 0


def test_each_batch_lies_in_a_block_of_its_own_as_long_as_a_tensor_of_it_lives(plain_blocks):
    loader = loader_of(pin_memory=True, depth=2)
    ids = {}
    for batch in loader:
        assert block_of(batch) not in ids
        ids[block_of(batch)] = batch["input_ids"]
    del batch
    plain = plain_batches(loader_of())
    assert all(map(torch.equal, ids.values(), (batch["input_ids"] for batch in plain)))
    assert plain_blocks.num_alive == len(plain)
    ids.clear()
    assert plain_blocks.num_alive == 0


def test_blocks_are_of_one_size_and_one_is_asked_for_with_each_batch(plain_blocks):
    loader = loader_of(pin_memory=True, depth=3)
    batches = iter(loader)
    for num_taken in range(1, len(loader) + 1):
        next(batches)
        assert len(plain_blocks.sizes) == min(4 + num_taken, len(loader))
    assert next(batches, None) is None
    assert loader.stats().memory_allocations == 0
    # Ids, mask and row of as many samples, and as many tokens, as a batch has at most.
    plan = loader._sampler.plan
    most_samples = int(np.diff(plan.offsets).max())
    (size,) = set(plain_blocks.sizes)
    assert size >= max(block["input_ids"].nbytes * 2 + block["row"].nbytes for block in loader_of())
    assert size <= 2 * 8 * int(plan.padded_tokens.max()) + 8 * most_samples + 3 * 63


def test_a_pass_asks_for_no_more_blocks_than_it_has_batches(plain_blocks):
    loader = loader_of(pin_memory=True, depth=500)
    assert len(list(loader)) == len(plain_blocks.sizes) == len(loader)


def test_no_block_is_asked_for_a_batch_that_a_loaded_state_has(plain_blocks):
    state = loader_of(in_order=False).state_dict()
    state["taken"] = [1, 3]
    resumed = loader_of(pin_memory=True, in_order=False, depth=500)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == len(plain_blocks.sizes) == len(resumed) - 2


def test_a_batch_that_is_larger_than_a_block_is_copied_to_one_of_its_size(plain_blocks):
    dataset = two_fields()
    collate = es.PadCollator({"input_ids": es.Field(), "other": es.Field()})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=20, buckets=1)
    pinned = list(es.Loader(dataset, sampler, collate, pin_memory=True))
    sampler.set_epoch(0)
    plain = plain_batches(es.Loader(dataset, sampler, collate))
    assert all(map(same, pinned, plain))
    sizes = sorted(set(plain_blocks.sizes))
    assert len(sizes) > 1
    assert sizes[0] < max(batch["other"].nbytes for batch in plain)
    for batch in pinned:
        assert block_of(batch)
        assert all(plain_blocks.has(tensor) for tensor in batch.values())


@pytest.mark.parametrize("num_ahead", [1, 2])
def test_where_no_block_is_at_hand_a_batch_is_made_elsewhere_and_copied(
    plain_blocks, monkeypatch, num_ahead
):
    monkeypatch.setattr(start_producers, "_MOST_READY", num_ahead)
    loader = loader_of(pin_memory=True, depth=6)
    batches = iter(loader)
    pinned = [next(batches)]
    wait_until(lambda: loader.queue_depths() == [6])
    # The first block that is given in place of another comes with the second take.
    assert loader.stats().memory_lent == 7 - num_ahead
    pinned += batches
    assert all(map(same, pinned, loader_of()))
    assert len({block_of(batch) for batch in pinned}) == len(pinned)
    assert all(plain_blocks.has(tensor) for batch in pinned for tensor in batch.values())
    assert (loader.stats().memory_lent, loader.stats().memory_slabs) == (0, 0)
    assert len(set(plain_blocks.sizes)) == 1
    assert len(plain_blocks.sizes) <= len(loader) + num_ahead


@pytest.mark.parametrize("pause_s", [0, 0.002])
@pytest.mark.parametrize("in_order", [True, False])
def test_every_batch_comes_once_to_several_threads_whether_slow_or_fast(
    plain_blocks, in_order, pause_s
):
    loader = loader_of(pin_memory=True, targets=3, in_order=in_order, depth=2, num_workers=2)
    taken = consume_all(loader, pause=lambda: time.sleep(pause_s))
    assert counted(itertools.chain(*taken)) == counted(plan_of(loader))
    wait_until(lambda: plain_blocks.num_alive == 0)


def test_batches_that_consumers_keep_are_not_overwritten_by_other_threads():
    loader = loader_of(1000, pin_memory=True, targets=3, in_order=False, depth=1, num_workers=3)
    kept = [[] for _ in loader.targets]
    takes = [lambda k=k: kept[k].extend(loader.targets[k]) for k in range(3)]
    assert in_threads(*takes) == []
    batches = list(itertools.chain(*kept))
    assert counted(map(rows, batches)) == counted(plan_of(loader))
    assert len({block_of(batch) for batch in batches}) == len(batches)


@pytest.mark.parametrize("num_taken", [0, 1, 5])
@pytest.mark.parametrize("end", ["close", "leave", "forget"])
def test_blocks_that_no_batch_was_made_in_are_let_go(plain_blocks, num_taken, end):
    loader = loader_of(pin_memory=True)
    batches = iter(loader)
    kept = [next(batches) for _ in range(num_taken)]
    if end == "close":
        loader.close()
    elif end == "leave":
        batches.close()
    else:
        del batches, loader
    assert no_threads()
    assert plain_blocks.num_alive == num_taken
    assert len(kept) == num_taken


@pytest.mark.parametrize("num_taken", [0, 3])
def test_a_pass_goes_on_where_a_state_says(num_taken):
    loader = loader_of(pin_memory=True)
    for _ in zip(range(num_taken), loader, strict=False):
        pass
    state = loader.state_dict()
    resumed = loader_of(pin_memory=True)
    resumed.load_state_dict(state)
    assert [rows(batch) for batch in resumed] == plan_of(loader)[num_taken:]


def test_what_fails_in_a_worker_lets_its_blocks_go(plain_blocks):
    values = np.arange(200)
    values[100] = -1  # Out of the range of the output.
    dataset = es.RaggedDataset({"input_ids": (values, np.arange(201))})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=8, buckets=1)
    collate = es.PadCollator({"input_ids": es.Field(dtype=torch.uint8)})
    loader = es.Loader(dataset, sampler, collate, pin_memory=True)
    with pytest.raises(ValueError, match="-1"):
        list(loader)
    assert no_threads()
    wait_until(lambda: plain_blocks.num_alive == 0)


@pytest.mark.parametrize("num_ahead", [1, 256])
def test_a_batch_without_memory_for_a_block_is_not_lost(plain_blocks, monkeypatch, num_ahead):
    monkeypatch.setattr(start_producers, "_MOST_READY", num_ahead)
    loader = loader_of(pin_memory=True, depth=4)
    taken, num_failures = [], 0
    batches = iter(loader)
    while len(taken) < len(loader):
        plain_blocks.fails = not plain_blocks.fails
        try:
            batch = next(batches)
        except MemoryError:
            assert plain_blocks.fails
            assert loader.state_dict()["sampler"]["step"] == len(taken)
            num_failures += 1
        else:
            taken.append(rows(batch))
    assert num_failures > 5
    assert taken == plan_of(loader)
    assert next(batches, None) is None


def test_a_block_that_could_not_be_allocated_is_given_later(plain_blocks):
    loader = loader_of(pin_memory=True, depth=3)
    batches = iter(loader)
    for num_taken in range(1, 9):
        next(batches)
        plain_blocks.fails = True
        for _ in range(2):
            with pytest.raises(MemoryError):
                next(batches)
        plain_blocks.fails = False
        assert len(plain_blocks.sizes) == 4 + num_taken
    assert loader.stats().memory_allocations == 0


def test_lists_of_rows_are_pinned_as_well_each_by_itself(plain_blocks):
    dataset = two_fields()
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=20, buckets=1)
    batches = list(es.Loader(dataset, sampler, collator(), pin_memory=True))
    assert any(isinstance(batch["other"], list) for batch in batches)
    for batch in batches:
        other = batch.pop("other")
        assert block_of(batch)
        assert all(map(plain_blocks.has, [*batch.values(), *other]))
    assert plain_blocks.num_copied > 0


def test_batches_of_python_threads_are_copied_by_torch_and_no_block_is_asked_for(plain_blocks):
    batches = list(loader_of(is_native=False, pin_memory=True))
    assert [rows(batch) for batch in batches] == plan_of(loader_of())
    assert all(plain_blocks.has(tensor) for batch in batches for tensor in batch.values())
    assert plain_blocks.sizes == []


@pytest.mark.parametrize(
    ("options", "is_moved"),
    [
        ({}, False),
        ({"device": "cpu"}, False),
        ({"device": "meta"}, True),
        ({"is_native": False}, True),
    ],
)
def test_only_what_is_not_where_it_belongs_is_moved(monkeypatch, options, is_moved):
    moved, calls = loader_targets.moved, []

    def note(batch, **how):
        calls.append(how)
        return moved(batch, **how)

    monkeypatch.setattr(loader_targets, "moved", note)
    loader = loader_of(**options, pin_memory=True)
    batches = list(loader)
    assert len(calls) == is_moved * len(batches)
    device = options.get("device", "cpu")
    assert {tensor.device.type for batch in batches for tensor in batch.values()} == {device}


def test_of_several_targets_only_those_with_a_device_have_their_batches_moved():
    loader = loader_of(targets=["cpu", "meta"], pin_memory=True)
    for target, device in zip(loader.targets, ("cpu", "meta"), strict=True):
        batch = next(iter(target))
        assert {tensor.device.type for tensor in batch.values()} == {device}


def test_what_is_cut_is_counted_once():
    dataset, collate = two_fields(), collator(max_length=3)
    lengths = dataset.lengths
    sampler = es.BucketBatchSampler(lengths.clip(max=3), token_budget=20, buckets=1)
    list(es.Loader(dataset, sampler, collate, pin_memory=True))
    cut = {"samples": int((lengths > 3).sum()), "tokens": int((lengths - 3).clip(0).sum())}
    assert collate.truncated == {"input_ids": cut}


def test_a_batch_for_a_device_is_copied_out_of_a_block(plain_blocks, monkeypatch):
    sources = []

    def to(tensor, device, *, non_blocking):
        assert (device, non_blocking) == (torch.device("cuda:1"), True)
        sources.append(plain_blocks.has(tensor))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    batches = list(loader_of(pin_memory=True, device="cuda:1"))
    assert sources == [True] * 3 * len(batches)
    assert plain_blocks.num_copied == 0


@pytest.mark.parametrize(
    ("targets", "device"),
    [
        (["cpu", "cpu"], None),
        (["cpu", "cuda:1"], torch.device("cuda:1")),
        (["cuda:2", "cuda:1"], torch.device("cuda:2")),
        (["cpu", "meta"], None),
    ],
)
def test_pinning_begins_no_context_on_a_device_that_was_not_asked_for(
    plain_blocks, monkeypatch, targets, device
):
    monkeypatch.setattr(loader_targets, "moved", lambda batch, **_: batch)
    loader = loader_of(targets=targets, pin_memory=True)
    consume_all(loader)
    assert plain_blocks.devices == {device}


def test_a_tensor_changed_in_place_does_not_invalidate_the_others_for_autograd():
    batch = next(iter(loader_of(pin_memory=True)))
    weights = torch.ones(200, requires_grad=True)
    loss = weights[batch["row"]].sum()  # Keeps the rows for the gradient.
    batch["input_ids"][batch["input_ids"] == 0] = -100
    loss.backward()
    assert weights.grad.nonzero().flatten().tolist() == sorted(batch["row"].tolist())


def test_a_pass_that_began_in_inference_mode_goes_on_outside_of_it():
    batches = iter(loader_of(pin_memory=True))
    with torch.inference_mode():
        next(batches)
    batch = next(batches)
    assert not any(tensor.is_inference() for tensor in batch.values())


class TestPinnedBlocks:
    """What the stand-in stands in for."""

    @pytest.fixture(autouse=True)
    def log(self, monkeypatch):
        log = []

        class Device:
            def __init__(self, device):
                self.device = device

            def __enter__(self):
                log.append(self.device)

            def __exit__(self, *_):
                log.append("left")

        def empty(*arguments, **options):
            log.append((arguments, options))
            return "block"

        monkeypatch.undo()
        monkeypatch.setattr(torch.cuda, "device", Device)
        monkeypatch.setattr(torch, "empty", empty)
        return log

    asked = (5,), {"dtype": torch.uint8, "device": "cpu", "pin_memory": True}

    @pytest.mark.parametrize("device", [None, torch.device("meta")])
    def test_are_of_the_host_whatever_the_default_device_is(self, log, device):
        assert PinnedBlocks(device).allocate(5) == "block"
        assert log == [self.asked]

    def test_are_pinned_while_their_device_is_the_current_one(self, log):
        device = torch.device("cuda:1")
        assert PinnedBlocks(device).allocate(5) == "block"
        assert log == [device, self.asked, "left"]
