"""A loader that is closed, and the memory of its batches."""

from __future__ import annotations

import random
import re
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import evenstride as es
from loader_support import (
    Plain,
    collator,
    consume_all,
    counted,
    in_threads,
    loader_of,
    no_threads,
    plan_of,
    ragged,
    rows,
    sampler_of,
    wait_until,
)

KINDS = [True, False]
CLOSED = "This iterator has ended, because its loader was closed."


@pytest.mark.parametrize("is_native", KINDS)
def test_closing_twice_is_closing(is_native):
    loader = loader_of(is_native=is_native)
    loader.close()
    batches = iter(loader)
    next(batches)
    loader.close()
    loader.close()
    assert no_threads(0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^{re.escape(CLOSED)}$"):
            next(batches)


@pytest.mark.parametrize("is_native", KINDS)
def test_a_closed_loader_can_begin_again(is_native):
    loader = loader_of(is_native=is_native)
    next(iter(loader))
    loader.close()
    assert loader.stats().batches == 1
    assert [rows(batch) for batch in loader] == plan_of(loader)


@pytest.mark.parametrize("is_native", KINDS)
def test_a_block_closes_its_loader(is_native):
    with loader_of(is_native=is_native) as loader:
        batches = iter(loader)
        next(batches)
    assert no_threads(0)
    with pytest.raises(RuntimeError, match=f"^{re.escape(CLOSED)}$"):
        next(batches)


def test_a_pass_that_was_taken_whole_ends_well_after_closing():
    loader = loader_of()
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    loader.close()
    assert next(batches, "over") == "over"


def test_an_iterator_can_be_closed():
    loader = loader_of()
    batches = iter(loader)
    batches.close()
    assert next(batches, "over") == "over"
    batches = iter(loader)
    next(batches)
    batches.close()
    batches.close()
    assert no_threads()
    assert next(batches, "over") == "over"


@pytest.mark.parametrize("is_native", KINDS)
def test_closing_wakes_consumers_that_wait(is_native):
    dataset, goes_on = ragged(), threading.Event()

    class Slow(Plain):
        def __getitem__(self, index):
            goes_on.wait(10)
            return super().__getitem__(index)

    if is_native:  # Where a target waits while another one's queue is full.
        loader = loader_of(targets=2, depth=1)
    else:
        loader = es.Loader(Slow(dataset), sampler_of(dataset), collator(), targets=2)
    errors = []

    def run():
        errors.extend(in_threads(lambda: list(loader.targets[0])))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: loader._pass is not None)
    time.sleep(0.05)
    closing = threading.Thread(target=loader.close, daemon=True)
    closing.start()
    thread.join(5)
    assert [str(error) for error in errors] == [CLOSED]
    assert is_native or closing.is_alive()  # A worker is waited for.
    goes_on.set()
    closing.join(5)
    assert no_threads(0)


@pytest.mark.parametrize("is_native", KINDS)
def test_many_threads_may_close_at_once(is_native):
    for _ in range(30):
        loader = loader_of(is_native=is_native, targets=2, num_workers=3)
        batches = [iter(target) for target in loader.targets]
        for each in batches:
            next(each)
        begin = threading.Barrier(6)

        def close(loader=loader, begin=begin):
            begin.wait(10)
            loader.close()

        def take(k, batches=batches, begin=begin):
            begin.wait(10)
            assert sum(1 for _ in batches[k]) >= 0

        errors = in_threads(*[close] * 4, lambda: take(0), lambda: take(1))
        assert {str(error) for error in errors} <= {CLOSED}
        loader.close()
        assert no_threads(0)


def test_no_memory_is_allocated_after_the_first_batches():
    """2,000 random shapes, a consumer that is fast at times, and slow at others."""
    random_lengths = np.random.default_rng(3).integers(0, 1500, 20_000)
    offsets = np.concatenate([[0], np.cumsum(random_lengths)])
    dataset = es.RaggedDataset({"input_ids": (np.arange(offsets[-1]), offsets)})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=6000, buckets=12)
    assert len(sampler) >= 2000
    loader = es.Loader(dataset, sampler, collator(position_ids=True))
    shapes = set()
    for step, batch in enumerate(loader):
        shapes.add(batch["input_ids"].shape)
        if step == 10:
            after = loader.stats()
        if step % 100 < 2:
            time.sleep(0.005)
    del batch
    assert len(shapes) > 500
    assert loader.stats().memory_allocations == after.memory_allocations
    assert after.memory_slabs <= 8 + 2
    largest = sampler.plan.padded_tokens.max() * 3 * 8
    assert after.memory_bytes <= after.memory_slabs * 2 * (largest + 3 * 64)
    assert loader.stats().memory_bytes == 0


@pytest.mark.parametrize("is_early", [True, False])
def test_memory_returns_at_the_end_but_for_what_is_in_use(is_early):
    loader = loader_of(depth=4)
    batches = iter(loader)
    kept = next(batches)
    wait_until(lambda: loader.queue_depths() == [4])
    stats = loader.stats()
    assert stats.memory_slabs == 6
    assert stats.memory_lent == 5
    if not is_early:
        assert sum(1 for _ in batches) == len(loader) - 1
    batches.close()
    assert (loader.stats().memory_slabs, loader.stats().memory_lent) == (1, 1)
    assert rows(kept) == plan_of(loader)[0]
    view = kept["input_ids"][0, 1:]
    del kept
    assert loader.stats().memory_lent == 1
    del view
    assert (loader.stats().memory_lent, loader.stats().memory_bytes) == (0, 0)


def test_a_consumer_that_keeps_everything_is_told_so_once():
    loader = loader_of(1000, depth=2)
    with pytest.warns(UserWarning, match="copy what you keep") as warned:
        kept = [batch for batch in loader]  # noqa: C416 - So that it is this file that is told.
    message = (
        r"The loader's batches take the memory of (9|1\d) by now, more than twice what its queues "
        r"need, because tensors of earlier ones are in use; copy what you keep\."
    )
    assert re.fullmatch(message, str(warned[0].message))
    assert warned[0].filename == __file__
    assert [rows(batch) for batch in kept] == plan_of(loader)
    kept += loader
    assert len(warned) == 1
    assert [rows(batch) for batch in kept] == plan_of(loader) + plan_of(loader, 1)


def test_a_warning_that_is_an_error_loses_no_batch():
    loader = loader_of(1000, depth=2)
    batches, kept = iter(loader), []
    with pytest.raises(UserWarning):
        kept.extend(batches)
    kept.extend(batches)
    assert [rows(batch) for batch in kept] == plan_of(loader)


def checksum(batch):
    return int(batch["input_ids"].sum()), tuple(batch["row"].tolist())


def wanted_checksums(loader, dataset):
    for batch in plan_of(loader):
        yield sum(int(dataset[i]["input_ids"].sum()) for i in batch), tuple(batch)


def test_every_one_of_a_thousand_batches_is_right_with_few_buffers_and_a_slow_consumer():
    loader = loader_of(5000, depth=1, num_workers=3)
    wanted = wanted_checksums(loader, ragged(5000))
    pauses = random.Random(1)
    previous = None
    for step, (batch, right) in enumerate(zip(loader, wanted, strict=True)):
        if step % 10 == 0:
            time.sleep(pauses.random() * 0.003)
        assert checksum(batch) == right
        if previous is not None:  # It has not been written over.
            assert checksum(previous[0]) == previous[1]
        previous = batch, right
    assert step >= 1000
    assert loader.stats().memory_allocations <= 4


def test_an_iterator_may_be_dropped_while_batches_are_copied():
    rng = np.random.default_rng(0)
    offsets = np.arange(0, 200 * 100_000 + 1, 100_000)
    dataset = es.RaggedDataset({"input_ids": (rng.integers(0, 9, offsets[-1], np.int8), offsets)})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=400_000, buckets=1)
    loader = es.Loader(dataset, sampler, collator(), num_workers=4)
    for _ in range(20):
        batch = next(iter(loader))
        assert batch["input_ids"].shape == (4, 100_000)
        first = batch["input_ids"].clone()
        assert torch.equal(first, batch["input_ids"])
    kept = weakref.ref(loader)
    del loader
    assert kept() is None
    assert no_threads()
    assert torch.equal(first, batch["input_ids"])


@pytest.mark.parametrize("in_order", [True, False])
def test_batches_of_several_targets_share_the_memory(in_order):
    loader = loader_of(2000, targets=3, depth=2, in_order=in_order)
    taken = consume_all(loader)
    assert counted(batch for part in taken for batch in part) == counted(plan_of(loader))
    assert loader.stats().memory_allocations <= 3 * (2 + 2)


def test_python_threads_have_no_memory_of_ours():
    loader = loader_of(is_native=False)
    next(iter(loader))
    stats = loader.stats()
    assert (stats.memory_slabs, stats.memory_bytes, stats.memory_allocations) == (0, 0, 0)
