"""Padding collators in a DataLoader: in its process, and in worker processes of every kind."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

from collate_support import ids_field, same, whole
from data_support import flat, some_rows
from evenstride import BucketBatchSampler, Field, PadCollator, RaggedDataset, bound

ROWS = some_rows(40, seed=3)
LABELS = np.arange(40, dtype=np.int16)
COLLATE = PadCollator(
    {"input_ids": Field(-1), "next": Field(-100, torch.int32, source="input_ids", start=1)},
    position_ids=True,
    lengths=True,
    pad_to_multiple_of=4,
    padding_side="left",
    mask_dtype=torch.bool,
)


class Samples(Dataset):
    """Samples as lists and arrays, as users write their own data sets."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        kind = list if index % 2 else np.array
        row = np.array(ROWS[index], np.int64)
        score = 0.5 if index % 2 else 1  # As JSON has it.
        return {
            "input_ids": kind(row),
            "other": row[:2],
            "label": int(LABELS[index]),
            "score": score,
        }


def ragged():
    heads = [row[:2] for row in ROWS]
    return RaggedDataset(
        {
            "input_ids": flat(ROWS, "uint16"),
            "other": flat(heads, "int8"),
            "label": LABELS,
        }
    )


DATASETS = {
    "ragged": ragged,
    "samples": Samples,
    "subset": lambda: Subset(ragged(), range(39, -1, -1)),
    "subset of samples": lambda: Subset(Samples(), range(39, -1, -1)),
    "select": lambda: ragged().select(range(39, -1, -1)),
    "concat": lambda: ConcatDataset([Subset(ragged(), range(28)), Samples()]),
    "split": lambda: random_split(ragged(), [30, 10], torch.Generator().manual_seed(1))[0],
}


def loaded(dataset, **options):
    return list(DataLoader(dataset, batch_size=7, collate_fn=COLLATE, **options))


def by_hand(dataset):
    """Collate the same batches here, from rows that are made one by one."""
    batches = range(0, len(dataset), 7)
    return [
        COLLATE([dataset[i] for i in range(begin, min(begin + 7, len(dataset)))])
        for begin in batches
    ]


@pytest.mark.parametrize("kind", DATASETS)
def test_a_data_loader_gives_the_batches_of_its_samples(kind):
    dataset = DATASETS[kind]()
    assert same(loaded(dataset), by_hand(dataset))


@pytest.mark.parametrize("kind", DATASETS)
def test_workers_that_are_forked_give_the_same_batches(kind):
    dataset = DATASETS[kind]()
    assert same(loaded(dataset, num_workers=2, multiprocessing_context="fork"), by_hand(dataset))


@pytest.mark.parametrize(("method", "kind"), [("spawn", "ragged"), ("forkserver", "concat")])
def test_workers_that_are_started_anew_give_the_same_batches(method, kind):
    dataset = DATASETS[kind]()
    assert same(loaded(dataset, num_workers=2, multiprocessing_context=method), by_hand(dataset))


def test_a_subset_is_read_natively(monkeypatch):
    monkeypatch.setattr(RaggedDataset, "__getitem__", None)
    dataset = Subset(Subset(ragged(), range(10, 30)), [3, 1])
    (batch,) = DataLoader(dataset, batch_size=2, collate_fn=PadCollator(ids_field()))
    assert batch["label"].tolist() == [13, 11]


def test_persistent_workers_give_every_epoch():
    loader = DataLoader(
        ragged(),
        batch_size=7,
        collate_fn=COLLATE,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    expected = by_hand(ragged())
    for _ in range(3):
        assert same(list(loader), expected)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_pinning_without_a_device_only_warns(num_workers):
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator"):
        batches = loaded(ragged(), pin_memory=True, num_workers=num_workers)
    assert same(batches, by_hand(ragged()))
    assert {type(batch) for batch in batches} == {dict}


def test_batches_of_a_sampler_are_loaded():
    ds = ragged()
    sampler = BucketBatchSampler(ds.lengths, token_budget=32, buckets=3, seed=1)
    loader = DataLoader(ds, batch_sampler=sampler, collate_fn=COLLATE)
    batches = list(loader)
    assert len(batches) == len(sampler)
    assert sorted(label for batch in batches for label in batch["label"].tolist()) == list(
        range(40)
    )


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_a_worker_sends_the_outputs_of_a_batch_in_one_block(strategy):
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        batches = loaded(ragged(), num_workers=1, multiprocessing_context="fork")
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    assert same(batches, by_hand(ragged()))
    blocks = set()
    for batch in batches:
        outputs = [value for key, value in batch.items() if key != "other"]
        assert all(output.is_shared() for output in outputs)
        assert all(output.data_ptr() % 64 == 0 for output in outputs)
        (block,) = {output.untyped_storage().data_ptr() for output in outputs}
        blocks.add(block)
    assert len(blocks) == len(batches)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_of_no_sample_is_loaded(num_workers):
    loader = DataLoader(
        ragged(), batch_sampler=[[0], [], [1]], collate_fn=COLLATE, num_workers=num_workers
    )
    batches = list(loader)
    assert [len(batch["input_ids"]) for batch in batches] == [1, 0, 1]
    assert batches[1]["other"] == []


@pytest.mark.parametrize("num_workers", [0, 1])
def test_errors_of_a_batch_reach_the_loop(num_workers):
    ds = RaggedDataset({"input_ids": (np.array([1, 300]), [0, 1, 2])})
    collate = PadCollator(ids_field(dtype=torch.uint8))
    loader = DataLoader(ds, batch_size=1, collate_fn=collate, num_workers=num_workers)
    iterator = iter(loader)
    assert next(iterator)["input_ids"].tolist() == [[1]]
    message = "`input_ids`, row 1: holds 300, which does not fit into uint8, the type of"
    with pytest.raises(ValueError, match=message):
        next(iterator)
    assert next(iterator, None) is None


@pytest.mark.parametrize("in_worker", [False, True])
def test_the_default_device_of_torch_changes_nothing(in_worker, monkeypatch):
    if in_worker:
        monkeypatch.setattr(bound, "get_worker_info", lambda: True)
    ds = ragged()
    expected = by_hand(ds)[0]
    with torch.device("meta"):
        collate = PadCollator({"input_ids": Field(-1), "x": Field(0.5)})
        batch = COLLATE(ds[:7])
        floats = collate([{"input_ids": [1], "x": [0.25]}, {"input_ids": [1, 2], "x": []}])
    assert same(batch, expected)
    assert floats["x"].tolist() == [[0.25], [0.5]]


def test_a_pickled_collator_is_small_and_begins_anew():
    ds = ragged()
    collate = PadCollator(ids_field(-1, max_length=2))
    collate([ds[i] for i in range(len(ds))])
    truncated = collate.truncated
    expected = collate(ds[:])
    assert truncated["input_ids"]["samples"] > 0
    pickled = pickle.dumps(collate)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert again.truncated == {}
    assert same(again(ds[:]), expected)
    assert again.truncated == truncated


@pytest.mark.parametrize("index", [40, -41, 2**70, -(2**70)])
def test_an_index_outside_the_data_set_is_named(index):
    loader = DataLoader(ragged(), batch_sampler=[[0, index]], collate_fn=COLLATE)
    message = f"`indices[1]` must be in [-40, 40), but is {index}."
    with pytest.raises(IndexError, match=whole(message)):
        list(loader)


@pytest.mark.parametrize("index", [1.5, "a", None, [2**70]])
def test_an_index_that_is_no_integer_is_named(index):
    ds = ragged()
    message = f"`indices[1]` must be an integer, but is {index!r}."
    with pytest.raises(TypeError, match=whole(message)):
        COLLATE(ds.__getitems__([0, index]))


def test_an_error_of_an_index_itself_stays():
    class Bad:
        def __index__(self):
            msg = "mine"
            raise LookupError(msg)

    with pytest.raises(LookupError, match="mine"):
        COLLATE(ragged().__getitems__([0, Bad()]))


def test_a_single_index_gives_a_single_row():
    """Some callers of ``__getitems__`` pass one index."""
    row = ragged().__getitems__(3)
    assert row["input_ids"].tolist() == ROWS[3]
