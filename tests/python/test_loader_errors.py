"""What a loader refuses, and how it says so."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Subset

import evenstride as es
from loader_support import collator, loader_of, ragged, rows, sampler_of

DATASET = ragged(30)
SAMPLER = sampler_of(DATASET)


class Endless(IterableDataset):
    def __len__(self):
        return 30

    def __iter__(self):
        return iter([])


def sampler(lengths=None, **options):
    lengths = DATASET.lengths if lengths is None else lengths
    return es.BucketBatchSampler(lengths, token_budget=64, buckets=1, **options)


def cut(length):
    return np.minimum(DATASET.lengths, length)


LENGTH = int(DATASET.lengths[7])
FIRST_CUT = int((cut(6) == 6).argmax())


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"num_workers": 0}, ValueError, "`num_workers` must be in [1, 2**63), but is 0."),
        ({"num_workers": 1.5}, TypeError, "`num_workers` must be an integer, but is 1.5."),
        ({"num_workers": 257}, ValueError, "`num_workers` must be in [1, 256], but is 257."),
        ({"depth": 0}, ValueError, "`depth` must be in [1, 2**63), but is 0."),
        ({"depth": 2**21}, ValueError, f"`depth` must be in [1, {2**20}], but is {2**21}."),
        ({"depth": "8"}, TypeError, "`depth` must be an integer, but is '8'."),
        ({"targets": 0}, ValueError, "`targets` must be in [1, 2**63), but is 0."),
        ({"targets": 1025}, ValueError, "`targets` must be in [1, 1024], but is 1025."),
        ({"targets": "cpu"}, TypeError, "`targets` must be an integer, but is 'cpu'."),
        ({"targets": []}, ValueError, "`targets` must have 1 to 1024 devices, but has 0."),
        (
            {"targets": ["cpu", "nowhere"]},
            ValueError,
            "`targets[1]` must be a device that torch knows, but is 'nowhere'.",
        ),
        (
            {"targets": ["cpu"], "device": "cpu"},
            TypeError,
            "`device` must be left out where `targets` are devices.",
        ),
        ({"device": 1.5}, TypeError, "`device` must be a device that torch knows, but is 1.5."),
        ({"in_order": 1}, TypeError, "`in_order` must be True or False, but is 1."),
        ({"pin_memory": "no"}, TypeError, "`pin_memory` must be True or False, but is 'no'."),
        (
            {"sampler": range(3)},
            TypeError,
            "`sampler` must be a BucketBatchSampler, but is a range.",
        ),
        ({"collate": 3}, TypeError, "`collate` must be callable, but is a int."),
        (
            {"dataset": iter([])},
            TypeError,
            "`dataset` must be a map-style data set, with a length, but is a list_iterator.",
        ),
        (
            {"dataset": Endless()},
            TypeError,
            "`dataset` must be a map-style data set, with a length, but is a Endless.",
        ),
        (
            {"sampler": sampler(DATASET.lengths[:-1])},
            ValueError,
            "`sampler` must be made of as many lengths as `dataset` has samples, 30, but has 29.",
        ),
        (
            {"dataset": [3] * 31},
            ValueError,
            "`sampler` must be made of as many lengths as `dataset` has samples, 31, but has 30.",
        ),
        (
            {"sampler": sampler(pad_to_multiple_of=8)},
            ValueError,
            "`pad_to_multiple_of` must be the same in `sampler` and `collate`, but is 8 and 1.",
        ),
        (
            {"collate": collator(pad_to_multiple_of=4), "dataset": [{"input_ids": [1]}] * 30},
            ValueError,
            "`pad_to_multiple_of` must be the same in `sampler` and `collate`, but is 1 and 4.",
        ),
        (
            {"sampler": sampler(DATASET.lengths + (np.arange(30) == 7))},
            ValueError,
            (
                "`lengths[7]` of `sampler` must be the tokens of sample 7 of `dataset`, "
                f"{LENGTH}, but is {LENGTH + 1}."
            ),
        ),
        (
            {"collate": collator(max_length=5), "sampler": sampler(cut(6))},
            ValueError,
            (
                f"`lengths[{FIRST_CUT}]` of `sampler` must be the tokens of sample {FIRST_CUT} of "
                "`dataset`, 5 once `collate` has cut it, but is 6."
            ),
        ),
        (
            {"collate": es.PadCollator({"row": es.Field()}, attention_mask=False)},
            ValueError,
            "A field of ['row'] must be ragged, so that there are lengths, but none is.",
        ),
        (
            {"collate": es.PadCollator({"text": es.Field()})},
            ValueError,
            (
                "`fields['text']` must be made of a field of the data, one of "
                "['input_ids', 'row'], but is made of 'text'."
            ),
        ),
    ],
)
def test_says_what_is_wrong(options, kind, message):
    arguments = {"dataset": DATASET, "sampler": SAMPLER, "collate": collator(), **options}
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        es.Loader(**arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs no CUDA")
def test_says_that_a_device_is_not_there():
    message = (
        "`device` must be a device that this torch has, but is cuda:1. It is built without CUDA."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        loader_of(device="cuda:1")


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({"max_length": 5}, cut(5)),
        ({"max_length": 5}, cut(5).astype(np.uint64)),
        ({}, DATASET.lengths.tolist()),
        ({"lengths": True, "position_ids": True}, DATASET.lengths),
    ],
)
def test_takes_what_agrees(options, lengths):
    loader = es.Loader(DATASET, sampler(lengths), collator(**options))
    assert sum(len(batch["row"]) for batch in loader) == 30


def test_samples_that_the_sampler_leaves_out_may_be_of_any_length():
    lengths = DATASET.lengths.copy()
    lengths[3] = 10**9
    with pytest.warns(UserWarning, match="leaves out 1 sample"):
        leaves_out = sampler(lengths, too_long="drop")
    loader = es.Loader(DATASET, leaves_out, collator())
    taken = [row for batch in loader for row in rows(batch)]
    assert sorted(taken) == [row for row in range(30) if row != 3]


def test_rows_of_any_dataset_must_not_be_longer_than_the_collator_leaves_them():
    dataset = [{"input_ids": [1, 2, 3, 4, 5]}, {"input_ids": [1, 2]}]
    message = "`max_length` of `collate` must be at least the longest of `sampler`'s lengths, 5, "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}but is 4.$"):
        es.Loader(dataset, sampler([5, 2]), collator(max_length=4))
    loader = es.Loader(dataset, sampler([4, 2]), collator(max_length=4))
    assert sum(len(batch["input_ids"]) for batch in loader) == 2


@pytest.mark.parametrize(
    ("fields", "options", "name", "most"),
    [
        ({"x": es.Field(max_length=4)}, {}, "fields['x'].max_length", 4),
        ({"x": es.Field(max_length=4)}, {"max_length": 2}, "fields['x'].max_length", 4),
        ({"x": es.Field(max_length=2)}, {"max_length": 4}, "fields['x'].max_length", 2),
        ({"x": es.Field(start=3)}, {"max_length": 4}, "max_length", 4),
        (
            {"x": es.Field(max_length=3), "y": es.Field(max_length=4)},
            {},
            "fields['y'].max_length",
            4,
        ),
        (
            {"next": es.Field(source="x", start=1), "x": es.Field(max_length=4)},
            {},
            "fields['x'].max_length",
            4,
        ),
        (
            {"a": es.Field(source="x", max_length=4), "b": es.Field(source="x")},
            {},
            "fields['a'].max_length",
            4,
        ),
    ],
)
def test_the_cuts_of_fields_are_those_of_the_collator(fields, options, name, most):
    dataset = [{"x": [1, 2, 3, 4, 5], "y": [1] * 5}] * 2
    collate = es.PadCollator(fields, **options)
    message = f"`{name}` of `collate` must be at least the longest of `sampler`'s lengths, "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}{most + 1}, but is {most}.$"):
        es.Loader(dataset, sampler([most + 1, 1]), collate)
    es.Loader(dataset, sampler([most, 1]), collate)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"x": es.Field(max_length=9)}, {"max_length": 4}),
        ({"x": es.Field(), "y": es.Field(max_length=4)}, {}),
        ({"x": es.Field(start=4)}, {}),
    ],
)
def test_rows_that_no_field_surely_cuts_may_be_of_any_length(fields, options):
    dataset = [{"x": [1, 2, 3, 4, 5], "y": [1] * 5}] * 2
    loader = es.Loader(dataset, sampler([5, 5]), es.PadCollator(fields, **options))
    assert sum(len(batch["x"]) for batch in loader) == 2


def test_a_function_may_make_rows_of_other_lengths_than_a_ragged_dataset_has():
    loader = es.Loader(DATASET, sampler(DATASET.lengths + 3), len)
    assert sum(loader) == 30
    message = "`sampler` must be made of as many lengths as `dataset` has samples, 30, but has 29."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.Loader(DATASET, sampler(DATASET.lengths[1:]), len)


def test_a_subset_of_a_class_that_changes_its_rows_keeps_their_numbers():
    class Numbered(es.RaggedDataset):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "number": torch.tensor(index)}

    whole = Numbered.from_lists([[1], [2], [3]])
    loader = es.Loader(Subset(whole, [2, 0]), sampler([1, 1]), collator())
    assert sorted(number for batch in loader for number in batch["number"].tolist()) == [0, 2]


def test_a_dataset_that_changes_its_rows_has_lengths_of_its_own():
    class Ended(es.RaggedDataset):
        def __getitem__(self, index):
            row = super().__getitem__(index)
            ids = row["input_ids"]
            return {"input_ids": torch.cat([ids, ids.new_ones(1)])}

    dataset = Ended({"input_ids": (np.arange(6), np.array([0, 4, 6]))})
    loader = es.Loader(dataset, sampler(dataset.lengths + 1), collator())
    assert [batch["input_ids"].shape for batch in loader] == [(2, 5)]


def test_counts_what_it_cuts():
    collate = collator(max_length=5)
    loader = es.Loader(DATASET, sampler(cut(5)), collate)
    for _ in loader:
        pass
    is_cut = DATASET.lengths > 5
    assert collate.truncated == {
        "input_ids": {
            "samples": is_cut.sum(),
            "tokens": (DATASET.lengths[is_cut] - 5).sum(),
        }
    }
