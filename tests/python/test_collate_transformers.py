"""Batches bit for bit as those of Hugging Face's collators."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from collate_support import same
from evenstride import Field, PadCollator, RaggedDataset

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

PAD = 3
SIDES = ["left", "right"]
MULTIPLES = [None, 1, 8]


@pytest.fixture(params=SIDES)
def tokenizer(request):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": PAD})),
        padding_side=request.param,
    )
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    return tokenizer


def some_rows(*, keys=("input_ids",), others=(), seed=0):
    """Make samples as lists: tokens that are never padding, and other fields of other lengths."""
    random = np.random.default_rng(seed)
    rows = []
    for size in (5, 1, 13, 8, 2):
        row = {key: random.integers(PAD + 1, 1000, size).tolist() for key in keys}
        row["attention_mask"] = random.integers(0, 2, size).tolist()
        for key in others:
            row[key] = random.integers(4, 1000, random.integers(1, 20)).tolist()
        rows.append(row)
    return rows


def collators(tokenizer, multiple, fields):
    return PadCollator(
        fields, padding_side=tokenizer.padding_side, pad_to_multiple_of=multiple or 1
    )


def check(rows, ours, theirs):
    """Compare the batch of samples, and of a data set of them, with that of another collator."""
    expected = dict(theirs(copy.deepcopy(rows)))
    assert same(ours(rows), expected)
    assert same(ours(RaggedDataset.from_lists(rows)[:]), expected)
    assert all(tensor.dtype == torch.int64 for tensor in expected.values())


@pytest.mark.parametrize("multiple", MULTIPLES)
def test_padding_is_that_of_data_collator_with_padding(tokenizer, multiple):
    ours = collators(tokenizer, multiple, {"input_ids": Field(PAD), "token_type_ids": Field(0)})
    theirs = transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)
    check(some_rows(keys=("input_ids", "token_type_ids")), ours, theirs)


@pytest.mark.parametrize("multiple", MULTIPLES)
def test_a_missing_mask_is_that_of_data_collator_with_padding(tokenizer, multiple):
    rows = [{"input_ids": row["input_ids"]} for row in some_rows()]
    ours = collators(tokenizer, multiple, {"input_ids": Field(PAD)})
    check(rows, ours, transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple))


@pytest.mark.parametrize("multiple", MULTIPLES)
def test_labels_are_those_of_data_collator_for_token_classification(tokenizer, multiple):
    fields = {"input_ids": Field(PAD), "labels": Field(-100)}
    theirs = transformers.DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=multiple)
    check(some_rows(keys=("input_ids", "labels")), collators(tokenizer, multiple, fields), theirs)


@pytest.mark.parametrize("multiple", MULTIPLES)
def test_labels_are_those_of_data_collator_for_seq2seq(tokenizer, multiple):
    fields = {"input_ids": Field(PAD), "labels": Field(-100)}
    theirs = transformers.DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)
    check(some_rows(others=("labels",)), collators(tokenizer, multiple, fields), theirs)


@pytest.mark.parametrize("multiple", MULTIPLES)
def test_labels_after_a_prompt_are_those_of_data_collator_for_seq2seq(tokenizer, multiple):
    """There the labels of each sample are masked by hand beforehand."""
    rows = some_rows()
    masked = []
    for row, prompt in zip(rows, (2, 0, 13, 20, 1), strict=True):
        row["prompt_length"] = prompt
        labels = [-100] * min(prompt, len(row["input_ids"])) + row["input_ids"][prompt:]
        masked.append({**row, "labels": labels})
    theirs = transformers.DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)
    labels = Field(-100, source="input_ids", prompt="prompt_length")
    ours = collators(tokenizer, multiple, {"input_ids": Field(PAD), "labels": labels})
    check(rows, ours, lambda _: theirs(masked))


@pytest.mark.parametrize("multiple", MULTIPLES)
def test_labels_are_those_of_data_collator_for_language_modeling(tokenizer, multiple):
    fields = {"input_ids": Field(PAD), "labels": Field(-100, source="input_ids")}
    theirs = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm=False, pad_to_multiple_of=multiple
    )
    check(some_rows(), collators(tokenizer, multiple, fields), theirs)


def test_a_label_is_that_of_data_collator_with_padding(tokenizer):
    rows = [row | {"label": i} for i, row in enumerate(some_rows())]
    expected = dict(transformers.DataCollatorWithPadding(tokenizer)(rows))
    fields = {"input_ids": Field(PAD), "labels": Field(source="label")}
    assert same(collators(tokenizer, 1, fields)(rows), expected)


def test_encodings_of_a_tokenizer_are_samples(tokenizer):
    rows = [transformers.BatchEncoding(row) for row in some_rows()]
    expected = dict(transformers.DataCollatorWithPadding(tokenizer)(rows))
    assert same(collators(tokenizer, 1, {"input_ids": Field(PAD)})(rows), expected)


def test_rows_of_a_hugging_face_data_set_are_samples(tokenizer):
    datasets = pytest.importorskip("datasets")
    rows = some_rows()
    theirs = datasets.Dataset.from_list(rows)
    collate = collators(tokenizer, 1, {"input_ids": Field(PAD)})
    expected = collate(rows)
    for ds in (theirs, theirs.with_format("numpy"), theirs.with_format("torch")):
        assert same(collate(ds), expected)
        assert same(collate(ds.__getitems__(list(range(len(rows))))), expected)
    assert same(collate(RaggedDataset.from_arrow(theirs)[:]), expected)
