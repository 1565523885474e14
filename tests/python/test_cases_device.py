"""Cases that other projects' users met with buffers that are used again."""

from __future__ import annotations

import numpy as np
import torch

import evenstride as es
from collate_support import same
from data_support import dataset, some_rows
from evenstride.cuda import DeviceCollator
from loader_support import collator, loader_of, no_threads, plan_of, rows

ALLOCATIONS = ["cuMemAlloc", "cuMemFree", "cuMemHostRegister", "cuMemHostUnregister"]


def test_every_batch_of_a_thousand_in_a_few_buffers_keeps_its_sum(fake_cuda):
    lengths = np.random.default_rng(5).integers(1, 40, 3_000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.arange(offsets[-1], dtype=np.uint32)
    data = es.RaggedDataset({"input_ids": (values, offsets)})
    on_device = DeviceCollator(data, collator(), device="cuda:0", memory="ring", depth=1)
    for step in range(1_000):
        indices = [(3 * step + k) % 3_000 for k in range(3)]
        batch = on_device(indices)
        fake_cuda.finish()
        expected = sum(int(values[offsets[i] : offsets[i + 1]].sum()) for i in indices)
        assert int(batch["input_ids"].sum()) == expected
        assert int(batch["attention_mask"].sum()) == int(lengths[indices].sum())


def test_an_iterator_may_be_dropped_amid_its_copies(fake_cuda):
    loader = loader_of(device="cuda:0", depth=4)
    for taken in range(5):
        batches = iter(loader)
        kept = [next(batches) for _ in range(taken)]
        del batches
        assert no_threads()
        fake_cuda.finish()
        assert [rows(batch) for batch in kept] == plan_of(loader)[:taken]
        loader.load_state_dict(loader_of().state_dict())


def test_memory_is_constant_after_a_few_of_two_thousand_shapes(fake_cuda):
    data, budget = dataset(some_rows(400, longest=60)), 1_024
    lengths = np.maximum(data.lengths, 1)
    on_device = DeviceCollator(
        data, collator(), device="cuda:0", max_padded_tokens=budget, max_batch_size=64
    )
    random = np.random.default_rng(9)

    def run(steps):
        for _ in range(steps):
            indices = random.permutation(400)[: random.integers(1, 65)]
            while len(indices) * lengths[indices].max() > budget:
                indices = indices[:-1]
            batch = on_device(indices)
            fake_cuda.finish()
            assert batch["input_ids"].shape == (len(indices), lengths[indices].max())

    run(10)
    assert fake_cuda.calls_of(lambda: run(2_000), ALLOCATIONS) == dict.fromkeys(ALLOCATIONS, 0)


def test_indices_of_a_plan_may_be_of_any_integer_type(fake_cuda):
    data, collate = dataset([[1], [2, 3], [4]]), collator()
    on_device = DeviceCollator(data, collate, device="cuda:0")
    expected = collate(data.__getitems__([2, 1]))
    for indices in [np.array([2, 1], np.int32), np.array([2, 1], np.uint8), torch.tensor([2, 1])]:
        batch = on_device(indices)
        fake_cuda.finish()
        assert same(batch, expected)
