"""`Loader` whose batches are padded on devices, over a driver that pretends."""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pytest
import torch

import evenstride as es
from collate_support import same, whole
from loader_support import (
    collator,
    consume_all,
    counted,
    loader_of,
    no_threads,
    plan_of,
    ragged,
    rows,
)

PER_BATCH = ["cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventRecord"]
NEVER = ["cuMemAlloc", "cuMemFree", "cuMemHostRegister", "cuEventSynchronize"]


def on_device(device="cuda:0", **options):
    return loader_of(device=device, **options)


def taken_from(loader, fake_cuda):
    """Take a pass, each batch once the device has it."""
    taken = []
    for batch in loader:
        fake_cuda.finish()
        taken.append(rows(batch))
    return taken


@pytest.mark.parametrize("memory", ["torch", "ring"])
@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("depth", [1, 8])
def test_yields_what_a_loader_of_the_host_yields(fake_cuda, depth, num_workers, memory):
    options = {"depth": depth, "num_workers": num_workers}
    loader = on_device(device_memory=memory, **options)
    for batch, other in zip(loader, loader_of(**options), strict=True):
        fake_cuda.finish()
        assert same(batch, other)
        del batch
    assert no_threads()


def test_a_batch_is_one_copy_one_launch_and_one_event(fake_cuda):
    loader = on_device(depth=4)
    taken_from(loader, fake_cuda)
    counts = fake_cuda.calls_of(lambda: taken_from(loader, fake_cuda), PER_BATCH)
    assert counts == dict.fromkeys(PER_BATCH, len(loader))


def test_allocates_nothing_and_waits_for_nothing_within_a_pass(fake_cuda):
    batches = iter(on_device(depth=4, num_workers=1))
    kept = next(batches)
    fake_cuda.finish()

    def run():
        for batch in batches:
            fake_cuda.finish()
            rows(batch)

    counts = fake_cuda.calls_of(run, NEVER)
    rows(kept)
    assert counts == dict.fromkeys(NEVER, 0)


def test_kept_batches_keep_their_values(fake_cuda):
    loader = on_device(depth=2)
    kept = list(loader)
    fake_cuda.finish()
    assert [rows(batch) for batch in kept] == plan_of(loader)


def test_blocks_are_of_one_size_and_few_are_ahead(fake_cuda):
    loader = on_device(depth=3)
    batches = iter(loader)
    kept = [next(batches) for _ in range(5)]
    assert len({batch["input_ids"].untyped_storage().nbytes() for batch in kept}) == 1
    assert len(fake_cuda.blocks) <= len(kept) + 2 * 3 + 1
    batches.close()


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("devices", [["cuda:0", "cuda:1"], ["cuda:1", "cuda:1", "cuda:0"]])
def test_each_target_gets_its_batches(fake_cuda, devices, in_order):
    loader = loader_of(targets=devices, in_order=in_order)
    kept = [[] for _ in devices]

    def run(target):
        kept[target].extend(loader.targets[target])

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fake_cuda.finish()
    taken = [[rows(batch) for batch in batches] for batches in kept]
    plan = plan_of(loader)
    if in_order:
        assert taken == [plan[k :: len(devices)] for k in range(len(devices))]
    assert counted(itertools.chain(*taken)) == counted(plan)


def test_one_target_may_take_what_was_meant_for_another_device(fake_cuda):
    loader = loader_of(targets=["cuda:0", "cuda:1"], in_order=False)
    stalled = iter(loader.targets[0])
    kept = [next(stalled), *loader.targets[1]]
    kept += stalled
    fake_cuda.finish()
    assert counted(map(rows, kept)) == counted(plan_of(loader))


def test_resumes_at_the_first_batch_that_was_not_taken(fake_cuda):
    loader = on_device(depth=3)
    batches = iter(loader)
    first = [next(batches) for _ in range(4)]
    state = loader.state_dict()
    fake_cuda.finish()
    resumed = on_device(depth=3)
    resumed.load_state_dict(state)
    assert [*map(rows, first), *taken_from(resumed, fake_cuda)] == plan_of(loader)


def test_leaving_a_pass_lets_go_of_all_memory(fake_cuda):
    loader = on_device(depth=3)
    batch = next(iter(loader))
    loader.close()
    fake_cuda.finish()
    rows(batch)
    assert no_threads()
    assert loader.stats().batches == 1
    del batch
    gc.collect()
    assert len(fake_cuda.allocated) > 3
    assert [block for block in fake_cuda.allocated if block() is not None] == []


@pytest.mark.parametrize("memory", ["torch", "ring"])
def test_there_is_no_memory_for_more_batches_than_there_are(fake_cuda, memory):
    loader = on_device(depth=1_000, device_memory=memory)
    counts = fake_cuda.calls_of(lambda: taken_from(loader, fake_cuda), ["cuMemAlloc"])
    assert loader.stats().memory_slabs <= len(loader)
    assert counts["cuMemAlloc"] <= len(loader) + 1  # Of a ring, and the slab on the device.


def test_an_error_of_the_data_comes_where_its_batch_would(fake_cuda):
    dataset = es.RaggedDataset(
        {"input_ids": (np.array([1, 2, 300], np.int16), np.array([0, 1, 2, 3]))}
    )
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=1, buckets=1, shuffle=False)
    collate = es.PadCollator({"input_ids": es.Field(dtype=torch.uint8)})
    batches = iter(es.Loader(dataset, sampler, collate, device="cuda:0"))
    kept = []
    message = (
        "`input_ids`, row 2: holds 300, which does not fit into uint8, the type of `input_ids`."
    )
    with pytest.raises(ValueError, match=whole(message)):
        kept.extend(batches)
    fake_cuda.finish()


def test_ragged_fields_without_a_field_come_along(fake_cuda):
    values, offsets = np.arange(6), np.array([0, 1, 3, 6])
    dataset = es.RaggedDataset({"input_ids": (values, offsets), "other": (values, offsets)})
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=9, buckets=1, shuffle=False)
    loader = es.Loader(dataset, sampler, collator(), device="cuda:0")
    host = es.Loader(dataset, sampler, collator())
    for batch, other in zip(list(loader), list(host), strict=True):
        fake_cuda.finish()
        assert same(batch, other)


def test_truncation_is_counted_once(fake_cuda):
    dataset = ragged(50)
    lengths = np.minimum(dataset.lengths, 5)
    sampler = es.BucketBatchSampler(lengths, token_budget=20, buckets=2)
    collate = collator(max_length=5)
    for _ in es.Loader(dataset, sampler, collate, device="cuda:0"):
        fake_cuda.finish()
    cut = dataset.lengths[dataset.lengths > 5]
    assert collate.truncated == {"input_ids": {"samples": len(cut), "tokens": int((cut - 5).sum())}}


def test_a_tensor_that_outlives_its_lease_is_an_error(fake_cuda):
    loader = on_device(device_memory="ring", depth=1)
    kept = []
    message = (
        "Tensors of earlier batches must be let go of when their lease is over, but all memory of "
        "the ring on cpu is in use."
    )
    with pytest.raises(RuntimeError, match=whole(message)):
        kept.extend(batch["input_ids"] for batch in loader)
    fake_cuda.finish()
    first = kept[0][kept[0] != 0]
    assert len(first) == len(torch.unique(first))


def test_memory_of_the_last_lease_may_outlive_the_loader(fake_cuda):
    loader = on_device(device_memory="ring", depth=1)
    batch = next(iter(loader))
    loader.close()
    fake_cuda.finish()
    expected = rows(batch)
    del loader
    gc.collect()
    assert rows(batch) == expected == plan_of(loader_of())[0]


@pytest.mark.parametrize("memory", ["", "TORCH", None])
def test_says_which_memory_there_is(memory):
    message = f"`device_memory` must be 'torch' or 'ring', but is {memory!r}."
    with pytest.raises(ValueError, match=whole(message)):
        loader_of(device_memory=memory)


def test_consumers_of_one_device_share_it(fake_cuda):
    loader = loader_of(targets=["cuda:0"] * 3, num_workers=2, depth=2)
    taken = consume_all(loader)
    fake_cuda.finish()
    assert counted(itertools.chain(*taken)) == counted(plan_of(loader))
