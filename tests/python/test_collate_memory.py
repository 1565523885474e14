"""The memory of batches: used again once nobody has it, and never before."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from itertools import pairwise

import numpy as np
import pytest
import torch

from collate_support import ids_field, same
from data_support import dataset, flat, some_rows
from evenstride import PadCollator, RaggedDataset
from support import lognormal


@pytest.fixture(scope="module")
def corpus():
    lengths = lognormal(3000, seed=5, longest=600)
    offsets = np.cumsum([0, *lengths])
    values = np.random.default_rng(0).integers(0, 2**16, offsets[-1], dtype=np.uint16)
    return RaggedDataset({"input_ids": (values, offsets)})


def checksum(batch):
    return {
        key: int((tensor * (1 + torch.arange(tensor.numel()).view_as(tensor))).sum())
        for key, tensor in batch.items()
    }


def slabs(collate, ds):
    return collate.bound_to(ds).native.slabs


def test_batches_that_are_held_keep_their_values(corpus):
    """A slow consumer has the last two batches of a thousand."""
    collate = PadCollator(ids_field(), position_ids=True)
    random = np.random.default_rng(1)
    held = deque(maxlen=2)
    for _ in range(1000):
        samples = random.integers(0, len(corpus), random.integers(1, 9)).tolist()
        batch = collate(corpus.__getitems__(samples))
        held.append((batch, checksum(batch)))
        assert all(checksum(one) == before for one, before in held)
    use = slabs(collate, corpus)
    assert use["lent"] == 2
    assert use["slabs"] <= 4


def test_memory_does_not_grow_with_two_thousand_shapes_of_one_budget():
    longest, budget = 512, 8192
    ds = dataset([[size] * size for size in range(longest + 1)], "uint16")
    collate = PadCollator(ids_field(), position_ids=True)
    random = np.random.default_rng(2)
    held, shapes, uses = deque(maxlen=2), set(), []
    for width in random.integers(1, longest + 1, 2000):
        others = random.integers(0, width + 1, budget // width - 1)
        held.append(collate(ds.__getitems__([int(width), *others.tolist()])))
        shapes.add(held[-1]["input_ids"].shape)
        uses.append(slabs(collate, ds))
    assert all(use == uses[9] for use in uses[10:])
    assert len(shapes) > 400


def test_memory_that_nobody_has_is_used_again():
    collate, ds = PadCollator(ids_field()), dataset(some_rows(10))
    addresses = [collate(ds[:])["input_ids"].data_ptr() for _ in range(5)]
    assert len(set(addresses)) == 1
    assert slabs(collate, ds)["allocations"] == 1


def test_one_key_keeps_the_memory_of_its_batch():
    collate, ds = PadCollator(ids_field()), dataset(some_rows(10))
    mask = collate(ds[:])["attention_mask"]
    before = mask.clone()
    views = [mask[1:, ::2], mask.numpy()]
    del mask
    for _ in range(10):
        collate(ds[:])["input_ids"].fill_(7)
    assert same(views[0], before[1:, ::2])
    assert np.array_equal(views[1], before.numpy())
    assert slabs(collate, ds)["lent"] == 1
    del views
    assert slabs(collate, ds)["lent"] == 0


def test_writing_into_one_batch_changes_no_other():
    collate, ds = PadCollator(ids_field(), lengths=True), dataset(some_rows(20))
    batches = [collate(ds.__getitems__([i, i + 1, i + 2])) for i in range(15)]
    copies = [{key: tensor.clone() for key, tensor in batch.items()} for batch in batches]
    for i, batch in enumerate(batches):
        for tensor in batch.values():
            tensor.fill_(-i)
        assert all(map(same, batches[i + 1 :], copies[i + 1 :]))
        assert all((tensor == -i).all() for tensor in batch.values())


def test_keys_of_a_batch_do_not_overlap():
    collate, ds = PadCollator(ids_field(), position_ids=True, lengths=True), dataset([[1], [2, 3]])
    batch = collate(ds[:])
    spans = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in batch.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert all(begin % 64 == 0 for begin, _ in spans)


def test_a_batch_outlives_collator_data_set_and_arrays():
    values, offsets = flat(some_rows(20), "int32")
    ds, collate = RaggedDataset({"input_ids": (values, offsets)}), PadCollator(ids_field())
    batch = collate(ds[:])
    before = {key: tensor.clone() for key, tensor in batch.items()}
    values.fill(-1)
    del ds, collate, values, offsets
    gc.collect()
    assert same(batch, before)


def test_a_collator_keeps_neither_data_sets_nor_their_values():
    values, offsets = flat(some_rows(20), "int32")
    alive = weakref.ref(values)
    ds, collate = RaggedDataset({"input_ids": (values, offsets)}), PadCollator(ids_field())
    collate(ds[:])
    del ds, values, offsets
    assert alive() is None


def test_a_collator_that_died_leaves_a_data_set_usable():
    ds = dataset([[1, 2], [3]])
    for _ in range(3):
        collate = PadCollator(ids_field())
        assert collate(ds[:])["input_ids"].tolist() == [[1, 2], [3, 0]]
        alive = weakref.ref(collate)
        del collate
        assert alive() is None
    del ds


def test_the_values_outlive_the_data_set_while_its_rows_are_alive():
    rows = dataset([[1, 2], [3]])[:]
    gc.collect()
    assert PadCollator(ids_field())(rows)["input_ids"].tolist() == [[1, 2], [3, 0]]


def test_a_collator_goes_between_data_sets_without_binding_anew():
    train, validation = dataset([[1, 2], [3]]), dataset([[4], [5, 6], [7]])
    collate = PadCollator(ids_field())
    bound = collate.bound_to(train), collate.bound_to(validation)
    for _ in range(3):
        assert collate(train[:])["input_ids"].tolist() == [[1, 2], [3, 0]]
        assert collate(validation[:])["input_ids"].tolist() == [[4, 0], [5, 6], [7, 0]]
    assert (collate.bound_to(train), collate.bound_to(validation)) == bound
