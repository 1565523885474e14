"""Loaders of small data sets, and what they must yield."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import evenstride as es

BUDGET = 64
JOIN_S = 30


def lengths_of(count, *, longest=20, seed=0):
    return np.random.default_rng(seed).integers(1, longest + 1, count)


def ragged(count=200, *, longest=20, seed=0):
    """Make a data set whose every value is unique, so that no wrong batch goes unseen."""
    offsets = np.concatenate([[0], np.cumsum(lengths_of(count, longest=longest, seed=seed))])
    values = np.arange(1, offsets[-1] + 1, dtype=np.int32)
    return es.RaggedDataset({"input_ids": (values, offsets), "row": np.arange(count)})


def sampler_of(dataset, **options):
    lengths = [len(dataset[i]["input_ids"]) for i in range(len(dataset))]
    return es.BucketBatchSampler(lengths, **{"token_budget": BUDGET, "buckets": 3, **options})


def collator(**options):
    return es.PadCollator({"input_ids": es.Field()}, **options)


class Plain(Dataset):
    """The same rows, without any native way to read them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def loader_of(count=200, *, is_native=True, sampler=None, collate=None, **options):
    dataset = ragged(count)
    sampler = sampler or sampler_of(dataset)
    dataset = dataset if is_native else Plain(dataset)
    return es.Loader(dataset, sampler, collate or collator(), **options)


def rows(batch):
    """Return the samples of a batch, after a look at every value in it."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    assert torch.equal(ids != 0, mask != 0)
    first = ids[:, :1] + torch.arange(ids.shape[1])
    assert torch.equal(ids, torch.where(mask != 0, first, 0))
    return batch["row"].tolist()


def plan_of(loader, epoch=0):
    """Return the batches of an epoch in order."""
    sampler = es.BucketBatchSampler(
        loader._sampler.lengths, token_budget=BUDGET, buckets=3, num_replicas=1
    )
    sampler.set_epoch(epoch)
    return list(sampler)


def batches_by_dataloader(loader):
    """Return what a DataLoader yields."""
    dataset = ragged(len(loader._sampler.lengths))
    sampler = es.BucketBatchSampler(loader._sampler.lengths, token_budget=BUDGET, buckets=3)
    return list(DataLoader(dataset, batch_sampler=sampler, collate_fn=collator()))


def same(batch, other):
    return batch.keys() == other.keys() and all(
        torch.equal(batch[key], other[key]) and batch[key].dtype == other[key].dtype
        for key in batch
    )


def counted(batches):
    return Counter(tuple(batch) for batch in batches)


def names_of_threads():
    """Of this process, the names of our threads, Python's and native ones."""
    names = [thread.name for thread in threading.enumerate()]
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # It has just ended.
            names.append(task.read_text().strip())
    return {name for name in names if name.startswith("evenstride")}


def no_threads(within_s=5.0):
    """Whether none of our threads runs, or none before long."""
    end = time.monotonic() + within_s
    while names_of_threads():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def wait_until(condition, within_s=10.0):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "It has taken too long."
        time.sleep(0.002)


def consume(loader, target, into, *, pause=None):
    """Take all batches of a target, in this thread."""
    for batch in loader.targets[target]:
        into.append(rows(batch))
        if pause is not None:
            pause()


def in_threads(*calls):
    """Run calls in a thread each; return once all have ended."""
    errors = []

    def caught(call):
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=caught, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S)
    assert not any(thread.is_alive() for thread in threads), "A thread hangs."
    return errors


def consume_all(loader, **options):
    """Take all batches of every target in a thread each; return them by target."""
    taken = [[] for _ in loader.targets]
    calls = [
        lambda k=k, into=into: consume(loader, k, into, **options) for k, into in enumerate(taken)
    ]
    assert in_threads(*calls) == []
    return taken
