"""Data sets and collators of any kind, which threads of Python read."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, default_collate

import evenstride as es
from loader_support import Plain, collator, lengths_of, ragged, sampler_of

LENGTHS = lengths_of(60)


def lists():
    return [{"input_ids": list(range(1, n + 1)), "label": i} for i, n in enumerate(LENGTHS)]


def arrays():
    return [{"input_ids": np.arange(n, dtype=np.int32), "label": i} for i, n in enumerate(LENGTHS)]


def tensors():
    return [{"input_ids": torch.arange(n), "label": torch.tensor(i)} for i, n in enumerate(LENGTHS)]


def hugging_face():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_list(lists())


def concatenated():
    rows = lists()
    return ConcatDataset([Plain(rows[:20]), Plain(rows[20:])])


def part():
    return Subset(Plain([{"input_ids": [9], "label": 9}, *lists()]), range(1, 61))


def ragged_parts():
    one, other = ragged(20, seed=1), ragged(40, seed=2)
    return ConcatDataset([one, other])


@pytest.mark.parametrize(
    "make", [lists, arrays, tensors, hugging_face, concatenated, part, ragged_parts]
)
@pytest.mark.parametrize("in_order", [True, False])
def test_yields_what_a_dataloader_yields_of(make, in_order):
    dataset = make()
    loader = es.Loader(dataset, sampler_of(dataset), collator(), num_workers=3, in_order=in_order)
    assert "Python" in repr(loader)
    wanted = list(DataLoader(dataset, batch_sampler=sampler_of(dataset), collate_fn=collator()))
    batches = list(loader)
    if not in_order:
        batches, wanted = (sorted(each, key=str) for each in (batches, wanted))
    assert len(batches) == len(wanted)
    for batch, right in zip(batches, wanted, strict=True):
        assert batch.keys() == right.keys()
        assert all(torch.equal(batch[key], right[key]) for key in right)


def test_default_collate_makes_batches_of_equal_samples():
    dataset = TensorDataset(torch.arange(120).reshape(60, 2), torch.arange(60))
    sampler = es.BucketBatchSampler([2] * 60, token_budget=16, buckets=1)
    loader = es.Loader(dataset, sampler, default_collate)
    wanted = list(DataLoader(dataset, batch_sampler=sampler))
    sampler.set_epoch(0)
    for (pairs, ids), (right_pairs, right_ids) in zip(loader, wanted, strict=True):
        assert torch.equal(pairs, right_pairs)
        assert torch.equal(ids, right_ids)


def test_a_collator_of_anything_gets_the_rows_of_a_ragged_dataset():
    dataset = ragged(60)
    loader = es.Loader(
        dataset, sampler_of(dataset), lambda rows: [int(row["input_ids"][0]) for row in rows]
    )
    wanted = [[int(dataset[i]["input_ids"][0]) for i in batch] for batch in sampler_of(dataset)]
    assert list(loader) == wanted


def test_a_data_set_that_fetches_whole_batches_is_asked_for_them():
    asked = []

    class Whole(Plain):
        def __getitems__(self, indices):
            asked.append(indices)
            return [self.rows[i] for i in indices]

    dataset = Whole(lists())
    loader = es.Loader(dataset, sampler_of(dataset), collator(), num_workers=1)
    for _ in loader:
        pass
    assert asked == list(sampler_of(dataset))


def test_threads_read_at_the_same_time():
    together = threading.Barrier(4)

    class Waiting(Plain):
        def __getitem__(self, index):
            together.wait(10)
            return super().__getitem__(index)

    dataset = Waiting([{"input_ids": [1]}] * 40)
    sampler = es.BucketBatchSampler([1] * 40, token_budget=1, buckets=1)
    loader = es.Loader(dataset, sampler, collator(), num_workers=4)
    assert sum(1 for _ in loader) == 40


def test_any_object_may_be_a_batch_and_none_is_kept():
    import weakref  # noqa: PLC0415

    class Batch:
        pass

    made = []

    def collate(_):
        batch = Batch()
        made.append(weakref.ref(batch))
        return batch

    dataset = Plain(lists())
    loader = es.Loader(dataset, sampler_of(dataset), collate, depth=2)
    for batch in loader:
        assert isinstance(batch, Batch)
        del batch
        time.sleep(0.001)
        assert sum(reference() is not None for reference in made) <= 2 + 1
    assert all(reference() is None for reference in made)


def test_none_may_be_a_batch():
    dataset = Plain(lists())
    loader = es.Loader(dataset, sampler_of(dataset), lambda _: None)
    assert list(loader) == [None] * len(loader)
