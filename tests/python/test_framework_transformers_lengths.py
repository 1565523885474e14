"""Where a Trainer with buckets has the lengths of its samples from."""

from __future__ import annotations

import re

import numpy as np
import pytest
from torch.utils.data import IterableDataset, Subset

import evenstride as es
from framework_job import NUM_SAMPLES, Model, new_collator, new_dataset, new_lengths

pytest.importorskip("datasets")
pytest.importorskip("transformers")

import transformers

from trainer_support import Rows, arguments, hugging_face, sampler_of, trainer_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_lengths_come_from_any_map_style_data_set():
    lengths = new_lengths().tolist()
    for dataset in (new_dataset(), hugging_face(), Rows()):
        assert sampler_of(dataset=dataset).lengths.tolist() == lengths


def test_a_data_set_is_read_once():
    dataset = Rows()
    trainer = trainer_of(dataset=dataset)
    for _ in range(2):
        assert (
            trainer.get_train_dataloader().batch_sampler.lengths.tolist() == new_lengths().tolist()
        )
    assert dataset.asked == list(range(NUM_SAMPLES))
    trainer.data_collator = es.PadCollator({"input_ids": es.Field(0)}, max_length=7)
    cut = trainer.get_train_dataloader().batch_sampler.lengths
    assert cut.tolist() == new_lengths().clip(max=7).tolist()
    assert len(dataset.asked) == NUM_SAMPLES
    dataset.rows.append(dataset.rows[0])
    assert len(trainer.get_train_dataloader().batch_sampler.lengths) == NUM_SAMPLES + 1
    trainer.train_dataset = Rows()
    assert len(trainer.get_train_dataloader().batch_sampler.lengths) == NUM_SAMPLES


def test_lengths_are_what_a_function_says_of_the_data_set():
    asked = []

    def lengths(dataset):
        asked.append(dataset)
        return dataset["tokens"]

    dataset = hugging_face(tokens=[32] * NUM_SAMPLES)
    trainer = trainer_of(dataset=dataset, buckets={"lengths": lengths})
    for _ in range(2):
        sampler = trainer.get_train_dataloader().batch_sampler
        assert sampler.lengths.tolist() == [32] * NUM_SAMPLES
    assert asked == [dataset]


def test_lengths_of_a_shuffled_data_set_are_those_of_its_rows():
    dataset = hugging_face().shuffle(seed=3).select(range(20))
    expected = [len(row["input_ids"]) for row in dataset]
    assert sampler_of(dataset=dataset).lengths.tolist() == expected


def test_a_subset_has_the_rows_of_its_data_set():
    subset = Subset(new_dataset(), [7, 3, 80])
    loader = trainer_of(dataset=subset).get_train_dataloader()
    assert loader.batch_sampler.lengths.tolist() == new_lengths()[[7, 3, 80]].tolist()
    seen = [row[0].item() for batch in loader for row in batch["input_ids"]]
    assert sorted(seen) == [3, 7, 80]


def test_a_column_of_lengths_wins_though_the_model_does_not_take_it():
    lengths = np.arange(NUM_SAMPLES) % 32 + 1
    for column in ("length", "tokens"):
        dataset = hugging_face(**{column: lengths.tolist()})
        sampler = sampler_of(dataset=dataset, length_column_name=column)
        assert sampler.lengths.tolist() == lengths.tolist()


def test_rows_that_are_made_on_the_fly_are_read():
    def shortened(rows):
        return {name: [row[:2] for row in values] for name, values in rows.items()}

    dataset = hugging_face().with_transform(shortened)
    assert sampler_of(dataset=dataset).lengths.tolist() == new_lengths().clip(max=2).tolist()


def test_lengths_are_those_that_the_collator_leaves():
    fields = {"input_ids": es.Field(0), "labels": es.Field(-100)}
    collate = es.PadCollator(fields, max_length=7)
    for dataset in (new_dataset(), hugging_face(), Rows()):
        sampler = sampler_of(dataset=dataset, collate=collate)
        assert sampler.lengths.tolist() == new_lengths().clip(max=7).tolist()


def test_no_object_of_python_is_made_for_a_row_of_arrow(monkeypatch):
    dataset = hugging_face()
    monkeypatch.setattr(type(dataset), "__getitem__", None)
    monkeypatch.setattr(type(dataset), "__iter__", None)
    assert sampler_of(dataset=dataset).lengths.tolist() == new_lengths().tolist()


def test_what_the_page_says_of_group_by_length():
    is_new = "train_sampling_strategy" in transformers.TrainingArguments.__dataclass_fields__
    strategy = (
        {"train_sampling_strategy": "group_by_length"} if is_new else {"group_by_length": True}
    )
    dataset = hugging_face(length=[1] * NUM_SAMPLES)
    options = {"train_dataset": dataset, "data_collator": new_collator()}
    theirs = transformers.Trainer(Model(), arguments(**strategy), **options)
    sampler = theirs.get_train_dataloader().batch_sampler.sampler
    assert list(sampler.lengths) == new_lengths().tolist()
    predicted = theirs.predict(dataset).label_ids[:, 0].tolist()
    assert sorted(predicted) == list(range(NUM_SAMPLES)) != predicted
    # Left in the arguments, it changes nothing of training.
    assert list(sampler_of(dataset=dataset, **strategy)) == list(sampler_of(dataset=dataset))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(new_dataset()[:])


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        (
            Stream,
            TypeError,
            (
                "`train_dataset` must be a map-style data set with a length, whose samples can be "
                "read in any order, but is of type Stream."
            ),
        ),
        (
            lambda: hugging_face().to_iterable_dataset(),
            TypeError,
            (
                "`train_dataset` must be a map-style data set with a length, whose samples can be "
                "read in any order, but is of type IterableDataset."
            ),
        ),
        (
            lambda: [{"input_ids": [1]}, {"ids": [1]}],
            TypeError,
            (
                "`train_dataset[1]` must be a mapping with 'input_ids', of which the length is "
                "taken, but has only 'ids'; pass `lengths=` to give them."
            ),
        ),
        (
            lambda: [[1, 2]],
            TypeError,
            (
                "`train_dataset[0]` must be a mapping with 'input_ids', of which the length is "
                "taken, but is of type list; pass `lengths=` to give them."
            ),
        ),
    ],
)
def test_says_what_has_no_lengths(dataset, error, message):
    trainer = trainer_of(dataset=dataset(), max_steps=5)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        trainer.get_train_dataloader()
